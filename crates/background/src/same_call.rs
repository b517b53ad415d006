//! Joining of equal calls: the same call joins the job that it has become, so that a client that tries again does not have it run twice.
//!
//! Invariants
//!
//! - Calls are the same if caller, client, the instance of the server, tool and arguments are, however the arguments are written. If
//!   nothing else tells callers from one another, the session has to be the same too.
//! - A call of a tool is joined only if the server, by its hints, or the configuration says that calls of it may be.
//! - A call is joined once its job's id has gone out, until a client has had its result, or for a while after its end.
//! - A call that ended in any other way than with an answer is not joined: it is tried again.
//! - The number of calls is limited; the oldest are forgotten first.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;
use unhang_jobs::id::JobId;

use unhang_core::digest::digest;
use unhang_tools::service::Caller;
use unhang_upstream::question::SessionKey;

/// The time after its end for which an answer that nobody had waits for the same call. Agents try again within minutes.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// The most calls that are remembered.
const MOST: usize = 4096;

/// The key of a call: first the bytes that all calls of its tool have in common, then the bytes that tell it from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SameCall(pub(super) [u8; 32]);

impl SameCall {
    /// Returns the key that another process has made.
    #[must_use]
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The bytes that all calls of one tool by one caller's client have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolOfCaller([u8; 8]);

/// The sender of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallOrigin<'a> {
    /// The caller that the call belongs to.
    pub caller: &'a Caller,
    /// The session that the call comes from.
    pub session: SessionKey,
    /// The client's name for itself.
    pub client: &'a str,
}

impl ToolOfCaller {
    /// Makes the key of this tool, of this instance of its server.
    pub fn new(call_origin: &CallOrigin<'_>, server: &str, instance: [u8; 8], tool: &str) -> Self {
        let (name, session) = (call_origin.caller.name(), call_origin.session.bytes());
        // A caller that has a name comes back with it in another session.
        let who: [&[u8]; 2] = match name {
            Some(name) => [b"name", name.as_bytes()],
            None => [b"session", &session],
        };
        let rest = [call_origin.client.as_bytes(), server.as_bytes(), &instance, tool.as_bytes()];
        Self(digest(who.into_iter().chain(rest)))
    }

    /// Returns the key of a call of this tool with these arguments.
    pub fn call(self, arguments: Option<&str>) -> SameCall {
        let rest: [u8; 24] = digest([canonical(arguments.unwrap_or("{}")).as_bytes()]);
        self.with(|index| rest[index])
    }

    fn with(self, rest: impl Fn(usize) -> u8) -> SameCall {
        let own = self.0;
        SameCall(std::array::from_fn(|index| {
            own.get(index).copied().unwrap_or_else(|| rest(index - own.len()))
        }))
    }
}

/// Returns the arguments in one canonical form: members sorted by name, and no blanks.
fn canonical(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        // The members of a `Value` are sorted by name.
        Ok(value) => value.to_string(),
        Err(_) => arguments.to_owned(),
    }
}

/// The calls that may be joined.
#[derive(Debug, Default)]
pub struct SameCalls(Mutex<BTreeMap<SameCall, JoinableCall>>);

#[derive(Clone, Copy, Debug)]
struct JoinableCall {
    id: JobId,
    since: Instant,
    /// The time of its end, if it has ended.
    ended: Option<Instant>,
}

impl JoinableCall {
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|ended| ended.elapsed() >= KEPT)
    }
}

impl SameCalls {
    fn all(&self) -> MutexGuard<'_, BTreeMap<SameCall, JoinableCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there are none. If so, callers need not compute the key of a call.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Returns whether there is a call of this tool. If not, callers need not look at the arguments, which may be long.
    pub fn has_one_of(&self, tool: ToolOfCaller) -> bool {
        self.all().range(tool.with(|_| 0)..=tool.with(|_| u8::MAX)).next().is_some()
    }

    /// Returns the job that this call has become, if it may still be joined.
    pub fn find(&self, call: &SameCall) -> Option<JobId> {
        let all = self.all();
        let found = all.get(call).filter(|found| !found.is_over());
        found.map(|found| found.id)
    }

    /// Notes that the id of the call's job has gone out. From now on the call can be joined.
    pub(super) fn delivered(&self, call: SameCall, id: JobId) {
        let mut all = self.all();
        if all.len() >= MOST {
            all.retain(|_, known| !known.is_over());
        }
        if all.len() >= MOST
            && let Some(oldest) = all.iter().min_by_key(|(_, known)| known.since).map(|(call, _)| *call)
        {
            all.remove(&oldest);
        }
        all.insert(call, JoinableCall { id, since: Instant::now(), ended: None });
    }

