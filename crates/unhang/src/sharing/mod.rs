//! Servers that several processes share: one leads and runs them, and the others ask it.
//!
//! ```text
//! window ─ front ─ Servers ─ the servers themselves          the leader, which also has
//!                     ▲                                      a front over HTTP on the socket ◄─┐
//! window ─ front ─ Servers ─ one server: the leader, by its socket ────────────────────────────┘
//! ```
//!
//! # Theory of operation
//!
//! Each window has a session of its own with its client, and its own tools and jobs. Only the servers behind it differ. To the windows that
//! follow, the leader is one server of 2026-07-28 whose names stay as they are. When the leader ends, the kernel gives its right to one of
//! them ([`MeetingPoint`]). The new leader starts the servers anew and listens on the same socket, where the next requests of the others
//! find it. So the end of a leader costs the windows that follow only the calls that were in flight.
//!
//! When the configuration changes, each process reads it by itself. The meeting point does not depend on it, so the windows stay together.
//! The leader exchanges its servers, and the windows that follow hear of it as of any change.
//!
//! A server that keeps state of one client is not shared. Each window runs a process of its own for it, which survives the end of a leader.
//!
//! Invariants
//!
//! - At any time at most one process leads at a meeting point. It gives the right up before it ends its servers, so that nobody waits for
//!   its end.
//! - A window that cannot share runs its own servers, and says why.

mod meeting_point;

