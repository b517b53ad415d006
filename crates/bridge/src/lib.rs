//! Translates MCP messages between the eras: revisions up to 2025-11-25, which begin with a handshake (legacy), and those from
//! 2026-07-28 on, in which every request stands alone (modern). The rows are those of `protocol.md` 3.3.
//!
//! ```text
//! legacy client ─ params::to_modern ─► modern server      modern client ─ params::to_legacy ─► legacy server
//! legacy client ◄─ result::to_legacy ─ modern server      modern client ◄─ result::to_modern ─ legacy server
//!                  error, notification, question: the same
//! ```
//!
//! What both eras say of tasks, each in its dialect, is in [`tasks`].
//!
//! Invariants
//!
//! - Pure: no clock, no descriptor, no state from one message to the next.
//! - What has no meaning here stays byte for byte as it was written: members that nobody knows yet, the order of members, the way in
//!   which numbers are written. What nothing is changed of is not copied.
//! - What is not of the form that it has to be is left for the peer to judge, or told by `None`; it is never repaired by guess.

pub mod error;
pub mod notification;
pub mod params;
pub mod question;
pub mod result;
mod splice;
pub mod tasks;
pub mod tools;

use unhang_wire::Json;

pub use splice::Splice;

/// What all names begin with that the protocol itself puts into `_meta`.
const RESERVED: &str = "io.modelcontextprotocol/";

/// The member for data about a message.
const META: &str = "_meta";

/// How a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// It begins with `initialize` and keeps what was said there (2024-11-05 to 2025-11-25).
    Legacy,
    /// Each request says all that there is to know (from 2026-07-28 on).
    Modern,
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Params with changes of their `_meta`. What is no object is none, and becomes one.
fn with_meta<'a>(params: Option<Json<'a>>, change: impl Fn(Splice<'a>) -> Splice<'a>) -> String {
    let changed = |meta| change(Splice::new(meta)).apply();
    let meta = params.and_then(|params| changed(params.member(META)?)).or_else(|| changed(Json::EMPTY));
    let meta = meta.as_deref().unwrap_or("{}");
    let with = |params: Json<'_>| Some(Splice::new(params).set(META, meta).apply()?.into_owned());
    // An object can be changed.
    params.and_then(with).or_else(|| with(Json::EMPTY)).unwrap_or_default()
}

/// Params or a result whose `_meta` has lost what the protocol itself had put there, and that itself where nothing else was in it.
fn without_reserved(object: Json<'_>) -> Splice<'_> {
    let splice = Splice::new(object);
    let Some(meta) = object.member(META) else { return splice };
    match Splice::new(meta).remove_all(RESERVED).apply() {
        Some(rest) if is_empty(&rest) => splice.remove(META),
        Some(rest) => splice.set(META, rest),
        // It is no object, and says nothing.
        None => splice,
    }
}

fn is_empty(object: &str) -> bool {
    let mut members = 0_usize;
    Json::new(object.as_bytes()).is_some_and(|object| object.each_member(|_, _| members += 1)) && members == 0
}
