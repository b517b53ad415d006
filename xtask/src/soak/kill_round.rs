//! One round of the kill matrix: a server accepts jobs, somebody is killed, and whoever opens the data folder next has to find
//! the truth.
//!
//! # Invariants
//!
//! - Only processes of this round are killed: a shim is found by its number in `run.json`, and by where it works.
//! - Every wait has a limit; what goes wrong leaves no process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::leftovers::{self, Marker};
use crate::run::{self, ProgramRun};
use crate::{clock, failure::ChoreFailure};

use super::guard::SoakGuard;
use super::kill_plan::{EndGate, KillPlan, PlannedJob, Victim};
use super::session::{SessionFailure, SoakStage};

/// For a start, an answer or an end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a shim is looked for: where the jobs have ended there is none.
const LOOKING: Duration = Duration::from_millis(500);
/// How long the last process of a round may take to disappear.
const CLEARING: Duration = Duration::from_secs(20);

/// What a round came to.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KillRound {
    /// Processes that were killed.
    pub(crate) victims: u64,
    /// Jobs that were accepted.
    pub(crate) jobs: u64,
    /// Those whose outcome, exit code, log and number of runs were the true ones.
    pub(crate) true_ends: u64,
    /// Those that are lost with their shim.
    pub(crate) lost: u64,
}

impl KillRound {
    pub(crate) fn add(&mut self, other: Self) {
        self.victims += other.victims;
        self.jobs += other.jobs;
        self.true_ends += other.true_ends;
        self.lost += other.lost;
    }
}

/// Does what the plan says, and judges what is found afterwards.
pub(crate) fn perform(plan: &KillPlan, stage: &SoakStage) -> Result<KillRound, SessionFailure> {
    let room = stage.room(&format!("kills-{}", plan.number)).and_then(|room| {
        // As `/proc` has it.
        fs::canonicalize(&room).map_err(|error| format!("{}: {error}", room.display()))
    });
    let room = room.map_err(|what| SessionFailure { what, story: String::new() })?;
    let mut stand = Stand { plan, stage, room, accepted: BTreeMap::new(), victims: 0, shim_of: None };
    let outcome = stand.play().and_then(|()| stand.judge());
    match outcome {
        Ok(round) => {
            let _kept_if_it_cannot_be_removed = fs::remove_dir_all(&stand.room);
            Ok(round)
        }
        Err(what) => {
            let left = leftovers::working_below(&stand.room);
            let story = stand.story(&left);
            run::kill(left.iter().map(|process| process.pid.to_string()), Path::new("/"));
            Err(SessionFailure { what, story })
        }
    }
}

/// Where a round takes place, and what has happened so far.
#[derive(Debug)]
struct Stand<'a> {
    plan: &'a KillPlan,
    stage: &'a SoakStage,
    room: PathBuf,
    /// The ids that were answered, by the number of the job.
    accepted: BTreeMap<usize, String>,
    victims: u64,
    /// The job whose shim was killed.
    shim_of: Option<String>,
}

