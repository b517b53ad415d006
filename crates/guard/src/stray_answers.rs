//! Answers that name no call: whether they can be meant for the one that waits.
//!
//! Invariant: what no server would say in the place of an answer ends no call, for the answer itself may be the next line.

use std::time::Duration;

use unhang_switches::stands;
use unhang_wire::{Invalid, Json, MessageShape, Oversized};

use super::calls::{GuardedCall, Role};

/// Requests whose result is an empty object.
const EMPTY_RESULTS: [&str; 4] = ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// An answer that was probably that of the one call that waited.
#[derive(Debug)]
pub(super) struct DoubtfulAnswer {
    /// What is wrong with it.
    pub(super) why: String,
    /// How long a better one may come.
    pub(super) until: Duration,
}

/// What an answer without a usable id is to the one call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StrayAnswer {
    /// Its answer, which is of no use.
    Certain,
    /// Its answer, unless a better one is right behind.
    Doubtful,
    /// None.
    Foreign,
}

impl StrayAnswer {
    /// Judges an invalid message.
    pub(super) fn of(invalid: &Invalid<'_>, call: &GuardedCall) -> StrayAnswer {
        if invalid.shape != MessageShape::Response || !stands("answer-without-id-told") {
            return StrayAnswer::Foreign;
        }
        // A server that could not read a request answers it with an error under `null`. A result is of a request that was read.
        let result = Json::new(invalid.raw).and_then(|message| message.member("result"));
        let Some(result) = result.filter(|_| invalid.raw_id == Some("null")) else {
            return StrayAnswer::Certain;
        };
        let is_empty =
            result.get().bytes().all(|byte| matches!(byte, b'{' | b'}') || byte.is_ascii_whitespace());
        if call.role == Role::Listen || (is_empty && !EMPTY_RESULTS.contains(&&*call.method)) {
            return StrayAnswer::Foreign;
        }
        StrayAnswer::Doubtful
    }
}

/// Tells whether a line over the limit can be an answer whose id cannot be read. Text is none, however long it is.
pub(super) fn may_be_an_answer(oversized: &Oversized) -> bool {
    let is_nameless = oversized.id.is_none() && oversized.method.is_none();
    is_nameless && oversized.shape == MessageShape::Response && stands("oversized-line-without-id-told")
}
