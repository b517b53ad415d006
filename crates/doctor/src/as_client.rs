//! The examination of a server whose process is not ours. It goes through the public client, as any user of the server would.
//!
//! The client repairs what it can, and from there nobody can see a process, its pipes or its end. Those checks are left out, and the report
//! lists them.
//!
//! Invariants: those of [`super::stdio`]. Every request goes through [`Client`].

use std::{pin::pin, time::Duration};

use serde_json::Map;
use tokio::time::{Instant, sleep, timeout};

use super::{
    lists::tool,
    observations::{
        DiscoverSeen, HandshakeSeen, ListFault, Observations, ObservedCall, ObservedList, ServerTrouble,
        SlowestAnswer, StartResult,
    },
    session::{CALLS, IDLE, LONG, QUICK, refusal},
};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::{self, Client, ClientSpec, Endpoint, Error, RequestOptions};

const LISTS: [(&str, client::ServerList); 4] = [
    ("tools/list", client::ServerList::Tools),
    ("resources/list", client::ServerList::Resources),
    ("resources/templates/list", client::ServerList::ResourceTemplates),
    ("prompts/list", client::ServerList::Prompts),
];

/// Two answers within this time count as simultaneous: the client cannot tell which came first.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Examines everything that a client can see.
pub(super) async fn observe(spec: &ClientSpec, seen: &mut Observations) {
    let since = Instant::now();
    let client = Client::start(spec.clone());
    match client.ready().await {
        Ok(session) => {
            seen.cold = Some(StartResult::Answered(since.elapsed()));
            if session.revision.is_stateless() {
                seen.modern = Some(DiscoverSeen::Spoken { is_locked: false });
            } else {
                seen.handshake = Some(HandshakeSeen::Agreed(session.revision.name().to_owned()));
            }
            if let Err((what, error)) = attend(&client, seen).await {
                trouble(what, error, &spec.endpoint, seen);
            }
        }
        Err(Error::Server(error)) => {
            seen.handshake = Some(HandshakeSeen::Refused(error.code, error.message.clone()));
        }
        Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline => {
            seen.cold = Some(StartResult::Silent(since.elapsed()));
        }
        Err(error) if matches!(spec.endpoint, Endpoint::Http(_)) => {
            seen.cold = Some(StartResult::Unreachable(error.to_string()));
        }
        Err(error) => seen.cold = Some(StartResult::Failed(error.to_string())),
    }
    client.dispose().await;
}

async fn attend(client: &Client, seen: &mut Observations) -> Result<(), (String, Error)> {
    for (method, list) in LISTS {
        self::list(client, method, list, seen).await?;
    }
    ping(client, seen).await.map_err(|error| ("`ping`".to_owned(), error))?;
    let safe: Vec<String> =
        seen.tools.iter().filter(|tool| tool.is_safe).take(CALLS).map(|tool| tool.name.clone()).collect();
    for tool in safe {
        call(client, &tool, seen).await?;
    }
    sleep(IDLE).await;
    match ping(client, seen).await {
        Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline => {
            seen.troubles.push(ServerTrouble::SilenceIdle(failure.elapsed));
            Ok(())
        }
        Err(Error::Server(_)) | Ok(()) => Ok(()),
        Err(error) => Err(("`ping`".to_owned(), error)),
    }
}

async fn list(
    client: &Client,
    method: &'static str,
    list: client::ServerList,
    seen: &mut Observations,
) -> Result<(), (String, Error)> {
    let since = Instant::now();
    let mut found = ObservedList { method, items: 0, bytes: 0, fault: None };
    match client.list(list, &RequestOptions::default()).await {
        Ok(items) => {
            notice_slow(format!("`{method}`"), false, since.elapsed(), seen);
            (found.items, found.bytes) = (items.len(), items.iter().map(|item| item.get().len()).sum());
            if list == client::ServerList::Tools {
                let read = |item: &serde_json::value::RawValue| serde_json::from_str(item.get()).ok();
                seen.tools = items.iter().filter_map(|item| read(item)).map(|item| tool(&item)).collect();
            }
        }
        // Servers do not declare templates separately.
        Err(Error::Server(_)) if list == client::ServerList::ResourceTemplates => return Ok(()),
        Err(Error::Server(error)) => {
            found.fault = Some(ListFault::Refused(error.code, error.message.clone()));
        }
        Err(Error::Failure(failure)) if failure.kind == FaultKind::BadResponse => {
            found.fault = Some(ListFault::Invalid);
        }
        Err(error) => return Err((format!("`{method}`"), error)),
    }
    seen.lists.push(found);
    Ok(())
}

async fn ping(client: &Client, seen: &mut Observations) -> Result<(), Error> {
    match client.ping(&RequestOptions::default()).await {
        Ok(took) => notice_slow("`ping`".to_owned(), false, took, seen),
        // A refusal is a sign of life as well.
        Err(Error::Server(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Makes a call of a tool. If the call takes long, it checks whether the server answers a `ping` meanwhile.
async fn call(client: &Client, name: &str, seen: &mut Observations) -> Result<(), (String, Error)> {
    let what = format!("`tools/call` of `{name}`");
    let (since, options) = (Instant::now(), RequestOptions::default());
    // A call that goes on in the background is followed to its end, as a user would do.
    let mut call = pin!(client.call_tool_to_its_end(name, Map::new(), &options));
    let mut blocked = false;
    let answer = match timeout(QUICK, &mut call).await {
        Ok(answer) => answer,
        Err(_) => {
            let called = async { (call.await, since.elapsed()) };
            let pinged = async { client.ping(&options).await.map(|_| since.elapsed()) };
            let ((answer, took), pinged) = tokio::join!(called, pinged);
            let came_with_it = pinged.is_ok_and(|pinged| took.saturating_sub(pinged) < AT_ONCE);
            blocked = answer.is_ok() && took > LONG && came_with_it;
            answer
        }
    };
    let took = since.elapsed();
    let answer = match answer {
        Ok(result) => Ok(result.get().to_owned()),
        Err(Error::Server(error)) => Err((error.code, error.message.clone())),
        Err(Error::Unfinished(_)) => {
            // The rest of the server may be fine.
            seen.troubles.push(ServerTrouble::Silence(what, took));
            return Ok(());
        }
        Err(error) => return Err((what, error)),
    };
    notice_slow(what, true, took, seen);
    seen.calls.push(ObservedCall { tool: name.to_owned(), took, refusal: refusal(&answer), blocked });
    Ok(())
}

fn trouble(what: String, error: Error, endpoint: &Endpoint, seen: &mut Observations) {
    match error {
        Error::Failure(failure) if failure.kind == FaultKind::Deadline => {
            seen.troubles.push(ServerTrouble::Silence(what, failure.elapsed));
        }
        Error::Failure(failure) if matches!(failure.kind, FaultKind::BadResponse | FaultKind::TooLarge) => {
            seen.stdout_seen.invalid.add(failure.to_string().as_bytes());
        }
        error if matches!(endpoint, Endpoint::Http(_)) => {
            seen.troubles.push(ServerTrouble::Lost(what, error.to_string()));
        }
        error => seen.troubles.push(ServerTrouble::Ended(what, error.to_string())),
    }
}

fn notice_slow(what: String, is_call: bool, took: Duration, seen: &mut Observations) {
    if seen.slowest.as_ref().is_none_or(|slowest| took > slowest.took) {
        seen.slowest = Some(SlowestAnswer { what, is_call, took });
    }
}
