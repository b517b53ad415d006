//! Refuses `server/discover` as unknown, but answers stateless requests under the old rules.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "era-ambiguous",
    incident: "The two Node servers measured answer discover with -32601 and a stateless tools/list without resultType (contract.md part 4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))
}
