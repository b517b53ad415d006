//! What a first try at a wrapper looks like: copies in both directions, and a stderr that is kept for later.
//!
//! It is here to fail what it ought to fail. Its faults, on purpose: no deadline on anything; lines are not looked at; the
//! server's stderr is piped for an error message some day, and nobody reads it; the server has its parent's session and
//! group; the end is the end of the server's stdout, whoever holds that open; nothing is ever ended or started again.

use std::io::{self, Read, Write};
use std::process::{ExitCode, Stdio};

use unhang_demo_servers::arguments::ProgramArguments;

use crate::child_processes::{self, ChildStreams};

/// Bytes copied at once.
const CHUNK: usize = 64 << 10;

/// `naive-pump -- CMD [ARGS...]`: copies until the command's stdout ends, and ends with the command's exit code.
pub(crate) fn naive_pump(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (program, rest) = arguments.command()?;
    let mut child = child_processes::start_with(
        program,
        rest,
        ChildStreams { stderr: Stdio::piped(), ..ChildStreams::default() },
        true,
    )?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("the command has no pipes"))?;
    // The stream of the server ends with the thread that copies to it.
    std::thread::spawn(move || copy(io::stdin().lock(), stdin));
    copy(stdout, io::stdout().lock())?;
    child_processes::wait(&mut child)?;
    let status = child.try_wait()?.and_then(|status| u8::try_from(status.code()?).ok());
    Ok(status.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(()),
            count => to.write_all(&chunk[..count]).and_then(|()| to.flush())?,
        }
    }
}
