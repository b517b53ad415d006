//! A supervised server process, as its owner sees it.
//!
//! Invariants
//! - The server never outlives its owner. It runs under a lifeline (see [`crate::lifeline`]) that ends its whole tree when the owner's end
//!   of a socket closes, by whatever cause.
//! - Nothing here waits for a process. An owner waits for [`Server::event`] alone, and can cancel that at any point. It ends with
//!   [`ServerEvent::Gone`] within the limit, whatever server and lifeline do.
//! - The lifeline is reaped after the tree has gone and not before, so its number stays good until then.
//!
//! Theory of operation: [`Server::start`] makes three pipes and a socket pair, and starts the lifeline with the server's ends as its
//! standard streams. The lifeline starts the server, lets go of the streams, and reports. From then on the owner holds the only other ends,
//! and end-of-file works in both directions. A caller that awaits [`Server::event`] also drives the stop ladder; commands go to the
//! lifeline as single bytes. If the lifeline is lost or does not report in time, the owner sweeps by itself (see `rescue.rs`).

mod report;
mod supervision;

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Instant,
};

pub(crate) use self::report::LifelineReport;
use self::supervision::Supervision;
use crate::{
    ladder::StopTimeouts,
    lookup,
    pipe::{self, PipeReader, PipeWriter},
    spawn::{Environment, Launch, Process, SignalGroup, SpawnError, Stream, spawn},
    surroundings::LIFELINE_NAME,
};
pub use crate::{
    spawn::Exit,
    tree::{SweptTree, Tier},
};

/// The commands of an owner to a lifeline: single bytes.
pub(crate) mod command {
    /// Send SIGTERM to the server's process group.
    pub(crate) const TERMINATE: u8 = b'T';
    /// Kill everything now.
    pub(crate) const KILL: u8 = b'K';
}

/// A server to start.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Name or path of the program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its environment.
    pub environment: Environment,
    /// Its working folder; ours if absent.
    pub folder: Option<PathBuf>,
    /// The wait after its input was closed, and again after SIGTERM.
    pub grace: Duration,
    /// The limit of the whole stop.
    pub stop_limit: Duration,
    /// How our own binary is run as a lifeline.
    pub lifeline: LifelineCommand,
}

/// The command that ends up in [`lifeline::run`](crate::lifeline::run).
#[derive(Clone, Debug)]
pub struct LifelineCommand {
    /// Usually `/proc/self/exe`, which stays right when the file is replaced.
    pub program: PathBuf,
    /// The hidden words before the lifeline's own arguments, usually [`lifeline::ARGUMENT`](crate::lifeline::ARGUMENT).
    pub arguments: Vec<OsString>,
}

/// An event in the life of a server.
#[derive(Debug)]
pub enum ServerEvent {
    /// The server runs.
    Started {
        /// Its process number.
        pid: u32,
        /// How its tree is held together.
        tier: Tier,
    },
    /// The server could not be started. [`ServerEvent::Gone`] follows.
    Failed(SpawnError),
    /// The server itself has ended; its descendants are about to.
    Exited(Exit),
    /// The whole tree has ended. The last event.
    Gone(SweptTree),
}

/// The reading end of the server's stderr, for [`drain`](crate::drain::drain).
#[derive(Debug)]
pub struct ErrorPipe(pub(crate) OwnedFd);

impl From<OwnedFd> for ErrorPipe {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for ErrorPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A running server. Dropping it closes everything and returns at once; the lifeline then climbs the ladder by itself.
#[derive(Debug)]
pub struct Server {
    /// Its stdin. An owner that takes it out has to drop it before [`Server::begin_stop`].
    pub input: Option<PipeWriter>,
    /// Its stdout.
    pub output: PipeReader,
    lifeline: AsyncFd<OwnedFd>,
    supervision: Mutex<Supervision>,
}

impl Server {
    /// Starts a server and returns without waiting for it. Must be called in a runtime.
    ///
    /// # Errors
    /// Fails if the program cannot be found or executed, if its folder cannot be used, or if the system lacks means.
    pub fn start(spec: &ServerSpec) -> Result<(Self, ErrorPipe), SpawnError> {
        let program = lookup::executable(&spec.program, &spec.environment, spec.folder.as_deref())?;
        let streams =
            ServerPipes::new().map_err(|source| SpawnError::Pipe { action: "making pipes", source })?;
        let (near, far) =
            lifeline_pair().map_err(|source| SpawnError::Pipe { action: "making a socket", source })?;
        let process = launch(spec, &program, streams.far, &far)
            .map_err(|source| SpawnError::Shim { program: spec.lifeline.program.clone(), source })?;
        let stop_timeouts = StopTimeouts { grace: spec.grace, limit: spec.stop_limit };
        let supervision = Supervision::new(process, program, spec.lifeline.program.clone(), stop_timeouts);
        let server = Self {
            input: Some(streams.input),
            output: streams.output,
            lifeline: near,
            supervision: Mutex::new(supervision),
        };
        Ok((server, streams.error))
    }

