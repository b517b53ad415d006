//! Servers that several processes share: one leads and has them, the others ask it.
//!
//! ```text
//! window ─ front ─ Servers ─ the servers themselves          the leader, which also has
//!                     ▲                                      a front over HTTP on the socket ◄─┐
//! window ─ front ─ Servers ─ one server: the leader, by its socket ────────────────────────────┘
//! ```
//!
//! # Theory of operation
//!
//! Each window has a session of its own with its client, and tools and jobs of its own; only what is behind it differs. To those who
//! follow, the leader is one server of 2026-07-28, whose names stay as they are. When the leader ends, the kernel gives its right to one
//! of them ([`MeetingPoint`]), which starts the servers anew and listens in its place; the others' next requests find it there. So the end of
//! a leader costs those who follow the calls that were in flight, and nothing else.
//!
//! When the configuration changes each process reads it by itself. Where windows meet does not depend on it, so that they go on as they
//! are: the leader's servers are exchanged, and those who follow hear of it as of any change.
//!
//! A server that keeps state of one client is not shared: each window has its own, a process of its own, which no end of a leader
//! costs anything.
//!
//! Invariants
//!
//! - At any time one process at most leads at a place. It lets go of that before it ends what it has, so that nobody waits for its end.
//! - A window that cannot share has servers of its own, and says why.

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
    limits::Limits,
    secrets::Secrets,
};
use unhang_front::http::{DRAIN, serve_windows};
use unhang_gateway::{
    LeaderServer, LeaderServers, RequestTimeouts, RosterChange, Scope, ServerEntry, ServerSet, Servers,
    route::{names::Style, rules::ToolRules},
};
use unhang_upstream::{
    client::{ClientSpec, DecliningListener, Endpoint},
    http::HttpServer,
};

/// What the leader is called among the servers of a window that follows it.
const LEADER: &str = "gateway";

/// How long the disk may take to say who leads. Without an answer nothing is shared.
const DISK_LIMIT: Duration = Duration::from_secs(5);

/// What of it a window that follows waits longer for than the leader itself does, which knows more about what went wrong.
const LONGER: Duration = Duration::from_secs(1);

/// What may be shared.
pub struct SharingSpec {
    /// Where the others are found; without a meeting point nobody shares.
    pub meeting_point: Option<MeetingPoint>,
    /// Whether we follow where somebody leads already.
    pub may_follow: bool,
    /// The servers.
    pub lineup: ServerSet,
    /// The limits of the sessions of those who follow us.
    pub limits: Limits,
}

/// Servers, here or where somebody leads.
pub struct Sharing {
    shared: SharedServers,
    end: watch::Sender<bool>,
    leading: JoinHandle<()>,
}

/// The servers that are shared. Clones are the same.
#[derive(Clone)]
pub struct SharedServers {
    /// Those that we ask.
    servers: Servers,
    own: Arc<Mutex<OwnServers>>,
    /// Where somebody leads, if we follow.
    follows: Option<PathBuf>,
}

/// The servers that a process has, or would have if it led.
struct OwnServers {
    lineup: ServerSet,
    /// They are started.
    servers: Option<Servers>,
}

impl OwnServers {
    /// The servers, which are there from now on.
    fn start(&mut self) -> Servers {
        self.servers.get_or_insert_with(|| Servers::start(self.lineup.clone())).clone()
    }
}

/// What leading takes.
struct Realm {
    servers: Servers,
    limits: Limits,
    ending: watch::Receiver<bool>,
}

