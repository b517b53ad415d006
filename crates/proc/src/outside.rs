//! Starts the supervisors of jobs outside of the trees of lifelines, so that a job outlives the guard of the server that has submitted it.
//!
//! Theory of operation. A supervisor that a program below a lifeline starts is a descendant of the lifeline, and ends with the server. So the
//! program asks the watcher of the outermost lifeline above it. The watcher starts the supervisor as its own sibling: a child of whoever is
//! above the guard. The socket has a name in the abstract namespace, which ends with the watcher. The name is made of the watcher's
//! [`Identity`], so nobody has to be told of it.
//!
//! Invariants
//! - A watcher starts its own program as the supervisor of a job, and nothing else. Every other word is refused.
//! - The watcher asks the kernel for the client's user, and the client asks it for the watcher's number.
//! - A watcher never waits for a client. A client that connects and sends nothing delays neither other clients nor the watcher.
//! - A watcher does nothing for a client that has gone: that client has started the supervisor itself meanwhile.
//! - Only Linux has such sockets. On other systems nobody listens, and the engine starts supervisors itself.
//! - A client waits for two seconds at most, and then asks no more for half a minute. It may start the supervisor itself: only one supervisor
//!   gets the lock of a job.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, retry_on_intr},
    net::{RecvFlags, recv, send},
    process::geteuid,
};

use crate::{
    identity::Identity,
    lookup::this_program,
    rescue::SUPERVISOR_NAME,
    spawn::{Environment, Launch, spawn},
    surroundings::{WATCHER_NAME, watcher_above},
    system::{self, named_socket},
    tree::now,
};

/// The longest wait of a client for the answer of a watcher.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// The time for which a client does not ask a watcher again that has not answered. Otherwise each job of a queue would wait for it.
const SILENCE: Duration = Duration::from_secs(30);

/// The most clients that are connected at the same time. The oldest one gives way to another.
const MOST_CLIENTS: usize = 16;

/// The most bytes of a request: a path has 4096 at most.
const LONGEST_REQUEST: usize = 8192;

/// The most characters of a job's id.
const LONGEST_ID: usize = 64;

/// Watcher and client are of one version, because a supervisor reads what the client has written.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The requests that come to a watcher.
pub(crate) struct StartRequests {
    listener: OwnedFd,
    clients: VecDeque<OwnedFd>,
}

impl StartRequests {
    /// Makes the socket of this process, which is a watcher.
    pub(crate) fn listen() -> io::Result<Self> {
        let own = Identity::own().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { listener: named_socket::listen(&name(own))?, clients: VecDeque::new() })
    }

    /// Answers requests until `end` can be read.
    pub(crate) fn answer_until(mut self, end: BorrowedFd<'_>) {
        loop {
            let others = std::iter::once(&self.listener).chain(&self.clients).map(AsFd::as_fd);
            let mut polled: Vec<PollFd<'_>> = std::iter::once(end)
                .chain(others)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let mut events = polled.iter().map(PollFd::revents);
            if events.next().is_some_and(|event| !event.is_empty()) {
                return;
            }
            let is_asked = events.next().is_some_and(|event| !event.is_empty());
            let events: Vec<PollFlags> = events.collect();
            self.answer(&events);
            if is_asked {
                self.admit();
            }
        }
    }

    fn answer(&mut self, events: &[PollFlags]) {
        let mut events = events.iter();
        self.clients.retain(|client| {
            let event = events.next().copied().unwrap_or(PollFlags::empty());
            if event == PollFlags::IN {
                answer(client);
            }
            event.is_empty()
        });
    }

    fn admit(&mut self) {
        if let Ok(client) = named_socket::accept(&self.listener) {
            self.clients.push_back(client);
            if self.clients.len() > MOST_CLIENTS {
                self.clients.pop_front();
            }
        }
    }
}

/// Does what a client asks for, and says how it went: an error number, or zero.
fn answer(client: &OwnedFd) {
    let mut request = [0; LONGEST_REQUEST + 1];
    let outcome = match recv(client, &mut request, RecvFlags::empty()) {
        // The client has gone.
        Ok((_, 0)) | Err(_) => return,
        Ok((_, length)) if length > LONGEST_REQUEST => Err(Errno::MSGSIZE.into()),
        Ok((_, length)) => obey(client, request.get(..length).unwrap_or_default()),
    };
    let number = outcome.err().map_or(0, |error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    // A client that does not listen starts the supervisor itself.
    let _ = send(client, &number.to_ne_bytes(), system::NO_SIGNAL);
}

fn obey(client: &OwnedFd, request: &[u8]) -> io::Result<()> {
    if named_socket::peer_user(client)? != geteuid().as_raw() {
        return Err(Errno::PERM.into());
    }
    let mut words = request.splitn(3, |&byte| byte == 0);
    let (version, id, folder) = (words.next(), words.next(), words.next());
    if version != Some(VERSION.as_bytes()) {
        return Err(Errno::PROTO.into());
    }
    let id = id.filter(|id| id.len() <= LONGEST_ID && id.iter().all(u8::is_ascii_alphanumeric));
    let (Some(id), Some(folder)) = (id, folder) else { return Err(Errno::INVAL.into()) };
    if id.is_empty() {
        // The client wants to know whether it would be answered.
        return Ok(());
    }
    let folder = Path::new(OsStr::from_bytes(folder));
    if !folder.is_absolute() || !folder.ends_with(OsStr::from_bytes(id)) {
        return Err(Errno::INVAL.into());
    }
    let arguments: [OsString; 2] = [SUPERVISOR_NAME.into(), OsStr::from_bytes(id).into()];
    spawn(Launch { is_sibling: true, ..supervisor_launch(&this_program(), &arguments, folder) })?;
    Ok(())
}

/// Returns how the supervisor of a job is started: in the job's folder, with nothing of its starter.
#[must_use]
pub fn supervisor_launch<'a>(program: &'a Path, arguments: &'a [OsString], folder: &'a Path) -> Launch<'a> {
    static EMPTY: Environment = Environment::Exactly(Vec::new());
    Launch {
        name: Some(OsStr::from_bytes(SUPERVISOR_NAME.as_bytes())),
        folder: Some(folder),
        environment: &EMPTY,
        ..Launch::new(program, arguments)
    }
}

