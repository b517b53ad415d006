//! What the integration tests share: a data folder with an engine on it, jobs that are shell scripts, waiting with limits.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use unhang_jobs::{
    engine::{Engine, EngineOptions, JobStatus, Opened},
    id::JobId,
    record::JobState,
    shims::ShimCommand,
    submission::Submission,
};
use unhang_proc::{
    deadline::Deadline,
    identity::Identity,
    lock::is_held,
    spawn::{Launch, Process, Stream, spawn},
};

/// For everything that a test waits for; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn fixture() -> PathBuf {
    env!("CARGO_BIN_EXE_jobs-fixture").into()
}

/// A data folder that goes with everything that still runs in it, as where a test fails or a guard is off.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.path().join("jobs")).into_iter().flatten().flatten() {
            let run = fs::read(entry.path().join("run.json")).unwrap_or_default();
            let run: Value = serde_json::from_slice(&run).unwrap_or_default();
            let pid = run["shim"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            if let (Some(pid), Some(start)) = (pid, run["shim"]["start"].as_u64())
                && is_held(&entry.path().join("lock")).unwrap_or(false)
            {
                if let Some(watcher) = watcher(pid) {
                    let _ = watcher.signal(Signal::KILL);
                }
                // Its work dies with it.
                let _ = Identity { pid, start }.signal(Signal::KILL);
            }
        }
    }
}

/// Who watches over a shim, if anybody does.
pub(crate) fn watcher(shim: u32) -> Option<Identity> {
    let stat = fs::read_to_string(format!("/proc/{shim}/stat")).ok()?;
    let parent: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
    let is_watcher = fs::read_to_string(format!("/proc/{parent}/comm")).ok()? == "mcp-job-watch\n";
    is_watcher.then(|| Identity::of(parent)).flatten()
}

/// A data folder and an engine on it.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) opened: Opened,
    pub(crate) folder: Home,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let folder = Home::new();
        let (engine, opened) = open(folder.path(), change);
        Self { folder, engine, opened }
    }

    /// Another engine in place of this one, as after a restart.
    pub(crate) fn reopen(self) -> Self {
        self.reopen_with(|_| {})
    }

    pub(crate) fn reopen_with(self, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let Self { folder, engine, .. } = self;
        drop(engine);
        let (engine, opened) = open(folder.path(), change);
        Self { folder, engine, opened }
    }

    pub(crate) async fn submit(&self, script: &str) -> JobId {
        self.submit_with(script, |_| {}).await
    }

    pub(crate) async fn submit_with(&self, script: &str, change: impl FnOnce(&mut Submission)) -> JobId {
        let mut submission = self.submission(script);
        change(&mut submission);
        self.engine.submit(submission).await.unwrap().record.job_id
    }

    pub(crate) fn submission(&self, script: &str) -> Submission {
        let command = ["sh", "-c", script].map(OsString::from).into();
        let mut submission = Submission::new(command, self.folder.path().to_owned()).unwrap();
        submission.environment = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
        submission
    }

    pub(crate) async fn end(&self, id: JobId) -> JobStatus {
        let status = self.engine.wait(id, Deadline::after(PATIENCE)).await.unwrap();
        assert!(status.record.status.is_final(), "it ends: {status:?}");
        status
    }

    pub(crate) async fn run(&self, script: &str) -> JobStatus {
        let id = self.submit(script).await;
        self.end(id).await
    }

    pub(crate) async fn until(&self, id: JobId, state: JobState) -> JobStatus {
        self.seen(id, &format!("it is {state}"), |status| (status.record.status == state).then_some(status))
            .await
    }

    /// What is looked for in a job, once it is there.
    pub(crate) async fn seen<T>(
        &self,
        id: JobId,
        what: &str,
        mut find: impl FnMut(JobStatus) -> Option<T>,
    ) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = self.engine.status(id).await.ok().and_then(&mut find) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "in vain: {what} (job {id})");
            // Between two looks: a change of any job would do, but a job that is not known yet has none.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `job.json` as soon as it says this. It comes after the row, which is what the engine goes by.
    pub(crate) async fn copied(&self, id: JobId, state: JobState) -> Value {
        until(&format!("job.json of {id} says {state}"), || {
            let record: Value =
                serde_json::from_slice(&fs::read(self.job(id).join("job.json")).ok()?).unwrap();
            (record["status"] == state.to_string()).then_some(record)
        })
        .await
    }

    /// Files that somebody had begun to write in the job's folder.
    pub(crate) fn unfinished(&self, id: JobId) -> Vec<OsString> {
        let files = fs::read_dir(self.job(id)).unwrap().map(|entry| entry.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().starts_with('.')).collect()
    }

    pub(crate) fn job(&self, id: JobId) -> PathBuf {
        self.engine.job_folder(id)
    }

    /// The folder of its work.
    pub(crate) async fn work(&self, id: JobId) -> PathBuf {
        self.engine.work_folder(&self.engine.status(id).await.unwrap().record)
    }

    /// Live processes that were started with the job's id in their environment.
    pub(crate) fn alive(&self, id: JobId) -> Vec<String> {
        let cookie = format!("UNHANG_JOB_ID={id}");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let is_mine =
                read("environ").split(|&byte| byte == 0).any(|variable| variable == cookie.as_bytes());
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            if is_mine && !stat.contains(") Z ") {
                found.push(stat);
            }
        }
        found
    }

    /// The shim of a job whose work runs.
    pub(crate) fn shim(&self, id: JobId) -> Option<Pid> {
        let run: Value = serde_json::from_slice(&fs::read(self.job(id).join("run.json")).ok()?).ok()?;
        run.get("work")?;
        Pid::from_raw(i32::try_from(run["shim"]["pid"].as_i64()?).ok()?)
    }

    pub(crate) fn stdout(&self, id: JobId) -> String {
        self.stdout_if_any(id).unwrap()
    }

    pub(crate) fn stdout_if_any(&self, id: JobId) -> Option<String> {
        fs::read_to_string(self.job(id).join("stdout.log")).ok()
    }
}

