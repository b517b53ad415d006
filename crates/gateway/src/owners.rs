//! Owners of the tools that another gateway lists for windows. That gateway names the owner with each tool. So the configuration of a
//! server and of single tools holds in every window, whichever window has the servers.
//!
//! Theory of operation. The window that leads writes into `_meta` of each tool, for windows alone, the server of the tool and the server's
//! name for it. A window that follows reads that and takes it out again, so that clients see the same lists in every window.
//!
//! A failure on the way to the leader is told of a server of the configuration, since nobody has configured a leader.
//!
//! Invariants: a server of the configuration is not listened to about owners, whatever it writes.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json, value::RawValue};
use unhang_bridge::Splice;
use unhang_wire::{Json, text_member};

use super::{RequestTimeouts, ServerRequest, verdicts::failure};
use crate::route::catalog::{ListedItems, Owners};
use unhang_core::{fault::FaultKind, units::in_words};
use unhang_upstream::{
    client::{Error, Failure, ServerError},
    http::headers::{CallLimit, LIMIT, WINDOW},
    window_job::{CALL, ORDER},
};

/// The member of `_meta` that names the owner.
const OWNER: &str = "io.github.unhang/owner";

/// The name in errors if nothing says which server a request was for.
const LEADER: &str = "the window that runs the servers";

/// The time that the leader's verdict on a late call may take on its way. The front waits a little longer than that.
const VERDICT_OF_LEADER: Duration = Duration::from_millis(350);

/// The server's name in errors about the gateway as a whole.
pub(super) const NAME: &str = "unhang";

/// The hint about a leader that has ended.
const LOST: &str = "its server may have done it, or may still work on it; if it is not safe to repeat, look for it with \
                    `unhang job list` first; another window starts the servers for the next request";

/// Words the loss of a request for this server that ended with the leader: what happened, and what to do.
pub fn leader_lost(owner: Option<&str>, method: &str) -> (String, &'static str) {
    let what = match owner {
        Some(owner) => format!("`{owner}` has not answered `{method}`"),
        None => format!("`{method}` was not answered"),
    };
    (format!("{what}: the window that ran the servers has ended"), LOST)
}

/// Servers that another gateway has, by their names.
pub type LeaderServers = BTreeMap<String, LeaderServer>;

/// A server that another gateway has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderServer {
    /// The timeouts of requests to the server.
    pub timeouts: RequestTimeouts,
    /// The beginning of the public names of its tools and prompts; `None` if that gateway does not make them.
    pub beginning: Option<String>,
}

/// Returns the items that this server offers, with the owner written into each tool.
pub(super) fn marked(server: &str, offered: &ListedItems) -> ListedItems {
    let tools = offered.tools.iter().map(|raw| mark(server, raw).unwrap_or_else(|| raw.clone())).collect();
    ListedItems { tools, ..offered.clone() }
}

fn mark(server: &str, raw: &RawValue) -> Option<Box<RawValue>> {
    let item = Json::new(raw.get().as_bytes())?;
    let owner = json!([server, text_member(item, "name")?]).to_string();
    let meta = item.member("_meta").unwrap_or(Json::EMPTY);
    let meta = Splice::new(meta).set(OWNER, owner).apply()?.into_owned();
    RawValue::from_string(Splice::new(item).set("_meta", meta).apply()?.into_owned()).ok()
}

/// Returns the tools without the owners, and the owners.
pub(super) fn read(tools: Vec<Box<RawValue>>) -> (Vec<Box<RawValue>>, Owners) {
    let mut owners = Owners::new();
    let tools = tools.into_iter().map(|raw| match unmark(&raw) {
        Some((unmarked, public, owner)) => {
            owners.insert(public, owner);
            unmarked
        }
        None => raw,
    });
    (tools.collect(), owners)
}

fn unmark(raw: &RawValue) -> Option<(Box<RawValue>, String, (String, String))> {
    let item = Json::new(raw.get().as_bytes())?;
    let meta = item.member("_meta")?;
    let owner: [String; 2] = serde_json::from_str(meta.member(OWNER)?.get()).ok()?;
    let rest = Splice::new(meta).remove(OWNER).apply()?;
    let is_empty = serde_json::from_str::<Value>(&rest).ok()?.as_object()?.is_empty();
    let item_without = match is_empty {
        true => Splice::new(item).remove("_meta").apply()?,
        false => Splice::new(item).set("_meta", rest.as_ref()).apply()?,
    };
    let [server, tool] = owner;
    Some((RawValue::from_string(item_without.into_owned()).ok()?, text_member(item, "name")?, (server, tool)))
}

/// Returns the headers of a request to a leader. The leader has no other way to tell sessions of windows apart, to know how long a call is
/// waited for, and to know of which call it has to make a job, and when.
pub(super) fn headers(request: &ServerRequest, call_limit: Option<CallLimit>) -> Vec<(String, String)> {
    let session = request.session.map(|session| (WINDOW.to_owned(), session.told()));
    let limit = call_limit.map(|limit| (LIMIT.to_owned(), limit.told()));
    let call = request.window_call.map(|call| (CALL.to_owned(), call.told()));
    let order = request.job_order.as_ref().map(|order| (ORDER.to_owned(), order.to_string()));
    session.into_iter().chain(limit).chain(call).chain(order).collect()
}