use std::{
    io,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    net::UnixListener,
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use unhang_net::{http::Address, serve::Claim};
use unhang_proc::deadline::Deadline;

pub use self::meeting_point::{Leadership, MeetingPoint};
use unhang_background::PromotedCalls;
use unhang_core::{
    config::{DISPOSE_LIMIT, FLUSH_LIMIT},
    insertion::InsertEach,
    limits::Limits,
    secrets::Secrets,
};
use unhang_front::{
    SessionJobs,
    http::{DRAIN, serve_windows},
};
use unhang_gateway::{
    EraPolicy, LeaderServer, LeaderServers, RequestTimeouts, RosterChange, Scope, ServerEntry, ServerSet,
    Servers,
    route::{names::Style, rules::ToolRules},
};
use unhang_upstream::{
    client::{ClientSpec, DecliningListener, Endpoint},
    http::HttpServer,
};

/// The leader's name among the servers of a window that follows it.
const LEADER: &str = "gateway";

/// How long the disk may take to tell whether another process leads. Without an answer nothing is shared.
const DISK_LIMIT: Duration = Duration::from_secs(5);

/// How much longer a window that follows waits than the leader itself, which knows more about a failure.
const LONGER: Duration = Duration::from_secs(1);

/// The servers that may be shared, and how.
pub struct SharingSpec {
    /// The meeting point with other windows. Without one nothing is shared.
    pub meeting_point: Option<MeetingPoint>,
    /// Whether this process follows if another one leads already.
    pub may_follow: bool,
    /// The servers.
    pub lineup: ServerSet,
    /// The limits for the sessions of the windows that follow this process.
    pub limits: Limits,
    /// The jobs of this process, which makes jobs of calls for the windows that follow it. Without it, they make the jobs themselves.
    pub jobs: Option<SessionJobs>,
}

/// A set of servers, run here or by the leader.
pub struct Sharing {
    shared: SharedServers,
    end: watch::Sender<bool>,
    leading: JoinHandle<()>,
}

/// The servers that are shared. Clones are the same servers.
#[derive(Clone)]
pub struct SharedServers {
    /// The servers that this process asks.
    servers: Servers,
    own: Arc<Mutex<OwnServers>>,
    /// The socket of the leader, if this process follows.
    follows: Option<PathBuf>,
}

/// The servers that a process runs, or would run if it led.
struct OwnServers {
    lineup: ServerSet,
    /// The running servers, once they are started.
    servers: Option<Servers>,
}

impl OwnServers {
    /// Starts the servers if they are not running, and returns them.
    fn start(&mut self) -> Servers {
        self.servers.get_or_insert_with(|| Servers::start(self.lineup.clone())).clone()
    }
}

/// The parts that a leader needs.
struct Realm {
    servers: Servers,
    limits: Limits,
    jobs: Option<SessionJobs>,
    ending: watch::Receiver<bool>,
}

impl Sharing {
    /// Starts the servers, or follows the process that runs them.
    pub async fn start(spec: SharingSpec) -> Sharing {
        let SharingSpec { meeting_point, may_follow, lineup, limits, jobs } = spec;
        let (end, ending) = watch::channel(false);
        let lead = match meeting_point.clone() {
            Some(meeting_point) => right_to_lead(meeting_point).await.map(Some).unwrap_or_else(|error| {
                tracing::warn!("servers are not shared with other windows: {error}");
                None
            }),
            None => None,
        };
        let (servers, own, follows, leading) = match (meeting_point, lead) {
            (Some(meeting_point), Some(None)) if may_follow => {
                tracing::info!("unhang uses the servers of the gateway that already runs");
                let socket = meeting_point.socket();
                let (lineup, here) = apart(socket.clone(), lineup);
                let servers = Servers::start(here);
                let own = Arc::new(Mutex::new(OwnServers { lineup, servers: None }));
                let leading = tokio::spawn(succeed(meeting_point, Arc::clone(&own), (limits, jobs), ending));
                (servers, own, Some(socket), leading)
            }
            (meeting_point, lead) => {
                lineup.read_ahead().await;
                let mut own = OwnServers { lineup, servers: None };
                let servers = own.start();
                let realm = Realm { servers: servers.clone(), limits, jobs, ending };
                let leading = async move {
                    match (lead, meeting_point) {
                        (Some(Some(lead)), _) => realm.lead(lead).await,
                        // Another process leads, and this one may lead later. Its servers stay as they are.
                        (Some(None), Some(meeting_point)) => {
                            if let Some(lead) = inherited(meeting_point, realm.ending.clone()).await {
                                realm.lead(lead).await;
                            }
                        }
                        _ => {}
                    }
                };
                (servers, Arc::new(Mutex::new(own)), None, tokio::spawn(leading))
            }
        };
        Sharing { shared: SharedServers { servers, own, follows }, end, leading }
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> Servers {
        self.shared.servers.clone()
    }

    /// Returns the shared servers, through which they can be exchanged.
    #[must_use]
    pub fn shared(&self) -> SharedServers {
        self.shared.clone()
    }

    /// Returns the sender that tells when the end begins, so that another process can lead while requests in flight finish.
    #[must_use]
    pub fn end(&self) -> watch::Sender<bool> {
        self.end.clone()
    }

    /// Ends the servers of this process. Requests in flight of the windows that follow get the rest of their time.
    pub async fn close(self) {
        let Sharing { shared, end, mut leading } = self;
        end.send_replace(true);
        if Deadline::after(DRAIN + FLUSH_LIMIT + DISPOSE_LIMIT).timeout(&mut leading).await.is_err() {
            leading.abort();
        }
        shared.servers.close().await;
    }
}

impl SharedServers {
    /// Takes over calls that other processes have left and whose servers are here, now and later.
    pub fn take_up(&self, calls: &PromotedCalls) {
        let shared = self.clone();
        calls.take_up_left(move |name, kept_by| {
            // Servers that were started here after a leader's end are not among those that this process asks.
            let own = own_of(&shared.own).servers.clone();
            let mut servers = std::iter::once(shared.servers.clone()).chain(own);
            servers.find_map(|servers| {
                let server_index = servers.holder_of(name, kept_by)?;
                Some((servers.for_session(None), server_index))
            })
        });
    }

    /// Exchanges the servers, or those that this process would run if it led. Returns what has changed among the servers that are here.
    pub fn replace(&self, lineup: ServerSet) -> RosterChange {
        let mut own = own_of(&self.own);
        let (lineup, change) = match &self.follows {
            Some(socket) => {
                let (lineup, here) = apart(socket.clone(), lineup);
                (lineup, self.servers.replace(here).without(LEADER))
            }
            None => (lineup, RosterChange::default()),
        };
        own.lineup = lineup;
        match &own.servers {
            Some(servers) => change.and(servers.replace(own.lineup.clone())),
            None => change,
        }
    }
}

/// Takes the right to lead, if nobody has it and the disk answers in time.
async fn right_to_lead(meeting_point: MeetingPoint) -> io::Result<Option<Leadership>> {
    match timeout(DISK_LIMIT, spawn_blocking(move || meeting_point.take())).await {
        // A panic, which was reported elsewhere.
        Ok(taken) => taken.map_err(io::Error::other)?,
        Err(_late) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Listens for the windows that follow. The disk may take any time: only those windows wait for it.
async fn listening(mut lead: Leadership) -> io::Result<(Leadership, UnixListener)> {
    let listening = spawn_blocking(move || lead.listen().map(|listener| (lead, listener)));
    // A panic, which was reported elsewhere.
    listening.await.map_err(io::Error::other)?
}

fn own_of(own: &Mutex<OwnServers>) -> MutexGuard<'_, OwnServers> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the right to lead. Returns `None` if the end comes first or if waiting fails.
async fn inherited(meeting_point: MeetingPoint, mut ending: watch::Receiver<bool>) -> Option<Leadership> {
    let (tell, told) = oneshot::channel();
    // The wait has a thread of its own, because a runtime waits for its threads when it ends. The thread ends with the leader. If nobody
    // waits for its result any more, the lock is released again.
    let waiting = thread::Builder::new()
        .name("waits-to-lead".to_owned())
        .spawn(move || drop(tell.send(meeting_point.wait())));
    let lead = match waiting {
        Ok(_on_its_own) => tokio::select! {
            // A thread that panicked sends nothing.
            lead = told => lead.ok()?,
            _over_or_gone = ending.wait_for(|ending| *ending) => return None,
        },
        Err(error) => Err(error),
    };
    lead.inspect_err(|error| {
        tracing::warn!("this process cannot run the servers if the other gateway ends: {error}");
    })
    .ok()
}

/// Waits until the leader has gone, then leads in its place.
async fn succeed(
    meeting_point: MeetingPoint,
    own: Arc<Mutex<OwnServers>>,
    (limits, jobs): (Limits, Option<SessionJobs>),
    ending: watch::Receiver<bool>,
) {
    let Some(lead) = inherited(meeting_point, ending.clone()).await else { return };
    tracing::info!("the gateway that had the servers has ended; unhang starts them here");
    let lineup = own_of(&own).lineup.clone();
    lineup.read_ahead().await;
    let servers = own_of(&own).start();
    Realm { servers: servers.clone(), limits, jobs, ending }.lead(lead).await;
    servers.close().await;
}

impl Realm {
    /// Serves the windows that follow, until the end.
    async fn lead(self, lead: Leadership) {
        let Realm { servers, limits, jobs, mut ending } = self;
        let (lead, listener) = match listening(lead).await {
            Ok(listening) => listening,
            Err(error) => {
                tracing::warn!("no other window can share these servers: {error}");
                // Keeps the right to lead: the next process would fail as well, and has this one's servers until then.
                let _over_or_gone = ending.wait_for(|ending| *ending).await;
                return;
            }
        };
        // The right to lead is given up as soon as the end begins. From then on another process can lead.
        let way = (listener, Box::new(lead) as Claim);
        let mut serving = pin!(serve_windows(limits, (servers.for_windows(), jobs), way, ending.clone()));
        tokio::select! {
            () = &mut serving => return,
            _over_or_gone = ending.wait_for(|ending| *ending) => {}
        }
        if Deadline::after(DRAIN + FLUSH_LIMIT).timeout(serving).await.is_err() {
            tracing::warn!("some windows had not taken their answers in time");
        }
    }
}

/// Splits the servers of a window that follows. The first set is the one that it asks the leader for. The second set is the leader itself
/// and the servers that are not for everybody, since the leader has no session with this window's client.
fn apart(socket: PathBuf, lineup: ServerSet) -> (ServerSet, ServerSet) {
    let ServerSet { entries, style, own, capacity, clocks, notices, awaits_client } = lineup;
    let leader = follower(socket, &entries, &style);
    let (shared, here): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.scope == Scope::Everybody);
    let here = ServerSet {
        entries: std::iter::once(leader).chain(here).collect(),
        style: style.clone(),
        own: own.clone(),
        capacity,
        clocks: clocks.clone(),
        notices: notices.clone(),
        awaits_client,
    };
    (ServerSet { entries: shared, style, own, capacity, clocks, notices, awaits_client }, here)
}

/// Makes the leader a server of this process. It waits for its servers as long as they may take, and this process waits for it. Settings
/// for single servers and tools hold here as they do there, because the leader says whose each tool is.
fn follower(socket: PathBuf, entries: &[ServerEntry], style: &Style) -> ServerEntry {
    let usual = Limits::default();
    let longest =
        |of: &dyn Fn(&ServerEntry) -> Duration, usual| entries.iter().map(of).max().unwrap_or(usual);
    let limits = Limits {
        breaker_failures: u32::MAX,
        // For a call whose server is unknown.
        call_timeout: longest(
            &|entry| RequestTimeouts::from(entry).longest_call().saturating_add(LONGER),
            usual.call_timeout,
        ),
        job_timeout: longest(&|entry| entry.spec.limits.job_timeout, usual.job_timeout),
        request_timeout: longest(
            &|entry| entry.spec.limits.request_timeout.saturating_add(LONGER),
            usual.request_timeout,
        ),
        max_message: entries
            .iter()
            .map(|entry| entry.spec.limits.max_message)
            .fold(usual.max_message, usize::max),
        ..usual
    };
    let behind_one = |entry: &ServerEntry| {
        let is_there = entry.scope == Scope::Everybody;
        let beginning = is_there.then(|| style.beginning(&entry.prefix));
        (entry.spec.name.clone(), LeaderServer { timeouts: RequestTimeouts::from(entry), beginning })
    };
    let behind: LeaderServers = entries.iter().map(behind_one).insert_each();
    let address = Address {
        url: "http://localhost/mcp".to_owned(),
        headers: Vec::new(),
        uses_proxies: false,
        socket: Some(socket),
    };
    let endpoint = Endpoint::Http(HttpServer { address, dialect: None, authorization: None });
    let spec =
        ClientSpec { name: LEADER.to_owned(), endpoint, limits, listener: Arc::new(DecliningListener) };
    let secrets = Secrets::of_all(entries.iter().map(|entry| &entry.secrets));
    // The rules are applied where the servers run.
    ServerEntry {
        made_from: format!("{:?}{behind:?}", spec.limits),
        spec,
        scope: Scope::Everybody,
        era: EraPolicy::OfClient,
        prefix: String::new(),
        tool_rules: ToolRules::default(),
        idle_timeout: None,
        instances: 1,
        secrets,
        // The lists are remembered where the servers run.
        memory: None,
        behind: Some(Arc::new(behind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_gateway::{route::rules::ToolRule, testing::mute};

    #[test]
    fn the_leader_is_waited_for_as_long_as_its_slowest_tool_may_take() {
        let (_mute, mut entry) = mute();
        let slow = ToolRule { call_timeout: Some(Duration::from_secs(7200)), ..ToolRule::default() };
        entry.tool_rules.tools.insert("slow".to_owned(), slow);
        let leader = follower("/nowhere".into(), &[entry], &Style::default());
        assert_eq!(leader.spec.limits.call_timeout, Duration::from_secs(7200) + LONGER);
        assert_eq!(leader.tool_rules, ToolRules::default(), "what is denied is not there to be denied again");
    }

    #[test]
    fn who_waits_to_lead_holds_no_runtime_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let meeting_point = MeetingPoint::new(folder.path(), "x").expect("a meeting point");
        let lead = meeting_point.take().expect("it can be written").expect("nobody leads");
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let follower = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
            runtime.block_on(async {
                let (_mute, entry) = mute();
                let _sharing = Sharing::start(SharingSpec {
                    meeting_point: Some(meeting_point),
                    may_follow: true,
                    lineup: vec![entry].into(),
                    limits: Limits::default(),
                    jobs: None,
                })
                .await;
                tokio::task::yield_now().await;
            });
            drop(runtime);
            tell.send(())
        });
        told.recv_timeout(Duration::from_secs(30)).expect("it ends though somebody else leads");
        drop(lead);
        follower.join().expect("no panic").expect("it was heard");
    }
}
