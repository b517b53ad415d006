//! What a service manager hands to us when it starts us, and what it is told: sockets that listen already (`sd_listen_fds(3)` of
//! systemd), and how far we are (`sd_notify(3)`).
//!
//! Invariants: what was handed over is taken once, before there is another thread, and nothing that we start sees any of it; a manager
//! that does not read keeps nobody waiting.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::{ffi::OsStrExt, net},
    },
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{net::UnixDatagram, sync::watch, time::timeout};
use unhang::process::inherited::adopt;

/// Where a manager listens.
const MANAGER: &str = "NOTIFY_SOCKET";

/// What is meant for us alone: a program of ours that saw it would speak in our name, or take what is not its own.
const OURS: [&str; 6] =
    [MANAGER, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// How long a manager may take for what it is told. It reads at once, unless it hangs itself; one of systemd gives up after 90 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was handed to us.
pub(super) struct HandedSockets {
    /// Sockets, in the order of the unit.
    pub(super) sockets: Vec<OwnedFd>,
    /// Where to say how far we are.
    manager: Option<OsString>,
}

impl HandedSockets {
    /// Takes it, and leaves nothing of it in our environment. To be called before anything else, while there is one thread.
    ///
    /// # Errors
    /// The end of a sentence about sockets that are not there, or cannot be told.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "no other thread can read the environment, for there is none"
    )]
    pub(super) fn take() -> Result<HandedSockets, String> {
        let numbers = sd_notify::listen_fds();
        let manager = env::var_os(MANAGER).filter(|address| !address.is_empty());
        for name in OURS {
            // SAFETY: this is the first thing that a command does, and nothing before it starts a thread.
            unsafe { env::remove_var(name) };
        }
        let wrong =
            |error: io::Error| format!("the sockets that LISTEN_FDS speaks of cannot be taken: {error}");
        let sockets =
            numbers.map_err(wrong)?.map(adopt).collect::<io::Result<Vec<OwnedFd>>>().map_err(wrong)?;
        Ok(HandedSockets { sockets, manager })
    }

    /// Whoever is to be told how far we are; nobody where nobody wants to know. Must be called in a runtime.
    pub(super) fn manager(&self) -> Manager {
        let socket = self.manager.as_ref().map(connected).transpose().unwrap_or_else(|error| {
            tracing::warn!("the service manager cannot be told anything: {error}");
            None
        });
        Manager(socket)
    }
}

fn connected(address: &OsString) -> io::Result<UnixDatagram> {
    let socket = net::UnixDatagram::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&net::SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Whoever has started us and wants to know how far we are.
pub(super) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Says that clients can come, and where; and then that the end has begun, once it has.
    pub(super) async fn follow(self, status: String, mut ending: watch::Receiver<bool>) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status)]).await;
        if ending.wait_for(|ending| *ending).await.is_ok() {
            let status = NotifyState::Status("ending: what is in flight gets its time");
            self.tell(&[NotifyState::Stopping, status]).await;
        }
    }

    async fn tell(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.0 else { return };
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        let what = text.trim_end();
        match timeout(PATIENCE, socket.send(text.as_bytes())).await {
            Ok(Ok(_whole)) => {}
            Ok(Err(error)) => tracing::warn!("the service manager was not told `{what}`: {error}"),
            Err(_) => tracing::warn!("the service manager has not taken `{what}` within {PATIENCE:?}"),
        }
    }
}
