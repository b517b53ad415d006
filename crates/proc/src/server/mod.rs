//! A supervised server process, as its owner sees it.
//!
//! Invariants
//! - The server never outlives its owner. It runs under a lifeline (see [`crate::lifeline`]) that ends its whole tree when the owner's end
//!   of a socket closes, by whatever cause. Only an owner that has asked for it ([`Server::keep`]) has a successor, the holder.
//! - Nothing here waits for a process. An owner waits for [`Server::event`] alone, and can cancel that at any point. It ends with
//!   [`ServerEvent::Gone`] within the limit, whatever server and lifeline do.
//! - The lifeline is known by number and start time once it has said who it is. Until then it is our child and not reaped.
//!
//! Theory of operation: [`Server::start`] makes three pipes and a socket pair, and starts the lifeline with the server's ends as its
//! standard streams. The lifeline leaves our chain of parents and says who it is. It starts the server, lets go of the streams, and reports.
//! From then on the owner holds the only other ends, and end-of-file works in both directions. A caller that awaits [`Server::event`] also
//! drives the stop ladder; commands go to the lifeline as single bytes. If the lifeline is lost or does not report in time, the owner sweeps by itself (see `rescue.rs`).
//!
//! # A server that outlives its owner
//!
//! An owner begins a journal of stdin and of stdout (see [`PipeReader::begin_journal`]), and calls [`Server::keep`]. When
//! [`ServerEvent::Kept`] has come, the lifeline has copies of the server's pipes and of the journals. If the owner then ends by whatever
//! cause, or drops the [`Server`], the lifeline starts the holder and hands everything over. The holder calls [`Server::resume`] and is the
//! owner from then on. It reads again what was not [processed](PipeReader::processed), and completes what was accepted.
//!
//! While the lifeline keeps the copies:
//! - A server that closes its end of stdin or stdout is noticed as before, and so is its end.
//! - A server reads no end-of-file when the owner drops stdin, and may write to a pipe that nobody reads. [`Server::begin_stop`] and
//!   [`Server::kill_now`] therefore release the copies first.
//! - [`ServerEvent::Gone`] comes as usual, and the lifeline stays: the last bytes may be unread. The owner calls
//!   [`Server::release_kept`] when it has processed them. If it drops the [`Server`] without that, the holder does the rest.
//! - The lifeline's own stop signals start its ladder as before. A holder is told how the server has ended.

pub(crate) mod hand_over;
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

pub use self::hand_over::{FORMAT, HandOver, HolderCommand, LONGEST_COMMAND, ResumeError};
pub(crate) use self::report::LifelineReport;
use self::supervision::Supervision;
use crate::{
    identity::{Identity, set_process_name},
    ladder::StopTimeouts,
    lifeline_process::{DetachedLifeline, LifelineProcess},
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
    /// Keep the descriptors that come with this byte, and start a holder when the owner has gone.
    pub(crate) const KEEP: u8 = b'H';
    /// Close the descriptors that were kept.
    pub(crate) const RELEASE: u8 = b'R';
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
    /// The lifeline has everything that a holder needs, and starts it when this owner has gone: the answer to [`Server::keep`].
    Kept,
    /// The lifeline could not keep it, and everything is as before: the other answer to [`Server::keep`].
    NotKept(io::Error),
    /// The whole tree has ended. The last event.
    Gone(SweptTree),
}

/// The name under which the system shows a holder. [`Server::resume`] sets it.
pub const HOLDER_NAME: &std::ffi::CStr = c"mcp-call-holder";

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

