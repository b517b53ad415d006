//! Capabilities about tasks, on both sides.
//!
//! Invariant: only an object counts as a declared capability.

use std::borrow::Cow;

use unhang_wire::Json;

use super::{Dialect, EXTENSION, is_object};
use crate::{Splice, error::MISSING_CAPABILITY};

/// The member of capabilities for extensions.
const EXTENSIONS: &str = "extensions";

/// The member of capabilities for tasks of the core.
const TASKS: &str = "tasks";

/// Returns the capability of a server that has tasks: a member and its value, as JSON. `lists` says whether the server answers
/// `tasks/list`, which the extension does not know.
#[must_use]
pub const fn offer(dialect: Dialect, lists: bool) -> (&'static str, &'static str) {
    match (dialect, lists) {
        (Dialect::Core, true) => (TASKS, r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#),
        (Dialect::Core, false) => (TASKS, r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#),
        (Dialect::Extension, _) => (EXTENSIONS, r#"{"io.modelcontextprotocol/tasks":{}}"#),
    }
}

/// Replaces what a server's capabilities say about tasks: they offer this dialect alone. Returns `None` if they are not an object.
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

/// Returns whether a client's capabilities declare tasks of the extension, as they do with each request. In the core a client declares
/// nothing, and asks with each call.
#[must_use]
pub fn declares(client_capabilities: Json<'_>) -> bool {
    declares_extension(client_capabilities, EXTENSION)
}

/// Returns whether a client's capabilities declare this extension.
#[must_use]
pub fn declares_extension(client_capabilities: Json<'_>, extension: &str) -> bool {
    has(client_capabilities, &[EXTENSIONS, extension])
}

/// Returns whether a server's error of this code and data says that the client has to declare tasks of the extension.
#[must_use]
pub fn are_required(code: i64, data: Option<Json<'_>>) -> bool {
    let is_required = |data| has(data, &["requiredCapabilities", EXTENSIONS, EXTENSION]);
    code == MISSING_CAPABILITY && data.is_some_and(is_required)
}

/// Returns whether a server's capabilities offer calls of its tools as tasks.
#[must_use]
pub fn offers_tasks(dialect: Dialect, capabilities: Json<'_>) -> bool {
    match dialect {
        Dialect::Core => has(capabilities, &[TASKS, "requests", "tools", "call"]),
        Dialect::Extension => has(capabilities, &[EXTENSIONS, EXTENSION]),
    }
}

/// Returns whether the capabilities of a server that has tasks offer `tasks/cancel`.
#[must_use]
pub fn offers_cancel(dialect: Dialect, capabilities: Json<'_>) -> bool {
    match dialect {
        Dialect::Core => has(capabilities, &[TASKS, "cancel"]),
        Dialect::Extension => offers_tasks(dialect, capabilities),
    }
}

/// Adds the extension to the changes of these capabilities, beside the extensions that they have already.
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