    /// Starts the stop: closes stdin now. The rest of the ladder runs inside [`Server::event`].
    pub fn begin_stop(&mut self) {
        self.input = None;
        self.supervision().begin_stop(Instant::now());
    }

    /// Sends SIGTERM to the server's process group. Its stdin stays open, and the rest of the stop does not follow.
    pub fn terminate(&mut self) {
        supervision::tell(self.lifeline.get_ref(), command::TERMINATE);
    }

    /// Kills the whole tree now.
    pub fn kill_now(&mut self) {
        self.input = None;
        let send = self.supervision().kill_now(Instant::now());
        if let Some(command) = send {
            supervision::tell(self.lifeline.get_ref(), command);
        }
    }

    /// Waits for the next event, and drives the stop ladder meanwhile. Cancel-safe. After [`ServerEvent::Gone`] it waits for ever.
    pub async fn event(&self) -> ServerEvent {
        loop {
            let step = self.supervision().advance(Instant::now(), self.lifeline.get_ref());
            if let Some(event) = step.event {
                return event;
            }
            tokio::select! {
                biased;
                ready = self.lifeline.readable(), if step.listens => {
                    // Only a runtime that goes down has no readiness to give; then there is nobody to wait for.
                    if let Ok(mut ready) = ready
                        && !self.supervision().hear(self.lifeline.get_ref())
                    {
                        ready.clear_ready();
                    }
                }
                () = sleep_until(step.next) => {}
            }
        }
    }

    /// Returns the server's process number; `None` until it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.supervision().pid()
    }

    /// Returns the processor time, user and system, that the server's tree has used so far, to tell busy from hung. Without a control group
    /// a look costs up to a few milliseconds. Returns `None` if the time is not known.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.supervision().cpu_time()
    }

    /// Returns how long the living processes of the server's tree were ready to run and had no processor, in all. The machine, and not the
    /// server, is to blame for that time. Returns zero if the system does not tell.
    #[must_use]
    pub fn processor_wait(&self) -> Duration {
        self.supervision().processor_wait()
    }

    /// Lists the processes of the server's tree whose stdin is the pipe that we write to, the server among them. The list is empty if the
    /// system does not tell.
    #[must_use]
    pub fn input_holders(&self) -> Vec<u32> {
        self.input.as_ref().map(|input| self.supervision().holders(input.as_fd())).unwrap_or_default()
    }

    /// Returns the process number of the lifeline.
    #[must_use]
    pub fn lifeline_pid(&self) -> u32 {
        self.supervision().lifeline_pid()
    }

    fn supervision(&self) -> MutexGuard<'_, Supervision> {
        self.supervision.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next).await,
        None => std::future::pending().await,
    }
}

/// Both ends of the server's three pipes.
struct ServerPipes {
    input: PipeWriter,
    output: PipeReader,
    error: ErrorPipe,
    far: [OwnedFd; 3],
}

impl ServerPipes {
    fn new() -> io::Result<Self> {
        let (far_input, input) = pipe::to_server()?;
        let (output, far_output) = pipe::from_server()?;
        // This pipe is not enlarged: the drain empties it all the time, and an ordinary user has room for few large pipes.
        let (error, far_error) = pipe::pair()?;
        Ok(Self { input, output, error: ErrorPipe(error), far: [far_input, far_output, far_error] })
    }
}

fn lifeline_pair() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    // Every call asks not to wait by itself, so the flags of the sockets stay as they are.
    let (near, far) = UnixStream::pair()?;
    Ok((pipe::register(near.into(), Interest::READABLE)?, far.into()))
}

fn launch(
    spec: &ServerSpec,
    program: &Path,
    streams: [OwnedFd; 3],
    lifeline: &OwnedFd,
) -> io::Result<Process> {
    let mut arguments = spec.lifeline.arguments.clone();
    arguments.push(format!("--link={}", lifeline.as_raw_fd()).into());
    arguments.push(format!("--grace={}", spec.grace.as_millis()).into());
    arguments.push(format!("--limit={}", spec.stop_limit.as_millis()).into());
    arguments.push("--".into());
    arguments.push(program.into());
    arguments.push(spec.program.clone());
    arguments.extend(spec.arguments.iter().cloned());
    let [input, output, error] = streams.map(Stream::Descriptor);
    spawn(Launch {
        name: Some(LIFELINE_NAME.as_ref()),
        environment: &spec.environment,
        folder: spec.folder.as_deref(),
        input,
        output,
        error,
        signal_group: SignalGroup::OwnSession,
        kept: &[lifeline.as_fd()],
        ..Launch::new(&spec.lifeline.program, &arguments)
    })
}
