//! What is ours beside what the server has, where its calls become jobs: tools about jobs, tasks, and what its tools are listed with.
//!
//! Theory of operation. What the server says of itself and of its tools passes through here on its way to the client. Tools of ours come behind
//! the last of the server's, under a prefix with which none of its own begins. A server that has tasks keeps them: to its clients calls are
//! handed over in words alone, so that no task of ours can be taken for one of its own.
//!
//! A client that asks for the list anew when it has changed gets our tools with the first job that it has to ask about, and is told so then.
//! A client of which that is not known has them from the start.
//!
//! # Invariants
//!
//! - Where nothing becomes a job nothing passes through here.
//! - A name is the server's own where it has a tool of that name.
//! - What is learned of a server is bounded.

use std::{borrow::Cow, collections::HashSet};

use unhang_bridge::tools::is_repeatable;
use unhang_bridge::{
    Splice, result,
    tasks::{self, Dialect},
};
use unhang_switches::stands;
use unhang_wire::{Json, ResponseOutcome, text_member};

use super::{calls::GuardedCall, client_profile::ClientProfile, promotion::PlannedPromotion};
use unhang_core::revision::Revision;
use unhang_front as front;
use unhang_tools::{Definition, is_about_jobs, job_report::ToolNames, listed_by_the_guard};

/// What our tools' names may begin with, so that guards behind guards tell theirs apart.
pub(super) const PREFIXES: [&str; 9] = [
    "unhang_", "unhang2_", "unhang3_", "unhang4_", "unhang5_", "unhang6_", "unhang7_", "unhang8_", "unhang9_",
];

/// What all of them begin with.
const STEM: &str = "unhang";

/// What a client is told that has to ask for the tools anew.
pub(super) const TOOLS_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// Bytes that a result may have to be looked at as a task.
const MOST_OF_A_TASK: usize = 16 << 10;

/// Names of a server's tools that are kept.
const MOST_NAMES: usize = 4096;

/// See the module's text.
#[derive(Debug)]
pub(super) struct AddedCapabilities {
    names: ToolNames,
    /// Somebody has been told the names, so that they stay.
    are_fixed: bool,
    /// The server's tools whose names begin as ours may.
    theirs: HashSet<Box<str>>,
    /// Those that may be called once more.
    repeatable: HashSet<Box<str>>,
    /// Whether the server has tasks of its own, once it has said that.
    has_tasks: Option<bool>,
    /// The client hears of it when there are other tools, and gets ours once it has a use for them.
    waits: bool,
    /// It has had a use for them.
    are_used: bool,
}

impl Default for AddedCapabilities {
    fn default() -> Self {
        Self {
            names: ToolNames { prefix: PREFIXES[0] },
            are_fixed: false,
            theirs: HashSet::new(),
            repeatable: HashSet::new(),
            has_tasks: None,
            waits: false,
            are_used: false,
        }
    }
}

impl AddedCapabilities {
    /// Tells how many names are kept: of tools that are called as ours may be, and of those that may be called once more.
    #[cfg(test)]
    pub(super) fn learned(&self) -> (usize, usize) {
        (self.theirs.len(), self.repeatable.len())
    }

    /// Fixes what our tools are called, and returns that.
    pub(super) fn names(&mut self) -> ToolNames {
        self.are_fixed = true;
        self.names
    }

    /// Tells whether this is a tool of ours.
    pub(super) fn is_ours(&self, tool: &str) -> bool {
        is_about_jobs(tool, self.names) && (!self.theirs.contains(tool) || !stands("their-tool-stays-theirs"))
    }

    /// Tells whether the server says that this tool of its may be called once more without doing anything twice.
    pub(super) fn is_repeatable(&self, tool: &str) -> bool {
        self.repeatable.contains(tool)
    }

    /// Tells whether the server has tasks of its own, as far as it has said that.
    pub(super) fn has_tasks(&self) -> Option<bool> {
        self.has_tasks.filter(|_| stands("their-tasks-stay-theirs"))
    }

    /// Sets whether our tools are listed as soon as there is a use for them, and not before.
    pub(super) fn wait_for_use(&mut self, waits: bool) {
        self.waits = waits && !self.are_used;
    }

    /// Notes that there is a use for our tools. True where the client has to be told that they are listed now.
    pub(super) fn note_use(&mut self) -> bool {
        self.are_used = true;
        std::mem::take(&mut self.waits)
    }

    /// Returns the answer to a call, a line, with what is ours beside it, where that is anything.
    pub(super) fn with_offers(
        &mut self,
        call: &GuardedCall,
        line: &[u8],
        outcome: &ResponseOutcome<'_>,
        revision: impl FnOnce() -> Revision,
    ) -> Option<Vec<u8>> {
        let ResponseOutcome::Result(result) = outcome else { return None };
        let result = match &*call.method {
            "tools/list" => self.listed(*result, revision(), call.copes_with_tasks),
            "initialize" => self.introduced(*result, Dialect::Core, revision()),
            "server/discover" => self.introduced(*result, Dialect::Extension, revision()),
            _ => None,
        }?;
        Some(Splice::new(Json::new(line)?).set("result", result).apply()?.into_owned().into_bytes())
    }

