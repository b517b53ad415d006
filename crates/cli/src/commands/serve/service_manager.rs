//! The sockets that a service manager hands over when it starts unhang, and the messages that it gets. The sockets listen already
//! (`sd_listen_fds(3)` of systemd), and the messages tell the state of the server (`sd_notify(3)`).
//!
//! Invariants: everything that was handed over is taken once, before there is another thread, and no child process sees any of it. A
//! manager that does not read keeps nobody waiting.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, net},
    },
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{net::UnixDatagram, sync::watch, time::timeout};
use unhang::process::inherited::adopt;

/// The variable with the address at which a manager listens.
const MANAGER: &str = "NOTIFY_SOCKET";

/// The variables that are meant for this process alone. A child that saw them would speak in its name, or take sockets that belong to it.
const OURS: [&str; 6] =
    [MANAGER, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The time that a manager may take to read a message. It reads at once, unless it hangs itself; one of systemd gives up after 90 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// The things that the service manager handed over.
pub(super) struct HandedSockets {
    /// Sockets, in the order of the unit.
    pub(super) sockets: Vec<OwnedFd>,
    /// The address for messages about the state of the server.
    manager: Option<OsString>,
}

impl HandedSockets {
    /// Takes everything that was handed over, and removes its variables from the environment. It has to be called before anything else,
    /// while there is one thread.
    ///
    /// # Errors
    /// Fails with a message if the sockets are not there, or cannot be examined.
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
        let wrong = |error: io::Error| format!("the sockets of LISTEN_FDS cannot be used: {error}");
        let sockets =
            numbers.map_err(wrong)?.map(adopt).collect::<io::Result<Vec<OwnedFd>>>().map_err(wrong)?;
        Ok(HandedSockets { sockets, manager })
    }

    /// Returns the manager that gets messages, or one without a socket if nobody wants any. Must be called in a runtime.
    pub(super) fn manager(&self) -> Manager {
        let socket = self.manager.as_ref().map(connected).transpose().unwrap_or_else(|error| {
            tracing::warn!("messages to the service manager cannot be sent: {error}");
            None
        });
        Manager(socket)
    }
}

fn connected(address: &OsString) -> io::Result<UnixDatagram> {
    let socket = net::UnixDatagram::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&abstract_address(name)?)?,
        None => socket.connect(address)?,
    }
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Returns the address of a socket that has a name and no file. Only Linux has such sockets.
fn abstract_address(name: &[u8]) -> io::Result<net::SocketAddr> {
    #[cfg(target_os = "linux")]
    return <net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    #[cfg(not(target_os = "linux"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("no socket @{}", String::from_utf8_lossy(name))))
}

/// The service manager that has started this process and wants to know its state.
pub(super) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Tells the manager that clients can come, and where; later, that the end has begun.
    pub(super) async fn follow(self, status: String, mut ending: watch::Receiver<bool>) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status)]).await;
        if ending.wait_for(|ending| *ending).await.is_ok() {
            let status = NotifyState::Status("ending: requests in flight get their time");
            self.tell(&[NotifyState::Stopping, status]).await;
        }
    }

    async fn tell(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.0 else { return };
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        let what = text.trim_end();
        match timeout(PATIENCE, socket.send(text.as_bytes())).await {
            Ok(Ok(_whole)) => {}
            Ok(Err(error)) => tracing::warn!("`{what}` could not be sent to the service manager: {error}"),
            Err(_) => tracing::warn!("the service manager has not taken `{what}` within {PATIENCE:?}"),
        }
    }
}
