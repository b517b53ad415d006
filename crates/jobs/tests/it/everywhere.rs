//! What becomes of jobs when a process is killed between any two of its writes, whichever (J-12, X-07).
//!
//! Each test takes one thing that a process does, and kills one such process right before its first change of a file, another
//! one before its second, and so on, until one comes to its end. After each of them the promises are looked at from a new
//! process. No point is named, so none can be forgotten.
//!
//! What a power failure leaves cannot be tried; there it is looked at what was made durable, and before what.

use std::{collections::HashSet, ffi::OsString, fs, path::PathBuf};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use unhang_jobs::{
    engine::{Engine, EngineOptions, Opened},
    error::JobError,
    id::JobId,
    record::{EndReason, JobState},
    store::JobOwnerFilter,
};

use unhang_proc::lock::is_held;

use crate::{
    common::{Bench, Home, copy, fixture, options, until},
    kills::{self, End},
};

/// A job that leaves a line in `runs` each time it runs, and has a result for the state.
const SCRIPT: &str =
    "cd \"$UNHANG_JOB_DIR\"; echo run >> runs; cp seed.json copy.json; echo 42 > results.json";

/// More changes than anything here makes.
const MANY: usize = 1000;
/// Fewer than anything here makes.
const FEW: usize = 5;

/// A data folder, and the jobs that were accepted in it, in their order.
struct Scene {
    folder: Home,
    ids: Vec<JobId>,
}

impl Scene {
    fn empty() -> Self {
        Self { folder: Home::new(), ids: Vec::new() }
    }

    /// A folder in which jobs have been accepted, with shims that kill themselves at a step.
    async fn after_submit(step: &str, action: &str, scripts: &[&str]) -> Self {
        let folder = Home::new();
        let said = done_once(&folder, step, &[&[action], scripts].concat()).await;
        Self { folder, ids: said.lines().take(scripts.len()).map(|line| line.parse().unwrap()).collect() }
    }

    /// The same again, in another place.
    fn copy(&self) -> Self {
        let folder = Home::new();
        copy(self.folder.path(), folder.path());
        Self { folder, ids: self.ids.clone() }
    }

    fn job(&self, index: usize) -> PathBuf {
        self.folder.path().join("jobs").join(self.ids[index].as_str())
    }

    /// Waits until the end of the first job is noted and its shim has gone.
    async fn rest(&self) {
        let (exit, lock) = (self.job(0).join("exit.json"), self.job(0).join("lock"));
        until("the shim has gone", || (exit.exists() && !is_held(&lock).unwrap()).then_some(())).await;
    }

    fn reopen(self) -> Bench {
        let (engine, opened) = self.try_reopen().unwrap();
        Bench { folder: self.folder, engine, opened }
    }

    fn try_reopen(&self) -> Result<(Engine, Opened), JobError> {
        let mut options = options(self.folder.path(), "none");
        options.rules.max_concurrent = 1;
        Engine::open(options)
    }
}

/// What is looked at after a kill.
struct Killed<'a> {
    scene: Scene,
    /// What the process had said until then.
    said: &'a str,
    /// For the words of a failed check.
    when: &'a str,
}

