//! Reads its answers one byte at a time.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "reads-byte-by-byte",
    incident: "A limit must not depend on how a stream is cut into pieces, nor a server on how fast it is read (peers.md 3.1 J, lynnswap/XcodeMCPKit#204).",
    usage: "[BYTES] -- CMD [ARGS...]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let bytes = arguments.size(0, 200_000)?;
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.listen_in_pieces(1);
    guest.shake_hands()?;
    guest.echo(bytes)?;
    guest.echo(10)?;
    guest.leave()
}
