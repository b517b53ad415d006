//! Many sessions and servers: what a quiet session costs, whether others notice those that misbehave, and what is left of sessions that
//! have ended.
//!
//! # Theory of operation
//!
//! Each quiet session has a connection on which its client listens, as clients do. One client asks for much and reads nothing of it, one
//! server logs without an end while it works on a call, and one never answers; a probe meanwhile makes one call after the other. Sessions
//! that come and go are counted at a gateway of its own, after as many as make it warm.
//!
//! # Invariants
//!
//! - What is measured is the process that serves clients, not the servers.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use unhang_demo_servers::{bounded_waits, processes::resident_memory};

use super::super::samples::{difference, percentile, share};
use super::super::{LoadPrograms, SMALL};
use super::is_result;
use super::setting::{GatewayFolder, ListeningProcess};
use super::web::{self, LoadConnection, PATH};

/// What the client that reads nothing asks for in each call, and how many it makes.
const UNREAD: (usize, usize) = (2 << 20, 8);
/// How long a probe goes on at most.
const PROBING: Duration = Duration::from_secs(10);
/// Connections over which sessions come and go.
const CARRIERS: usize = 16;
/// Descriptors beside one for each session.
const OTHERS: u64 = 600;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdPlan {
    /// Sessions at a time.
    pub sessions: usize,
    /// Servers.
    pub servers: usize,
    /// Calls of each probe.
    pub probes: usize,
    /// Sessions that come and go, in so many waves.
    pub passing: usize,
    /// Waves of them.
    pub waves: usize,
}

impl CrowdPlan {
    /// The plan whose figures mean something; half a minute.
    pub const FULL: CrowdPlan =
        CrowdPlan { sessions: 2_000, servers: 50, probes: 1_000, passing: 10_000, waves: 10 };
    /// A plan that shows no more than that everything works.
    pub const QUICK: CrowdPlan = CrowdPlan { sessions: 20, servers: 5, probes: 20, passing: 20, waves: 2 };
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrowdRound {
    /// Bytes of memory of a session whose client listens and asks nothing.
    pub session_bytes: f64,
    /// All but a hundredth of the calls of a probe were at most as long, with nobody else asking.
    pub quiet_p99: Duration,
    /// The same while others misbehave: half of them.
    pub probe_p50: Duration,
    /// All but a hundredth of them.
    pub probe_p99: Duration,
    /// Bytes of memory that sessions which have ended have left.
    pub left_bytes: f64,
    /// Descriptors that they have left.
    pub left_descriptors: f64,
}

/// Measures the gateway under many sessions.
///
/// # Errors
///
/// Something that does not do what it should, or too few descriptors.
pub fn measure_crowd(
    programs: LoadPrograms<'_>,
    plan: &CrowdPlan,
    mut on_progress: impl FnMut(&str),
) -> io::Result<CrowdRound> {
    allow_descriptors(plan.sessions as u64 + OTHERS)?;
    on_progress("many sessions");
    let (session_bytes, quiet, noisy) = crowded(programs, plan, &mut on_progress)?;
    on_progress("sessions that come and go");
    let (left_bytes, left_descriptors) = passing(programs, plan)?;
    Ok(CrowdRound {
        session_bytes,
        quiet_p99: percentile(&quiet, 99),
        probe_p50: percentile(&noisy, 50),
        probe_p99: percentile(&noisy, 99),
        left_bytes,
        left_descriptors,
    })
}

/// Lets this process and those that it starts have so many descriptors.
fn allow_descriptors(count: u64) -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    limit.current = Some(limit.maximum.map_or(count, |most| most.min(count)));
    setrlimit(Resource::Nofile, limit)?;
    if limit.current < Some(count) {
        let told = format!("{count} descriptors are needed; raise the limit (`ulimit -Hn {count}`)");
        return Err(io::Error::other(told));
    }
    Ok(())
}

fn crowded(
    programs: LoadPrograms<'_>,
    plan: &CrowdPlan,
    on_progress: &mut impl FnMut(&str),
) -> io::Result<(f64, Vec<Duration>, Vec<Duration>)> {
    let gateway_folder = GatewayFolder::make()?;
    let gateway = gateway_folder.gateway(programs.unhang, &servers(programs.zoo, plan.servers))?;
    let address = gateway.address;
    let mut probe = Probe::open(address)?;
    // What the first ones need is needed once.
    drop(listeners(address, plan.sessions / 10)?);
    probe.measure(plan.probes / 4)?;
    let before = resident_memory(gateway.pid())?;
    let quiet_ones = listeners(address, plan.sessions)?;
    let session_bytes = share(difference(resident_memory(gateway.pid())?, before), plan.sessions);
    let quiet = probe.measure(plan.probes)?;
    on_progress("many sessions, and some that misbehave");
    let _deaf = deaf(address)?;
    let _mute = asked(address, "mute__echo")?;
    let flooded = flooded(address)?;
    let noisy = probe.measure(plan.probes)?;
    drop(quiet_ones);
    // Its end ends the flood, and that its reader.
    drop(gateway);
    let _ended = flooded.join();
    Ok((session_bytes, quiet, noisy))
}

