//! The guards of each room, each with the test that fails without it.
//!
//! # Invariants
//!
//! - Every name in the sources is here, and every name here is in the sources of its room.
//! - A guard's test is one test that is named in full, so that "red" means that this very test failed.

/// Three lines a guard: its name and promises, what it does, the test that fails without it.
macro_rules! guards {
    ($($name:literal $promises:tt $about:literal $test:expr;)+) => {
        &[$(SwitchedGuard { name: $name, promises: &$promises, about: $about, test: $test }),+]
    };
}

mod background;
mod core;
mod doctor;
mod front;
mod gateway;
mod guard;
mod jobs;
mod net;
mod proc;
mod tools;
mod unhang;
mod upstream;
mod wire;

/// A guard that can be switched off in the fault build.
#[derive(Debug)]
pub(crate) struct SwitchedGuard {
    /// What the sources call it; unique.
    pub(crate) name: &'static str,
    /// The promises of the README that it keeps.
    pub(crate) promises: &'static [u8],
    /// One sentence: what it does, or what would happen without it.
    pub(crate) about: &'static str,
    /// The test that turns red without it.
    pub(crate) test: Test,
}

/// Where a test is, and what it is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    /// The folder below `crates/`.
    pub(crate) room: &'static str,
    /// The test program: `lib` for the unit tests, else the name of the integration test.
    pub(crate) target: &'static str,
    /// The full path, as the test program lists it.
    pub(crate) path: &'static str,
}

/// A room and its guards.
#[derive(Debug)]
pub(crate) struct GuardGroup {
    /// The folder below `crates/`.
    pub(crate) name: &'static str,
    /// File by file.
    guards: &'static [&'static [SwitchedGuard]],
}

impl GuardGroup {
    /// Its guards, in the order of the list.
    pub(crate) fn guards(&self) -> impl Iterator<Item = &'static SwitchedGuard> + use<> {
        self.guards.iter().copied().flatten()
    }
}

/// All of them.
pub(crate) const ROOMS: &[GuardGroup] = &[
    GuardGroup { name: "wire", guards: &[wire::GUARDS] },
    GuardGroup { name: "proc", guards: &[proc::GUARDS] },
    GuardGroup { name: "jobs", guards: &[jobs::GUARDS] },
    GuardGroup { name: "net", guards: &[net::GUARDS] },
    GuardGroup { name: "core", guards: &[core::GUARDS] },
    GuardGroup { name: "upstream", guards: &[upstream::GUARDS] },
    GuardGroup { name: "tools", guards: &[tools::GUARDS] },
    GuardGroup { name: "gateway", guards: &[gateway::GUARDS] },
    GuardGroup { name: "background", guards: &[background::GUARDS] },
    GuardGroup { name: "front", guards: &[front::GUARDS] },
    GuardGroup { name: "guard", guards: &[guard::GUARDS] },
    GuardGroup { name: "doctor", guards: &[doctor::GUARDS] },
    GuardGroup { name: "unhang", guards: &[unhang::GUARDS] },
];

/// Returns every guard, in the order of the list.
pub(crate) fn all() -> impl Iterator<Item = &'static SwitchedGuard> {
    ROOMS.iter().flat_map(GuardGroup::guards)
}

/// A unit test of a room.
const fn unit(room: &'static str, path: &'static str) -> Test {
    Test { room, target: "lib", path }
}

/// A test of a room with real processes.
const fn process(path: &'static str) -> Test {
    Test { room: "proc", target: "it", path }
}

/// A test of the jobs with real processes.
const fn job(path: &'static str) -> Test {
    Test { room: "jobs", target: "it", path }
}

/// A test of the whole binary.
const fn end_to_end(path: &'static str) -> Test {
    Test { room: "cli", target: "it", path }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_guard_is_named_once_and_described_in_one_sentence() {
        let mut names = BTreeSet::new();
        for guard in all() {
            assert!(names.insert(guard.name), "{} is there twice", guard.name);
            let one_sentence = guard.about.starts_with(char::is_uppercase) && guard.about.ends_with('.');
            assert!(one_sentence && !guard.about.contains('|'), "{}: {}", guard.name, guard.about);
            assert!(!guard.promises.is_empty(), "{} keeps no promise", guard.name);
        }
    }

    #[test]
    fn the_sources_name_exactly_the_guards_of_the_list() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for room in ROOMS {
            let mut found = BTreeSet::new();
            names_below(&crates.join(room.name).join("src"), &mut found);
            let listed: BTreeSet<_> = room.guards().map(|guard| guard.name.to_owned()).collect();
            assert_eq!(found, listed, "left: the sources of {}; right: its list", room.name);
        }
    }

    fn names_below(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the sources are readable") {
            let path = entry.expect("an entry is readable").path();
            if path.is_dir() {
                names_below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                let behind = text.split("stands(\"").skip(1);
                found.extend(behind.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }
}
