//! The counters as a page that Prometheus reads (OpenMetrics 1.0 as text, or the older text format 0.0.4).
//!
//! Invariants: every name is in `docs/reference/metrics.md`, and every name there is on the page. A value that was not measured is not on
//! the page. The values of labels come from the configuration and from unhang alone.

use std::{
    fmt::{self, Write},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::MetricType,
    registry::Registry,
};

use unhang_jobs::shared_jobs::WorkerSummary;

use super::operators::JobCounts;
use crate::tally::FrontTally;
use unhang_gateway::{ServerState, ServerStatus, Servers};

/// The content types of the page: the newer for clients that ask for it, the older for all others.
pub(super) const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(super) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The most workers on the page.
const MOST_WORKERS: usize = 1000;

/// The state of unhang at one moment.
pub(super) struct Snapshot {
    /// The time since the start.
    pub uptime: Duration,
    /// The number of sessions.
    pub sessions: usize,
    /// The number of requests that stand alone and have not ended.
    pub alone: usize,
    /// The counters of all sessions.
    pub tally: Arc<FrontTally>,
    /// The servers, if there are any.
    pub servers: Option<Servers>,
    /// The status of each server, in the servers' order.
    pub statuses: Vec<ServerStatus>,
    /// The jobs by state, if there are any.
    pub jobs: Option<JobCounts>,
}

/// Writes the page.
///
/// # Errors
/// Fails in no known case: the page is written to memory.
pub(super) fn page(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut page = String::new();
    encode(&mut page, &registry)?;
    Ok(page)
}

/// Converts the page to the older format, which describes a counter by its whole name.
pub(super) fn classic(page: &str) -> String {
    let is_counter = |name: &str| page.contains(&format!("\n# TYPE {name} counter\n"));
    let mut classic = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF") {
        let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        match described.and_then(|rest| rest.split_once(' ')).filter(|(name, _)| is_counter(name)) {
            Some((name, rest)) => {
                let _in_memory = writeln!(classic, "{} {name}_total {rest}", &line[..6]);
            }
            None => {
                let _in_memory = writeln!(classic, "{line}");
            }
        }
    }
    classic
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = MetricsPage(encoder);
        self.of_the_whole(&mut page)?;
        self.of_clients(&mut page)?;
        self.of_servers(&mut page)?;
        self.of_requests(&mut page)?;
        match &self.jobs {
            Some(counts) => of_jobs(counts, &mut page),
            None => Ok(()),
        }
    }
}

impl Snapshot {
    fn of_the_whole(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        page.gauges("unhang_build_info", "Always 1; the version is a label.", version)?;
        let waiting = self.servers.as_ref().map_or(0, Servers::waiting);
        let help = "Requests that wait because all servers together are at their limit.";
        page.gauge("unhang_requests_waiting", help, wide(waiting))?;
        let uptime = self.uptime.as_secs();
        page.gauge("unhang_uptime_seconds", "Seconds since the start.", uptime)
    }

    fn of_clients(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let tally = &self.tally;
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        page.gauge("unhang_sessions", "Sessions of clients.", wide(self.sessions))?;
        let help = "Requests without a session that have not ended.";
        page.gauge("unhang_requests_without_session", help, wide(self.alone))?;
        let help = "Bytes that wait for clients to read them.";
        page.gauge("unhang_queue_bytes", help, wide(tally.waiting.load(Ordering::Relaxed)))?;
        let help = "Notifications that were merged or left out because their client did not read.";
        page.counter("unhang_notifications_dropped", help, count(&tally.shed))?;
        let help = "Sessions that were closed because their client did not read.";
        page.counter("unhang_sessions_dropped", help, count(&tally.deaf))?;
        page.family("unhang_client_requests", "Requests of clients, by method.", &tally.requests)?;
        let answers = [("result", count(&tally.results)), ("error", count(&tally.errors))];
        let answers = answers.map(|(outcome, count)| ([("outcome", outcome)], count));
        page.counters("unhang_client_answers", "Answers to clients.", answers)?;
        let help = "Requests that clients withdrew.";
        page.counter("unhang_client_withdrawals", help, count(&tally.withdrawn))?;
        let responses = tally.responses();
        let responses = responses.iter().map(|(status, count)| ([("status", &**status)], *count));
        page.counters("unhang_http_responses", "Responses over HTTP, by status.", responses)?;
        page.family("unhang_tool_calls", "Calls of the tools of unhang itself.", &tally.tool_calls)
    }

