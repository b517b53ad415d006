//! The command line as a script uses it: whole processes, from the spawn to the exit code.
//!
//! # Invariants
//!
//! - Each command is waited for no longer than [`PATIENCE`], and killed then.
//! - What lies on the disk meanwhile is in one folder, which is removed at the end.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use unhang_demo_servers::bounded_waits;

use super::{LoadPrograms, LoadRoute, per_second};

use super::session::LoadSession;
use crate::child_processes;

/// Longer than any of these commands may take: the end of servers takes seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandPlan {
    /// How often all is gone through.
    pub rounds: usize,
    /// Lines of a batch.
    pub lines: usize,
    /// How many of them at once.
    pub at_once: usize,
}

impl CommandPlan {
    /// The plan whose figures mean something; a quarter of a minute.
    pub const FULL: CommandPlan = CommandPlan { rounds: 7, lines: 40_000, at_once: 32 };
    /// A plan that shows no more than that everything works.
    pub const QUICK: CommandPlan = CommandPlan { rounds: 1, lines: 200, at_once: 32 };
}

/// What one round found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandRound {
    /// One call: the whole process; of the bare server, from its spawn to the answer of `initialize`.
    pub call: Duration,
    /// Lines of a batch a second, the whole process.
    pub lines_per_second: Option<f64>,
    /// From the last answer to the exit: with a good server.
    pub end: Option<Duration>,
    /// With one that ignores everything. Once a run.
    pub end_ignoring: Option<Duration>,
    /// With three of them. Once a run.
    pub end_three: Option<Duration>,
}

/// The rounds of the bare server and of the commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandFigures {
    /// The server alone.
    pub direct: Vec<CommandRound>,
    /// `unhang call` and `unhang batch`.
    pub commands: Vec<CommandRound>,
}

/// Measures the commands of `unhang`. `on_progress` hears the number of each round, from 1, as it begins.
///
/// # Errors
///
/// A command or a server that does not do what it should.
pub fn measure_commands(
    programs: LoadPrograms<'_>,
    plan: &CommandPlan,
    mut on_progress: impl FnMut(usize),
) -> io::Result<CommandFigures> {
    let scene = CommandScene::new(programs, plan)?;
    let mut figures = CommandFigures::default();
    for round in 1..=plan.rounds {
        on_progress(round);
        figures.direct.push(scene.direct()?);
        figures.commands.push(scene.commands(plan, round == 1)?);
    }
    Ok(figures)
}

/// What the commands work on.
struct CommandScene<'a> {
    programs: LoadPrograms<'a>,
    folder: PathBuf,
}

impl Drop for CommandScene<'_> {
    fn drop(&mut self) {
        // What is left of it is in the system's folder for such.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

/// Servers that ignore everything, by name.
const IGNORING: [&str; 3] = ["one", "two", "three"];

impl<'a> CommandScene<'a> {
    fn new(programs: LoadPrograms<'a>, plan: &CommandPlan) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("unhang-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let scene = Self { programs, folder };
        let call = json!({"tool": "echo", "arguments": {"text": "x"}});
        fs::write(scene.path("lines"), format!("{call}\n").repeat(plan.lines))?;
        let server = |name: &&str| {
            let zoo = programs.zoo;
            format!("[servers.{name}]\ncommand = {zoo:?}\nargs = [\"zoo\", \"ignores-everything\"]\n")
        };
        fs::write(scene.path("config.toml"), IGNORING.iter().map(server).collect::<String>())?;
        let line = |name: &&str| {
            format!("{}\n", json!({"server": name, "tool": "echo", "arguments": {"text": "x"}}))
        };
        fs::write(scene.path("one"), line(&IGNORING[0]))?;
        fs::write(scene.path("three"), IGNORING.iter().map(line).collect::<String>())?;
        Ok(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn direct(&self) -> io::Result<CommandRound> {
        let server = [self.programs.zoo, "zoo", "echoes"].map(str::to_owned);
        let begin = bounded_waits::now();
        let mut session = LoadSession::open(&LoadRoute::Direct, &server)?;
        let call = begin.elapsed();
        session.look_around(&server);
        session.close()?;
        Ok(CommandRound { call, lines_per_second: None, end: None, end_ignoring: None, end_three: None })
    }

    fn commands(&self, plan: &CommandPlan, is_first: bool) -> io::Result<CommandRound> {
        let echoes = ["--", self.programs.zoo, "zoo", "echoes"];
        let call = self.run(&[&["call", "--output", "json", "echo", "text=x"], &echoes[..]].concat(), 1)?;
        let (lines, at_once) = (self.path("lines"), plan.at_once.to_string());
        let batch =
            self.run(&[&["batch", text(&lines)?, "-j", &at_once], &echoes[..]].concat(), plan.lines)?;
        let config = self.path("config.toml");
        let ignored = |name: &str, count: usize| -> io::Result<Option<Duration>> {
            let lines = self.path(name);
            let words = ["batch", text(&lines)?, "--config", text(&config)?];
            is_first.then(|| self.run(&words, count).map(|ran| ran.end)).transpose()
        };
        Ok(CommandRound {
            call: call.whole,
            lines_per_second: Some(per_second(plan.lines, batch.whole)),
            end: Some(batch.end),
            end_ignoring: ignored("one", 1)?,
            end_three: ignored("three", IGNORING.len())?,
        })
    }

    /// Runs a command of `unhang` to its end; it has to write so many lines.
    fn run(&self, words: &[&str], lines: usize) -> io::Result<Ran> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let begin = bounded_waits::now();
        let child = child_processes::start_link(self.programs.unhang, &words, Stdio::null())?;
        let mut running = RunningCommand(child);
        let read = running.read()?;
        child_processes::wait(&mut running.0)?;
        let status = running.0.try_wait()?.ok_or(io::ErrorKind::TimedOut)?;
        let ended = bounded_waits::now();
        if !status.success() || read.lines != lines {
            let what = words.first().map_or("", String::as_str);
            return Err(io::Error::other(format!(
                "`{what}` wrote {} lines of {lines} ({status})",
                read.lines
            )));
        }
        Ok(Ran { whole: ended - begin, end: ended.saturating_duration_since(read.last) })
    }
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| io::Error::other("the folder for temporary files is no text"))
}

/// A command that came to its end.
struct Ran {
    whole: Duration,
    /// Since its last output.
    end: Duration,
}

/// What a command wrote.
struct Written {
    lines: usize,
    last: Instant,
}

/// A command, killed and reaped when it is dropped.
struct RunningCommand(Child);

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped_already = child_processes::wait(&mut self.0);
    }
}

impl RunningCommand {
    /// Reads to the end of its stdout.
    fn read(&mut self) -> io::Result<Written> {
        let mut stdout = self.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (done, outcome) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            let mut written = Written { lines: 0, last: bounded_waits::now() };
            let outcome = loop {
                match stdout.read(&mut buffer) {
                    Ok(0) => break Ok(written),
                    Ok(count) => {
                        written.last = bounded_waits::now();
                        written.lines += buffer[..count].iter().filter(|byte| **byte == b'\n').count();
                    }
                    Err(error) => break Err(error),
                }
            };
            // Nobody waits for it any more where it took too long.
            let _late = done.send(outcome);
        });
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("running after {PATIENCE:?}"));
        outcome.recv_timeout(PATIENCE).map_err(late)?
    }
}
