//! What both sides say of tasks before there are any.
//!
//! Invariant: only what is an object counts as declared, since that is how a capability is written.

use std::borrow::Cow;

use unhang_wire::Json;

use super::{Dialect, EXTENSION, is_object};
use crate::Splice;

/// The member of capabilities for extensions.
const EXTENSIONS: &str = "extensions";

/// The member of capabilities for tasks of the core.
const TASKS: &str = "tasks";

/// What a server that has tasks says in its capabilities: a member and its value, as JSON. `lists` says whether `tasks/list` is
/// answered, which the extension does not know.
#[must_use]
pub const fn offer(dialect: Dialect, lists: bool) -> (&'static str, &'static str) {
    match (dialect, lists) {
        (Dialect::Core, true) => (TASKS, r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#),
        (Dialect::Core, false) => (TASKS, r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#),
        (Dialect::Extension, _) => (EXTENSIONS, r#"{"io.modelcontextprotocol/tasks":{}}"#),
    }
}

/// The capabilities of a server that has tasks whatever they said before, in this dialect alone; `None` for what is no object.
#[must_use]
pub fn with_offer(capabilities: Json<'_>, dialect: Dialect, lists: bool) -> Option<Cow<'_, str>> {
    match dialect {
        Dialect::Core => {
            let (name, value) = offer(dialect, lists);
            Splice::new(capabilities).set(name, value).apply()
        }
        Dialect::Extension => extended(Splice::new(capabilities).remove(TASKS), capabilities).apply(),
    }
}

/// Whether a client says in its capabilities that it can cope with tasks of the extension. It says so with each request. In the core
/// it says nothing, and asks.
#[must_use]
pub fn declares(client_capabilities: Json<'_>) -> bool {
    has(client_capabilities, &[EXTENSIONS, EXTENSION])
}

/// Whether a server says in its capabilities that calls of its tools may be tasks.
#[must_use]
pub fn offers_tasks(dialect: Dialect, capabilities: Json<'_>) -> bool {
    match dialect {
        Dialect::Core => has(capabilities, &[TASKS, "requests", "tools", "call"]),
        Dialect::Extension => has(capabilities, &[EXTENSIONS, EXTENSION]),
    }
}

/// Whether a server that has tasks says that they can be cancelled.
#[must_use]
pub fn offers_cancel(dialect: Dialect, capabilities: Json<'_>) -> bool {
    match dialect {
        Dialect::Core => has(capabilities, &[TASKS, "cancel"]),
        Dialect::Extension => offers_tasks(dialect, capabilities),
    }
}

/// Changes of these capabilities, and the extension among those that they have.
pub(super) fn extended<'a>(changes: Splice<'a>, capabilities: Json<'a>) -> Splice<'a> {
    let of = |extensions: Json<'a>| match extensions.member(EXTENSION) {
        Some(settings) if is_object(settings) => Some(Cow::Borrowed(extensions.get())),
        _ => Splice::new(extensions).set(EXTENSION, "{}").apply(),
    };
    let extensions = capabilities.member(EXTENSIONS).and_then(of);
    changes.set(EXTENSIONS, extensions.unwrap_or(Cow::Borrowed(offer(Dialect::Extension, false).1)))
}

fn has(capabilities: Json<'_>, path: &[&str]) -> bool {
    path.iter().try_fold(capabilities, |inside, name| inside.member(name)).is_some_and(is_object)
}
