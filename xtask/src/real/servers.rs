//! The six real servers: how each is started, and what has to be in its folder.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::bench::{CaseContext, CaseFolder};

/// A public server, pinned in `real/node/` or `real/python/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublicServer {
    Everything,
    Filesystem,
    Memory,
    Time,
    Git,
    Gms,
}

/// The smallest project that gms-mcp starts on; without one it exits before it reads anything (contract.md part 4).
const GAMEMAKER_PROJECT: &str = r#"{
  "$GMProject": "",
  "%Name": "unhang",
  "name": "unhang",
  "resourceType": "GMProject",
  "resourceVersion": "2.0",
  "resources": [],
  "Folders": [],
  "IncludedFiles": [],
  "RoomOrderNodes": [],
  "TextureGroups": [],
  "AudioGroups": [],
  "configs": { "name": "Default", "children": [] },
  "MetaData": { "IDEVersion": "2024.8.1.171" }
}
"#;

/// Signature and header of a picture of one pixel; the server looks at the name alone.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

impl PublicServer {
    pub(crate) const ALL: [Self; 6] =
        [Self::Everything, Self::Filesystem, Self::Memory, Self::Time, Self::Git, Self::Gms];

    /// The name of the server's scenario.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Filesystem => "filesystem",
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Git => "git",
            Self::Gms => "gms",
        }
    }

    /// Whether the server speaks 2026-07-28 as well as the handshake (contract.md part 4).
    pub(crate) fn is_stateless_too(self) -> bool {
        matches!(self, Self::Time | Self::Git | Self::Gms)
    }

    /// Whether the scenario calls every tool there is. gms-mcp has 36, most of which need GameMaker.
    pub(crate) fn is_called_completely(self) -> bool {
        self != Self::Gms
    }

    /// The command that starts it.
    pub(crate) fn command(self, bench: &CaseContext, case_folder: &CaseFolder) -> Vec<OsString> {
        let node = |name: &str| {
            let script = bench.installed.package(&format!("server-{name}/dist/index.js"));
            vec![OsString::from("node"), script.into()]
        };
        let python = |name: &str| vec![bench.installed.python(name).into_os_string()];
        match self {
            Self::Everything | Self::Memory => node(self.name()),
            Self::Filesystem => [node(self.name()), vec![case_folder.work().into()]].concat(),
            Self::Time => python("mcp-server-time"),
            Self::Git => {
                [python("mcp-server-git"), vec!["--repository".into(), case_folder.work().into()]].concat()
            }
            Self::Gms => python("gms-mcp"),
        }
    }

    /// The entry that starts it, as the files of clients have it.
    pub(crate) fn entry(self, bench: &CaseContext, case_folder: &CaseFolder) -> Value {
        let words = self.command(bench, case_folder).into_iter();
        let mut words = words.map(|word| Value::from(word.to_string_lossy()));
        json!({ "command": words.next(), "args": words.collect::<Vec<_>>() })
    }

    /// Puts into the case's folder what the scenario relies on.
    pub(crate) fn furnish(self, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
        let work = case_folder.work();
        match self {
            Self::Filesystem => {
                write(&work.join("large.txt"), large_text().as_bytes())?;
                write(&work.join("dot.png"), PICTURE)
            }
            Self::Git => make_repository(case_folder),
            Self::Gms => write(&work.join("unhang.yyp"), GAMEMAKER_PROJECT.as_bytes()),
            Self::Everything | Self::Memory | Self::Time => Ok(()),
        }
    }
}

/// Text of 230 kB, more than any pipe or read buffer on the way holds, with letters of several bytes.
pub(crate) fn large_text() -> String {
    (0..10_000).map(|number| format!("large line {number} äöü\n")).collect()
}

/// One commit on `trunk` and one change that is not staged.
fn make_repository(case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let file = case_folder.work().join("file.txt");
    write(&file, b"original\n")?;
    for arguments in [
        ["init", "--quiet", "--initial-branch=trunk"].as_slice(),
        &["add", "file.txt"],
        &["commit", "--quiet", "--message=the first commit"],
    ] {
        let task =
            ProgramRun::new("git", &case_folder.work(), case_folder.path("git.log"), Duration::from_secs(30))
                .arguments(arguments);
        run::run(
            case_folder
                .environment()
                .into_iter()
                .fold(task, |task, (name, value)| task.variable(name, value)),
        )?;
    }
    write(&file, b"changed\n")
}

fn write(path: &Path, content: &[u8]) -> Result<(), ChoreFailure> {
    fs::write(path, content).map_err(|error| ChoreFailure::io(path.display(), &error))
}
