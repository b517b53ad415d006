//! The things that end this process, and everything that it starts, when they end. A caller needs them if it promises that something
//! outlives it.
//!
//! Invariants: only facts that the system shows are reported, nothing is guessed. An empty result is not a promise: a supervisor may end a
//! tree without any sign of it beforehand.

use std::{fmt, fs};

use rustix::process::{Pid, getpid};

use crate::{
    outside,
    surroundings::{LIFELINE_NAME, above, name_of},
};

/// A thing that ends this process, and all that it started, when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedFate {
    /// A unit of systemd, which ends everything that was started in it, unless it is told otherwise.
    Unit(String),
    /// The first process of a container, by name: when it ends, the kernel ends all others.
    Container(String),
    /// A guard or a job of unhang. The text is the name of the lifeline or supervisor, which ends every process below it.
    Holder(String),
}

impl fmt::Display for SharedFate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(unit) => write!(
                formatter,
                "the systemd unit {unit} ends all its processes when it stops, unless it has \
                 KillMode=process"
            ),
            Self::Container(name) => {
                write!(formatter, "the container ends with its first process, `{name}`")
            }
            Self::Holder(name) => write!(formatter, "every process below `{name}` ends with it"),
        }
    }
}

/// Lists the things that this process will end with, the surest first.
#[must_use]
pub fn ties() -> Vec<SharedFate> {
    // If a watcher answers, it starts the supervisors of jobs beside itself.
    let beginning = outside::starter().and_then(|watcher| Pid::from_raw(watcher.pid.cast_signed()));
    let names: Vec<String> = above(beginning.unwrap_or_else(getpid)).map(|(_, name)| name).collect();
    let mut ties = holder(&names).into_iter().collect::<Vec<_>>();
    if is_container() {
        ties.push(SharedFate::Container(name_of(1).unwrap_or_else(|| "1".to_owned())));
    }
    ties.extend(fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| unit(&groups)));
    ties
}

/// Finds the nearest process above us that ends everything below itself.
fn holder(ancestors: &[String]) -> Option<SharedFate> {
    let held = ancestors.iter().find(|name| name.starts_with(LIFELINE_NAME) || name.starts_with("mcp-job"));
    held.cloned().map(SharedFate::Holder)
}

/// Returns whether we are in a container: container engines leave one of these files.
fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|path| fs::exists(path).unwrap_or(false))
}

/// Finds the service in whose control group we are. A scope is not a service: systemd leaves a login alone, or a program that was started
/// in a terminal.
fn unit(groups: &str) -> Option<SharedFate> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let last = paths.filter_map(|path| path.rsplit('/').next());
    // A process that a user's own systemd starts is below the service of that systemd. It has a unit of its own at the end of the path.
    let unit = last.filter(|name| name.ends_with(".service")).find(|name| !name.starts_with("user@"))?;
    Some(SharedFate::Unit(unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_told_and_a_login_is_not() {
        let service = "12:pids:/system.slice/cursor.service\n0::/system.slice/cursor.service\n";
        assert_eq!(unit(service), Some(SharedFate::Unit("cursor.service".into())));
        let of_user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/mcp.service\n";
        assert_eq!(unit(of_user), Some(SharedFate::Unit("mcp.service".into())));
        for login in [
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-term.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service\n",
            "0::/\n",
            "",
        ] {
            assert_eq!(unit(login), None, "{login}");
        }
    }

    #[test]
    fn a_guard_above_us_is_told() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            holder(&names(&["sh", "python", "mcp-lifeline", "unhang", "cursor"])),
            Some(SharedFate::Holder("mcp-lifeline".into()))
        );
        assert_eq!(holder(&names(&["sh", "systemd"])), None);
    }
}