impl Sharing {
    /// Starts the servers, or finds them.
    pub async fn start(spec: SharingSpec) -> Sharing {
        let SharingSpec { meeting_point, may_follow, lineup, limits } = spec;
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
                tracing::info!("the servers are those of the gateway that runs already");
                let socket = meeting_point.socket();
                let (lineup, here) = apart(socket.clone(), lineup);
                let servers = Servers::start(here);
                let own = Arc::new(Mutex::new(OwnServers { lineup, servers: None }));
                let leading = tokio::spawn(succeed(meeting_point, Arc::clone(&own), limits, ending));
                (servers, own, Some(socket), leading)
            }
            (meeting_point, lead) => {
                lineup.read_ahead().await;
                let mut own = OwnServers { lineup, servers: None };
                let servers = own.start();
                let realm = Realm { servers: servers.clone(), limits, ending };
                let leading = async move {
                    match (lead, meeting_point) {
                        (Some(Some(lead)), _) => realm.lead(lead).await,
                        // Somebody else leads, and we may later: what we have stays as it is.
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

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> Servers {
        self.shared.servers.clone()
    }

    /// What exchanges them.
    #[must_use]
    pub fn shared(&self) -> SharedServers {
        self.shared.clone()
    }

    /// What is to be told that the end begins, so that somebody else can lead while what is in flight gets its time.
    #[must_use]
    pub fn end(&self) -> watch::Sender<bool> {
        self.end.clone()
    }

    /// Ends what is ours. What is in flight for those who follow us gets what is left of its time.
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
    /// Goes on with the calls that other processes have left and whose servers are here, from now on.
    pub fn take_up(&self, calls: &PromotedCalls) {
        let shared = self.clone();
        calls.take_up_left(move |name, kept_by| {
            // Those that were started here when whoever led had gone are not among those that we ask.
            let own = own_of(&shared.own).servers.clone();
            let mut servers = std::iter::once(shared.servers.clone()).chain(own);
            servers.find_map(|servers| {
                let server_index = servers.holder_of(name, kept_by)?;
                Some((servers.for_session(None), server_index))
            })
        });
    }

    /// Has these servers from now on, or would have them if we led. Gives what has changed of the servers that are here.
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

/// The right to lead, if nobody has it and the disk says so in time.
async fn right_to_lead(meeting_point: MeetingPoint) -> io::Result<Option<Leadership>> {
    match timeout(DISK_LIMIT, spawn_blocking(move || meeting_point.take())).await {
        // A panic, which has been told.
        Ok(taken) => taken.map_err(io::Error::other)?,
        Err(_late) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Listens where others look for whoever leads. The disk may take as long as it likes: nobody waits for it but those others.
async fn listening(mut lead: Leadership) -> io::Result<(Leadership, UnixListener)> {
    let listening = spawn_blocking(move || lead.listen().map(|listener| (lead, listener)));
    // A panic, which has been told.
    listening.await.map_err(io::Error::other)?
}

fn own_of(own: &Mutex<OwnServers>) -> MutexGuard<'_, OwnServers> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to lead, once it is ours; none where the end comes first.
async fn inherited(meeting_point: MeetingPoint, mut ending: watch::Receiver<bool>) -> Option<Leadership> {
    let (tell, told) = oneshot::channel();
    // A thread of its own, for the end of a runtime waits for those that it has. It ends with the leader: whoever does not wait for
    // it any more has it let go of what it got.
    let waiting = thread::Builder::new()
        .name("waits-to-lead".to_owned())
        .spawn(move || drop(tell.send(meeting_point.wait())));
    let lead = match waiting {
        Ok(_on_its_own) => tokio::select! {
            // It did not panic: then it would have told.
            lead = told => lead.ok()?,
            _over_or_gone = ending.wait_for(|ending| *ending) => return None,
        },
        Err(error) => Err(error),
    };
    lead.inspect_err(|error| tracing::warn!("if nobody leads any more this process cannot: {error}")).ok()
}

/// Waits until the leader has gone, and leads in its place.
async fn succeed(
    meeting_point: MeetingPoint,
    own: Arc<Mutex<OwnServers>>,
    limits: Limits,
    ending: watch::Receiver<bool>,
) {
    let Some(lead) = inherited(meeting_point, ending.clone()).await else { return };
    tracing::info!("the gateway that had the servers has ended; they are started here");
    let lineup = own_of(&own).lineup.clone();
    lineup.read_ahead().await;
    let servers = own_of(&own).start();
    Realm { servers: servers.clone(), limits, ending }.lead(lead).await;
    servers.close().await;
}

impl Realm {
    /// Serves those who follow until the end.
    async fn lead(self, lead: Leadership) {
        let Realm { servers, limits, mut ending } = self;
        let (lead, listener) = match listening(lead).await {
            Ok(listening) => listening,
            Err(error) => {
                tracing::warn!("no other window can share these servers: {error}");
                // Whoever waits would fail as well, and has servers of this one until then.
                let _over_or_gone = ending.wait_for(|ending| *ending).await;
                return;
            }
        };
        // What leads is let go of as soon as the end comes: from then on somebody else can.
        let way = (listener, Box::new(lead) as Claim);
        let mut serving = pin!(serve_windows(limits, servers.for_windows(), way, ending.clone()));
        tokio::select! {
            () = &mut serving => return,
            _over_or_gone = ending.wait_for(|ending| *ending) => {}
        }
        if Deadline::after(DRAIN + FLUSH_LIMIT).timeout(serving).await.is_err() {
            tracing::warn!("some windows had not taken their answers in time");
        }
    }
}

/// What of these a window that follows asks the leader for, and what it has itself: the leader, and those that are not for everybody,
/// for the leader has no session of its client.
fn apart(socket: PathBuf, lineup: ServerSet) -> (ServerSet, ServerSet) {
    let ServerSet { entries, style, own, capacity, clocks, notices } = lineup;
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
    };
    (ServerSet { entries: shared, style, own, capacity, clocks, notices }, here)
}

/// The leader as a server of ours. It waits for its servers as long as they may take, and we for it; what is said of single servers and
/// tools holds here as it does there, for the leader says whose each tool is.
fn follower(socket: PathBuf, entries: &[ServerEntry], style: &Style) -> ServerEntry {
    let usual = Limits::default();
    let longest =
        |of: &dyn Fn(&ServerEntry) -> Duration, usual| entries.iter().map(of).max().unwrap_or(usual);
    let limits = Limits {
        breaker_failures: u32::MAX,
        // Of what nobody knows whose it is.
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
    let behind: LeaderServers = entries.iter().map(behind_one).collect();
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
    // What the rules say is done where the servers are.
    ServerEntry {
        made_from: format!("{:?}{behind:?}", spec.limits),
        spec,
        scope: Scope::Everybody,
        prefix: String::new(),
        tool_rules: ToolRules::default(),
        idle_timeout: None,
        secrets,
        // What is to be remembered is remembered where the servers are.
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
