//! The folder of a case, its marker, its environment, and the guarded command lines.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::clock;
use crate::failure::ChoreFailure;
use crate::leftovers::{self, MarkedProcess, Marker};
use crate::project::Project;
use crate::run::{self, ProgramRun, RunningProgram};

use super::install::Installed;

/// A client with one server; the longest takes a few seconds.
const CLIENT_DEADLINE: Duration = Duration::from_secs(60);
/// Everything of a case is gone this long after its client: unhang promises 3 s for a server that ignores everything
/// (design 3, stop-grace), and the machine may be busy.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(8);

/// What all cases share.
pub(crate) struct CaseContext {
    pub(crate) installed: Installed,
    /// The folder of the checkout's `real/`.
    sources: PathBuf,
    runs: PathBuf,
    /// The `unhang` that is checked.
    binary: PathBuf,
    /// The program with the servers of the zoo.
    lab: PathBuf,
}

/// What one case has for itself.
pub(crate) struct CaseFolder {
    /// Plan, transcript, logs.
    folder: PathBuf,
    pub(crate) marker: Marker,
}

impl CaseContext {
    pub(crate) fn new(
        project: &Project,
        installed: Installed,
        binary: PathBuf,
    ) -> Result<Self, ChoreFailure> {
        Ok(Self {
            installed,
            sources: project.root().join("real"),
            runs: project.below_target("real/runs"),
            lab: project.lab(&binary)?,
            binary,
        })
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(crate) fn lab(&self) -> &Path {
        &self.lab
    }

    /// A file of the checkout's `real/`.
    pub(crate) fn source(&self, path: &str) -> PathBuf {
        self.sources.join(path)
    }

    /// Makes an empty folder for a case.
    pub(crate) fn case_folder(&self, name: &str) -> Result<CaseFolder, ChoreFailure> {
        let folder = self.runs.join(name.replace('/', "-"));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| ChoreFailure::io(folder.display(), &error))?;
        }
        let case_folder = CaseFolder { folder, marker: Marker::unique() };
        for part in [case_folder.path("home"), case_folder.work(), case_folder.meeting()] {
            fs::create_dir_all(&part).map_err(|error| ChoreFailure::io(part.display(), &error))?;
        }
        Ok(case_folder)
    }

    /// `unhang wrap -- SERVER`.
    pub(crate) fn wrapped(&self, server: &[OsString]) -> Vec<OsString> {
        self.unhang(&["wrap", "--"], server)
    }

    /// `unhang-lab zoo tee FROM_CLIENT FROM_SERVER -- COMMAND`, with logs that begin with `side`.
    pub(crate) fn teed(&self, case_folder: &CaseFolder, side: &str, command: &[OsString]) -> Vec<OsString> {
        let log = |direction: &str| case_folder.path(&format!("{side}-{direction}")).into_os_string();
        let mut words = self.zoo("tee");
        words.extend([log("from-client"), log("from-server"), OsString::from("--")]);
        words.extend_from_slice(command);
        words
    }

    /// A tee on each side of a guard that has nothing to add, and the server behind them.
    pub(crate) fn observed(&self, case_folder: &CaseFolder, server: &[OsString]) -> Vec<OsString> {
        let guard = ["wrap", "--promote-after", "off", "--"];
        self.teed(case_folder, "outside", &self.unhang(&guard, &self.teed(case_folder, "inside", server)))
    }

    /// `unhang-lab zoo NAME`.
    pub(crate) fn zoo(&self, name: &str) -> Vec<OsString> {
        [self.lab.as_os_str(), "zoo".as_ref(), name.as_ref()].map(OsStr::to_owned).to_vec()
    }

    /// `unhang WORDS REST`.
    pub(crate) fn unhang(&self, words: &[&str], rest: &[OsString]) -> Vec<OsString> {
        let words = words.iter().map(OsString::from);
        std::iter::once(self.binary.clone().into_os_string())
            .chain(words)
            .chain(rest.iter().cloned())
            .collect()
    }
}

impl CaseFolder {
    /// A path in the case's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder that the server works in.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// The folder in which clients say what they have reached, and are told to go on.
    pub(crate) fn meeting(&self) -> PathBuf {
        self.path("meeting")
    }

    /// What the processes of the case need in their environment, since clients hand on only a part of theirs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            (leftovers::VARIABLE, self.marker.value().into()),
            ("HOME", self.path("home").into()),
            ("MEMORY_FILE_PATH", self.path("memory.json").into()),
            ("GIT_AUTHOR_NAME", "Ada".into()),
            ("GIT_AUTHOR_EMAIL", "ada@example.org".into()),
            ("GIT_COMMITTER_NAME", "Ada".into()),
            ("GIT_COMMITTER_EMAIL", "ada@example.org".into()),
            // npx takes the installed package or nothing.
            ("npm_config_offline", "true".into()),
        ]
    }

    /// A program of this case, whose output goes to `name` and `name.log`.
    pub(crate) fn task(&self, program: &Path, folder: &Path, name: &str) -> ProgramRun {
        let output = self.path(name);
        let errors = self.path(&format!("{name}.log"));
        let task =
            ProgramRun::new(program, folder, output, CLIENT_DEADLINE).errors(errors).marked(&self.marker);
        self.environment().into_iter().fold(task, |task, (name, value)| task.variable(name, value))
    }

    /// Runs a client to its end and makes sure that nothing of the case is left after it.
    pub(crate) fn run(&self, task: ProgramRun) -> Result<(), ChoreFailure> {
        self.finish(&run::start(task)?)
    }

    /// Waits for a client that was started and makes sure that nothing of the case is left after it.
    pub(crate) fn finish(&self, running: &RunningProgram) -> Result<(), ChoreFailure> {
        self.ended(running, running.wait())
    }

    /// The same where any end of the program will do.
    pub(crate) fn finish_in_any_way(&self, running: &RunningProgram) -> Result<ExitStatus, ChoreFailure> {
        self.ended(running, running.status())
    }

    fn ended<T>(
        &self,
        running: &RunningProgram,
        outcome: Result<T, ChoreFailure>,
    ) -> Result<T, ChoreFailure> {
        let left = self.left_after(LEFTOVER_LIMIT, |_| true);
        running.end();
        let outcome = outcome?;
        if left.is_empty() {
            return Ok(outcome);
        }
        Err(ChoreFailure::new(format!("left behind: {}", commands(&left))))
    }

    /// Waits until no process of the case that counts is left; returns those that still are.
    pub(crate) fn left_after(
        &self,
        limit: Duration,
        counts: impl Fn(&MarkedProcess) -> bool,
    ) -> Vec<MarkedProcess> {
        let left = || self.marker.processes().into_iter().filter(&counts).collect::<Vec<_>>();
        if clock::wait_until(limit, || left().is_empty()) { Vec::new() } else { left() }
    }
}

/// The processes in one line, for a person.
pub(crate) fn commands(processes: &[MarkedProcess]) -> String {
    let named: Vec<_> =
        processes.iter().map(|process| format!("{} ({})", process.pid, process.command)).collect();
    named.join(", ")
}
