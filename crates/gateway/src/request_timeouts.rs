//! Timeouts of requests to a server, and the time at which its calls become jobs.
//!
//! Invariants: pure; a setting of a tool goes before the setting of its server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    ServerEntry,
    owners::{LeaderServer, LeaderServers},
};
use crate::route::{
    catalog::Owners,
    rules::{ToolRule, ToolRules},
};
use unhang_core::{
    config::{CALL_TIMEOUT, JOB_TIMEOUT, REQUEST_TIMEOUT},
    insertion::InsertEach,
    promotion::Promotion,
};

/// The timeouts of requests to a server, and its other settings for calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// The timeout of a `tools/call`.
    pub call: Duration,
    /// The same of single tools, by the names that the server gave them.
    pub tools: BTreeMap<String, Duration>,
    /// The time at which a `tools/call` becomes a job.
    pub promotion: Promotion,
    /// The same of single tools.
    pub promotions: BTreeMap<String, Promotion>,
    /// The timeout of a `tools/call` that has become a job.
    pub job: Duration,
    /// The same of single tools.
    pub jobs: BTreeMap<String, Duration>,
    /// Which calls join the job that the same call has become.
    pub joining: JoinPolicy,
    /// The same of single tools.
    pub joinings: BTreeMap<String, JoinPolicy>,
    /// The timeout of every other request.
    pub request: Duration,
    /// Whether a client gets nothing but answers while a call runs.
    pub is_quiet: bool,
    /// Tools whose setting for that is the opposite of `is_quiet`.
    pub otherwise_quiet: BTreeSet<String>,
    /// Servers of which another gateway has listed no tool yet, by the beginning of the names of their tools there.
    pub unlisted: BTreeMap<String, RequestTimeouts>,
}

/// Which calls of a tool join the job that the same call has become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPolicy {
    /// No call joins.
    #[default]
    Never,
    /// All calls join, if the tool declares that it may be called again without doing anything twice.
    WhereDeclared,
    /// All calls join.
    Always,
}

impl JoinPolicy {
    /// Returns the policy for a yes or no about all tools.
    fn of_all(joins: bool) -> Self {
        if joins { Self::WhereDeclared } else { Self::Never }
    }

    /// Returns the policy for a yes or no about a single tool.
    fn of_one(joins: bool) -> Self {
        if joins { Self::Always } else { Self::Never }
    }
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            call: CALL_TIMEOUT,
            tools: BTreeMap::new(),
            promotion: Promotion::default(),
            promotions: BTreeMap::new(),
            job: JOB_TIMEOUT,
            jobs: BTreeMap::new(),
            joining: JoinPolicy::Never,
            joinings: BTreeMap::new(),
            request: REQUEST_TIMEOUT,
            is_quiet: false,
            otherwise_quiet: BTreeSet::new(),
            unlisted: BTreeMap::new(),
        }
    }
}

impl RequestTimeouts {
    /// Returns the setting `said` of this tool, or `theirs` of a server behind another gateway of which nothing is listed yet.
    fn of<T: Copy>(
        &self,
        said: &BTreeMap<String, T>,
        tool: &str,
        theirs: impl FnOnce(&Self, &str) -> T,
    ) -> Option<T> {
        said.get(tool)
            .copied()
            .or_else(|| self.of_unlisted(tool).map(|(unlisted, tool)| theirs(unlisted, tool)))
    }

