//! What sessions share, and what each has alone.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::{
        Capacity, ServerEntry,
        lifecycle::StartReason,
        list_announcements::ListKinds,
        start_turns::{START_TURN, STARTS},
        testing::{call, mute},
    },
    *,
};
use crate::route::catalog::ListedItems;
use unhang_core::{config::LIST_ANNOUNCEMENT_PAUSE, fault::FaultKind, list::ServerList};
use unhang_upstream::client::{Error, ServerListener};

const SOON: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(30);

/// A server that is everybody's, and one of which each session has its own; neither ever answers.
fn servers() -> (impl Sized, Servers) {
    let (listener, entry) = mute();
    let entries = [("all", Scope::Everybody), ("own", Scope::Session)].map(|(name, scope)| {
        let mut entry = ServerEntry { scope, prefix: name.to_owned(), ..entry.clone() };
        entry.spec.name = name.to_owned();
        entry
    });
    (listener, Servers::start(Vec::from(entries).into()))
}

fn listed_tool(tool: &str) -> ListedItems {
    let tool = RawValue::from_string(format!(r#"{{"name":"{tool}"}}"#)).expect("JSON");
    ListedItems { tools: vec![tool], ..ListedItems::default() }
}

/// As if it had announced this and had been listed then, with the same items as before.
fn announced(backend: &Backend, method: &str) {
    backend.listener.notified(method, None);
    backend.lists.accept(ListedItems::clone(&backend.offered()), backend.listener.take_announced());
}

/// The lists of which a session hears since it looked last.
fn hears_of(known: &mut watch::Receiver<KnownServers>, before: &mut KnownServers) -> Vec<ServerList> {
    let now = known.borrow_and_update().clone();
    let before = std::mem::replace(before, now.clone());
    let lists = [ServerList::Tools, ServerList::Prompts, ServerList::Resources];
    lists.into_iter().filter(|list| now.announced.are_news_of(*list, &before.announced)).collect()
}

/// As if it had been listed.
fn listed(backend: &Backend, tool: &str) {
    backend.lists.accept(listed_tool(tool), ListKinds::default());
}

fn tools(servers: &Servers) -> Vec<String> {
    let known = servers.known().borrow().clone();
    known.catalog.tool_names().map(str::to_owned).collect()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let seen = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, seen).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

#[tokio::test]
async fn each_session_has_its_own_and_all_have_the_others() {
    let (_mute, servers) = servers();
    let [one, other] = [None, None].map(|owner| servers.for_session(owner));
    let same = |here: &Servers, there: &Servers, server_index| {
        Arc::ptr_eq(
            &here.at(server_index).expect("it is there"),
            &there.at(server_index).expect("it is there"),
        )
    };
    assert!(same(&one, &other, 0) && same(&one, &servers, 0));
    assert!(!same(&one, &other, 1) && same(&one, &one.clone(), 1), "one for each session, and only one");
    assert!(servers.at(1).is_none(), "there is none that is nobody's");
    let model = servers.core.roster().at(1).expect("it is there");
    assert!(!Arc::ptr_eq(&model, &one.at(1).expect("it is there")), "what is listed is asked nothing else");
    let windows = servers.for_windows();
    assert!(same(&windows, &servers, 0) && windows.at(1).is_none());
    assert_eq!(windows.known().borrow().timeouts.keys().copied().collect::<Vec<_>>(), [0]);
    assert!(windows.for_session(None).at(1).is_none(), "however they come");
    servers.close().await;
    assert!(servers.for_session(None).at(1).is_none(), "nothing comes after the end");
}

#[tokio::test]
async fn an_instance_is_gone_when_its_session_is() {
    let (_mute, servers) = servers();
    let instances = || servers.core.roster().instances.len();
    let (one, other) = (servers.for_session(None), servers.for_session(None));
    let theirs = one.at(1).expect("it is there");
    let asked = tokio::spawn(one.ask(call("x", LIMIT), None, None));
    assert!(!other.has_instances() && instances() == 1);
    other.at(1).expect("it is there");
    assert_eq!(instances(), 2);
    drop(one);
    assert_eq!(instances(), 2, "somebody is still answered");
    asked.abort();
    until("it has gone", || instances() == 1).await;
    assert!(!theirs.runs(), "and is not started again");
    assert_eq!(servers.core.sessions.all().len(), 1);
    servers.close().await;
}

#[tokio::test]
async fn what_an_instance_offers_is_known_in_its_session_alone() {
    let (_mute, servers) = servers();
    let (one, other) = (servers.for_session(None), servers.for_session(None));
    listed(&servers.core.roster().at(1).expect("it is there"), "first");
    servers.core.publish();
    let theirs = one.at(1).expect("it is there");
    for servers in [&servers, &one, &other] {
        assert_eq!(tools(servers), ["own__first"], "what is known of all");
    }
    let mut hears = other.known();
    hears.mark_unchanged();
    listed(&theirs, "second");
    one.session_servers.as_ref().expect("a session").publish();
    assert_eq!((tools(&one), tools(&other)), (vec!["own__second".to_owned()], vec!["own__first".to_owned()]));
    assert_eq!(tools(&servers.for_session(None)), ["own__first"], "and so for who comes later");
    assert!(!hears.has_changed().expect("it is there"), "nobody else is woken");
    servers.close().await;
}

#[tokio::test]
async fn what_a_server_announces_is_told_although_its_list_is_the_same() {
    let (_mute, servers) = servers();
    let (session, windows) = (servers.for_session(None), servers.for_windows());
    let shared = servers.core.roster().at(0).expect("it is there");
    listed(&shared, "a");
    servers.core.publish();
    let mut known = [servers.known(), session.known(), windows.known()];
    let mut before = known.each_mut().map(|known| known.borrow_and_update().clone());
    let mut hear = || {
        let pairs = known.iter_mut().zip(&mut before);
        let heard: Vec<_> = pairs.map(|(known, before)| hears_of(known, before)).collect();
        assert!(heard.iter().all(|one| *one == heard[0]), "{heard:?}");
        heard[0].clone()
    };
    shared.listener.notified("notifications/prompts/list_changed", None);
    servers.core.publish();
    assert_eq!(hear(), [], "its lists have not come yet");
    announced(&shared, "notifications/prompts/list_changed");
    servers.core.publish();
    assert_eq!(hear(), [ServerList::Prompts]);
    listed(&shared, "a");
    servers.core.publish();
    assert_eq!(hear(), [], "it was only listed again");
    servers.close().await;
}

#[tokio::test]
async fn what_an_instance_announces_is_told_to_its_session_alone() {
    let (_mute, servers) = servers();
    let sessions = [servers.for_session(None), servers.for_session(None)];
    let mut known = sessions.each_ref().map(Servers::known);
    let mut before = known.each_mut().map(|known| known.borrow_and_update().clone());
    let instance = sessions[0].at(1).expect("it is there");
    announced(&instance, "notifications/tools/list_changed");
    servers.core.publish_to_sessions();
    assert_eq!(hears_of(&mut known[0], &mut before[0]), [ServerList::Tools], "even if it comes at once");
    announced(&instance, "notifications/resources/list_changed");
    servers.core.publish_to_sessions();
    assert_eq!(hears_of(&mut known[0], &mut before[0]), [ServerList::Resources]);
    assert!(!known[1].has_changed().expect("it is there"), "nobody else is woken");
    servers.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_announcement_that_waits_is_told_when_its_time_has_come() {
    let (_mute, servers) = servers();
    let shared = servers.core.roster().at(0).expect("it is there");
    // As if the task that keeps its lists waited for changes.
    servers.tasks.stop(0);
    let (mut known, begun) = (servers.known(), Instant::now());
    for _ in 0..100 {
        announced(&shared, "notifications/tools/list_changed");
        servers.core.publish();
    }
    let mut before = KnownServers::default();
    assert_eq!(hears_of(&mut known, &mut before), [ServerList::Tools]);
    shared.listener.until_lists_change(None).await;
    let waiting = shared.until_changed(true, || servers.core.publish());
    let told = async {
        known.changed().await.expect("it is there");
        begun.elapsed()
    };
    tokio::select! {
        () = waiting => panic!("nothing was announced since"),
        took = told => assert_eq!(took, LIST_ANNOUNCEMENT_PAUSE),
    }
    assert_eq!(hears_of(&mut known, &mut before), [ServerList::Tools], "once for all of them");
    servers.close().await;
}

#[tokio::test]
async fn who_keeps_its_lists_starts_no_instance() {
    let (_mute, servers) = servers();
    let session = servers.for_session(None);
    let instance = session.at(1).expect("it is there");
    instance.list().await.expect("there is nothing to do");
    // As if it had been started, and had ended.
    instance.connection().demand.started();
    let outcome = timeout(SOON, instance.ready(StartReason::Listing)).await.expect("it is told at once");
    assert!(outcome.is_err() && instance.starts() == 0);
    servers.close().await;
}

#[tokio::test(start_paused = true)]
async fn as_many_instances_start_at_once_as_servers_do() {
    let (_mute, servers) = servers();
    let own = || super::super::ServerRequest { server: 1, ..call("x", LIMIT) };
    let sessions: Vec<Servers> = (0..3 * STARTS).map(|_| servers.for_session(None)).collect();
    // Those that are listed have had their turn.
    sleep(2 * START_TURN).await;
    let asked: Vec<_> = sessions.iter().map(|one| tokio::spawn(one.ask(own(), None, None))).collect();
    let started = || sessions.iter().filter(|one| one.at(1).is_some_and(|one| one.starts() > 0)).count();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(started(), STARTS);
    sleep(START_TURN + SOON).await;
    assert_eq!(started(), 2 * STARTS, "one that hangs keeps no other from its start");
    sleep(START_TURN + SOON).await;
    assert_eq!(started(), sessions.len());
    drop(asked);
    servers.close().await;
}

#[tokio::test]
async fn who_finds_no_seat_is_told_and_starts_nothing() {
    let (_mute, servers) = servers();
    servers.core.bound(Capacity { instances: 1, ..Capacity::default() });
    let (one, other) = (servers.for_session(None), servers.for_session(None));
    let own = |limit| super::super::ServerRequest { server: 1, ..call("x", limit) };
    let asked = tokio::spawn(one.ask(own(LIMIT), None, None));
    until("it is started", || one.at(1).is_some_and(|backend| backend.runs())).await;
    match other.ask(own(SOON), None, None).await.outcome {
        Err(Error::Failure(failure)) => {
            assert_eq!((failure.kind, failure.retry_after.is_some()), (FaultKind::Overloaded, true));
            assert_eq!(failure.method.as_deref(), Some("tools/call"));
            assert!(failure.hint.contains("max-instances = 1 of [gateway]"), "{}", failure.hint);
        }
        other => panic!("there is no instance: {other:?}"),
    }
    assert_eq!(other.at(1).expect("it is there").starts(), 0);
    asked.abort();
    drop(one);
    until("there is an instance", || servers.core.instance_limit.take(None).is_ok()).await;
    servers.close().await;
}
