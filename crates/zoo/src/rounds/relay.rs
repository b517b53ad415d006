//! `relays`: a client of its own process, which is told what to say. It can be ended while whoever tells it lives on.
//!
//! # Invariants
//!
//! - The kernel does not kill the command with it: what a client leaves behind has to end by itself.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use rustix::process::setsid;
use unhang_demo_servers::arguments::ProgramArguments;

use crate::child_processes::{self, ChildGroup, ChildPlace};

/// `relays --room FOLDER [--group own] -- CMD [ARGS...]`: runs a command in a folder, with its data there, between its own streams.
pub(crate) fn relay(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let room = Path::new(arguments.required("room")?);
    let group =
        if arguments.option("group")? == Some("own") { ChildGroup::Own } else { ChildGroup::OfItsParent };
    // A signal to its group is not one to whoever started it.
    setsid()?;
    let variables =
        [("HOME", room.to_owned()), ("UNHANG_HOME", room.join("data")), ("TMPDIR", room.join("temporary"))];
    let (program, rest) = arguments.command()?;
    let mut child =
        child_processes::start_at(program, rest, &ChildPlace { folder: room, variables: &variables, group })?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (mut stdin, mut stdout) = pipes.ok_or_else(|| io::Error::other("the command has no pipes"))?;
    // Without the buffers of the standard library, which would hold bytes back. It ends with this process.
    thread::spawn(move || io::copy(&mut io::stdin().lock(), &mut stdin));
    let _the_reader_may_have_gone = copy_out(&mut stdout);
    drop(stdout);
    child_processes::wait(&mut child)?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the answers of the command until they end.
fn copy_out(stdout: &mut impl io::Read) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = stdout.read(&mut piece)?;
        let mut rest = &piece[..count];
        if rest.is_empty() {
            return Ok(());
        }
        while !rest.is_empty() {
            let written = rustix::io::write(rustix::stdio::stdout(), rest)?;
            rest = &rest[written..];
        }
    }
}