/// Servers, of which the first is asked, the second logs without an end, the third never answers and the fourth is asked for much.
fn servers(zoo: &str, count: usize) -> String {
    let server = |(index, name, words): (usize, &str, &[&str])| {
        let name = if name.is_empty() { format!("quiet{index}") } else { name.to_owned() };
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!("[servers.{name}]\ncommand = {zoo:?}\nargs = [\"zoo\", {}]\n", words.join(", "))
    };
    let special: [(&str, &[&str]); 4] = [
        ("probed", &["echoes"]),
        ("flood", &["notification-flood", "100000000"]),
        ("mute", &["never-answers"]),
        ("large", &["echoes"]),
    ];
    let quiet = (special.len()..count).map(|index| (index, "", &["echoes"] as &[&str]));
    let special = special.iter().enumerate().map(|(index, (name, words))| (index, *name, *words));
    special.chain(quiet).take(count).map(server).collect()
}

/// Sessions, each with a connection on which its client listens.
fn listeners(address: SocketAddr, count: usize) -> io::Result<Vec<LoadConnection>> {
    let listen = |_| {
        let mut connection = LoadConnection::open(address)?;
        let session = web::begin(&mut connection)?;
        connection.send("GET", PATH, session.as_deref(), "")?;
        match connection.head()? {
            200 => Ok(connection),
            status => Err(io::Error::other(format!("listening was refused with {status}"))),
        }
    };
    (0..count).map(listen).collect()
}

/// A client that makes one call after the other.
struct Probe {
    connection: LoadConnection,
    session: Option<String>,
}

impl Probe {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let mut connection = LoadConnection::open(address)?;
        let session = web::begin(&mut connection)?;
        Ok(Self { connection, session })
    }

    /// How long the calls took, sorted.
    fn measure(&mut self, calls: usize) -> io::Result<Vec<Duration>> {
        let (begin, mut trips) = (bounded_waits::now(), Vec::with_capacity(calls));
        while trips.len() < calls && begin.elapsed() < PROBING {
            let sent = bounded_waits::now();
            self.connection.call(self.session.as_deref(), "probed__echo", SMALL)?;
            is_result(&self.connection.answer()?)?;
            trips.push(sent.elapsed());
        }
        trips.sort_unstable();
        Ok(trips)
    }
}

/// A connection on which something was asked whose answer nobody reads.
fn asked(address: SocketAddr, tool: &str) -> io::Result<LoadConnection> {
    let mut connection = LoadConnection::open(address)?;
    let session = web::begin(&mut connection)?;
    connection.call(session.as_deref(), tool, SMALL)?;
    Ok(connection)
}

/// A client that asks for much and reads nothing of it.
fn deaf(address: SocketAddr) -> io::Result<Vec<LoadConnection>> {
    let session = web::begin(&mut LoadConnection::open(address)?)?;
    let (bytes, calls) = UNREAD;
    let ask = |_| {
        let mut connection = LoadConnection::open(address)?;
        connection.call(session.as_deref(), "large__echo", bytes)?;
        Ok(connection)
    };
    (0..calls).map(ask).collect()
}

/// A call of the server that logs without an end, whose client reads all of it.
fn flooded(address: SocketAddr) -> io::Result<JoinHandle<()>> {
    let mut connection = asked(address, "flood__echo")?;
    thread::Builder::new().spawn(move || while connection.skip().is_ok() {})
}

/// Bytes and descriptors that sessions have left which came, asked something, and went.
fn passing(programs: LoadPrograms<'_>, plan: &CrowdPlan) -> io::Result<(f64, f64)> {
    let gateway_folder = GatewayFolder::make()?;
    let gateway = gateway_folder.gateway(programs.unhang, &servers(programs.zoo, 1))?;
    let connections = (0..CARRIERS).map(|_| LoadConnection::open(gateway.address));
    let mut connections = connections.collect::<io::Result<Vec<LoadConnection>>>()?;
    let size = plan.passing / plan.waves.max(1);
    // What the first ones need is needed once.
    wave(&mut connections, size)?;
    let before = (resident_memory(gateway.pid())?, descriptors(&gateway)?);
    for _ in 0..plan.waves {
        wave(&mut connections, size)?;
    }
    let after = (resident_memory(gateway.pid())?, descriptors(&gateway)?);
    Ok((difference(after.0, before.0), difference(after.1, before.1)))
}

/// So many sessions begin, ask something, and end.
fn wave(connections: &mut [LoadConnection], size: usize) -> io::Result<()> {
    let mut sessions = Vec::with_capacity(size);
    for index in 0..size {
        let connection = &mut connections[index % CARRIERS];
        let session = web::begin(connection)?;
        connection.call(session.as_deref(), "probed__echo", SMALL)?;
        is_result(&connection.answer()?)?;
        sessions.push(session);
    }
    for (index, session) in sessions.iter().enumerate() {
        let connection = &mut connections[index % CARRIERS];
        connection.send("DELETE", PATH, session.as_deref(), "")?;
        connection.answer()?;
    }
    Ok(())
}

fn descriptors(gateway: &ListeningProcess) -> io::Result<u64> {
    Ok(fs::read_dir(format!("/proc/{}/fd", gateway.pid()))?.count() as u64)
}
