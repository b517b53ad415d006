//! What a tool says of tasks in the lists of 2025-11-25. In those of 2026-07-28 it says nothing, see [`tools`](crate::tools).
//!
//! Invariant: a tool keeps all else that it says, of its execution too.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::{Splice, is_empty, quoted};

/// The member of a tool for how it is carried out.
const EXECUTION: &str = "execution";

/// What that says of tasks.
const TASK_SUPPORT: &str = "taskSupport";

/// Whether calls of a tool are tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Support {
    /// Never; also where the tool does not say so.
    #[default]
    Forbidden,
    /// Where the client wants that.
    Optional,
    /// Always.
    Required,
}

impl Support {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Support::Forbidden => "forbidden",
            Support::Optional => "optional",
            Support::Required => "required",
        }
    }
}

/// What a tool says of tasks. A word that nobody knows forbids them, as saying nothing does.
#[must_use]
pub fn task_support(tool: Json<'_>) -> Support {
    let said = tool.member(EXECUTION).and_then(|execution| execution.member(TASK_SUPPORT)?.text());
    let known = [Support::Optional, Support::Required];
    said.and_then(|said| known.into_iter().find(|support| support.as_str() == said)).unwrap_or_default()
}

/// The tool, which says this of tasks; `None` for what is no object. That they are forbidden is said by not saying anything, which
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