    /// Returns the server behind another gateway that would have a tool or a prompt of this name, and the server's name for it. Only
    /// servers of which nothing is listed yet count.
    fn of_unlisted<'a>(&self, name: &'a str) -> Option<(&Self, &'a str)> {
        let with = |(beginning, theirs)| Some((theirs, name.strip_prefix(String::as_str(beginning))?));
        // The longest beginning that fits.
        self.unlisted.iter().filter_map(with).min_by_key(|(_, rest)| rest.len())
    }

    /// Returns whether another gateway may have a tool or a prompt of this name that it has not listed yet.
    #[must_use]
    pub fn may_have(&self, name: &str) -> bool {
        self.of_unlisted(name).is_some()
    }

    /// Returns the timeout of a call of this tool.
    #[must_use]
    pub fn of_call(&self, tool: &str) -> Duration {
        self.of(&self.tools, tool, Self::of_call).unwrap_or(self.call)
    }

    /// Returns when a call of this tool becomes a job.
    #[must_use]
    pub fn of_promotion(&self, tool: &str) -> Promotion {
        self.of(&self.promotions, tool, Self::of_promotion).unwrap_or(self.promotion)
    }

    /// Returns whether the client of a call of this tool gets heartbeats.
    #[must_use]
    pub fn has_heartbeat(&self, tool: &str) -> bool {
        self.of_promotion(tool).has_heartbeats() && !self.is_quiet_of(tool)
    }

    /// Returns whether a client gets nothing but the answer while a call of this tool runs.
    fn is_quiet_of(&self, tool: &str) -> bool {
        match self.of_unlisted(tool) {
            Some((theirs, tool)) => theirs.is_quiet_of(tool),
            None => self.is_quiet != self.otherwise_quiet.contains(tool),
        }
    }

    /// Returns which calls of this tool join the job that the same call has become.
    #[must_use]
    pub fn of_joining(&self, tool: &str) -> JoinPolicy {
        self.of(&self.joinings, tool, Self::of_joining).unwrap_or(self.joining)
    }

    /// Returns the timeouts for a gateway whose tools have other owners. `owners` has the server of each tool and the server's name for it,
    /// by the name that the gateway lists.
    pub(super) fn translated(mut self, behind: &LeaderServers, owners: &Owners) -> Self {
        for (public, (server, tool)) in owners {
            let Some(LeaderServer { timeouts: theirs, .. }) = behind.get(server) else { continue };
            let name = || public.clone();
            self.tools.insert(name(), theirs.of_call(tool));
            self.promotions.insert(name(), theirs.of_promotion(tool));
            self.jobs.insert(name(), theirs.of_job(tool));
            self.joinings.insert(name(), theirs.of_joining(tool));
            if theirs.is_quiet_of(tool) != self.is_quiet {
                self.otherwise_quiet.insert(name());
            }
        }
        let is_listed = |name: &String| owners.values().any(|(server, _)| server == name);
        let unlisted = behind.iter().filter(|(name, _)| !is_listed(name));
        let begin = |(_, one): (_, &LeaderServer)| Some((one.beginning.clone()?, one.timeouts.clone()));
        self.unlisted = unlisted.filter_map(begin).insert_each();
        self
    }

    /// Returns whether a call of any tool may become a job.
    #[must_use]
    pub fn promotes(&self) -> bool {
        self.promotion != Promotion::Off
            || self.promotions.values().any(|promotion| *promotion != Promotion::Off)
    }

    /// Returns the timeout of a call of this tool that has become a job.
    #[must_use]
    pub fn of_job(&self, tool: &str) -> Duration {
        self.of(&self.jobs, tool, Self::of_job).unwrap_or(self.job)
    }

    /// Returns the timeout of the tool that may take longest.
    #[must_use]
    pub fn longest_call(&self) -> Duration {
        self.tools.values().copied().fold(self.call, Duration::max)
    }
}

impl From<&ServerEntry> for RequestTimeouts {
    fn from(entry: &ServerEntry) -> Self {
        let limits = &entry.spec.limits;
        let rules = &entry.tool_rules;
        Self {
            call: limits.call_timeout,
            tools: said(rules, |rule| rule.call_timeout),
            promotion: limits.promote_after,
            promotions: said(rules, |rule| rule.promote_after),
            job: limits.job_timeout,
            jobs: said(rules, |rule| rule.job_timeout),
            joining: JoinPolicy::of_all(limits.join_same_call),
            joinings: said(rules, |rule| rule.join_same_call.map(JoinPolicy::of_one)),
            request: limits.request_timeout,
            is_quiet: limits.quiet,
            otherwise_quiet: BTreeSet::new(),
            unlisted: BTreeMap::new(),
        }
    }
}

