//! Where a round takes place: its folder, its processes, and what `unhang` says about its jobs.
//!
//! # Invariants
//!
//! - A process belongs to a round if it has the marker of the round in its environment. Only such processes are ended.
//! - Every wait has a limit.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits,
    processes::{self, WatchedProcess},
};

use super::round_plan::{RoundPlace, RoundPlan, RoundVictim};
use crate::child_processes::{self, ChildStreams};
use crate::corpus::client::CorpusClient;
use crate::corpus::verdict::Flaw;
use crate::load::LoadPrograms;
use crate::signals;

/// For a start, an answer or an end, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Carries the marker into every process of a round.
const MARKER_VARIABLE: &str = "UNHANG_ZOO_ROUND";
/// What unhang keeps in its data folder.
const KEPT: [&str; 9] = [
    "unhang.db",
    "unhang.db-wal",
    "unhang.db-shm",
    "unhang.db-turn",
    "jobs",
    "state",
    "logs",
    "lists",
    "trust",
];

/// The stage of one round.
pub(super) struct RoundStage<'a> {
    programs: LoadPrograms<'a>,
    pub(super) plan: &'a RoundPlan,
    pub(super) room: PathBuf,
    marker: String,
}

/// Puts into words why a client could not go on.
pub(super) fn told(flaw: Flaw) -> String {
    match flaw {
        Flaw::Broken(what) | Flaw::Failed(what) => what,
    }
}

impl<'a> RoundStage<'a> {
    /// Makes the folder of a round in this one.
    pub(super) fn set(programs: LoadPrograms<'a>, plan: &'a RoundPlan, parent: &Path) -> io::Result<Self> {
        let room = parent.join(format!("round-{}", plan.number));
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(&room)?;
        builder.create(room.join("temporary"))?;
        let marker = format!("round-{}-{}", std::process::id(), plan.number);
        let stage = Self { programs, plan, room, marker };
        fs::write(stage.room.join("unhang.toml"), stage.configuration())?;
        Ok(stage)
    }

    /// The server: a recorder of what it is sent and says, and a tool that is as slow as it is told.
    fn server(&self) -> [&str; 9] {
        let zoo = self.programs.zoo;
        [zoo, "zoo", "tee", "asked", "said", "--", zoo, "zoo", "slow-answers"]
    }

    fn configuration(&self) -> String {
        let server = self.server();
        // What JSON writes for texts and lists, TOML reads. The environment has the marker.
        format!(
            "[servers.srv]\ncommand = {}\nargs = {}\nlimits.promote-after = \"200ms\"\nlimits.stop-grace = \"500ms\"\ninherit-env = true\n",
            json!(server[0]),
            json!(server[1..])
        )
    }