    /// Returns what the server says of itself, with what is ours.
    fn introduced(&mut self, result: Json<'_>, dialect: Dialect, revision: Revision) -> Option<String> {
        let with_tasks = self.with_tasks(result, dialect, revision);
        let told = with_tasks.as_deref().and_then(|text| Json::new(text.as_bytes())).unwrap_or(result);
        let changing = if self.waits { with_changing_tools(told) } else { None };
        changing.or(with_tasks)
    }

    /// Returns the same with our tasks in this dialect, where they can be offered.
    fn with_tasks(&mut self, result: Json<'_>, dialect: Dialect, revision: Revision) -> Option<String> {
        let capabilities = result.member("capabilities")?;
        let has_tasks = match dialect {
            // For whatever they are.
            Dialect::Core => capabilities.member("tasks").is_some(),
            Dialect::Extension => tasks::offers_tasks(dialect, capabilities),
        };
        self.has_tasks = Some(has_tasks);
        // In a handshake that is what this revision has, and no earlier one.
        let is_known = dialect == Dialect::Extension || revision == Revision::V2025November;
        if has_tasks || !is_known || capabilities.member("tools").is_none() {
            return None;
        }
        let with_tasks = tasks::with_offer(capabilities, dialect, true)?;
        Some(Splice::new(result).set("capabilities", with_tasks).apply()?.into_owned())
    }

    /// Returns a page of the server's tools, with ours where it is the last.
    fn listed(&mut self, result: Json<'_>, revision: Revision, copes_with_tasks: bool) -> Option<String> {
        let (page, mut tools) = (result.member("tools")?, Vec::new());
        let has_tasks = self.has_tasks() == Some(true);
        let with_support = revision == Revision::V2025November && !has_tasks;
        page.each_element(|tool| {
            self.learn(tool);
            tools.push(front::listed(tool, with_support, !copes_with_tasks || has_tasks));
        });
        self.choose_names();
        let is_last = result.member("nextCursor").is_none_or(|cursor| cursor.get() == "null");
        let is_listed = |tool: &Definition| is_last && !self.waits && self.is_ours(&tool.name);
        let ours = listed_by_the_guard(self.names).filter(is_listed);
        tools.extend(ours.map(|tool| Cow::Owned(tool.to_json(revision).to_string())));
        Some(Splice::new(result).set("tools", format!("[{}]", tools.join(","))).apply()?.into_owned())
    }

    fn learn(&mut self, tool: Json<'_>) {
        let Some(name) = text_member(tool, "name").map(String::into_boxed_str) else { return };
        let is_kept = |names: &HashSet<_>| names.len() < MOST_NAMES || !stands("learned-names-bounded");
        if name.starts_with(STEM) && is_kept(&self.theirs) {
            self.theirs.insert(name.clone());
        }
        if !is_repeatable(tool) {
            self.repeatable.remove(&name);
        } else if is_kept(&self.repeatable) {
            self.repeatable.insert(name);
        }
    }

    fn choose_names(&mut self) {
        let is_free = |prefix: &&str| !self.theirs.iter().any(|name| name.starts_with(*prefix));
        if !self.are_fixed
            && let Some(prefix) = PREFIXES.into_iter().find(is_free)
        {
            self.names = ToolNames { prefix };
        }
    }
}

/// Returns what a server says of itself, with a list of tools that changes.
fn with_changing_tools(result: Json<'_>) -> Option<String> {
    let capabilities = result.member("capabilities")?;
    let tools = Splice::new(capabilities.member("tools")?).set("listChanged", "true".to_owned());
    let capabilities = Splice::new(capabilities).set("tools", tools.apply()?);
    Some(Splice::new(result).set("capabilities", capabilities.apply()?).apply()?.into_owned())
}

/// Tells whether a server answers a call with a task though its client has not declared that it copes with any (SEP-2663).
pub(super) fn is_undeclared_task(
    call: &GuardedCall,
    outcome: &ResponseOutcome<'_>,
    client: &ClientProfile,
) -> bool {
    let ResponseOutcome::Result(result) = outcome else { return false };
    let is_declared = |promotion: &PlannedPromotion| promotion.declares_tasks(client.revision());
    // A task is short, and what is long is not read once more for this.
    client.is_modern()
        && result.get().len() <= MOST_OF_A_TASK
        && call.promotion.as_deref().is_some_and(|promotion| !is_declared(promotion))
        && result::kind(*result) == result::ResultKind::Task
}
