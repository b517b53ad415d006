//! What sessions share, and what each has alone.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::{
    super::{
        Capacity, ServerEntry,
        lifecycle::StartReason,
        start_turns::{START_TURN, STARTS},
        testing::{call, mute},
    },
    *,
};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::Error;

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

/// As if it had been listed.
fn listed(backend: &Backend, tool: &str) {
    backend.lists.accept(listed_tool(tool));
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