/// An engine that no pressure of the machine holds back.
pub(crate) fn open(folder: &Path, change: impl FnOnce(&mut EngineOptions)) -> (Engine, Opened) {
    open_with_shim(folder, "none", change)
}

/// One whose shims kill themselves at a step.
pub(crate) fn open_with_shim(
    folder: &Path,
    last_step: &str,
    change: impl FnOnce(&mut EngineOptions),
) -> (Engine, Opened) {
    let mut options = options(folder, last_step);
    change(&mut options);
    Engine::open(options).unwrap()
}

pub(crate) fn options(folder: &Path, last_step: &str) -> EngineOptions {
    let shim = ShimCommand { program: fixture(), arguments: vec!["shim".into(), last_step.into()] };
    let mut options = EngineOptions::new(folder.to_owned(), shim);
    options.rules.memory_limit = 100.0;
    options.rules.disk_reserve = 0;
    options
}

/// Copies what is in a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Waits for a condition, with a generous limit.
pub(crate) async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: {what}");
        // Between two looks: files, locks and /proc cannot be waited on.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The fixture, in a process of its own.
pub(crate) struct Helper {
    process: Process,
    lines: Lines<BufReader<fs::File>>,
}

impl Helper {
    pub(crate) fn start(arguments: &[OsString]) -> Self {
        Self::start_program(&fixture(), arguments)
    }

    /// Another program, whose lines are read.
    pub(crate) fn start_program(program: &Path, arguments: &[OsString]) -> Self {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let launch = Launch { output: Stream::Descriptor(writer), ..Launch::new(program, arguments) };
        let process = spawn(launch).unwrap();
        Self { process, lines: BufReader::new(fs::File::from(reader)).lines() }
    }

    /// One that does this on the folder of this bench.
    pub(crate) fn once(bench: &Bench, action: &[&str]) -> Self {
        let mut arguments = vec!["once".into(), bench.folder.path().into(), "1".into(), "none".into()];
        arguments.extend(action.iter().map(OsString::from));
        Self::start(&arguments)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Stops it, and returns when each of its threads stands still: the kernel lets the others go on until the one that hears the
    /// signal has had its turn.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::STOP);
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process.pid()));
        let begin = Instant::now();
        while !fs::read_dir(&tasks).unwrap().all(|task| stands_still(&task.unwrap().path())) {
            assert!(begin.elapsed() < PATIENCE, "in vain: it stops");
            std::thread::yield_now();
        }
    }

    /// What it says next; nothing where it has ended.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    /// What it says next.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_reap().is_some()
    }

    pub(crate) async fn kill(mut self) {
        self.process.signal(Signal::KILL);
        until("it has gone", || self.process.try_reap()).await;
    }
}

impl Drop for Helper {
    /// Leaves no process where a test fails.
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
    }
}

/// Whether a thread is stopped, or has ended.
fn stands_still(task: &Path) -> bool {
    let Ok(stat) = fs::read_to_string(task.join("stat")) else { return true };
    // The name before the state may have brackets in it.
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    matches!(state, Some('T' | 'Z' | 'X'))
}

/// A server in a process of its own, whose shims kill themselves at a step, and the ids of the jobs that it accepted.
pub(crate) struct Server {
    folder: PathBuf,
    helper: Helper,
    ids: Vec<JobId>,
}

impl Server {
    pub(crate) fn start(folder: &Path, limit: u32, last_step: &str, scripts: &[&str]) -> Self {
        let mut arguments = vec!["server".into(), folder.into(), limit.to_string().into(), last_step.into()];
        arguments.extend(scripts.iter().map(OsString::from));
        let mut helper = Helper::start(&arguments);
        let ids = scripts.iter().map(|_| helper.line().parse().unwrap()).collect();
        Self { folder: folder.to_owned(), helper, ids }
    }

    /// Kills it when the first of its jobs has begun: before that, a job may have a slot and nobody who starts it.
    pub(crate) async fn kill(self) -> Vec<JobId> {
        let first = self.folder.join("jobs").join(self.ids[0].as_str()).join("run.json");
        until("its first job begins", || first.exists().then_some(())).await;
        self.helper.kill().await;
        self.ids
    }
}