    /// The command of the guard or of the gateway, whose data are in the room.
    fn owner(&self, place: RoundPlace) -> Vec<String> {
        let mut words = vec![self.programs.unhang, "-v"];
        let server = self.server();
        match place {
            RoundPlace::Guard => {
                words.extend(["wrap", "--name", "srv", "--promote-after", "200ms", "--stop-grace", "500ms"]);
                words.extend([&["--"][..], &server].concat());
            }
            RoundPlace::Gateway => words.extend(["serve", "--config", "unhang.toml"]),
            RoundPlace::Http => {
                words.extend(["serve", "--http", "127.0.0.1:0", "--config", "unhang.toml"]);
            }
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// A command behind a client that is a process of its own.
    fn relayed(&self, command: &[String]) -> Vec<String> {
        let is_apart = !matches!(self.plan.victim, RoundVictim::GuardClient | RoundVictim::GatewayClient);
        let room = self.room.to_string_lossy().into_owned();
        let group = if is_apart { "own" } else { "shared" };
        let relay = [self.programs.zoo, "zoo", "relays", "--room", &room, "--group", group, "--"];
        relay.iter().map(|word| (*word).to_owned()).chain(command.iter().cloned()).collect()
    }

    /// A client of a new guard or gateway, with the end of its stderr in this file.
    pub(super) fn client(&self, place: RoundPlace, errors: &str) -> Result<CorpusClient, String> {
        let errors = File::create(self.room.join(errors)).map_err(|error| error.to_string())?;
        let variable = (MARKER_VARIABLE, &*self.marker);
        let command = self.relayed(&self.owner(place));
        CorpusClient::start(&command, variable, errors.into(), PATIENCE).map_err(told)
    }

    /// The processes of this round.
    pub(super) fn processes(&self) -> Vec<WatchedProcess> {
        processes::marked(&self.marker)
    }

    /// Waits for the process of this round that has this name.
    pub(super) fn named(&self, name: &str) -> Result<WatchedProcess, String> {
        let find = || self.processes().into_iter().find(|process| process.name().as_deref() == Some(name));
        self.wait_for(&format!("process `{name}`"), find)
    }

    /// Looks until there is something.
    pub(super) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let end = bounded_waits::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if signals::was_interrupted() {
                return Err("interrupted".to_owned());
            }
            if bounded_waits::now() >= end {
                return Err(format!("no {what} within {} s", PATIENCE.as_secs()));
            }
            bounded_waits::pause(LOOK);
        }
    }

    /// What `unhang job` says, as JSON.
    pub(super) fn unhang_job(&self, words: &[&str]) -> Result<Value, String> {
        let answer = self.room.join("answer.json");
        let run = || {
            let command = [&[self.programs.unhang, "job"], words, &["--output", "json"]].concat();
            let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
            let command = self.relayed(&command);
            let streams = ChildStreams {
                stdin: Stdio::null(),
                stdout: File::create(&answer)?.into(),
                stderr: File::options().append(true).create(true).open(self.room.join("job-stderr"))?.into(),
            };
            let variable = (MARKER_VARIABLE, &*self.marker);
            let mut child = child_processes::start_marked(&command[0], &command[1..], streams, variable)?;
            let process = WatchedProcess::open(child.id(), &[]);
            if !process.is_some_and(|process| process.wait(PATIENCE).unwrap_or_default()) {
                let _gone_already = child.kill();
            }
            child_processes::wait(&mut child)?;
            fs::read(&answer)
        };
        let bytes = run().map_err(|error| format!("`unhang job {}`: {error}", words.join(" ")))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("`unhang job {}` printed no JSON: {error}", words.join(" ")))
    }

    /// Lets the calls of the server go on to their answers.
    pub(super) fn let_answer(&self) -> Result<(), String> {
        fs::write(self.room.join("go"), "").map_err(|error| error.to_string())
    }

    /// How often the server was sent the call with this label.
    pub(super) fn runs(&self, label: &str) -> usize {
        let asked = fs::read_to_string(self.room.join("asked")).unwrap_or_default();
        let label = format!("\"label\":\"{label}\"");
        asked.lines().filter(|line| line.contains("\"tools/call\"") && line.contains(&label)).count()
    }

    /// The files that are left and that unhang does not keep, and what is half written among the others.
    pub(super) fn files_left(&self) -> Vec<String> {
        let data = self.room.join("data");
        let is_left = |file: &PathBuf| {
            let Ok(file) = file.strip_prefix(&data) else { return true };
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let is_temporary = !file.starts_with("logs") && name.starts_with('.') && name != ".lock";
            is_temporary || !KEPT.iter().any(|kept| file.starts_with(kept))
        };
        let all = [files(&data), files(&self.room.join("temporary"))].concat();
        all.into_iter().filter(is_left).map(|file| file.display().to_string()).collect()
    }

    /// Ends what is left of this round.
    pub(super) fn sweep(&self) {
        let end = bounded_waits::now() + PATIENCE;
        while bounded_waits::now() < end {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            left.iter().for_each(WatchedProcess::kill);
            bounded_waits::pause(LOOK);
        }
    }
}

/// All files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| of(entry.path())).collect()
}