/// Returns the setting of single tools that `of` reads.
fn said<T>(rules: &ToolRules, of: impl Fn(&ToolRule) -> Option<T>) -> BTreeMap<String, T> {
    rules.tools.iter().filter_map(|(name, rule)| Some((name.clone(), of(rule)?))).insert_each()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mute;
    use unhang_core::limits::Limits;

    #[test]
    fn what_is_said_of_a_tool_goes_before_what_is_said_of_its_server() {
        let (_mute, mut entry) = mute();
        let limits = &mut entry.spec.limits;
        limits.promote_after = Promotion::After(Duration::from_secs(20));
        limits.job_timeout = Duration::from_secs(60);
        let off = ToolRule { promote_after: Some(Promotion::Off), ..ToolRule::default() };
        let long = ToolRule { job_timeout: Some(Duration::from_secs(3600)), ..ToolRule::default() };
        entry.tool_rules.tools = [("off".to_owned(), off), ("long".to_owned(), long)].into();
        let timeouts = RequestTimeouts::from(&entry);
        let twenty = Promotion::After(Duration::from_secs(20));
        for (tool, promotion, job) in
            [("off", Promotion::Off, 60), ("long", twenty, 3600), ("another", twenty, 60)]
        {
            assert_eq!(timeouts.of_promotion(tool), promotion, "{tool}");
            assert_eq!(timeouts.of_job(tool), Duration::from_secs(job), "{tool}");
        }
    }

    #[test]
    fn f_20_which_calls_are_joined_is_said_of_all_tools_and_of_single_ones() {
        let (_mute, mut entry) = mute();
        for (tool, joins) in [("yes", true), ("no", false)] {
            let rule = ToolRule { join_same_call: Some(joins), ..ToolRule::default() };
            entry.tool_rules.tools.insert(tool.to_owned(), rule);
        }
        for (joins, others) in [(false, JoinPolicy::Never), (true, JoinPolicy::WhereDeclared)] {
            entry.spec.limits.join_same_call = joins;
            let timeouts = RequestTimeouts::from(&entry);
            let said = ["yes", "no", "other"].map(|tool| timeouts.of_joining(tool));
            assert_eq!(said, [JoinPolicy::Always, JoinPolicy::Never, others]);
        }
        assert!(!Limits::default().join_same_call, "it is off unless somebody says so");
    }

    #[test]
    fn f_91_what_another_gateway_has_is_waited_for_as_long_as_there() {
        let (_mute, mut entry) = mute();
        entry.spec.limits.call_timeout = Duration::from_secs(7);
        entry.spec.limits.quiet = true;
        let short = ToolRule { call_timeout: Some(Duration::from_secs(2)), ..ToolRule::default() };
        entry.tool_rules.tools.insert("b".to_owned(), short);
        let srv = LeaderServer { timeouts: RequestTimeouts::from(&entry), beginning: Some("x__".to_owned()) };
        let behind: LeaderServers = [("srv".to_owned(), srv)].into();
        let unlisted = RequestTimeouts::default().translated(&behind, &Owners::new());
        assert_eq!(["x__a", "x__b"].map(|tool| unlisted.of_call(tool).as_secs()), [7, 2], "not listed yet");
        assert!(!unlisted.has_heartbeat("x__a") && unlisted.may_have("x__a") && !unlisted.may_have("y__a"));
        let owned = |tool: &str| ("srv".to_owned(), tool.to_owned());
        let owners = [("x__a".to_owned(), owned("a")), ("x__b".to_owned(), owned("b"))].into();
        let timeouts = RequestTimeouts::default().translated(&behind, &owners);
        let waits = ["x__a", "x__b", "b"].map(|tool| timeouts.of_call(tool).as_secs());
        assert_eq!(waits, [7, 2, CALL_TIMEOUT.as_secs()]);
        assert!(!timeouts.may_have("x__c"), "all that it has is listed");
        assert!(!timeouts.has_heartbeat("x__a") && timeouts.has_heartbeat("b"));
    }
}
