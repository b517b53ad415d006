//! Additions of the guard to the server's own features, if its calls become jobs: tools about jobs, tasks, and members in its lists of
//! tools.
//!
//! Theory of operation. The server's description of itself and of its tools passes through here on its way to the client. Our tools are
//! added behind the last of the server's tools, under a prefix that none of its own has. A server that has tasks keeps them. Its calls are
//! then handed over in words alone, so that no task of ours looks like one of its own.
//!
//! The guard requests the list itself if the client calls a tool before it has listed any (`tool_list`).
//!
//! Some clients ask for the list again when it changes. Such a client is told that it has changed, and gets our tools, with the first job
//! that it has to ask about. A client that is not known to do so gets our tools from the start.
//!
//! # Invariants
//!
//! - If no calls become jobs, nothing passes through here.
//! - A name belongs to the server if the server has a tool of that name.
//! - The facts that are kept about a server are bounded.

use std::{borrow::Cow, collections::HashSet, time::Duration};

use unhang_bridge::tools::is_repeatable;
use unhang_bridge::{
    Splice, result,
    tasks::{self, Dialect},
};
use unhang_wire::{Json, ResponseOutcome, may_have, text_member};

use super::{
    calls::GuardedCall, client_profile::ClientProfile, promotion::PlannedPromotion, tool_list::ToolList,
};
use unhang_core::revision::Revision;
use unhang_front as front;
use unhang_tools::{Definition, is_about_jobs, job_report::ToolNames, listed_by_the_guard};

/// The prefixes that our tools' names may have, so that guards behind guards can tell their tools apart.
pub(super) const PREFIXES: [&str; 9] = [
    "unhang_", "unhang2_", "unhang3_", "unhang4_", "unhang5_", "unhang6_", "unhang7_", "unhang8_", "unhang9_",
];

/// The beginning of all these prefixes.
const STEM: &str = "unhang";

/// The notification that tells a client to ask for the tools again.
pub(super) const TOOLS_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The most bytes of a result that is checked for being a task.
const MOST_OF_A_TASK: usize = 16 << 10;

/// The most names of a server's tools that are kept.
const MOST_NAMES: usize = 4096;

/// The additions of the guard. See the module's text.
#[derive(Debug)]
pub(super) struct AddedCapabilities {
    names: ToolNames,
    /// Whether the names have been told to somebody, so that they stay.
    are_fixed: bool,
    /// The guard's own look at the server's tools.
    pub(super) tool_list: ToolList,
    /// The server's tools whose names begin as ours may.
    theirs: HashSet<Box<str>>,
    /// The server's tools that may be called once more.
    repeatable: HashSet<Box<str>>,
    /// Whether the server has tasks of its own, once it has said so.
    has_tasks: Option<bool>,
    /// Whether the client follows changes of the list and has no use for our tools yet.
    waits: bool,
    /// Whether the client has had a use for our tools.
    are_used: bool,
}

impl Default for AddedCapabilities {
    fn default() -> Self {
        Self {
            names: ToolNames { prefix: PREFIXES[0] },
            are_fixed: false,
            tool_list: ToolList::default(),
            theirs: HashSet::new(),
            repeatable: HashSet::new(),
            has_tasks: None,
            waits: false,
            are_used: false,
        }
    }
}

impl AddedCapabilities {
    /// Returns how many names are kept: of tools whose names begin as ours may, and of tools that may be called once more.
    #[cfg(test)]
    pub(super) fn learned(&self) -> (usize, usize) {
        (self.theirs.len(), self.repeatable.len())
    }

    /// Fixes the names of our tools, and returns them.
    pub(super) fn names(&mut self) -> ToolNames {
        self.are_fixed = true;
        self.names
    }

    /// Returns whether the guard has to ask for the server's tools before it names its own.
    pub(super) fn needs_tool_list(&self) -> bool {
        !self.are_fixed && self.tool_list.is_unknown()
    }

    /// Returns until when the names of our tools wait for the server's list. Returns `None` if they do not wait.
    pub(super) fn waits_for_tools(&self, now: Duration) -> Option<Duration> {
        self.tool_list.waits_until(now).filter(|_| !self.are_fixed)
    }

    /// Learns from a page that the guard has requested, or from the server's refusal (`None`). Returns the cursor of the next page to
    /// request, or `None` if that was the last one.
    pub(super) fn learn_page(&mut self, outcome: Option<&ResponseOutcome<'_>>) -> Option<String> {
        let page = match outcome {
            Some(ResponseOutcome::Result(page)) => Some(*page),
            _ => None,
        };
        if let Some(tools) = page.and_then(|page| page.member("tools")) {
            tools.each_element(|tool| self.learn(tool));
            self.choose_names();
        }
        let cursor = page.and_then(|page| text_member(page, "nextCursor"));
        let cursor = cursor.filter(|_| self.tool_list.take_page());
        if cursor.is_none() {
            self.tool_list.known();
        }
        cursor
    }

    /// Returns whether this is a tool of ours.
    pub(super) fn is_ours(&self, tool: &str) -> bool {
        is_about_jobs(tool, self.names) && !self.theirs.contains(tool)
    }

