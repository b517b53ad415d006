//! What the lists of tools say about tasks in 2025-11-25. The lists of 2026-07-28 say nothing: see [`tools`](crate::tools).
//!
//! Invariant: a tool keeps everything else that it says, also about its execution.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::{Splice, is_empty, quoted};

/// The member of a tool that says how it is executed.
const EXECUTION: &str = "execution";

/// The member of that for tasks.
const TASK_SUPPORT: &str = "taskSupport";

/// Whether calls of a tool are tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Support {
    /// Never. This is also the default of a tool that says nothing.
    #[default]
    Forbidden,
    /// If the client wants it.
    Optional,
    /// Always.
    Required,
}

impl Support {
    /// Returns the word that the protocol uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Support::Forbidden => "forbidden",
            Support::Optional => "optional",
            Support::Required => "required",
        }
    }
}

/// Reads whether calls of a tool are tasks. An unknown word forbids them, as a missing one does.
#[must_use]
pub fn task_support(tool: Json<'_>) -> Support {
    let said = tool.member(EXECUTION).and_then(|execution| execution.member(TASK_SUPPORT)?.text());
    let known = [Support::Optional, Support::Required];
    said.and_then(|said| known.into_iter().find(|support| support.as_str() == said)).unwrap_or_default()
}

/// Sets what a tool says about tasks. Returns `None` if the tool is not an object. If tasks are forbidden the member is removed, which
/// clients of every revision understand.
#[must_use]
pub fn with_task_support(tool: Json<'_>, support: Support) -> Option<Cow<'_, str>> {
    let splice = Splice::new(tool);
    let execution = tool.member(EXECUTION);
    let changed = |execution: Json<'_>| {
        let splice = Splice::new(execution);
        let changed = match support {
            Support::Forbidden => splice.remove(TASK_SUPPORT),
            Support::Optional | Support::Required => splice.set(TASK_SUPPORT, quoted(support.as_str())),
        };
        changed.apply().map(Cow::into_owned)
    };
    match (execution.and_then(changed), support) {
        (Some(rest), Support::Forbidden) if is_empty(&rest) => splice.remove(EXECUTION).apply(),
        (None, Support::Forbidden) => splice.apply(),
        (Some(execution), _) => splice.set(EXECUTION, execution).apply(),
        (None, _) => {
            let execution = changed(Json::EMPTY)?;
            splice.set(EXECUTION, execution).apply()
        }
    }
}
