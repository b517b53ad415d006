//! Copies bytes between a client and a command in both directions, unchanged, and keeps a copy of each direction.
//!
//! # Theory of operation
//!
//! One thread copies towards the command, one copies its answers, and the main thread watches the command end. A side that
//! closes is closed towards the other side too, so the copy is as honest as the pipe that it replaces. The command is tied to
//! this process by the kernel, so a SIGTERM here leaves nothing behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramDescription;
use crate::{bounded_waits, child_processes};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "tee",
    incident: "Stands for no incident: it proves that payload bytes pass a guard unchanged, as typed SDK models do not (protocol.md 0, finding 4).",
    usage: "FROM_CLIENT_FILE FROM_SERVER_FILE -- CMD [ARGS...]",
    promises: &[],
    run,
};

/// How long output may still come after the command has ended, from a pipe that a grandchild holds open.
const DRAIN: Duration = Duration::from_millis(200);
/// How long the command may live on when both directions have ended; longer than a whole shutdown of unhang takes (C-38).
const FAREWELL: Duration = Duration::from_secs(15);
/// How often the main thread looks.
const TICK: Duration = Duration::from_millis(2);

/// The state of the copying thread, from which its owner decides whether to wait for it.
#[derive(Default)]
struct CopyProgress {
    /// Grows with each piece copied.
    pieces: AtomicU64,
    /// Whether it waits for the command, not for a client that is slow to read.
    reading: AtomicBool,
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (program, rest) = arguments.command()?;
    let open = |path| File::options().append(true).create(true).open(path);
    let from_client = open(arguments.text(0, "FROM_CLIENT_FILE")?)?;
    let from_server = open(arguments.text(1, "FROM_SERVER_FILE")?)?;
    let mut child = child_processes::start_bound(program, rest)?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("the command has no pipes"))?;
    let progress = Arc::new(CopyProgress::default());
    let towards_server = thread::spawn(move || copy_to_server(stdin, from_client));
    let towards_client = {
        let progress = Arc::clone(&progress);
        thread::spawn(move || copy_to_client(stdout, from_server, &progress))
    };
    let status = watch(&mut child, &towards_server, &towards_client, &progress)?;
    Ok(exit_code(status))
}

/// Copies stdin to the command until either side ends.
fn copy_to_server(mut server: ChildStdin, copy: File) -> io::Result<()> {
    let outcome = pass(&mut Descriptor, &mut server, copy, &CopyProgress::default());
    // Replaced, so that the client learns that nobody reads any more.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    outcome
}

/// Copies the command's answers to stdout until either side ends.
fn copy_to_client(mut server: ChildStdout, copy: File, progress: &CopyProgress) -> io::Result<()> {
    let outcome = pass(&mut server, &mut Descriptor, copy, progress);
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    outcome
}

fn pass(
    from: &mut impl Read,
    to: &mut impl Write,
    mut copy: File,
    progress: &CopyProgress,
) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        progress.reading.store(true, Ordering::SeqCst);
        let count = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        progress.reading.store(false, Ordering::SeqCst);
        progress.pieces.fetch_add(1, Ordering::SeqCst);
        copy.write_all(&piece[..count])?;
        to.write_all(&piece[..count])?;
    }
}

/// stdin and stdout without the buffers of the standard library, which would hold bytes back.
struct Descriptor;

impl Read for Descriptor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        rustix::io::read(rustix::stdio::stdin(), buffer).map_err(io::Error::from)
    }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustix::io::write(rustix::stdio::stdout(), bytes).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the command has ended and its output is drained, or until nothing can pass any more.
fn watch(
    child: &mut Child,
    towards_server: &JoinHandle<io::Result<()>>,
    towards_client: &JoinHandle<io::Result<()>>,
    progress: &CopyProgress,
) -> io::Result<ExitStatus> {
    let (mut quiet_since, mut pieces) = (bounded_waits::now(), 0);
    loop {
        let ended = child.try_wait()?;
        let both_ended = towards_server.is_finished() && towards_client.is_finished();
        let copied = progress.pieces.load(Ordering::SeqCst);
        // A copy that is stuck in front of a slow client is not quiet: nothing may be cut off there.
        let drained = ended.is_some() && copied == pieces && progress.reading.load(Ordering::SeqCst);
        if !(both_ended || drained) {
            (quiet_since, pieces) = (bounded_waits::now(), copied);
        }
        match ended {
            Some(status) if towards_client.is_finished() || quiet_since.elapsed() >= DRAIN => {
                return Ok(status);
            }
            None if quiet_since.elapsed() >= FAREWELL => child.kill()?,
            _ => bounded_waits::pause(TICK),
        }
    }
}

/// Returns the command's own code, 128 and the number for a signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
