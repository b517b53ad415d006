//! Bytes to MCP messages and back: framing, envelope, ids in flight.
//!
//! The crate is pure: it has no clock, no processes, no files and no async runtime. It knows JSON-RPC but hardly any MCP. Everything here
//! is a function of (state, event), tested without a runtime (R-10).
//!
//! ```text
//! bytes ─ Lines ─ Line::Whole ─ read ─ Pieces ─┬ Message   forwarded as the bytes that came
//!                └ Line::Oversized (id, method)├ Batch     the same, several
//!                                              ├ Invalid   answered, with its id if one can be read
//!                                              └ Junk      logged and counted, never answered as a message
//! ids ─ InFlight: what is awaited, until when, and whose late answers are to be swallowed
//! ```
//!
//! Invariants
//!
//! - Payload bytes are never copied and never changed. A [`Message`] borrows the line, and `params` and `result` are raw.
//! - Work per line is linear in its length, whatever the bytes are, and never recurses with their nesting.
//! - Memory is bounded by the owner's `max_message`, see [`Lines`].
//! - Nothing panics on any input.

pub mod compose;
mod envelope;
mod envelope_scan;
mod id;
mod in_flight;
mod json;
mod lines;
mod message;
mod peek;
mod pieces;

pub use id::Id;
pub use in_flight::{Completion, InFlight, RegisterError};
pub use json::Json;
pub use lines::{Line, Lines, Oversized, SkippedMessage};
pub use message::{
    Body, Invalid, InvalidReason, Message, MessageShape, Piece, ResponseOutcome, one_line, replace_id,
};
pub use peek::{
    cancelled_request, client_info, client_name, may_have, may_have_progress_token, notified_token,
    progress_token, progress_token_value, request_version, text_member,
};
pub use pieces::{MAX_BATCH, Pieces, read};
