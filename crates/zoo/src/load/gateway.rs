//! The gateway over HTTP: what it adds to a call beside a reverse proxy that looks at no message, and how many sessions it holds.
//!
//! # Theory of operation
//!
//! One fast server over HTTP is reached in three ways: directly, through nginx, through `unhang serve --http`. All three stand ready for
//! the whole run; one thread plays the client and goes through all ways in each round.
//!
//! # Invariants
//!
//! - Whatever was started has ended when the run ends, also after an error. All traffic stays on this machine.

mod many_sessions;
mod setting;
mod upstream;
pub(crate) mod web;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unhang_demo_servers::bounded_waits;

use super::answers::PATIENCE;
use super::samples::percentile;
use super::{LoadPrograms, SMALL, per_second};

pub use many_sessions::{CrowdPlan, CrowdRound, measure_crowd};
use setting::{GatewayFolder, ListeningProcess};
pub(crate) use upstream::echo_over_http;
use web::{HttpAnswer, LoadConnection};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// How often all ways are gone through.
    pub rounds: usize,
    /// Calls of each way before the measuring begins.
    pub warm_up: usize,
    /// Calls with one in flight, in each round.
    pub round_trips: usize,
    /// Calls with many in flight, in each round.
    pub calls: usize,
    /// How many are in flight then, each on a connection of its own.
    pub in_flight: usize,
    /// After this time a measure makes do with the calls that it has.
    pub limit: Duration,
}

impl GatewayPlan {
    /// The plan whose figures mean something; a quarter of a minute.
    pub const FULL: GatewayPlan = GatewayPlan {
        rounds: 9,
        warm_up: 2_000,
        round_trips: 2_000,
        calls: 6_000,
        in_flight: 32,
        limit: Duration::from_millis(500),
    };
    /// A plan that shows no more than that everything works.
    pub const QUICK: GatewayPlan = GatewayPlan {
        rounds: 1,
        warm_up: 10,
        round_trips: 50,
        calls: 100,
        in_flight: 32,
        limit: Duration::from_millis(200),
    };
}

/// What one round found out about one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayRound {
    /// Half of the round trips were at most as long.
    pub round_trip_p50: Duration,
    /// All but a hundredth of them were at most as long.
    pub round_trip_p99: Duration,
    /// How much more the former is than directly, in the same round.
    pub added_p50: Option<Duration>,
    /// Answers a second with many calls in flight.
    pub calls_per_second: f64,
}

/// The rounds of all ways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayFigures {
    /// The server alone.
    pub direct: Vec<GatewayRound>,
    /// Through nginx; none where there is none.
    pub proxy: Vec<GatewayRound>,
    /// Through the gateway.
    pub gateway: Vec<GatewayRound>,
}

/// One of the ways.
struct GatewayRoute {
    address: SocketAddr,
    session: Option<String>,
    tool: &'static str,
}

impl GatewayRoute {
    /// Begins a session.
    fn open(address: SocketAddr, tool: &'static str) -> io::Result<Self> {
        let session = web::begin(&mut LoadConnection::open(address)?)?;
        Ok(Self { address, session, tool })
    }

    fn call(&self, connection: &mut LoadConnection) -> io::Result<()> {
        connection.call(self.session.as_deref(), self.tool, SMALL)
    }

    fn measure(&self, plan: &GatewayPlan) -> io::Result<GatewayRound> {
        let mut connection = LoadConnection::open(self.address)?;
        for _ in 0..plan.warm_up.min(100) {
            self.call(&mut connection)?;
            is_result(&connection.answer()?)?;
        }
        let (begin, mut trips) = (bounded_waits::now(), Vec::with_capacity(plan.round_trips));
        while trips.len() < plan.round_trips && begin.elapsed() < plan.limit {
            let sent = bounded_waits::now();
            self.call(&mut connection)?;
            is_result(&connection.answer()?)?;
            trips.push(sent.elapsed());
        }
        trips.sort_unstable();
        Ok(GatewayRound {
            round_trip_p50: percentile(&trips, 50),
            round_trip_p99: percentile(&trips, 99),
            added_p50: None,
            calls_per_second: self.many(plan.calls, plan)?,
        })
    }

    /// Sends a call for each answer that comes, so that always as many are in flight; returns answers a second.
    fn many(&self, calls: usize, plan: &GatewayPlan) -> io::Result<f64> {
        let connections = (0..plan.in_flight.min(calls)).map(|_| LoadConnection::open(self.address));
        let mut connections = connections.collect::<io::Result<Vec<LoadConnection>>>()?;
        let begin = bounded_waits::now();
        connections.iter_mut().try_for_each(|connection| self.call(connection))?;
        let (mut sent, mut answered) = (connections.len(), 0);
        let timeout = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        while answered < sent {
            let streams = connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
            let mut streams: Vec<PollFd<'_>> = streams.collect();
            if rustix::io::retry_on_intr(|| poll(&mut streams, Some(&timeout)))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let ready: Vec<bool> = streams.iter().map(|stream| !stream.revents().is_empty()).collect();
            for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                let Some(answer) = connection.take()? else { continue };
                is_result(&answer)?;
                answered += 1;
                if sent < calls && begin.elapsed() < plan.limit {
                    self.call(connection)?;
                    sent += 1;
                }
            }
        }
        Ok(per_second(answered, begin.elapsed()))
    }
}

fn is_result(answer: &HttpAnswer) -> io::Result<()> {
    let is_result = answer.status == 200 && answer.body.windows(9).any(|window| window == b"\"result\":");
    let told = || format!("status {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    if is_result { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, told())) }
}

/// Measures the gateway of `unhang`, and `nginx` beside it where there is one. `on_progress` hears the number of each round, from 1.
///
/// # Errors
///
/// Something that does not do what it should.
pub fn measure_gateway(
    programs: LoadPrograms<'_>,
    nginx: Option<&str>,
    plan: &GatewayPlan,
    mut on_progress: impl FnMut(usize),
) -> io::Result<GatewayFigures> {
    let gateway_folder = GatewayFolder::make()?;
    let (_server, upstream) = gateway_folder.upstream(programs.zoo)?;
    let proxy = nginx.map(|nginx| gateway_folder.nginx(nginx, upstream)).transpose()?;
    let servers = format!("[servers.srv]\nurl = \"http://{upstream}/mcp\"\n");
    let gateway: ListeningProcess = gateway_folder.gateway(programs.unhang, &servers)?;
    let direct = GatewayRoute::open(upstream, "echo")?;
    let through = GatewayRoute::open(gateway.address, "srv__echo")?;
    let proxy = proxy
        .map(|proxy| Ok::<_, io::Error>((GatewayRoute::open(proxy.address, "echo")?, proxy)))
        .transpose()?;
    for way in [Some(&direct), proxy.as_ref().map(|(way, _)| way), Some(&through)].into_iter().flatten() {
        way.many(plan.warm_up, &GatewayPlan { limit: PATIENCE, ..*plan })?;
    }
    let mut figures = GatewayFigures::default();
    for round in 1..=plan.rounds {
        on_progress(round);
        let bare = direct.measure(plan)?;
        let beside = |round: GatewayRound| GatewayRound {
            added_p50: Some(round.round_trip_p50.saturating_sub(bare.round_trip_p50)),
            ..round
        };
        figures.direct.push(bare);
        if let Some((way, _)) = &proxy {
            figures.proxy.push(beside(way.measure(plan)?));
        }
        figures.gateway.push(beside(through.measure(plan)?));
    }
    Ok(figures)
}
