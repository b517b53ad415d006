//! Joining of equal calls: the same call joins the job that it has become, so that a client that tries again does not have it run twice.
//!
//! Theory of operation. A call has two keys. By the first one, [`SameCalls`] finds the jobs of this process. The second one, which is
//! lasting, is in the record of the job: by it, a later session finds the job when the process that made the call has gone.
//!
//! Invariants
//!
//! - Calls are the same if caller, client, the instance of the server, tool and arguments are, however the arguments are written. If
//!   nothing else tells callers from one another, the session has to be the same too.
//! - A call has a lasting key only if a later session of its client is known to be the same caller's, and sessions share the server: a
//!   caller with a name, or a client that has started unhang itself.
//! - A call of a tool is joined only if the server, by its hints, or the configuration says that calls of it may be.
//! - A call is joined once its job's id has gone out, until a client has had its result, or for a while after its end.
//! - A call that ended in any other way than with an answer is not joined: it is tried again.
//! - The number of calls is limited; the oldest are forgotten first.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;
use unhang_jobs::id::JobId;

use unhang_core::digest::digest;
use unhang_tools::service::Caller;
use unhang_upstream::question::SessionKey;

/// The time after its end for which an answer that nobody had waits for the same call. Agents try again within minutes.
pub(super) const KEPT: Duration = Duration::from_secs(10 * 60);

/// The most calls that are remembered.
pub(super) const MOST: usize = 4096;

/// The keys of a call. Each has first the bytes that all calls of its tool have in common, then the bytes that tell it from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameCall {
    pub(super) key: [u8; 32],
    lasting: Option<[u8; 32]>,
}

impl SameCall {
    /// Returns the lasting key as it is in the record of a job.
    pub(super) fn lasting_key(&self) -> Option<String> {
        self.lasting.map(|key| HEXLOWER.encode(&key))
    }
}

/// The bytes that all calls of one tool by one caller's client have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolOfCaller {
    key: [u8; 8],
    lasting: Option<[u8; 8]>,
}

/// The sender of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallOrigin<'a> {
    /// The caller that the call belongs to.
    pub caller: &'a Caller,
    /// The session that the call comes from.
    pub session: SessionKey,
    /// The client's name for itself.
    pub client: &'a str,
    /// Whether the client has started this process, so that it is the same person's in a later session.
    pub is_owners: bool,
}

/// The server of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallServer<'a> {
    /// The name of the server in the configuration.
    pub name: &'a str,
    /// The bytes that tell an instance of it from others.
    pub instance: [u8; 8],
    /// The bytes that tell the server from itself under another configuration; `None` if each session has instances of its own.
    pub of_all_sessions: Option<[u8; 8]>,
}

impl ToolOfCaller {
    /// Makes the keys of this tool of this server.
    pub fn new(call_origin: &CallOrigin<'_>, server: &CallServer<'_>, tool: &str) -> Self {
        let session = call_origin.session.bytes();
        // A caller that has a name comes back with it in another session.
        let named = call_origin.caller.name().map(|name| [b"name", name.as_bytes()]);
        let key = |who: [&[u8]; 2], instance: [u8; 8]| {
            let rest = [call_origin.client.as_bytes(), server.name.as_bytes(), &instance, tool.as_bytes()];
            digest(who.into_iter().chain(rest))
        };
        let lasting_who = named.or_else(|| call_origin.is_owners.then_some([b"owner", b""]));
        Self {
            key: key(named.unwrap_or([b"session", &session]), server.instance),
            lasting: lasting_who.zip(server.of_all_sessions).map(|(who, server)| key(who, server)),
        }
    }

    /// Returns the keys of a call of this tool with these arguments.
    pub fn call(self, arguments: Option<&str>) -> SameCall {
        let rest: [u8; 24] = digest([canonical(arguments.unwrap_or("{}")).as_bytes()]);
        SameCall { key: joined(self.key, rest), lasting: self.lasting.map(|key| joined(key, rest)) }
    }
}

/// Returns whether the call with this lasting key is one of this tool.
pub(super) fn is_of_tool(tool: ToolOfCaller, lasting_key: &str) -> bool {
    tool.lasting.is_some_and(|of_tool| lasting_key.starts_with(&HEXLOWER.encode(&of_tool)))
}

/// Joins the two parts of a key.
fn joined(of_tool: [u8; 8], rest: [u8; 24]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&of_tool);
    key[8..].copy_from_slice(&rest);
    key
}

/// Returns the arguments in one canonical form: members sorted by name, and no blanks.
fn canonical(arguments: &str) -> String {
    let mut text = String::with_capacity(arguments.len());
    match write_canonical(arguments, DEEPEST, &mut text) {
        Some(()) => text,
        None => arguments.to_owned(),
    }
}

/// The number of levels of arguments that are put in order.
const DEEPEST: usize = 128;

/// The number of characters of a number up to which a `Value` has all of it.
const EXACT: usize = 15;

