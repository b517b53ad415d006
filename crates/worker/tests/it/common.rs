//! What the tests share: a database, an engine that submits there, and workers that can be killed.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::Signal,
};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_postgres::NoTls;
use unhang_jobs::{
    engine::{Engine, EngineOptions, JobStatus},
    id::JobId,
    record::JobState,
    shims::ShimCommand,
    submission::Submission,
};
use unhang_postgres::{PasswordSources, PostgresJobs, PostgresStore, SharedFiles, StoreAddress};
use unhang_proc::{
    deadline::Deadline,
    spawn::{Launch, Process, Stream, spawn},
};
use unhang_zoo::{
    private_postgres::{OWNER, PASSWORD, PrivatePostgres},
    test_programs::{POSTGRES, named_by},
};

/// For everything that a test waits for; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A lease that no test outlasts.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A server with its database, and an engine that submits to it.
pub(crate) struct Cluster {
    pub(crate) server: PrivatePostgres,
    pub(crate) engine: Engine,
    pub(crate) folder: TempDir,
    url: String,
}

impl Cluster {
    /// `name` is the name of the test.
    pub(crate) fn new(name: &str) -> Self {
        Self::with_files(name, |_| SharedFiles::default())
    }

    /// The submitter puts files by these rules, which get the folder of the test.
    pub(crate) fn with_files(name: &str, files: impl FnOnce(&Path) -> SharedFiles) -> Self {
        let server = PrivatePostgres::start(&named_by(POSTGRES), name, "fsync = off").unwrap();
        let url = server.url(OWNER, PASSWORD, "postgres");
        let folder = tempfile::tempdir().unwrap();
        let mut options = EngineOptions::new(folder.path().join("submitter"), ShimCommand::this_program());
        options.shared = Some(Arc::new(PostgresJobs::new(address(&url)).with_files(files(folder.path()))));
        let (engine, _) = Engine::open(options).unwrap();
        Self { server, engine, folder, url }
    }

    pub(crate) fn address(&self) -> StoreAddress {
        address(&self.url)
    }

    /// Asks the store, on a thread that may block.
    pub(crate) fn ask<T: Send>(&self, work: impl FnOnce(&mut PostgresStore) -> T + Send) -> T {
        let ask = || work(&mut PostgresStore::open(address(&self.url)).unwrap());
        thread::scope(|scope| scope.spawn(ask).join().unwrap())
    }

    /// Runs statements as somebody who writes into the tables.
    pub(crate) async fn execute(&self, sql: &str) {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    }

    /// Starts a worker in a folder of this name.
    pub(crate) fn worker(&self, name: &str, slots: u32, lease: Duration, others: Duration) -> WorkerProcess {
        self.worker_with(name, slots, lease, others, &[])
    }

    pub(crate) fn worker_with(
        &self,
        name: &str,
        slots: u32,
        lease: Duration,
        others: Duration,
        labels: &[&str],
    ) -> WorkerProcess {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let words = [
            folder.as_os_str().to_owned(),
            OsString::from(&self.url),
            slots.to_string().into(),
            lease.as_millis().to_string().into(),
            others.as_millis().to_string().into(),
        ];
        let words: Vec<OsString> = words.into_iter().chain(labels.iter().map(OsString::from)).collect();
        WorkerProcess::start(folder, &words)
    }

    pub(crate) fn submission(&self, script: &str) -> Submission {
        let command = ["sh", "-c", script].map(OsString::from).into();
        Submission::new(command, self.folder.path().to_owned()).unwrap()
    }

    pub(crate) async fn submit(&self, script: &str, change: impl FnOnce(&mut Submission)) -> JobId {
        let mut submission = self.submission(script);
        change(&mut submission);
        self.engine.submit(submission).await.unwrap().record.job_id
    }

    /// Waits for the end of a job.
    pub(crate) async fn end(&self, id: JobId) -> JobStatus {
        let status = self.engine.wait(id, Deadline::after(PATIENCE)).await.unwrap();
        assert!(status.record.status.is_final(), "it ends: {status:?}");
        status
    }

    /// Waits until the status of a job has this.
    pub(crate) async fn seen<T>(
        &self,
        id: JobId,
        what: &str,
        mut find: impl FnMut(&JobStatus) -> Option<T>,
    ) -> T {
        let begin = Instant::now();
        loop {
            let status = self.engine.status(id).await.unwrap();
            if let Some(found) = find(&status) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "in vain: {what}: {status:?}");
            // Between two looks: the store tells nobody of a change.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn running(&self, id: JobId) {
        self.seen(id, "it runs", |status| (status.record.status == JobState::Running).then_some(())).await;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the worker in this folder has forgotten a job.
    pub(crate) async fn forgotten(&self, worker: &str, id: JobId) {
        let note = self.path(worker).join("worker").join(format!("{id}.json"));
        until("the worker forgets the job", || (!note.exists()).then_some(())).await;
    }

    /// A script that notes its start in a file, says so, and goes on until there is a file `gate`.
    pub(crate) fn gated(&self) -> String {
        let (starts, gate) = (self.path("starts"), self.path("gate"));
        format!(
            "echo $$ >> {}; echo begun; until [ -e {} ]; do sleep 0.02; done; echo done",
            starts.display(),
            gate.display()
        )
    }

    pub(crate) fn open_gate(&self) {
        fs::write(self.path("gate"), "").unwrap();
    }

    /// The process ids of the work that began, in order.
    pub(crate) fn starts(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path("starts")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

pub(crate) fn address(url: &str) -> StoreAddress {
    StoreAddress::parse(url, &PasswordSources::default()).unwrap()
}

/// Whether a process with this number lives.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits for a condition, with a generous limit.
pub(crate) async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: {what}");
        // Between two looks: files and /proc cannot be waited on.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A worker in a process of its own.
pub(crate) struct WorkerProcess {
    process: Process,
    lines: Lines<BufReader<fs::File>>,
    folder: PathBuf,
}

impl WorkerProcess {
    fn start(folder: PathBuf, words: &[OsString]) -> Self {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_worker-fixture"));
        let launch = Launch { output: Stream::Descriptor(writer), ..Launch::new(program, words) };
        let process = spawn(launch).unwrap();
        let mut worker = Self { process, lines: BufReader::new(fs::File::from(reader)).lines(), folder };
        assert_eq!(worker.line(), "begun");
        worker
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) async fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        until("it has gone", || self.process.try_reap()).await;
    }

    /// Waits until the worker has ended by itself, and returns its last words.
    pub(crate) async fn ended(&mut self) -> String {
        until("it has ended", || self.process.try_reap()).await;
        self.line()
    }

    pub(crate) async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.ended().await, "stopped");
    }

    /// The process id of the supervisor of a job.
    pub(crate) fn supervisor(&self, id: JobId) -> Option<u32> {
        let run = fs::read(self.folder.join("jobs").join(id.as_str()).join("run.json")).ok()?;
        let run: serde_json::Value = serde_json::from_slice(&run).ok()?;
        u32::try_from(run["shim"]["pid"].as_u64()?).ok()
    }
}

impl Drop for WorkerProcess {
    /// Leaves no process where a test fails.
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
    }
}