    fn of_servers(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let each = |value: fn(&ServerStatus) -> u64| {
            self.statuses.iter().map(move |status| ([("server", &*status.name)], value(status)))
        };
        let help = "Processes or connections of a server that run: several, where each session has its own.";
        page.gauges("unhang_server_instances", help, each(|status| wide(status.instances)))?;
        let help = "Starts of a server, the first included.";
        page.counters("unhang_server_starts", help, each(|status| status.starts))?;
        let help = "Ends and failed starts of a server, each counted when it happens.";
        page.counters("unhang_server_failures", help, each(|status| status.failures_total))?;
        let help = "Lines on a server's stdout that were not messages.";
        page.counters("unhang_junk_lines", help, each(|status| status.junk_lines))?;
        let help = "Requests that a server has not answered.";
        page.gauges("unhang_server_in_flight", help, each(|status| wide(status.in_flight)))?;
        let help = "Requests that wait for their turn at a server.";
        page.gauges("unhang_server_waiting", help, each(|status| wide(status.waiting)))?;
        let help = "Failures of a server in a row, since it last answered.";
        page.gauges("unhang_breaker_failures", help, each(|status| status.failures.into()))?;
        let states = self.statuses.iter().flat_map(|status| {
            ServerState::ALL.map(|state| {
                ([("server", &*status.name), ("state", state.word())], u64::from(state == status.state))
            })
        });
        page.gauges("unhang_server_state", "1 for the state that a server is in.", states)
    }

    fn of_requests(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let named = self.servers.as_ref().map(Servers::request_metrics).unwrap_or_default();
        let requests = named.iter().flat_map(|(server, tally)| {
            tally.requests().map(move |(method, outcome, count)| {
                ([("server", &**server), ("method", method), ("outcome", outcome)], count)
            })
        });
        let help = "Requests of clients to a server, by outcome.";
        page.counters("unhang_requests", help, requests)?;
        let help = "Duration of these requests, including the wait for the server to start.";
        let mut encoder =
            page.0.encode_descriptor("unhang_request_duration_seconds", help, None, MetricType::Histogram)?;
        for (server, tally) in &named {
            tally.durations.encode(encoder.encode_family(&[("server", server.as_str())])?)?;
        }
        Ok(())
    }
}

fn of_jobs(counts: &JobCounts, page: &mut MetricsPage<'_>) -> fmt::Result {
    let states = counts.states.iter().map(|(state, count)| ([("state", state.as_str())], *count));
    page.gauges("unhang_jobs", "Stored jobs, by state.", states)?;
    // A writer of the store can make any number of workers, and each worker has four series.
    let workers = &counts.workers[..counts.workers.len().min(MOST_WORKERS)];
    let labels: Vec<String> = workers.iter().map(|worker| worker.labels.join(",")).collect();
    let known = workers.iter().zip(&labels).map(|(worker, labels)| {
        let name = ("worker", worker.name.as_str());
        ([name, ("host", &*worker.host), ("version", &*worker.version), ("labels", &**labels)], 1)
    });
    let help = "Always 1; host, version and labels of a worker are labels.";
    page.gauges("unhang_worker_info", help, known)?;
    let each = |value: fn(&WorkerSummary) -> u64| {
        workers.iter().map(move |worker| ([("worker", worker.name.as_str())], value(worker)))
    };
    let help = "Jobs that a worker runs at the same time at most.";
    page.gauges("unhang_worker_slots", help, each(|worker| worker.slots.into()))?;
    page.gauges("unhang_worker_running_jobs", "Jobs that a worker has.", each(|worker| worker.running))?;
    let help = "Seconds since the last heartbeat of a worker.";
    page.gauges("unhang_worker_heartbeat_age_seconds", help, each(|worker| worker.heard_seconds_ago))
}

/// Labels and a number.
type MetricSample<'a, const LABELS: usize> = ([(&'a str, &'a str); LABELS], u64);

/// The page while it is written.
struct MetricsPage<'a>(DescriptorEncoder<'a>);

impl MetricsPage<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauges<'a, const LABELS: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample<'a, LABELS>>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes a counter, whose name ends in `_total` on the page.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<Unlabelled, _, u64>(&value, None)
    }

    fn counters<'a, const LABELS: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample<'a, LABELS>>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            encoder.encode_family(&labels)?.encode_counter::<Unlabelled, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// Writes counters that their owner keeps by their labels.
    fn family(&mut self, name: &str, help: &str, counters: &impl EncodeMetric) -> fmt::Result {
        counters.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }
}

/// The labels of an exemplar; there are no exemplars.
type Unlabelled = [(&'static str, &'static str); 0];

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_the_older_format_find_counters_by_the_names_that_they_know() {
        let open = "# HELP a Some.\n# TYPE a gauge\na 1\n# HELP b More.\n# TYPE b counter\nb_total{x=\"y\"} 2\n# EOF\n";
        let expect = "# HELP a Some.\n# TYPE a gauge\na 1\n# HELP b_total More.\n# TYPE b_total counter\nb_total{x=\"y\"} 2\n";
        assert_eq!(classic(open), expect);
    }
}
