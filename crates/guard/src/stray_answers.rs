//! Answers that name no call, and whether they can be meant for the one that waits.
//!
//! Invariant: only a line that a server would send in place of an answer ends a call, because the answer itself may be the next line.

use std::time::Duration;

use unhang_wire::{Invalid, Json, MessageShape, Oversized};

use super::calls::{GuardedCall, Role};

/// Requests whose result is an empty object.
const EMPTY_RESULTS: [&str; 4] = ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// An unusable answer that was probably meant for the one call that waited.
#[derive(Debug)]
pub(super) struct DoubtfulAnswer {
    /// The rule that it breaks.
    pub(super) why: String,
    /// Until when a better answer may come.
    pub(super) until: Duration,
}

/// The meaning of an answer without a usable id for the one call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StrayAnswer {
    /// It is the call's answer, but unusable.
    Certain,
    /// It is the call's answer, unless a better one comes right behind it.
    Doubtful,
    /// It is not the call's answer.
    Foreign,
}

impl StrayAnswer {
    /// Judges an invalid message.
    pub(super) fn of(invalid: &Invalid<'_>, call: &GuardedCall) -> StrayAnswer {
        if invalid.shape != MessageShape::Response {
            return StrayAnswer::Foreign;
        }
        // A server that could not read a request answers it with an error under `null`. A result belongs to a request that was read.
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

/// Returns whether a line over the limit can be an answer whose id cannot be read. Text cannot be one, however long it is.
pub(super) fn may_be_an_answer(oversized: &Oversized) -> bool {
    let is_nameless = oversized.id.is_none() && oversized.method.is_none();
    is_nameless && oversized.shape == MessageShape::Response
}
