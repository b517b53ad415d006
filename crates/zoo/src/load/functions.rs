//! Functions of servers in Python and TypeScript as jobs: how soon a call has an id, what jobs cost the server, and what
//! becomes of them when the server is killed.
//!
//! # Theory of operation
//!
//! A server that is made with the package of its language stands alone, and one client over pipes calls its tool. Then the
//! server is started and killed many times, each time at another moment after some calls. At the end, a server that is left
//! alone waits for all jobs. Each job has written its token to one file.
//!
//! # Invariants
//!
//! - A job whose id the client has read has to have run, and no job may have run twice.
//! - Memory is that of the server alone, before the first call, and the least of some starts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use unhang_demo_servers::bounded_waits;

use super::answers::{AnswerLine, PATIENCE};
use super::jobs::{self, JobLoadError, JobsFolder};
use super::samples::{difference, fraction, percentile};
use super::session::LoadSession;
use super::{LoadError, LoadPrograms, during};
use crate::corpus::Interrupted;
use crate::signals;

/// The longest time between the calls of a round and the kill.
const LATEST_KILL: Duration = Duration::from_millis(150);
/// Calls in each round.
const CALLS: usize = 4;
/// How long the last jobs may take.
const LAST_JOBS: Duration = Duration::from_mins(2);
/// Starts of a server whose memory is looked at.
const STARTS: usize = 3;

/// A language, and the files that its server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionLanguage {
    /// A Python with `mcp` and the package.
    Python(PathBuf),
    /// A folder with the modules `@modelcontextprotocol/server`, `@unhang/jobs` and zod.
    TypeScript(PathBuf),
}

impl FunctionLanguage {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            FunctionLanguage::Python(_) => "python",
            FunctionLanguage::TypeScript(_) => "typescript",
        }
    }

    /// Puts the files of the server into a folder, and returns its command.
    fn command(&self, folder: &Path) -> io::Result<Vec<String>> {
        let (program, script, files) = match self {
            FunctionLanguage::Python(python) => (
                python.as_path(),
                "server.py",
                [
                    ("server.py", include_str!("functions/server.py")),
                    ("work.py", include_str!("functions/work.py")),
                ],
            ),
            FunctionLanguage::TypeScript(modules) => {
                let link = folder.join("node_modules");
                if !link.exists() {
                    symlink(modules.canonicalize()?, link)?;
                }
                let files = [
                    ("server.mjs", include_str!("functions/server.mjs")),
                    ("work.mjs", include_str!("functions/work.mjs")),
                ];
                (Path::new("node"), "server.mjs", files)
            }
        };
        for (name, text) in files {
            fs::write(folder.join(name), text)?;
        }
        Ok(vec![text(program), text(&folder.join(script))])
    }
}

/// The amounts that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPlan {
    /// Calls whose answers are timed.
    pub calls: usize,
    /// Rounds in which the server is killed.
    pub kills: usize,
}

impl FunctionPlan {
    /// The plan whose figures mean something; some minutes for each language.
    pub const FULL: FunctionPlan = FunctionPlan { calls: 200, kills: 200 };
    /// A plan that shows no more than that everything works.
    pub const QUICK: FunctionPlan = FunctionPlan { calls: 10, kills: 3 };
}

/// The figures of one language.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FunctionRound {
    /// From a call to the answer with the id, for the first call of a server.
    pub first: Duration,
    /// Half of the others took at most as long.
    pub submit_p50: Duration,
    /// All but a hundredth of them.
    pub submit_p99: Duration,
    /// Bytes that a server with five such tools takes more than one without.
    pub added_bytes: f64,
    /// The number of calls in the rounds with kills.
    pub called: usize,
    /// The number of these calls that were answered with an id.
    pub answered: usize,
    /// Answered calls whose job did not run.
    pub lost: usize,
    /// Jobs that ran more than once.
    pub twice: usize,
}

/// Measures functions of each language, with the data in a new folder in `parent`. `on_progress` hears what is being done.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came, or something does not do what it should.
pub fn measure_functions(
    programs: LoadPrograms<'_>,
    languages: &[FunctionLanguage],
    parent: &Path,
    plan: &FunctionPlan,
    mut on_progress: impl FnMut(&str),
) -> Result<Vec<FunctionRound>, JobLoadError> {
    signals::catch_every_end();
    let jobs_folder = JobsFolder::make_bare(parent, programs).map_err(during("the folder of the run"))?;
    let measured: Result<Vec<_>, LoadError> = languages
        .iter()
        .map(|language| {
            FunctionScene::new(programs, &jobs_folder, language)
                .map_err(during("the files of the server"))?
                .measured(plan, &mut on_progress)
        })
        .collect();
    drop(jobs_folder);
    match signals::caught() {
        Some(signal) => Err(JobLoadError::Interrupted(Interrupted { signal })),
        None => measured.map_err(Into::into),
    }
}

/// The place where the functions of one language run.
struct FunctionScene {
    /// The command of the server, without its tools.
    command: Vec<String>,
    /// The data folder.
    data: String,
    /// The file with the tokens of the jobs that ran.
    ran: PathBuf,
    name: &'static str,
}

impl FunctionScene {
    fn new(
        programs: LoadPrograms<'_>,
        jobs_folder: &JobsFolder,
        language: &FunctionLanguage,
    ) -> io::Result<Self> {
        let folder = jobs_folder.path(language.name());
        fs::create_dir(&folder)?;
        let mut command = language.command(&folder)?;
        command.push(programs.unhang.to_owned());
        Ok(Self { command, data: text(&folder.join("data")), ran: folder.join("ran"), name: language.name() })
    }

