//! How long requests to a server are waited for, and when its calls become jobs.
//!
//! Invariants: pure; what is said of a tool goes before what is said of its server.

use std::{collections::BTreeMap, time::Duration};

use unhang_switches::stands;

use super::ServerEntry;
use crate::{
    config::{CALL_TIMEOUT, JOB_TIMEOUT, REQUEST_TIMEOUT},
    promotion::Promotion,
    route::rules::{ToolRule, ToolRules},
};

/// How long requests to a server are waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A `tools/call`.
    pub call: Duration,
    /// Those of single tools, by the names that the server gave them.
    pub tools: BTreeMap<String, Duration>,
    /// When a `tools/call` becomes a job.
    pub promotion: Promotion,
    /// Those of single tools.
    pub promotions: BTreeMap<String, Promotion>,
    /// A `tools/call` that has become a job.
    pub job: Duration,
    /// Those of single tools.
    pub jobs: BTreeMap<String, Duration>,
    /// Whether the same call of the same client joins the job that it has become.
    pub joins_same_call: bool,
    /// Everything else.
    pub request: Duration,
    /// Whether nothing but answers is to reach a client while a call runs.
    pub is_quiet: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            call: CALL_TIMEOUT,
            tools: BTreeMap::new(),
            promotion: Promotion::default(),
            promotions: BTreeMap::new(),
            job: JOB_TIMEOUT,
            jobs: BTreeMap::new(),
            joins_same_call: true,
            request: REQUEST_TIMEOUT,
            is_quiet: false,
        }
    }
}

impl Patience {
    /// For this tool.
    #[must_use]
    pub fn of_call(&self, tool: &str) -> Duration {
        self.tools.get(tool).copied().unwrap_or(self.call)
    }

    /// When a call of this tool becomes a job.
    #[must_use]
    pub fn of_promotion(&self, tool: &str) -> Promotion {
        self.promotions.get(tool).copied().unwrap_or(self.promotion)
    }

    /// Whether the client of a call of this tool is told that it is still waited for.
    #[must_use]
    pub fn has_heartbeat(&self, tool: &str) -> bool {
        self.of_promotion(tool).has_heartbeats() && (!self.is_quiet || !stands("quiet-without-heartbeats"))
    }

    /// Whether a call of any tool may become a job.
    #[must_use]
    pub fn promotes(&self) -> bool {
        self.promotion != Promotion::Off
            || self.promotions.values().any(|promotion| *promotion != Promotion::Off)
    }

    /// For a call of this tool that has become a job.
    #[must_use]
    pub fn of_job(&self, tool: &str) -> Duration {
        self.jobs.get(tool).copied().unwrap_or(self.job)
    }

    /// For the tool that takes longest.
    #[must_use]
    pub fn longest_call(&self) -> Duration {
        self.tools.values().copied().fold(self.call, Duration::max)
    }
}

impl From<&ServerEntry> for Patience {
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
            joins_same_call: limits.join_same_call,
            request: limits.request_timeout,
            is_quiet: limits.quiet,
        }
    }
}

/// What is said of single tools.
fn said<T>(rules: &ToolRules, of: impl Fn(&ToolRule) -> Option<T>) -> BTreeMap<String, T> {
    rules.tools.iter().filter_map(|(name, rule)| Some((name.clone(), of(rule)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::tests::mute;

    #[test]
    fn what_is_said_of_a_tool_goes_before_what_is_said_of_its_server() {
        let (_mute, mut entry) = mute();
        let limits = &mut entry.spec.limits;
        limits.promote_after = Promotion::After(Duration::from_secs(20));
        limits.job_timeout = Duration::from_secs(60);
        let off = ToolRule { promote_after: Some(Promotion::Off), ..ToolRule::default() };
        let long = ToolRule { job_timeout: Some(Duration::from_secs(3600)), ..ToolRule::default() };
        entry.tool_rules.tools = [("off".to_owned(), off), ("long".to_owned(), long)].into();
        let patience = Patience::from(&entry);
        let twenty = Promotion::After(Duration::from_secs(20));
        for (tool, promotion, job) in
            [("off", Promotion::Off, 60), ("long", twenty, 3600), ("another", twenty, 60)]
        {
            assert_eq!(patience.of_promotion(tool), promotion, "{tool}");
            assert_eq!(patience.of_job(tool), Duration::from_secs(job), "{tool}");
        }
    }
}
