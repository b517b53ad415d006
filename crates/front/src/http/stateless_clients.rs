//! Clients without a session that come again: each finds the servers that were kept for it alone.
//!
//! A request of 2026-07-28 stands alone, and says nothing of earlier requests. Unhang tells its client from others by its token, or by the
//! subject of its token. If no token is required, the user of the process at the local socket counts, or else the network address. Requests
//! with the same identity share the instances of those servers of which each session has its own.
//!
//! # Invariants
//!
//! - Two clients with different identities share nothing that is kept here.
//! - The kept servers of a client end when it loses access, or after it has been silent for as long as a session may be.
//! - A client for whom nothing is kept leaves no trace here, and the number of the others is bounded.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};
use unhang_net::serve::PeerAddress;

use super::access::TokenOwner;
use unhang_core::config::SESSION_IDLE;
use unhang_gateway::Servers;

/// The identity of a client without a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StatelessClient {
    caller: TokenOwner,
    origin: ClientOrigin,
}

/// The origin of a client, which matters if nothing else identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClientOrigin {
    /// Any origin: a token identifies the client.
    Any,
    /// A process of this user.
    User(Option<u32>),
    /// A machine, as far as its address tells.
    Address(IpAddr),
}

impl StatelessClient {
    pub(super) fn new(caller: &TokenOwner, peer: PeerAddress) -> Self {
        let origin = match (caller, peer) {
            (TokenOwner::Anybody, PeerAddress::Local { user, .. }) => ClientOrigin::User(user),
            (TokenOwner::Anybody, PeerAddress::Network(address)) => {
                ClientOrigin::Address(address.ip().to_canonical())
            }
            (TokenOwner::Token(_) | TokenOwner::Subject(_), _) => ClientOrigin::Any,
        };
        Self { caller: caller.clone(), origin }
    }
}

/// All clients without a session. Clones share one state.
#[derive(Clone)]
pub(super) struct StatelessClients(Arc<Mutex<StatelessState>>);

struct StatelessState {
    all: HashMap<StatelessClient, KnownClient>,
    /// The most clients.
    room: usize,
    next: u64,
}

/// The kept servers of one client.
struct KnownClient {
    servers: Servers,
    /// The client's requests that have not ended.
    requests: usize,
    /// The time at which the last request ended.
    left: Instant,
    /// Whether a task waits until the client has been silent long enough.
    is_awaited: bool,
    /// Tells this entry from an earlier one of the same client.
    number: u64,
}

/// A request of a client, until this is dropped.
pub(super) struct StatelessRequest {
    stateless_clients: StatelessClients,
    who: StatelessClient,
    number: u64,
}

impl StatelessClients {
    pub(super) fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new(StatelessState { all: HashMap::new(), room, next: 0 })))
    }

    /// Notes a request of this client, and returns its servers, kept or new. Returns `None` if there are too many clients.
    pub(super) fn come(
        &self,
        who: StatelessClient,
        new: impl FnOnce() -> Servers,
    ) -> Option<(Servers, StatelessRequest)> {
        let mut state = self.state();
        let StatelessState { all, room, next } = &mut *state;
        let is_full = all.len() >= *room;
        let kept = match all.entry(who.clone()) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(vacant) => {
                *next += 1;
                let (left, number) = (Instant::now(), *next);
                vacant.insert(KnownClient { servers: new(), requests: 0, left, is_awaited: false, number })
            }
        };
        kept.requests += 1;
        Some((
            kept.servers.clone(),
            StatelessRequest { stateless_clients: self.clone(), who, number: kept.number },
        ))
    }

    /// Forgets the clients whose callers match, and ends what is kept for them.
    pub(super) fn part_with(&self, is_strange: impl Fn(&TokenOwner) -> bool) {
        let strange: Vec<KnownClient> = {
            let all = &mut self.state().all;
            let names = all.keys().filter(|who| is_strange(&who.caller)).cloned().collect::<Vec<_>>();
            names.iter().filter_map(|who| all.remove(who)).collect()
        };
        // This happens outside the lock, which others may wait for.
        drop(strange);
    }

    fn state(&self) -> MutexGuard<'_, StatelessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StatelessRequest {
    fn drop(&mut self) {
        let mut state = self.stateless_clients.state();
        let Some(kept) = state.all.get_mut(&self.who).filter(|kept| kept.number == self.number) else {
            return;
        };
        kept.requests = kept.requests.saturating_sub(1);
        if kept.requests > 0 {
            return;
        }
        kept.left = Instant::now();
        if !kept.servers.has_instances() {
            let gone = state.all.remove(&self.who);
            drop(state);
            drop(gone);
        } else if let Ok(runtime) = Handle::try_current()
            // Without a runtime there is no server any more, either.
            && !std::mem::replace(&mut kept.is_awaited, true)
        {
            drop(state);
            let stateless_clients = Arc::downgrade(&self.stateless_clients.0);
            runtime.spawn(forget(stateless_clients, self.who.clone(), self.number));
        }
    }
}