/// Returns how long to wait for a leader's answer to a request with this limit. The leader knows more of why there is no answer, and says
/// it then.
pub(super) fn patience_for(limit: Duration) -> Duration {
    limit.saturating_add(VERDICT_OF_LEADER)
}

/// Rewrites the error of a request to the leader, which has the name `leader` in errors. A failure on the way to the leader is told of the
/// server behind it: the owner of the tool, if that is known.
pub(super) fn told_of_owner(leader: &str, owner: impl FnOnce() -> Option<String>, error: Error) -> Error {
    match error {
        Error::Failure(mut failure) if failure.server == leader => {
            let owner = owner();
            let is_lost = matches!(failure.kind, FaultKind::ServerExited | FaultKind::StartFailed);
            // The leader may say for itself that it ends, or has too much to do.
            if is_lost && !failure.happened.contains(" with HTTP ") {
                let about = failure.method.as_deref().unwrap_or("the request");
                let (happened, hint) = leader_lost(owner.as_deref(), about);
                failure.happened = format!("{happened} {} after it was sent", in_words(failure.elapsed));
                hint.clone_into(&mut failure.hint);
            } else {
                let (own, limits) = (format!("`{leader}`"), format!("of [servers.{leader}.limits] requests"));
                let named = owner.as_ref().map_or_else(|| LEADER.to_owned(), |owner| format!("`{owner}`"));
                failure.happened = failure.happened.replace(&own, &named);
                failure.hint = failure.hint.replace(&limits, "requests of one window");
            }
            failure.server = owner.unwrap_or_else(|| NAME.to_owned());
            Error::Failure(failure)
        }
        // The new leader knows that its predecessor ended with a call, but not which server the call was for.
        Error::Server(told) if is_of_no_server(&told) => {
            let owner = owner();
            let (happened, hint) = leader_lost(owner.as_deref(), &told.method);
            let failure = failure(leader, FaultKind::ServerExited, &told.method, happened, hint);
            Failure { server: owner.unwrap_or_else(|| NAME.to_owned()), ..failure }.into()
        }
        error => error,
    }
}

/// Returns whether this error tells of an end that names no server.
fn is_of_no_server(error: &ServerError) -> bool {
    let told = error.data.as_ref().and_then(|data| Json::new(data.get().as_bytes()));
    let says = |member| told.and_then(|told| text_member(told, member)).is_some_and(|said| said == NAME);
    error.code == i64::from(FaultKind::ServerExited.code()) && says("origin") && says("server")
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::{
        super::{backend::Backend, list_announcements::ListKinds, testing::mute},
        *,
    };
    use unhang_upstream::client::Endpoint;

    #[tokio::test]
    async fn what_goes_wrong_on_the_way_to_a_leader_names_the_server_whose_tool_was_called() {
        let (_mute, mut entry) = mute();
        if let Endpoint::Http(server) = &mut entry.spec.endpoint {
            server.address.socket = Some("/nowhere".into());
        }
        let backend = Backend::new(entry, 0, broadcast::channel(1).0, std::sync::Arc::default(), None);
        let owners = [("one__a".to_owned(), ("one".to_owned(), "a".to_owned()))].into();
        backend.lists.accept(ListedItems { owners, ..ListedItems::default() }, ListKinds::default());
        let told = |kind, tool| {
            let happened = "`srv` did not answer `tools/call` within 3s".to_owned();
            let failure = failure("srv", kind, "tools/call", happened, "wait");
            match backend.told_of_owner(tool, Err::<(), _>(failure.into())) {
                Err(Error::Failure(failure)) => {
                    let Failure { server, happened, .. } = *failure;
                    (server, happened)
                }
                other => panic!("it has failed: {other:?}"),
            }
        };
        for (kind, tool, server, happened) in [
            (FaultKind::Deadline, Some("one__a"), "one", "`one` did not answer `tools/call` within 3s"),
            (
                FaultKind::Deadline,
                None,
                NAME,
                "the window that runs the servers did not answer `tools/call` within 3s",
            ),
            (
                FaultKind::ServerExited,
                Some("one__a"),
                "one",
                "`one` has not answered `tools/call`: the window that ran the servers has ended 0ms \
                 after it was sent",
            ),
            (
                FaultKind::ServerExited,
                Some("another"),
                NAME,
                "`tools/call` was not answered: the window that ran the servers has ended 0ms after it \
                 was sent",
            ),
        ] {
            assert_eq!(told(kind, tool), (server.to_owned(), happened.to_owned()));
        }
    }

    #[test]
    fn what_was_marked_is_read_and_nothing_is_left_of_it() {
        let written = [r#"{"name":"a"}"#, r#"{"name":"b","_meta":{"x":1}}"#, "5"];
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let tools: Vec<Box<RawValue>> = written.map(raw).into();
        let marked = marked("srv", &ListedItems { tools, ..ListedItems::default() }).tools;
        assert!(marked[0].get().contains(OWNER) && marked[2].get() == "5", "{marked:?}");
        let (tools, owners) = read(marked);
        assert_eq!(tools.iter().map(|raw| raw.get()).collect::<Vec<_>>(), written);
        assert_eq!(owners["b"], ("srv".to_owned(), "b".to_owned()));
        assert_eq!(owners.len(), 2);
    }
}
