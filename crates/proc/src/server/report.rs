//! The reports of a lifeline to its owner: short lines of text.
//!
//! `started PID TIER [GROUP]`, `failed ERRNO`, `exited code N`, `exited signal N`, `gone LEAKED UNKILLED`, `kept ERRNO`,
//! `detached PID:START [PID:START]`.
//!
//! Invariants: each report that is written here is read back as the same. A line that cannot be read is left out, never guessed.

use std::{
    ffi::OsString,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use super::{SweptTree, Tier};
use crate::{identity::Identity, lifeline_process::DetachedLifeline, spawn::Exit};

/// One line from the lifeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LifelineReport {
    /// The server runs.
    Started { pid: u32, tier: Tier, group: Option<PathBuf> },
    /// The server could not be executed.
    Failed { errno: i32 },
    /// The server itself has ended.
    Exited(Exit),
    /// The whole tree has ended.
    Gone(SweptTree),
    /// The lifeline has what a holder needs; with an error, it was refused and everything is as before.
    Kept(Result<(), i32>),
    /// The lifeline is not the process that the owner has started, which ends.
    Detached(DetachedLifeline),
}

impl LifelineReport {
    pub(crate) fn to_line(&self) -> Vec<u8> {
        let mut line = match self {
            Self::Started { pid, tier, .. } => format!("started {pid} {tier}"),
            Self::Failed { errno } => format!("failed {errno}"),
            Self::Exited(Exit::Code(code)) => format!("exited code {code}"),
            Self::Exited(Exit::Signal(signal)) => format!("exited signal {signal}"),
            Self::Exited(Exit::Unknown) => "exited unknown".to_owned(),
            Self::Gone(swept) => format!("gone {} {}", swept.leaked, swept.unkilled),
            Self::Kept(outcome) => format!("kept {}", outcome.err().unwrap_or(0)),
            Self::Detached(DetachedLifeline { lifeline, watcher }) => {
                let watcher = watcher.map_or(String::new(), |watcher| format!(" {}", named(watcher)));
                format!("detached {}{watcher}", named(*lifeline))
            }
        }
        .into_bytes();
        if let Self::Started { group: Some(group), .. } = self {
            line.push(b' ');
            line.extend(group.as_os_str().as_bytes());
        }
        line.push(b'\n');
        line
    }

    /// Parses a line without its ending; `None` if it cannot be read.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let kind = words.next()?;
        let first = std::str::from_utf8(words.next()?).ok()?;
        let second = words.next().and_then(|word| std::str::from_utf8(word).ok());
        Some(match kind {
            b"started" => Self::Started {
                pid: first.parse().ok()?,
                tier: Tier::from_name(second?)?,
                group: words.next().map(|path| OsString::from_vec(path.to_vec()).into()),
            },
            b"failed" => Self::Failed { errno: first.parse().ok()? },
            b"exited" => Self::Exited(match first {
                "code" => Exit::Code(second?.parse().ok()?),
                "signal" => Exit::Signal(second?.parse().ok()?),
                _ => Exit::Unknown,
            }),
            b"kept" => Self::Kept(match first.parse().ok()? {
                0 => Ok(()),
                errno => Err(errno),
            }),
            b"detached" => Self::Detached(DetachedLifeline {
                lifeline: identity(first)?,
                watcher: second.map(|word| identity(word).ok_or(())).transpose().ok()?,
            }),
            b"gone" => Self::Gone(SweptTree { leaked: first.parse().ok()?, unkilled: second?.parse().ok()? }),
            _ => return None,
        })
    }
}

/// Returns the text that [`identity`] reads.
fn named(identity: Identity) -> String {
    format!("{}:{}", identity.pid, identity.start)
}

fn identity(text: &str) -> Option<Identity> {
    let (pid, start) = text.split_once(':')?;
    Some(Identity { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

impl Tier {
    const ALL: [Self; 3] = [Self::ControlGroup, Self::Subreaper, Self::ProcessGroup];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.to_string() == name)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ControlGroup => "control-group",
            Self::Subreaper => "subreaper",
            Self::ProcessGroup => "process-group",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFELINE: Identity = Identity { pid: 7, start: 8 };
    const WATCHER: Identity = Identity { pid: 6, start: u64::MAX };

    #[test]
    fn every_report_is_read_back_as_it_was_written() {
        let reports = [
            LifelineReport::Started {
                pid: 7,
                tier: Tier::ControlGroup,
                group: Some("/sys/fs/c group/x".into()),
            },
            LifelineReport::Started { pid: 7, tier: Tier::Subreaper, group: None },
            LifelineReport::Failed { errno: 2 },
            LifelineReport::Exited(Exit::Code(255)),
            LifelineReport::Exited(Exit::Signal(9)),
            LifelineReport::Exited(Exit::Unknown),
            LifelineReport::Gone(SweptTree { leaked: 3, unkilled: 1 }),
            LifelineReport::Kept(Ok(())),
            LifelineReport::Kept(Err(24)),
            LifelineReport::Detached(DetachedLifeline { lifeline: LIFELINE, watcher: Some(WATCHER) }),
            LifelineReport::Detached(DetachedLifeline { lifeline: LIFELINE, watcher: None }),
        ];
        for report in reports {
            let line = report.to_line();
            assert_eq!(LifelineReport::parse(line.strip_suffix(b"\n").unwrap()), Some(report));
        }
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        for line in [
            "",
            "started",
            "started x subreaper",
            "started 1 moon",
            "gone 1",
            "exited code",
            "hello 1 2",
            "detached 1",
            "detached 1:2 3",
        ] {
            assert_eq!(LifelineReport::parse(line.as_bytes()), None, "{line}");
        }
    }
}