/// Starts the supervisor of a job outside of every lifeline above this process.
///
/// # Errors
/// Fails with `NotFound` if no lifeline is above this process. Fails if the watcher of the outermost lifeline does not answer, has another
/// version, or cannot start a process.
pub fn start_supervisor(id: &str, folder: &Path) -> io::Result<()> {
    ask_starter(id, folder.as_os_str()).map(drop)
}

/// Returns the watcher that starts the supervisors of this process's jobs. Supervisors have the watcher's place in the tree of processes.
pub(crate) fn starter() -> Option<Identity> {
    ask_starter("", OsStr::new("")).ok()
}

/// Sends a request to the watcher of the outermost lifeline, unless the watcher was silent a moment ago.
fn ask_starter(id: &str, folder: &OsStr) -> io::Result<Identity> {
    static ASK_AGAIN_AT: Mutex<Duration> = Mutex::new(Duration::ZERO);
    let watcher = known_watcher().ok_or(io::ErrorKind::NotFound)?;
    let again_at = || ASK_AGAIN_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if now() < *again_at() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let outcome = ask(watcher, id, folder);
    if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        *again_at() = now() + SILENCE;
    }
    outcome.map(|()| watcher)
}

/// Finds the watcher once: no process comes below a lifeline, or leaves it, while the process runs.
fn known_watcher() -> Option<Identity> {
    static WATCHER: OnceLock<Option<Identity>> = OnceLock::new();
    *WATCHER.get_or_init(watcher_above)
}

/// Sends a request to a watcher, and waits for the answer.
fn ask(watcher: Identity, id: &str, folder: &OsStr) -> io::Result<()> {
    let socket = connected(watcher)?;
    let request = [VERSION.as_bytes(), id.as_bytes(), folder.as_bytes()].join(&0);
    exchange(&socket, &request)
}

/// Connects to the socket of this watcher, and of no other process.
fn connected(watcher: Identity) -> io::Result<OwnedFd> {
    let socket = named_socket::connect(&name(watcher), ANSWER_LIMIT)?;
    if named_socket::peer_process(&socket)? != watcher.pid {
        return Err(Errno::PERM.into());
    }
    Ok(socket)
}

fn exchange(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    // A signal interrupts each call on a socket with a limit, and signals come whenever a child ends.
    retry_on_intr(|| send(socket, request, system::NO_SIGNAL))?;
    let mut answer = [0; 4];
    let (_, length) = retry_on_intr(|| recv(socket, &mut answer, RecvFlags::empty()))?;
    match i32::from_ne_bytes(answer) {
        // The watcher has ended before it answered.
        _ if length != answer.len() => Err(Errno::PIPE.into()),
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Returns the name of a watcher's socket.
fn name(watcher: Identity) -> String {
    format!("{WATCHER_NAME}-{}-{}", watcher.pid, watcher.start)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::{io::ErrorKind, os::unix::net::UnixStream, thread::JoinHandle};

    use super::*;

    /// A watcher on a thread, which ends when the other end of this pair is dropped.
    fn watcher() -> (Identity, UnixStream, JoinHandle<()>) {
        let requests = StartRequests::listen().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let answering = std::thread::spawn(move || requests.answer_until(far.as_fd()));
        (Identity::own().unwrap(), near, answering)
    }

    /// All in one test: the name of the socket is that of the process.
    #[test]
    fn a_watcher_refuses_what_is_no_job_and_waits_for_nobody() {
        let (own, end, answering) = watcher();
        // More clients that say nothing than are kept, and one that says less than nothing.
        let silent: Vec<_> = (0..2 * MOST_CLIENTS).map(|_| connected(own).unwrap()).collect();
        drop(connected(own).unwrap());
        ask(own, "", OsStr::new("")).unwrap();
        let folder = OsStr::new("/jobs/abc");
        for (id, folder) in [
            ("abc", OsStr::new("jobs/abc")),
            ("abc", OsStr::new("/jobs/other")),
            ("abc", OsStr::new("")),
            ("../abc", OsStr::new("/jobs/../abc")),
            ("a b", OsStr::new("/jobs/a b")),
            (&"a".repeat(LONGEST_ID + 1), folder),
        ] {
            let refused = ask(own, id, folder).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{id} {folder:?}");
        }
        for (request, errno) in [
            (b"0.0.0\0abc\0/jobs/abc".to_vec(), Errno::PROTO),
            (b"abc".to_vec(), Errno::PROTO),
            (VERSION.as_bytes().to_vec(), Errno::INVAL),
            ([VERSION.as_bytes(), b"\0abc"].concat(), Errno::INVAL),
            (vec![b'a'; LONGEST_REQUEST + 1], Errno::MSGSIZE),
        ] {
            let refused = exchange(&connected(own).unwrap(), &request).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(errno.raw_os_error()), "{request:?}");
        }
        drop(silent);
        drop(end);
        answering.join().unwrap();
        // Its name has ended with it, and another process with this name is not it.
        assert_eq!(ask(own, "", OsStr::new("")).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let stranger = Identity { pid: own.pid + 1, start: own.start };
        let _impostor = named_socket::listen(&name(stranger)).unwrap();
        assert_eq!(connected(stranger).unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
    }
}
