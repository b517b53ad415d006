//! The processes above this one, and the names by which ours are known.
//!
//! Invariants: only facts that the system shows are reported. A chain of parents is true for the moment of the look.

use std::{
    fs::{self, File},
    io::Read,
};

use rustix::process::{Pid, getpid};

use crate::{identity::Identity, system};

/// The lifeline's name in the process list. It differs from the name of the program, so a `pkill` of that name spares the lifeline.
pub(crate) const LIFELINE_NAME: &str = "mcp-lifeline";

/// The name of the process above a lifeline. It does not begin with the lifeline's name: it ends nothing while the lifeline lives.
pub(crate) const WATCHER_NAME: &str = "mcp-line-watch";

/// The bytes of a command line in which the program and its first argument are looked for.
const LONGEST_BEGINNING: usize = 4096;

/// Finds the nearest lifeline above us: when it ends, everything below it has been ended. Returns `None` if there is none.
#[must_use]
pub fn lifeline_above() -> Option<Identity> {
    above(getpid()).find(|(_, name)| name.starts_with(LIFELINE_NAME)).map(|(process, _)| process)
}

/// Finds the watcher of the outermost lifeline above us. Returns `None` if there is none.
pub(crate) fn watcher_above() -> Option<Identity> {
    above(getpid()).filter(|(_, name)| name == WATCHER_NAME).last().map(|(process, _)| process)
}

/// The most processes above each other that are looked at.
const MOST_ABOVE: usize = 100;

/// Lists the processes above one, the nearest first, with their names.
pub(crate) fn above(process: Pid) -> impl Iterator<Item = (Identity, String)> {
    let mut child = system::look(process);
    let walk = std::iter::from_fn(move || {
        let number = child?.parent;
        child = Some(system::look(Pid::from_raw(number)?)?);
        Some((child?.into(), name_of(number).unwrap_or_default()))
    });
    // The chain has an end, unless numbers are given out anew during the walk.
    walk.take(MOST_ABOVE)
}

pub(crate) fn name_of(pid: i32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// Returns the first argument of a process. Our own processes have their names there before they can name themselves.
pub(crate) fn first_argument(pid: i32) -> Option<String> {
    let mut beginning = [0; LONGEST_BEGINNING];
    let count =
        File::open(format!("/proc/{pid}/cmdline")).and_then(|mut line| line.read(&mut beginning)).ok()?;
    let argument = beginning.get(..count)?.split(|byte| *byte == 0).nth(1)?;
    String::from_utf8(argument.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_above_us_are_found_up_to_the_first() {
        assert!(above(getpid()).count() > 0);
    }
}