/// Waits until a client has been silent long enough, then forgets it; stops if the client comes back. The wait itself keeps nothing alive.
async fn forget(stateless_clients: Weak<Mutex<StatelessState>>, who: StatelessClient, number: u64) {
    loop {
        let Some(stateless_clients) = stateless_clients.upgrade().map(StatelessClients) else { return };
        let until = {
            let mut state = stateless_clients.state();
            let Some(kept) = state.all.get_mut(&who).filter(|kept| kept.number == number) else { return };
            if kept.requests > 0 {
                kept.is_awaited = false;
                return;
            }
            kept.left + SESSION_IDLE
        };
        if until <= Instant::now() {
            let gone = stateless_clients.state().all.remove(&who);
            drop(gone);
            return;
        }
        drop(stateless_clients);
        sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};
    use unhang_proc::deadline::Deadline;

    use super::*;
    use unhang_gateway::{
        Scope, ServerEntry,
        testing::{call, mute},
    };

    const NETWORK: PeerAddress =
        PeerAddress::Network(std::net::SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

    fn known(stateless_clients: &StatelessClients) -> usize {
        stateless_clients.state().all.len()
    }

    /// Asks a server that never answers, which is started for that.
    async fn ask_in_vain(servers: &Servers) {
        let asked =
            Deadline::after(SESSION_IDLE / 100).timeout(servers.ask(call("x", SESSION_IDLE), None, None));
        assert!(asked.await.is_err(), "it never answers");
    }

    #[test]
    fn they_are_told_apart_by_their_token_and_otherwise_by_their_place() {
        let local = |user| PeerAddress::Local { process: Some(7), user: Some(user) };
        let of = |caller: &TokenOwner, peer| StatelessClient::new(caller, peer);
        let (one, two) = (TokenOwner::Token(1), TokenOwner::Subject("ann".into()));
        assert_eq!(of(&one, NETWORK), of(&one, local(1)), "wherever they come from");
        assert_ne!(of(&one, NETWORK), of(&two, NETWORK));
        let anybody = TokenOwner::Anybody;
        assert_ne!(of(&anybody, local(1)), of(&anybody, local(2)));
        assert_ne!(of(&anybody, local(1)), of(&anybody, NETWORK));
        let mapped = PeerAddress::Network("[::ffff:127.0.0.1]:9".parse().expect("an address"));
        assert_eq!(of(&anybody, NETWORK), of(&anybody, mapped));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_there_for_as_long_as_a_session_may_be_silent() {
        let (_mute, entry) = mute();
        let entry = ServerEntry { scope: Scope::Session, ..entry };
        let servers = Servers::start(vec![entry].into());
        let stateless_clients = StatelessClients::new(1);
        let come = || {
            let who = StatelessClient::new(&TokenOwner::Anybody, NETWORK);
            stateless_clients.come(who, || servers.for_session(None)).expect("there is room")
        };
        let stay = come();
        let another = StatelessClient::new(&TokenOwner::Token(1), NETWORK);
        assert!(stateless_clients.come(another, || servers.clone()).is_none(), "there is room for one");
        assert_eq!(known(&stateless_clients), 1);
        drop(stay);
        assert_eq!(known(&stateless_clients), 0, "nothing is kept for them");
        let (theirs, stay) = come();
        ask_in_vain(&theirs).await;
        assert!(theirs.has_instances());
        drop((theirs, stay));
        sleep(SESSION_IDLE / 2).await;
        let (theirs, stay) = come();
        assert!(theirs.has_instances(), "what was theirs is there");
        drop((theirs, stay));
        sleep(SESSION_IDLE * 3 / 4).await;
        assert_eq!(known(&stateless_clients), 1, "they were there since");
        advance(SESSION_IDLE).await;
        sleep(SESSION_IDLE / 100).await;
        assert_eq!(known(&stateless_clients), 0);
        let (theirs, stay) = come();
        assert!(!theirs.has_instances(), "they are as new");
        ask_in_vain(&theirs).await;
        drop((theirs, stay));
        sleep(SESSION_IDLE + SESSION_IDLE / 100).await;
        assert_eq!(known(&stateless_clients), 0, "one that came once is forgotten as well");
        let (theirs, stay) = come();
        ask_in_vain(&theirs).await;
        drop((theirs, stay));
        stateless_clients.part_with(|caller| *caller == TokenOwner::Anybody);
        assert_eq!(known(&stateless_clients), 0, "they may not come any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_known_until_the_last_of_its_requests_has_ended() {
        let servers = Servers::start(Vec::new().into());
        let stateless_clients = StatelessClients::new(1);
        let come = || {
            let who = StatelessClient::new(&TokenOwner::Anybody, NETWORK);
            stateless_clients.come(who, || servers.clone()).map(|(_, stay)| stay)
        };
        let (first, second) = (come(), come());
        assert!(first.is_some() && second.is_some(), "one client may ask for several things");
        drop(first);
        assert_eq!(known(&stateless_clients), 1, "it still waits for an answer");
        drop(second);
        assert_eq!(known(&stateless_clients), 0);
        // A request that ends after its client was forgotten is not one of those that came since.
        let earlier = come();
        stateless_clients.part_with(|_| true);
        let later = come();
        drop(earlier);
        assert_eq!(known(&stateless_clients), 1);
        drop(later);
        assert_eq!(known(&stateless_clients), 0);
    }
}
