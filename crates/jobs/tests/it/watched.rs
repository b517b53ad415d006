//! What becomes of jobs whose shims are killed while nobody but their watchers is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::Value;
use unhang_jobs::{
    id::JobId,
    record::{EndReason, JobState},
};
use unhang_proc::identity::Identity;

use crate::common::{Bench, Home, Server, open_with_shim, until, watcher};

/// Jobs of a server that was killed: whatever happens to them happens without one.
struct Orphaned {
    folder: Home,
    ids: Vec<JobId>,
}

impl Orphaned {
    async fn new(last_step: &str, limit: u32, scripts: &[&str]) -> Self {
        let folder = Home::new();
        let ids = Server::start(folder.path(), limit, last_step, scripts).kill().await;
        Self { folder, ids }
    }

    fn job(&self, nth: usize) -> PathBuf {
        self.folder.path().join("jobs").join(self.ids[nth].as_str())
    }

    fn read(&self, nth: usize, name: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.job(nth).join(name)).ok()?).ok()
    }

    /// The shim and its watcher, once the job has said that all of its processes are there.
    async fn ready(&self, nth: usize) -> (Identity, Identity) {
        let log = self.job(nth).join("stdout.log");
        until("it is ready", || fs::read_to_string(&log).ok()?.contains("ready").then_some(())).await;
        let pid = until("its shim", || self.read(nth, "run.json")?["shim"]["pid"].as_u64()).await;
        let pid = u32::try_from(pid).unwrap();
        (Identity::of(pid).unwrap(), watcher(pid).expect("a watcher"))
    }

    /// How a job ended, as soon as anybody has written that down.
    async fn end(&self, nth: usize) -> Value {
        until(&format!("job {nth} ends"), || self.read(nth, "exit.json")).await
    }

    /// Only now somebody looks.
    fn open(self) -> (Bench, Vec<JobId>) {
        let (engine, opened) = open_with_shim(self.folder.path(), "none", |_| {});
        (Bench { folder: self.folder, engine, opened }, self.ids)
    }
}