/// A running server. Dropping it closes everything and returns at once; the lifeline then climbs the ladder by itself, or starts the holder
/// if the server is [kept](Server::keep).
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
        let process = LifelineProcess::Child(process);
        let supervision = Supervision::new(process, program, spec.lifeline.program.clone(), stop_timeouts);
        let server = Self {
            input: Some(streams.input),
            output: streams.output,
            lifeline: near,
            supervision: Mutex::new(supervision),
        };
        Ok((server, streams.error))
    }

    /// Takes over a server whose owner has gone, in the program that the lifeline has started for that. Must be called in a runtime.
    /// [`ServerEvent::Started`] comes again, and so do [`ServerEvent::Exited`] and [`ServerEvent::Gone`] if the server has ended already.
    ///
    /// The lifeline stays after the server's end until [`Server::release_kept`], or until this process ends.
    ///
    /// Both pipes have their journals: bytes that the owner had not processed are read again, and its backlog is written by
    /// [`PipeWriter::flush_journal`]. The lifeline has no copies any more. If this process ends, the lifeline ends the server.
    ///
    /// # Errors
    /// Fails with [`ResumeError::System`] if the descriptors are not those of a server.
    pub fn resume(hand_over: HandOver) -> Result<(Self, ErrorPipe), ResumeError> {
        let failed = |action| move |source| ResumeError::System { action, source };
        set_process_name(HOLDER_NAME);
        let [input, output, error, input_journal, output_journal] = hand_over.streams;
        let input = PipeWriter::resume(input, input_journal).map_err(failed("resuming the input"))?;
        let output = PipeReader::resume(output, output_journal).map_err(failed("resuming the output"))?;
        let lifeline = pipe::register(hand_over.link, Interest::READABLE)
            .map_err(failed("listening to the lifeline"))?;
        // The lifeline tells of its watcher first.
        let detached = DetachedLifeline { lifeline: hand_over.lifeline, watcher: None };
        let process = LifelineProcess::Stranger(detached);
        let mut supervision =
            Supervision::new(process, "server".into(), LIFELINE_NAME.into(), hand_over.stop_timeouts);
        supervision.was_handed_over();
        let server = Self { input: Some(input), output, lifeline, supervision: Mutex::new(supervision) };
        Ok((server, ErrorPipe(error)))
    }

    /// Asks the lifeline to keep the server for a holder, and returns without waiting: [`ServerEvent::Kept`] or [`ServerEvent::NotKept`] is
    /// the answer. `error` is the server's stderr. A second call replaces the holder of the first.
    ///
    /// # Errors
    /// Fails with `InvalidInput` if stdin is closed, if a pipe has no journal, or if the command cannot be written down or is longer than
    /// [`LONGEST_COMMAND`]. Fails with `Unsupported` on systems other than Linux, and with the system's error if the lifeline cannot be told.
    pub fn keep(&mut self, holder: &HolderCommand, error: BorrowedFd<'_>) -> io::Result<()> {
        let input = self.input.as_ref().and_then(PipeWriter::with_journal);
        let (Some((input, input_journal)), Some((output, output_journal))) =
            (input, self.output.with_journal())
        else {
            let text = "a holder needs the server's stdin and stdout, each with a journal";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let streams = [input, output, error, input_journal, output_journal];
        hand_over::keep(self.lifeline.get_ref(), holder, streams)?;
        self.supervision().keep_asked();
        Ok(())
    }

    /// Takes [`Server::keep`] back: the server ends with this owner again, and end-of-file works in both directions. After
    /// [`ServerEvent::Gone`] it lets the lifeline end. Does nothing if nothing was kept.
    pub fn release_kept(&mut self) {
        let send = self.supervision().release();
        if let Some(command) = send {
            supervision::tell(self.lifeline.get_ref(), command);
        }
    }

    /// Returns whether a holder follows when this owner ends: [`ServerEvent::Kept`] has come, and nothing was released since.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.supervision().is_kept()
    }

    /// Starts the stop: releases what was kept, and closes stdin now. The rest of the ladder runs inside [`Server::event`].
    pub fn begin_stop(&mut self) {
        self.release_kept();
        self.begin_stop_kept();
    }

    /// Starts the stop, and has the lifeline keep what it keeps: a holder follows if this owner ends before [`Server::release_kept`]. The
    /// server reads no end-of-file then, so the ladder begins with a wait.
    pub fn begin_stop_kept(&mut self) {
        self.input = None;
        self.supervision().begin_stop(Instant::now());
    }

    /// Sends SIGTERM to the server's process group. Its stdin stays open, and the rest of the stop does not follow.
    pub fn terminate(&mut self) {
        supervision::tell(self.lifeline.get_ref(), command::TERMINATE);
    }

    /// Releases what was kept, and kills the whole tree now.
    pub fn kill_now(&mut self) {
        self.release_kept();
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
        self.informed_supervision().cpu_time()
    }

    /// Returns how long the living processes of the server's tree were ready to run and had no processor, in all. The machine, and not the
    /// server, is to blame for that time. Returns zero if the system does not tell.
    #[must_use]
    pub fn processor_wait(&self) -> Duration {
        self.informed_supervision().processor_wait()
    }

    /// Lists the processes of the server's tree whose stdin is the pipe that we write to, the server among them. The list is empty if the
    /// system does not tell.
    #[must_use]
    pub fn input_holders(&self) -> Vec<u32> {
        self.input
            .as_ref()
            .map(|input| self.informed_supervision().holders(input.as_fd()))
            .unwrap_or_default()
    }

    /// Returns the processes that end the server if its owner drops it: its lifeline, and the watcher above that. They end after it.
    #[must_use]
    pub fn lifelines(&self) -> Vec<Identity> {
        self.informed_supervision().lifelines()
    }

    /// Returns the process number of the lifeline. Until the server runs, it may be that of the process that starts the lifeline.
    #[must_use]
    pub fn lifeline_pid(&self) -> u32 {
        self.supervision().lifeline_pid()
    }

    /// Returns the supervision after the first report of the lifeline, if that is there: without it, nothing of the tree is known. A server
    /// may have answered before its owner has read that report.
    fn informed_supervision(&self) -> MutexGuard<'_, Supervision> {
        let mut supervision = self.supervision();
        if supervision.pid().is_none() {
            supervision.hear(self.lifeline.get_ref());
        }
        supervision
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
    arguments.push(format!("--owner={}", std::process::id()).into());
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
