//! Offers every tool, resource, prompt and completion that the public MCP conformance suite calls on a server.
//!
//! # Invariants
//!
//! - Names and answers are those that the sources of the suite's scenarios ask for (protocol.md 4.2).
//! - It is the well-behaved server in all but what it offers: both eras, unless it is told to know only the handshake.

mod listings;
mod rounds;
mod tools;
mod works;

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use super::well_behaved::{ServerOffer, serve_in_eras};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "conformance-fixture",
    incident: "Stands for no incident: a gateway is judged by the conformance suite through a server that has what the suite calls (protocol.md 4.2).",
    usage: "[--era dual|legacy] [--page N] [--works yes]",
    promises: &[],
    run,
};

const OFFER: ServerOffer = ServerOffer { name: PROGRAM.name, call: tools::call, list: listings::answer };

/// An image of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    works::ARE_OFFERED.store(arguments.option("works")?.is_some(), Ordering::Relaxed);
    serve_in_eras(arguments, &OFFER)
}