    /// Returns whether a call with these params names a tool that the guard has added.
    pub(super) fn is_call_of_ours(&self, params: Json<'_>) -> bool {
        // Most calls do not contain the prefix of these tools. A search for it costs less than parsing the params.
        may_have(params.get(), self.names.prefix)
            && params.member("name").and_then(Json::text).is_some_and(|name| self.is_ours(&name))
    }

    /// Returns whether the server says that calling this tool once more does nothing twice.
    pub(super) fn is_repeatable(&self, tool: &str) -> bool {
        self.repeatable.contains(tool)
    }

    /// Returns whether the server says so of any tool.
    pub(super) fn has_repeatable(&self) -> bool {
        !self.repeatable.is_empty()
    }

    /// Returns whether the server has tasks of its own, or `None` if it has not said so yet.
    pub(super) fn has_tasks(&self) -> Option<bool> {
        self.has_tasks
    }

    /// Sets whether our tools are listed only once there is a use for them.
    pub(super) fn wait_for_use(&mut self, waits: bool) {
        self.waits = waits && !self.are_used;
    }

    /// Notes that there is a use for our tools. Returns true if the client has to be told that they are listed now.
    pub(super) fn note_use(&mut self) -> bool {
        self.are_used = true;
        std::mem::take(&mut self.waits)
    }

    /// Returns the answer to a call, a line, with our additions. Returns `None` if there is nothing to add.
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

    /// Returns the server's description of itself with our additions, or `None` if there are none.
    fn introduced(&mut self, result: Json<'_>, dialect: Dialect, revision: Revision) -> Option<String> {
        let with_tasks = self.with_tasks(result, dialect, revision);
        let told = with_tasks.as_deref().and_then(|text| Json::new(text.as_bytes())).unwrap_or(result);
        let changing = if self.waits { with_changing_tools(told) } else { None };
        changing.or(with_tasks)
    }

    /// Adds our tasks in this dialect to the server's description of itself. Returns `None` if they cannot be offered.
    fn with_tasks(&mut self, result: Json<'_>, dialect: Dialect, revision: Revision) -> Option<String> {
        let capabilities = result.member("capabilities")?;
        let has_tasks = match dialect {
            // Any value of this member means that the server has tasks.
            Dialect::Core => capabilities.member("tasks").is_some(),
            Dialect::Extension => tasks::offers_tasks(dialect, capabilities),
        };
        self.has_tasks = Some(has_tasks);
        // Among the revisions with a handshake, only this one has tasks.
        let is_known = dialect == Dialect::Extension || revision == Revision::V2025November;
        if has_tasks || !is_known || capabilities.member("tools").is_none() {
            return None;
        }
        let with_tasks = tasks::with_offer(capabilities, dialect, true)?;
        Some(Splice::new(result).set("capabilities", with_tasks).apply()?.into_owned())
    }

    /// Returns a page of the server's tools. Our tools are added if it is the last page.
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
        if is_last {
            self.tool_list.known();
        }
        let is_listed = |tool: &Definition| is_last && !self.waits && self.is_ours(&tool.name);
        let ours = listed_by_the_guard(self.names).filter(is_listed);
        tools.extend(ours.map(|tool| Cow::Owned(tool.to_json(revision).to_string())));
        Some(Splice::new(result).set("tools", format!("[{}]", tools.join(","))).apply()?.into_owned())
    }

    fn learn(&mut self, tool: Json<'_>) {
        let Some(name) = text_member(tool, "name").map(String::into_boxed_str) else { return };
        let is_kept = |names: &HashSet<_>| names.len() < MOST_NAMES;
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

/// Marks the server's list of tools as one that changes.
fn with_changing_tools(result: Json<'_>) -> Option<String> {
    let capabilities = result.member("capabilities")?;
    let tools = Splice::new(capabilities.member("tools")?).set("listChanged", "true".to_owned());
    let capabilities = Splice::new(capabilities).set("tools", tools.apply()?);
    Some(Splice::new(result).set("capabilities", capabilities.apply()?).apply()?.into_owned())
}

/// Warns of a server that answers a call with a task although its client has not declared tasks (SEP-2663).
pub(super) fn warn_of_undeclared_task(
    call: &GuardedCall,
    outcome: &ResponseOutcome<'_>,
    client: &ClientProfile,
    server: &str,
) {
    if is_undeclared_task(call, outcome, client) {
        tracing::warn!(
            server,
            client = client.name(),
            "it answered `{}` (id {}) with a task, but the client declared no support for tasks; \
             this is a fault of the server",
            call.method,
            call.client_id
        );
    }
}

pub(super) fn is_undeclared_task(
    call: &GuardedCall,
    outcome: &ResponseOutcome<'_>,
    client: &ClientProfile,
) -> bool {
    let ResponseOutcome::Result(result) = outcome else { return false };
    let is_declared = |promotion: &PlannedPromotion| promotion.declares_tasks(client.revision());
    // A task is short. A long result is not parsed again just for this.
    client.is_modern()
        && result.get().len() <= MOST_OF_A_TASK
        && call.promotion.as_deref().is_some_and(|promotion| !is_declared(promotion))
        && result::kind(*result) == result::ResultKind::Task
}