/// Numbers of processes that sleep for so long.
fn sleepers(seconds: &str) -> Vec<String> {
    let is_sleeper = |folder: &Path| {
        fs::read(folder.join("cmdline")).is_ok_and(|line| line == format!("sleep\0{seconds}\0").as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|path| is_sleeper(path)).map(|path| path.display().to_string()).collect()
}

#[tokio::test]
async fn f_96_what_a_killed_shim_leaves_is_ended_and_the_queue_goes_on_with_nobody_there() {
    // The last of them has left session, parents and environment: it is found because it came to the watcher.
    let script =
        "setsid sleep 36961 & sleep 36962 & (setsid env -i sleep 36963 &); echo ready; exec sleep 36964";
    let jobs = Orphaned::new("watched-none", 1, &[script, "echo next"]).await;
    let (shim, watcher) = jobs.ready(0).await;
    let all = || ["36961", "36962", "36963", "36964"].map(sleepers).concat();
    until("they sleep", || (all().len() == 4).then_some(())).await;
    assert!(!jobs.job(1).join("run.json").exists(), "the queue waits for it");
    assert!(shim.signal(Signal::KILL));
    let ending = jobs.end(0).await;
    assert_eq!((&ending["outcome"], &ending["reason"]), (&"lost".into(), &"shim_killed".into()));
    assert!(ending["leaked"].as_u64().unwrap() >= 3, "{ending}");
    assert_eq!(all(), [""; 0]);
    assert_eq!(jobs.end(1).await["outcome"], "completed");
    until("the watcher has gone", || (!watcher.is_alive()).then_some(())).await;
    let (bench, ids) = jobs.open();
    assert_eq!(bench.end(ids[0]).await.record.status, JobState::Lost);
    assert_eq!(
        (bench.end(ids[1]).await.record.status, bench.stdout(ids[1]).as_str()),
        (JobState::Completed, "next\n")
    );
}

#[tokio::test]
async fn f_96_wherever_shims_are_killed_every_job_ends_with_nobody_there() {
    let scripts = ["echo one; sleep 0.05", "echo two", "echo three"];
    for (step, outcome) in [
        ("Begun", "lost"),
        ("Spawned", "lost"),
        ("Told", "lost"),
        ("Ended", "lost"),
        ("Recorded", "completed"),
        ("Settled", "completed"),
        ("HandedOver", "completed"),
    ] {
        let jobs = Orphaned::new(&format!("watched-{step}"), 1, &scripts).await;
        for nth in 0..scripts.len() {
            assert_eq!(jobs.end(nth).await["outcome"], outcome, "{step}: job {nth}");
        }
    }
}

/// Two of the jobs have a slot, so that each of the watchers meets the job of the other.
#[tokio::test]
async fn f_96_shims_that_are_killed_together_take_no_job_with_them() {
    let script = "(setsid env -i sleep 36965 &); echo ready; exec sleep 36965";
    let jobs = Orphaned::new("watched-none", 2, &[script, script, "true", "true"]).await;
    let shims = [jobs.ready(0).await.0, jobs.ready(1).await.0];
    until("they sleep", || (sleepers("36965").len() == 4).then_some(())).await;
    assert!(shims.iter().all(|shim| shim.signal(Signal::KILL)));
    let mut outcomes = Vec::new();
    for nth in 0..4 {
        outcomes.push(jobs.end(nth).await["outcome"].clone());
    }
    assert_eq!(outcomes, ["lost", "lost", "completed", "completed"]);
    until("all is ended", || sleepers("36965").is_empty().then_some(())).await;
}

/// What it was before there were watchers, and what is left where there are none.
#[tokio::test]
async fn f_96_a_job_whose_watcher_is_killed_too_is_for_the_next_who_looks() {
    let jobs = Orphaned::new("watched-none", 1, &["setsid sleep 36966 & echo ready; exec sleep 36967"]).await;
    let (shim, watcher) = jobs.ready(0).await;
    until("it sleeps", || (sleepers("36966").len() == 1).then_some(())).await;
    assert!(watcher.signal(Signal::KILL));
    until("the watcher has gone", || (!watcher.is_alive()).then_some(())).await;
    assert!(shim.is_alive(), "the shim needs no watcher");
    assert!(shim.signal(Signal::KILL));
    until("its work dies with it", || sleepers("36967").is_empty().then_some(())).await;
    assert!(!jobs.job(0).join("exit.json").exists());
    assert_eq!(sleepers("36966").len(), 1);
    let (bench, ids) = jobs.open();
    let status = bench.end(ids[0]).await;
    assert_eq!(
        (status.record.status, status.record.ending.unwrap().reason),
        (JobState::Lost, Some(EndReason::ShimKilled))
    );
    assert_eq!(sleepers("36966"), [""; 0]);
}

#[tokio::test]
async fn f_96_a_stop_signal_ends_no_watcher() {
    let jobs = Orphaned::new("watched-none", 1, &["echo ready; exec sleep 3600"]).await;
    let (shim, watcher) = jobs.ready(0).await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        assert!(watcher.signal(signal));
    }
    assert!(shim.signal(Signal::KILL));
    assert_eq!(jobs.end(0).await["outcome"], "lost", "it did what it is there for");
}

#[tokio::test]
async fn f_96_a_watcher_leaves_with_its_shim() {
    let folder = Home::new();
    let (engine, opened) = open_with_shim(folder.path(), "watched-none", |_| {});
    let bench = Bench { folder, engine, opened };
    let gate = bench.folder.path().join("gate");
    let id = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    let shim = until("its shim", || bench.shim(id)).await;
    let watcher = watcher(shim.as_raw_nonzero().get().cast_unsigned()).expect("a watcher");
    fs::write(gate, "").unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    until("the watcher has gone", || (!watcher.is_alive()).then_some(())).await;
}