    /// Notes that the job has ended. Without an answer that the same call can have, the call is forgotten.
    pub(super) fn ended(&self, id: JobId, is_answered: bool) {
        if is_answered {
            let now = Instant::now();
            self.all().values_mut().filter(|known| known.id == id).for_each(|known| known.ended = Some(now));
        } else {
            self.forget(id);
        }
    }

    /// Forgets the calls of this job, so that nobody joins it any more.
    pub(super) fn forget(&self, id: JobId) {
        self.all().retain(|_, known| known.id != id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static SESSION: LazyLock<SessionKey> = LazyLock::new(SessionKey::drawn);

    fn tool(caller: &Caller, session: SessionKey, client: &str, tool: &str) -> ToolOfCaller {
        ToolOfCaller::new(&CallOrigin { caller, session, client }, "srv", [0; 8], tool)
    }

    fn call(caller: &Caller, client: &str, arguments: &str) -> SameCall {
        tool(caller, *SESSION, client, "slow").call(Some(arguments))
    }

    #[test]
    fn f_20_calls_of_other_sessions_and_instances_are_others_but_for_whoever_comes_back() {
        let (nobody, one, later) = (Caller::owner(), Caller::called("one"), SessionKey::drawn());
        assert_eq!(tool(&one, *SESSION, "c", "slow"), tool(&one, later, "c", "slow"));
        assert_ne!(tool(&nobody, *SESSION, "c", "slow"), tool(&nobody, later, "c", "slow"));
        let call_origin = CallOrigin { caller: &one, session: *SESSION, client: "c" };
        let of = |instance| ToolOfCaller::new(&call_origin, "srv", instance, "slow");
        assert_ne!(of([0; 8]), of([1; 8]));
        let named = Caller::called(std::str::from_utf8(b"session").expect("text"));
        assert_ne!(tool(&named, *SESSION, "c", "slow"), tool(&nobody, *SESSION, "c", "slow"));
    }

    #[test]
    fn the_same_call_is_the_same_however_it_is_written() {
        let one = Caller::called("one");
        let first = call(&one, "cursor", r#"{"a":1,"b":{"d":2,"c":"x"}}"#);
        assert_eq!(first, call(&one, "cursor", "{ \"b\": {\"c\":\"\\u0078\",\"d\":2}, \"a\": 1 }"));
        assert_ne!(first, call(&Caller::owner(), "cursor", r#"{"a":1,"b":{"d":2,"c":"x"}}"#));
        assert_ne!(first, call(&one, "claude", r#"{"a":1,"b":{"d":2,"c":"x"}}"#));
        assert_ne!(first, call(&one, "cursor", r#"{"a":1,"b":{"d":2,"c":"y"}}"#));
    }

    #[tokio::test]
    async fn whether_there_is_one_of_a_tool_is_known_without_its_arguments() {
        let (calls, one) = (SameCalls::default(), Caller::called("one"));
        let of = |name| tool(&one, *SESSION, "cursor", name);
        calls.delivered(of("slow").call(Some(r#"{"a":1}"#)), JobId::random().unwrap());
        assert!(calls.has_one_of(of("slow")));
        for other in [of("fast"), tool(&Caller::owner(), *SESSION, "cursor", "slow")] {
            assert!(!calls.has_one_of(other));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_joined_until_it_was_read_or_is_long_over() {
        let calls = SameCalls::default();
        let (same, id) = (call(&Caller::owner(), "c", "{}"), JobId::random().unwrap());
        assert_eq!(calls.find(&same), None);
        calls.delivered(same, id);
        tokio::time::advance(KEPT * 3).await;
        assert_eq!(calls.find(&same), Some(id), "it runs");
        calls.ended(id, true);
        tokio::time::advance(KEPT / 2).await;
        assert_eq!(calls.find(&same), Some(id));
        tokio::time::advance(KEPT / 2).await;
        assert_eq!(calls.find(&same), None, "too long ago");
        calls.delivered(same, id);
        calls.ended(id, false);
        assert_eq!(calls.find(&same), None, "what failed is tried again");
        calls.delivered(same, id);
        calls.forget(id);
        assert_eq!(calls.find(&same), None, "somebody has it");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_known_at_most() {
        let calls = SameCalls::default();
        for number in 0..=MOST {
            calls.delivered(call(&Caller::owner(), "c", &number.to_string()), JobId::random().unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(calls.all().len(), MOST);
        assert_eq!(calls.find(&call(&Caller::owner(), "c", "0")), None, "the oldest");
    }
}