    fn measured(
        &self,
        plan: &FunctionPlan,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<FunctionRound, LoadError> {
        let name = self.name;
        on_progress(&format!("functions of {name}, memory "));
        let added_bytes = self.added_bytes().map_err(during("the memory of a server"))?;
        on_progress(&format!("functions of {name}, calls "));
        let (first, times) = self.submits(plan.calls).map_err(during("calls of a function"))?;
        let mut answered = Vec::new();
        for round in 0..plan.kills {
            on_progress(&format!("functions of {name}, kill {} of {} ", round + 1, plan.kills));
            let moment = LATEST_KILL.mul_f64(fraction(round, plan.kills));
            answered.extend(self.killed(round, moment).map_err(during("a server that is killed"))?);
        }
        let ran = self.ran_to_their_end().map_err(during("the jobs of killed servers"))?;
        let once: HashSet<&String> = ran.iter().collect();
        Ok(FunctionRound {
            first,
            submit_p50: percentile(&times, 50),
            submit_p99: percentile(&times, 99),
            added_bytes,
            called: plan.kills * CALLS,
            answered: answered.len(),
            lost: answered.iter().filter(|token| !once.contains(token)).count(),
            twice: ran.len() - once.len(),
        })
    }

    /// A session with a server that has `none`, `one` or `five` job tools.
    fn open(&self, tools: &str) -> io::Result<LoadSession> {
        jobs::go_on()?;
        let command = [&self.command[..], &[tools.to_owned()]].concat();
        LoadSession::open_alone(&command, ("UNHANG_HOME", &self.data), PATIENCE)
    }

    /// Calls the function with this token.
    fn call(&self, session: &mut LoadSession, token: &str) -> io::Result<()> {
        let arguments = json!({ "token": token, "file": text(&self.ran) });
        session.request("tools/call", &json!({ "name": "note", "arguments": arguments }).to_string())
    }

    fn added_bytes(&self) -> io::Result<f64> {
        let least = |tools: &str| -> io::Result<u64> {
            let mut least = u64::MAX;
            for _ in 0..STARTS {
                let mut session = self.open(tools)?;
                session.request("tools/list", "{}")?;
                session.answer()?;
                least = least.min(session.resident_memory()?);
                session.close()?;
            }
            Ok(least)
        };
        let without = least("none")?;
        Ok(difference(least("five")?, without))
    }

    /// The time of the first call, and those of so many others, sorted.
    fn submits(&self, count: usize) -> io::Result<(Duration, Vec<Duration>)> {
        let mut session = self.open("five")?;
        let mut times = Vec::with_capacity(count + 1);
        for number in 0..=count {
            jobs::go_on()?;
            let begin = bounded_waits::now();
            self.call(&mut session, &format!("submit-{number}"))?;
            demand_job(&session.answer_line()?)?;
            times.push(begin.elapsed());
        }
        session.close()?;
        let first = times.remove(0);
        times.sort_unstable();
        Ok((first, times))
    }

    /// Kills a server at this moment after some calls, and returns the tokens of the calls that were answered.
    fn killed(&self, round: usize, moment: Duration) -> io::Result<Vec<String>> {
        let mut session = self.open("one")?;
        let first = session.next_id();
        let tokens: Vec<String> = (0..CALLS).map(|call| format!("kill-{round}-{call}")).collect();
        for token in &tokens {
            self.call(&mut session, token)?;
        }
        let mut answered = Vec::new();
        let until = bounded_waits::now() + moment;
        while let Some(left) = until.checked_duration_since(bounded_waits::now())
            && let Some(line) = session.answer_line_within(left)?
        {
            demand_job(&line)?;
            let index = line.id().and_then(|id| usize::try_from(id.checked_sub(first)?).ok());
            answered.extend(index.and_then(|index| tokens.get(index)).cloned());
        }
        session.kill();
        Ok(answered)
    }

    /// Waits until no job is left, and returns the tokens of all that ran in the rounds.
    fn ran_to_their_end(&self) -> io::Result<Vec<String>> {
        let mut session = self.open("one")?;
        let until = bounded_waits::now() + LAST_JOBS;
        for status in ["queued", "starting", "running"] {
            let arguments = json!({ "status_filter": status, "limit": 1 });
            loop {
                session.request(
                    "tools/call",
                    &json!({ "name": "list_jobs", "arguments": arguments }).to_string(),
                )?;
                let message = session.answer_line()?.message().unwrap_or_default();
                let jobs = message["result"]["structuredContent"]["jobs"].as_array().map(Vec::len);
                match jobs {
                    Some(0) => break,
                    Some(_) if bounded_waits::now() < until => {
                        bounded_waits::pause(Duration::from_millis(100));
                    }
                    _ => {
                        return Err(io::Error::other(format!(
                            "jobs are {status} after {LAST_JOBS:?}: {message}"
                        )));
                    }
                }
            }
        }
        session.close()?;
        let ran = fs::read_to_string(&self.ran)?;
        Ok(ran.lines().filter(|token| token.starts_with("kill-")).map(str::to_owned).collect())
    }
}

/// Demands that an answer has the id of a job.
fn demand_job(line: &AnswerLine) -> io::Result<()> {
    let message = line.message().unwrap_or_default();
    let job = message["result"]["structuredContent"]["job_id"].as_str();
    job.map(drop).ok_or_else(|| io::Error::other(format!("no job: {}", line.beginning())))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