/// Sets a scene, lets the fixture do something in it, and kills it at its first change, and again at its second, and so on.
async fn kill_everywhere(
    scene: impl AsyncFn() -> Scene,
    deed: impl Fn(&Scene) -> (Vec<OsString>, PathBuf),
    mut check: impl AsyncFnMut(Killed<'_>),
) {
    for nth in 0..MANY {
        let scene = scene().await;
        let (words, folder) = deed(&scene);
        let (end, said) = kills::run(fixture(), words, folder, nth).await;
        let when = format!("change {nth}: {end:?}");
        check(Killed { scene, said: &said, when: &when }).await;
        if let End::Itself(code) = end {
            assert!(code == 0 && nth > FEW, "at last it does all that it shall: {when}, {said}");
            return;
        }
    }
    panic!("there is no end to it");
}

/// Lets the fixture do one thing to its end. Returns what it says.
async fn done_once(folder: &Home, step: &str, action: &[&str]) -> String {
    let (end, said) = kills::run(fixture(), once(step, action), folder.path().to_owned(), usize::MAX).await;
    assert_eq!(end, End::Itself(0));
    said
}

/// The words for the fixture to do one thing in the folder in which it is started, with one job at a time.
fn once(step: &str, action: &[&str]) -> Vec<OsString> {
    ["once", ".", "1", step].iter().chain(action).map(OsString::from).collect()
}

async fn jobs(engine: &Engine) -> Vec<JobId> {
    engine
        .list(None, JobOwnerFilter::Anybodys, 100)
        .await
        .unwrap()
        .iter()
        .map(|status| status.record.job_id)
        .collect()
}

impl Bench {
    async fn answer(&self) -> Option<Value> {
        self.engine.document("answer".parse().unwrap()).await.unwrap().map(|document| document.value)
    }

    /// The job ends as it should, has run once, and its result is in the state.
    async fn expect_whole(&self, id: JobId, when: &str) {
        let record = self.end(id).await.record;
        let seen = (record.status, record.state_applied, self.runs(id), self.answer().await);
        assert_eq!(seen, (JobState::Completed, Some(true), 1, Some(json!(42))), "{when}: {record:?}");
        assert!(self.job(id).join("work/copy.json").exists(), "{when}: the input was there");
    }
}

#[tokio::test]
async fn j_12_a_server_killed_anywhere_in_a_submit_has_accepted_the_job_or_not() {
    let deed = |scene: &Scene| (once("none", &["submit", SCRIPT]), scene.folder.path().to_owned());
    kill_everywhere(
        async || Scene::empty(),
        deed,
        async |Killed { scene, said, when }| {
            let bench = scene.reopen();
            let known = jobs(&bench.engine).await;
            let told: Vec<JobId> = said.lines().take(1).map(|line| line.parse().unwrap()).collect();
            assert!(told.is_empty() || told == known, "{when}: {said} {known:?}");
            match known[..] {
                [id] => {
                    bench.expect_whole(id, when).await;
                    bench.copied(id, JobState::Completed).await;
                    assert_eq!(bench.unfinished(id), [""; 0], "{when}");
                }
                [] => {
                    let folders = fs::read_dir(bench.folder.path().join("jobs")).unwrap();
                    let mut left = folders.map(|entry| entry.unwrap().path().join("runs"));
                    assert!(left.all(|runs| !runs.exists()), "{when}: what was not accepted does not run");
                }
                _ => panic!("{when}: {known:?}"),
            }
        },
    )
    .await;
}

#[tokio::test]
async fn x_07_a_shim_killed_anywhere_leaves_the_true_end_or_lost() {
    // Jobs that are yet to run know where they lie, so they are accepted anew each time.
    let scene = async || Scene::after_submit("Alive", "submit-and-leave", &[SCRIPT, SCRIPT]).await;
    let deed =
        |scene: &Scene| (["shim", "none", scene.ids[0].as_str()].map(OsString::from).into(), scene.job(0));
    kill_everywhere(scene, deed, async |Killed { scene, when, .. }| {
        let (ids, first) = (scene.ids.clone(), scene.job(0));
        let has_vanished = first.join("run.json").exists() && !first.join("exit.json").exists();
        let bench = scene.reopen();
        let record = bench.end(ids[0]).await.record;
        if has_vanished {
            let ending = record.ending.unwrap();
            assert_eq!(
                (record.status, ending.reason),
                (JobState::Lost, Some(EndReason::ShimKilled)),
                "{when}"
            );
            assert!(bench.runs(ids[0]) <= 1, "{when}");
            assert_eq!(bench.unfinished(ids[0]), [""; 0], "{when}");
        } else {
            bench.expect_whole(ids[0], when).await;
        }
        // The queue goes on.
        bench.expect_whole(ids[1], when).await;
    })
    .await;
}

#[tokio::test]
async fn j_46_a_result_reaches_the_state_once_wherever_its_bringer_is_killed() {
    let recorded = Scene::after_submit("Recorded", "submit", &[SCRIPT]).await;
    recorded.rest().await;
    let deed = |scene: &Scene| (once("none", &["look"]), scene.folder.path().to_owned());
    kill_everywhere(
        async || recorded.copy(),
        deed,
        async |Killed { scene, when, .. }| {
            let was_there = scene.folder.path().join("state/answer.json").exists();
            // Somebody else writes in between.
            done_once(&scene.folder, "none", &["set", "answer", "later"]).await;
            let id = scene.ids[0];
            let bench = scene.reopen();
            let record = bench.end(id).await.record;
            assert_eq!((record.status, record.state_applied), (JobState::Completed, Some(true)), "{when}");
            let value = bench.answer().await.unwrap();
            assert!(value == json!("later") || !was_there && value == json!(42), "{when}: {value}");
        },
    )
    .await;
}

#[tokio::test]
async fn a_removal_killed_anywhere_leaves_a_whole_job_or_none() {
    for action in ["remove", "prune"] {
        let ended = ended_job().await;
        let deed = |scene: &Scene| {
            let words = [action, scene.ids[0].as_str()];
            let words = if action == "remove" { &words[..] } else { &words[..1] };
            (once("none", words), scene.folder.path().to_owned())
        };
        kill_everywhere(
            async || ended.copy(),
            deed,
            async |Killed { scene, said, when }| {
                let bench = scene.reopen();
                let known = jobs(&bench.engine).await;
                assert!(known.is_empty() || said.is_empty(), "{when}");
                for id in known {
                    bench.expect_whole(id, when).await;
                }
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_rebuild_killed_anywhere_loses_no_job() {
    let ended = ended_job().await;
    let deed = |scene: &Scene| (once("none", &["rebuild"]), scene.folder.path().to_owned());
    kill_everywhere(
        async || ended.copy(),
        deed,
        async |Killed { scene, when, .. }| {
            let id = scene.ids[0];
            scene.reopen().expect_whole(id, when).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_replacement_of_the_database_killed_anywhere_loses_no_job() {
    let ended = ended_job().await;
    let (ids, database) = (ended.ids.clone(), ended.folder.path().join("unhang.db"));
    fs::write(database, "this is no database").unwrap();
    let deed = |scene: &Scene| (once("none", &["replace"]), scene.folder.path().to_owned());
    kill_everywhere(
        async || ended.copy(),
        deed,
        async |Killed { scene, when, .. }| {
            if let Err(error) = scene.try_reopen() {
                // Whoever is told so does the same again.
                assert!(error.to_string().contains("unhang job rebuild"), "{when}: {error}");
                done_once(&scene.folder, "none", &["replace"]).await;
            }
            let bench = scene.reopen();
            assert_eq!(jobs(&bench.engine).await, ids, "{when}");
            bench.expect_whole(ids[0], when).await;
        },
    )
    .await;
}

/// What of a data folder was made durable, in order, each with its index in `seen`.
fn synced<'a>(folder: &Home, seen: &'a [String]) -> Vec<(usize, &'a str)> {
    let folder = format!("sync {}", folder.path().canonicalize().unwrap().display());
    let synced =
        seen.iter().enumerate().filter_map(|(index, call)| Some((index, call.strip_prefix(&folder)?)));
    synced.map(|(index, path)| (index, path.trim_start_matches('/'))).collect()
}

#[tokio::test]
async fn j_12_a_job_outlives_a_power_failure_before_its_id_goes_out() {
    let folder = Home::new();
    let words = once("none", &["submit", SCRIPT]);
    let seen = kills::watch(fixture(), words, folder.path().to_owned()).await;
    let told = seen.iter().position(|call| call.starts_with("write to pipe:")).unwrap();
    let synced = synced(&folder, &seen[..told]);
    let job = folder.path().join("jobs").read_dir().unwrap().next().unwrap().unwrap();
    let job = format!("jobs/{}", job.file_name().display());
    let files = ["/work/seed.json", "/work", "/launch.json", ""].map(|name| format!("{job}{name}"));
    let needed = files.iter().map(String::as_str).chain(["jobs"]);
    let names: Vec<&str> = synced.iter().map(|(_, name)| *name).collect();
    let (row, rest) = names.split_last().unwrap();
    assert_eq!(*row, "unhang.db-wal", "its row last: {names:?}");
    // The maintenance thread of the engine that has just been opened may sync the log in between.
    let of_job = rest.iter().copied().skip_while(|name| !name.starts_with(&job));
    let before: HashSet<&str> = of_job.filter(|name| !name.starts_with("unhang.db")).collect();
    assert_eq!(before, needed.collect(), "what it needs before, in any order");
    let last = |start: &str, name: &str| {
        seen[..told].iter().rposition(|call| call.starts_with(start) && call.ends_with(name))
    };
    for name in names.iter().filter(|name| !name.is_empty()) {
        assert!(last("write to ", name) < last("sync ", name), "{name}: {seen:?}");
    }
    let log = seen.iter().position(|call| call.starts_with("write to ") && call.ends_with("/unhang.db-wal"));
    assert!(
        synced.iter().any(|(index, name)| name.is_empty() && *index < log.unwrap()),
        "a new log has a name"
    );
}

/// Of files that nobody has made durable, a power failure leaves nothing, or zeros.
#[tokio::test]
async fn j_12_a_queued_job_whose_files_a_power_failure_has_taken_runs_as_it_was_accepted() {
    let one_at_a_time = |options: &mut EngineOptions| options.rules.max_concurrent = 1;
    let bench = Bench::with(one_at_a_time);
    let begun = bench.submit("exec sleep 3600").await;
    bench.until(begun, JobState::Running).await;
    let submit = async || {
        let script = "cat \"$UNHANG_JOB_DIR/input.json\"";
        bench.submit_with(script, |job| job.arguments = Some(json!({"answer": 42}))).await
    };
    let (gone, torn) = (submit().await, submit().await);
    bench.engine.clone().close().await.unwrap();
    // Whatever runs ends with the power, and what does not is of another boot.
    kill_process(until("its shim", || bench.shim(begun)).await, Signal::KILL).unwrap();
    until("nobody has it", || (!is_held(&bench.job(begun).join("lock")).unwrap()).then_some(())).await;
    for id in [begun, gone] {
        fs::remove_dir_all(bench.job(id)).unwrap();
    }
    for name in ["launch.json", "job.json"] {
        let path = bench.job(torn).join(name);
        fs::write(&path, vec![0; fs::read(&path).unwrap().len()]).unwrap();
    }
    rusqlite::Connection::open(bench.folder.path().join("unhang.db"))
        .unwrap()
        .execute_batch(
            "UPDATE boots SET id = 'another';
             UPDATE jobs SET starter = json_set(starter, '$.boot_id', 'another') WHERE state = 'active';",
        )
        .unwrap();
    let bench = bench.reopen_with(one_at_a_time);
    let lost = bench.end(begun).await.record;
    assert_eq!(lost.status, JobState::Lost);
    assert!(bench.job(begun).join("exit.json").exists(), "{lost:?}");
    for id in [gone, torn] {
        let record = bench.end(id).await.record;
        assert_eq!(record.status, JobState::Completed, "{record:?}");
        assert_eq!(bench.stdout(id), "{\"answer\":42}\n");
        assert!(!bench.job(id).join("launch.json").exists());
        bench.copied(id, JobState::Completed).await;
    }
}

/// As on a full disk, where somebody has to be able to look and to make room.
#[tokio::test]
async fn a_job_whose_files_cannot_be_written_anew_waits_and_says_why() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let first = bench.submit("exec sleep 3600").await;
    bench.until(first, JobState::Running).await;
    let id = bench.submit("true").await;
    bench.engine.clone().close().await.unwrap();
    let folder = bench.job(id);
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    let database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    database.execute("UPDATE boots SET id = 'another'", []).unwrap();
    let bench = bench.reopen_with(|options| options.rules.max_concurrent = 2);
    let reason = bench.seen(id, "a reason", |status| status.wait_reason).await;
    assert!(reason.contains("cannot make") && reason.contains(id.as_str()), "{reason}");
    fs::remove_file(&folder).unwrap();
    // The first was accepted to run alone.
    bench.engine.cancel(first).await.unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}

#[tokio::test]
async fn an_end_outlives_a_power_failure_before_it_is_known() {
    let scene = Scene::after_submit("Alive", "submit-and-leave", &[SCRIPT]).await;
    let words = ["shim", "none", scene.ids[0].as_str()].map(OsString::from).into();
    let seen = kills::watch(fixture(), words, scene.job(0)).await;
    let synced = synced(&scene.folder, &seen);
    let of = |name: &str| synced.iter().find(|(_, synced)| synced.contains(name)).map(|(index, _)| *index);
    let (file, row) = (of("/.exit.json.").unwrap(), of("unhang.db-wal").unwrap());
    let job = format!("jobs/{}", scene.ids[0]);
    let name = synced.iter().find(|(_, synced)| *synced == job).unwrap().0;
    let folder = synced.iter().find(|(_, synced)| *synced == "jobs").unwrap().0;
    assert!(
        file < name && name < folder && folder < row,
        "the file, its name, its folder's, the row: {seen:?}"
    );
    assert!(seen[file..name].iter().any(|call| call == "rename" || call == "renameat"), "{seen:?}");
}

/// A folder in which a job has come to its end, and that nobody works in any more.
async fn ended_job() -> Scene {
    let scene = Scene::after_submit("none", "submit", &[SCRIPT]).await;
    scene.rest().await;
    done_once(&scene.folder, "none", &["look"]).await;
    scene
}
