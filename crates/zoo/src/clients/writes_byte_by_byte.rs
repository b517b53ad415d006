//! Writes a call one byte at a time.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "writes-byte-by-byte",
    incident: "A limit must not depend on how a stream is cut into pieces (peers.md 3.1 J, lynnswap/XcodeMCPKit#204).",
    usage: "-- CMD [ARGS...]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    let params = json!({"name": "echo", "arguments": {"text": "ü in pieces"}});
    guest.owe(&json!("pieces"), 1);
    let request = json!({"jsonrpc": "2.0", "id": "pieces", "method": "tools/call", "params": params});
    for byte in format!("{request}\r\n").bytes() {
        guest.send_bytes(&[byte])?;
    }
    guest.leave()
}