/// Writes a JSON text in its canonical form; `None` if it is malformed or too deep. A `Value` has only the first digits of a long number, so
/// such a number stays as it is written.
fn write_canonical(json: &str, levels: usize, text: &mut String) -> Option<()> {
    let (json, levels) = (json.trim(), levels.checked_sub(1)?);
    match json.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            text.push('{');
            for (name, member) in members {
                text.push_str(&Value::from(name).to_string());
                text.push(':');
                write_canonical(member.get(), levels, text)?;
                text.push(',');
            }
            text.push('}');
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            text.push('[');
            for element in elements {
                write_canonical(element.get(), levels, text)?;
                text.push(',');
            }
            text.push(']');
        }
        b'-' | b'0'..=b'9' if json.len() > EXACT => text.push_str(json),
        _ => text.push_str(&serde_json::from_str::<Value>(json).ok()?.to_string()),
    }
    Some(())
}

/// The calls that may be joined.
#[derive(Debug, Default)]
pub(super) struct SameCalls(Mutex<BTreeMap<[u8; 32], JoinableCall>>);

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
    fn all(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], JoinableCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a call of this tool. If not, callers need not look at the arguments, which may be long.
    pub(super) fn has_one_of(&self, tool: ToolOfCaller) -> bool {
        let keys = joined(tool.key, [0; 24])..=joined(tool.key, [u8::MAX; 24]);
        self.all().range(keys).next().is_some()
    }

    /// Returns the job that this call has become, if it may still be joined.
    pub(super) fn find(&self, call: &SameCall) -> Option<JobId> {
        let all = self.all();
        let found = all.get(&call.key).filter(|found| !found.is_over());
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
        all.insert(call.key, JoinableCall { id, since: Instant::now(), ended: None });
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

    const SERVER: CallServer<'_> =
        CallServer { name: "srv", instance: [0; 8], of_all_sessions: Some([1; 8]) };

    static SESSION: LazyLock<SessionKey> = LazyLock::new(SessionKey::drawn);

    fn tool(caller: &Caller, session: SessionKey, client: &str, tool: &str) -> ToolOfCaller {
        ToolOfCaller::new(&CallOrigin { caller, session, client, is_owners: true }, &SERVER, tool)
    }

    fn call(caller: &Caller, client: &str, arguments: &str) -> SameCall {
        tool(caller, *SESSION, client, "slow").call(Some(arguments))
    }

    #[test]
    fn f_20_calls_of_other_sessions_and_instances_are_others_but_for_whoever_comes_back() {
        let (nobody, one, later) = (Caller::owner(), Caller::called("one"), SessionKey::drawn());
        assert_eq!(tool(&one, *SESSION, "c", "slow"), tool(&one, later, "c", "slow"));
        let [now, later] = [*SESSION, later].map(|session| tool(&nobody, session, "c", "slow"));
        assert_ne!(now.key, later.key);
        assert_eq!(now.lasting, later.lasting, "the same client has started unhang once more");
        let call_origin = CallOrigin { caller: &one, session: *SESSION, client: "c", is_owners: false };
        let of = |instance| ToolOfCaller::new(&call_origin, &CallServer { instance, ..SERVER }, "slow");
        assert_ne!(of([0; 8]), of([1; 8]));
        let named = Caller::called(std::str::from_utf8(b"session").expect("text"));
        assert_ne!(tool(&named, *SESSION, "c", "slow").key, tool(&nobody, *SESSION, "c", "slow").key);
    }

    #[test]
    fn f_20_only_a_call_whose_caller_is_known_in_a_later_session_has_a_lasting_key() {
        let (nobody, one) = (Caller::owner(), Caller::called("one"));
        let key = |caller, is_owners, of_all_sessions| {
            let call_origin = CallOrigin { caller, session: *SESSION, client: "c", is_owners };
            let tool = ToolOfCaller::new(&call_origin, &CallServer { of_all_sessions, ..SERVER }, "slow");
            let lasting_key = tool.call(None).lasting_key();
            assert!(lasting_key.iter().all(|key| is_of_tool(tool, key)));
            lasting_key
        };
        let shared = Some([1; 8]);
        assert_ne!(key(&nobody, true, shared), key(&one, true, shared));
        assert_eq!(key(&one, true, shared), key(&one, false, shared));
        assert_ne!(key(&one, true, shared), key(&one, true, Some([2; 8])), "another server of this name");
        assert_eq!(key(&nobody, false, shared), None, "any session over HTTP may be somebody else's");
        assert_eq!(key(&one, true, None), None, "each session has a server of its own");
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

    #[test]
    fn calls_whose_numbers_differ_in_their_last_digits_are_others() {
        let one = Caller::called("one");
        let of = |arguments: &str| call(&one, "c", arguments);
        for [first, second] in [
            ["18446744073709551616", "18446744073709551617"],
            ["-9223372036854775809", "-9223372036854775810"],
            ["0.1234567890123456789", "0.1234567890123456788"],
        ] {
            let [both, swapped] =
                [(first, second), (second, first)].map(|(a, b)| format!(r#"{{"a":[{a},null],"b":{b}}}"#));
            assert_ne!(of(&both), of(&swapped), "{first}");
            assert_eq!(of(&both), of(&both.replace(',', " , ")), "{first}");
        }
        let [deep, deeper] = [100, 100_000].map(|levels| "[".repeat(levels) + &"]".repeat(levels));
        assert_ne!(of(&deep), of(&deeper));
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