impl Stand<'_> {
    fn play(&mut self) -> Result<(), String> {
        let file = self.file();
        fs::write(&file, self.configuration()).map_err(|error| format!("{}: {error}", file.display()))?;
        if self.plan.gate == EndGate::AtOnce {
            self.open_gate()?;
        }
        let task = self.task("/dev/null".into()).arguments(["serve", "--config"]).arguments([&file]);
        let mut server = SoakGuard::start(&task, true).map_err(|error| error.to_string())?;
        let outcome = self.meet(&mut server);
        outcome.map_err(|what| format!("{what}\n{}", server.story()))
    }

    /// Submits all the jobs at once, and kills in the middle of it or later.
    fn meet(&mut self, server: &mut SoakGuard) -> Result<(), String> {
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}});
        send(server, &json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}));
        let mut greeted = false;
        self.until(server, "the handshake", |_, message| {
            greeted |= message["id"] == "hello";
            greeted
        })?;
        send(server, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        for number in 0..self.plan.jobs.len() {
            let params = json!({"name": format!("job_{number}"), "arguments": {}});
            send(server, &json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}));
        }
        let moment = clock::now() + self.plan.kill_after;
        while clock::now() < moment {
            self.turn(server, moment)?;
        }
        if self.plan.gate == EndGate::AtTheKill {
            self.open_gate()?;
        }
        self.kill(server)?;
        if self.plan.gate == EndGate::Afterwards {
            self.open_gate()?;
        }
        if self.plan.victim == Victim::Shim {
            let all = self.plan.jobs.len();
            self.until(server, "an answer to each call", |stand, _| stand.accepted.len() == all)?;
            server.close_input();
        }
        let end = clock::now() + PATIENCE;
        while server.status().is_none() {
            self.turn(server, end)?;
            if clock::now() > end {
                return Err(format!("the server has not ended within {} s", PATIENCE.as_secs()));
            }
        }
        Ok(())
    }

    fn kill(&mut self, server: &mut SoakGuard) -> Result<(), String> {
        let mut shim = None;
        if self.plan.victim != Victim::Server {
            clock::wait_until(LOOKING, || {
                let running = self.running();
                shim = running.get(self.plan.choice % running.len().max(1)).cloned();
                shim.is_some()
            });
        }
        if self.plan.victim != Victim::Shim {
            server.signal(Signal::KILL);
            self.victims += 1;
        }
        let Some((id, pid)) = shim else { return Ok(()) };
        let open = pidfd_open(pid, PidfdFlags::empty());
        // The number may have gone to another process before it was opened.
        let working_folder = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
        if let (Ok(process), Ok(working_folder)) = (open, working_folder)
            && working_folder == self.job(&id)
        {
            pidfd_send_signal(&process, Signal::KILL)
                .map_err(|error| format!("cannot kill a shim: {error}"))?;
            self.victims += 1;
            self.shim_of = Some(id);
        }
        Ok(())
    }

    /// Jobs and their shims that seem to run.
    fn running(&self) -> Vec<(String, Pid)> {
        let folders = fs::read_dir(self.home().join("jobs")).into_iter().flatten().flatten();
        let running = folders.filter(|folder| !folder.path().join("exit.json").exists());
        running
            .filter_map(|folder| {
                let run: Value =
                    serde_json::from_slice(&fs::read(folder.path().join("run.json")).ok()?).ok()?;
                let pid = Pid::from_raw(i32::try_from(run["shim"]["pid"].as_i64()?).ok()?)?;
                Some((folder.file_name().into_string().ok()?, pid))
            })
            .collect()
    }

    /// Lets the server go on until something has been seen.
    fn until(
        &mut self,
        server: &mut SoakGuard,
        what: &str,
        mut seen: impl FnMut(&Self, &Value) -> bool,
    ) -> Result<(), String> {
        let end = clock::now() + PATIENCE;
        while !seen(self, &Value::Null) {
            if let Some(message) = self.turn(server, end)?
                && seen(self, &message)
            {
                return Ok(());
            }
            if server.status().is_some() || clock::now() > end {
                return Err(format!("no {what} within {} s, or the server has gone", PATIENCE.as_secs()));
            }
        }
        Ok(())
    }

    /// Takes a message, if one comes before that moment, and remembers which job was accepted.
    fn turn(&mut self, server: &mut SoakGuard, end: Instant) -> Result<Option<Value>, String> {
        let timeout = end.saturating_duration_since(clock::now()).min(Duration::from_millis(20));
        server.turn(timeout).map_err(|error| format!("the pipes of the server: {error}"))?;
        let Some(line) = server.next_line() else { return Ok(None) };
        let message: Value =
            serde_json::from_slice(&line).map_err(|error| format!("no message from the server: {error}"))?;
        let number = message["id"].as_u64().and_then(|number| usize::try_from(number).ok());
        if let Some(number) = number {
            let id = message["result"]["structuredContent"]["job_id"].as_str();
            let id = id.ok_or_else(|| format!("job {number} was refused: {message}"))?;
            self.accepted.insert(number, id.to_owned());
        }
        Ok(Some(message))
    }

    /// Opens the folder again and again until every job has ended, and compares with the truth.
    fn judge(&self) -> Result<KillRound, String> {
        let (mut listed, mut trouble) = (Vec::new(), None);
        let mut looked_at = BTreeSet::new();
        let ended = clock::wait_until(PATIENCE, || match self.list() {
            Ok(list) => {
                listed = list;
                trouble = listed.iter().find_map(|job| self.left_of(job, &mut looked_at));
                trouble.is_some() || listed.iter().all(|job| job["completed_at"].is_string())
            }
            Err(failure) => {
                trouble = Some(failure.to_string());
                true
            }
        });
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        if !ended {
            return Err(format!("not every job has ended within {} s: {listed:?}", PATIENCE.as_secs()));
        }
        let mut round =
            KillRound { victims: self.victims, jobs: listed.len() as u64, ..KillRound::default() };
        let mut names = BTreeSet::new();
        for job in &listed {
            let name = job["name"].as_str().unwrap_or_default();
            let number = name.strip_prefix("job_").and_then(|number| number.parse().ok());
            let planned = number.and_then(|number: usize| Some((number, self.plan.jobs.get(number)?)));
            let (number, planned) = planned.ok_or_else(|| format!("nobody submitted {job}"))?;
            if !names.insert(number) {
                return Err(format!("job {number} was accepted twice"));
            }
            if self.is_true(number, planned, job)? {
                round.true_ends += 1;
            } else {
                round.lost += 1;
            }
        }
        let known: BTreeSet<_> = listed.iter().filter_map(|job| job["job_id"].as_str()).collect();
        if let Some((number, id)) = self.accepted.iter().find(|(_, id)| !known.contains(id.as_str())) {
            return Err(format!("job {number} was accepted as {id} and is not there"));
        }
        if !clock::wait_until(CLEARING, || leftovers::working_below(&self.room).is_empty()) {
            return Err(format!("left behind {} s after the end of the last job", CLEARING.as_secs()));
        }
        Ok(round)
    }

    /// What is left of a job when it is first seen to be lost.
    fn left_of(&self, job: &Value, looked_at: &mut BTreeSet<String>) -> Option<String> {
        let id = job["job_id"].as_str().filter(|_| job["status"] == "lost")?;
        if !looked_at.insert(id.to_owned()) {
            return None;
        }
        let left = leftovers::with_variable(&format!("UNHANG_JOB_ID={id}"));
        (!left.is_empty()).then(|| format!("job {id} is lost, and of it there still lives {left:?}"))
    }

    /// Whether a job ended as it truly does; false where it is rightly lost.
    fn is_true(&self, number: usize, planned: &PlannedJob, job: &Value) -> Result<bool, String> {
        let id = job["job_id"].as_str().unwrap_or_default();
        let tally = fs::read_to_string(self.room.join(format!("tally-{number}"))).unwrap_or_default();
        if tally.matches("begin").count() > 1 {
            return Err(format!("job {number} ({id}) ran twice"));
        }
        if job["status"] == "lost" && self.shim_of.as_deref() == Some(id) {
            return Ok(false);
        }
        let code = if planned.signal.is_some() { Value::Null } else { json!(planned.code) };
        let signal = json!(planned.signal);
        let told = (&job["status"], &job["exit_code"], &job["signal"]);
        if told != (&json!(planned.status()), &code, &signal) {
            return Err(format!(
                "job {number} ends {} with {code} or signal {signal}, but: {job}",
                planned.status()
            ));
        }
        if tally != "begin\nend\n" {
            return Err(format!(
                "job {number} ({id}) is told to have ended, and counted itself as {tally:?}"
            ));
        }
        let log = fs::read_to_string(self.job(id).join("stdout.log")).map_err(|error| error.to_string())?;
        if log != planned.log() {
            return Err(format!(
                "the log of job {number} ({id}) has {} bytes that are not the true ones",
                log.len()
            ));
        }
        Ok(true)
    }

    /// All jobs, as somebody finds them who opens the folder now.
    fn list(&self) -> Result<Vec<Value>, ChoreFailure> {
        let answer = self.room.join("list.json");
        let task = self.task(self.room.join("list.log")).answer(answer.clone());
        // The file of the working folder counts after consent alone, and one that is named is consent.
        let task = task.arguments(["job", "list", "--config"]).arguments([&self.file()]);
        run::start(task.arguments(["--limit", "1000", "--output", "json"]))?.wait()?;
        let bytes = fs::read(&answer).map_err(|error| ChoreFailure::io(answer.display(), &error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ChoreFailure::new(format!("the list is no list: {error}")))
    }

    fn task(&self, output: PathBuf) -> ProgramRun {
        ProgramRun::new(&self.stage.unhang, &self.room, output, PATIENCE)
            .variable("UNHANG_HOME", self.home())
            .variable("UNHANG_MEMORY_LIMIT", "100")
            .marked(&Marker::unique())
    }

    fn home(&self) -> PathBuf {
        self.room.join("home")
    }

    fn file(&self) -> PathBuf {
        self.room.join("unhang.toml")
    }

    fn job(&self, id: &str) -> PathBuf {
        self.home().join("jobs").join(id)
    }

    fn open_gate(&self) -> Result<(), String> {
        fs::write(self.room.join("go"), "").map_err(|error| format!("{}: {error}", self.room.display()))
    }

    /// A tool for each job.
    fn configuration(&self) -> String {
        let mut text = format!("[jobs]\nmax-concurrent = {}\nmemory-limit = 100\n", self.plan.max_concurrent);
        for (number, job) in self.plan.jobs.iter().enumerate() {
            let (tally, lines, code) =
                (format!("tally-{number}"), job.lines.to_string(), job.code.to_string());
            let signal = job.signal.unwrap_or_default().to_string();
            let mut command = vec![&*self.stage.lab, "zoo", "slow", "--gate", "go", "--tally", &tally];
            command.extend(["--lines", &lines, "--signal", &signal]);
            command.extend(job.leaves.then_some(["--leaves", "soak"]).into_iter().flatten());
            command.push(&code);
            // What JSON writes for texts and lists, TOML reads.
            let _ = writeln!(
                text,
                "\n[tools.job_{number}]\ncommand = {}\nmode = \"job\"\nresults = \"results.json\"",
                json!(command)
            );
        }
        text
    }

    fn story(&self, left: &[leftovers::MarkedProcess]) -> String {
        format!(
            "accepted: {:?}\nits shim was killed: {:?}\nprocesses: {left:#?}\nits files are in {}",
            self.accepted,
            self.shim_of,
            self.room.display()
        )
    }
}

fn send(server: &mut SoakGuard, message: &Value) {
    server.send(format!("{message}\n").as_bytes());
}
