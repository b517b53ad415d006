//! Translates MCP messages between the eras: revisions up to 2025-11-25, which begin with a handshake (legacy), and those from
//! 2026-07-28 on, in which every request stands alone (modern). The rows are those of `protocol.md` 3.3.
//!
//! ```text
//! legacy client ─ params::to_modern ─► modern server      modern client ─ params::to_legacy ─► legacy server
//! legacy client ◄─ result::to_legacy ─ modern server      modern client ◄─ result::to_modern ─ legacy server
//!                  error, notification, question: the same
//! ```
//!
//! The module [`tasks`] has the messages about tasks, which exist in both eras, each in its own dialect.
//!
//! Invariants
//!
//! - Pure: no clock, no descriptor, no state from one message to the next.
//! - A member that has no meaning here stays byte for byte as it was written. So do the order of members and the spelling of numbers.
//! - A text without changes is not copied.
//! - A malformed value is left for the peer to judge, or reported by `None`. It is never repaired by a guess.

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

/// The prefix of all names that the protocol itself puts into `_meta`.
const RESERVED: &str = "io.modelcontextprotocol/";

/// The member for data about a message.
const META: &str = "_meta";

/// The way in which a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// The peer begins with `initialize` and keeps what was said there (2024-11-05 to 2025-11-25).
    Legacy,
    /// Each request of the peer carries everything that it needs (from 2026-07-28 on).
    Modern,
}

/// Quotes a text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Applies `change` to the `_meta` of params. Params that are absent or not an object are replaced by an object.
fn with_meta<'a>(params: Option<Json<'a>>, change: impl Fn(Splice<'a>) -> Splice<'a>) -> String {
    let changed = |meta| change(Splice::new(meta)).apply();
    let meta = params.and_then(|params| changed(params.member(META)?)).or_else(|| changed(Json::EMPTY));
    let meta = meta.as_deref().unwrap_or("{}");
    let with = |params: Json<'_>| Some(Splice::new(params).set(META, meta).apply()?.into_owned());
    // Both objects can be changed, so the default is never used.
    params.and_then(with).or_else(|| with(Json::EMPTY)).unwrap_or_default()
}

/// Removes the protocol's own members from the `_meta` of params or of a result. An empty `_meta` is removed as well.
fn without_reserved(object: Json<'_>) -> Splice<'_> {
    let splice = Splice::new(object);
    let Some(meta) = object.member(META) else { return splice };
    match Splice::new(meta).remove_all(RESERVED).apply() {
        Some(rest) if is_empty(&rest) => splice.remove(META),
        Some(rest) => splice.set(META, rest),
        // This `_meta` is not an object, and says nothing.
        None => splice,
    }
}

fn is_empty(object: &str) -> bool {
    let mut members = 0_usize;
    Json::new(object.as_bytes()).is_some_and(|object| object.each_member(|_, _| members += 1)) && members == 0
}
