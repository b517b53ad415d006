//! What jobs leave behind, and that it is ended: the seven rows of processes.md 1.4, at an ordinary end and after the shim was
//! killed.

use std::{collections::BTreeMap, fs};

use rustix::process::{Signal, kill_process};
use tokio::time::Instant;
use unhang_jobs::record::JobState;

use crate::common::{Bench, PATIENCE, until};

/// What a job leaves behind; `$1` says that it is there. Each sleeps longer than any test runs.
const ROWS: [(&str, &str); 7] = [
    ("background child", "(echo ready; exec sleep 3600) &"),
    ("setsid child", "setsid sh -c 'echo ready; exec sleep 3600' &"),
    ("double-fork daemon", "(setsid sh -c '(echo ready; exec sleep 3600) &' &);"),
    ("nohup, descriptors closed", "echo ready; nohup sleep 3600 <&- >/dev/null 2>&- &"),
    (
        "three nested sessions",
        "setsid sh -c 'setsid sh -c \"setsid sh -c \\\"echo ready; exec sleep 3600\\\" & exec sleep 3600\" & exec sleep 3600' &",
    ),
    ("ignores signals", "(trap '' TERM HUP INT; echo ready; sleep 3600; sleep 3600) &"),
    (
        "a new session all the time",
        "setsid sh -c 'echo ready; while :; do setsid sleep 3600 & sleep 0.002; done' &",
    ),
];

#[tokio::test]
async fn of_seven_ways_to_leave_something_behind_none_outlives_the_end_of_a_job() {
    let bench = Bench::new();
    for (row, script) in ROWS {
        let id = bench
            .submit(&format!(
                "{script} while [ ! -s $UNHANG_JOB_DIR/../stdout.log ]; do sleep 0.01; done; exit 7"
            ))
            .await;
        let status = bench.end(id).await;
        assert_eq!(bench.alive(id), [""; 0], "{row}");
        let ending = status.record.ending.unwrap();
        assert_eq!((ending.exit_code, ending.unkilled), (Some(7), 0), "{row}");
        assert!(ending.leaked >= 1, "{row}: {ending:?}");
    }
}

#[tokio::test]
async fn of_seven_ways_to_leave_something_behind_none_outlives_a_killed_shim() {
    let bench = Bench::new();
    for (row, script) in ROWS {
        let id = bench.submit(&format!("{script} exec sleep 3600")).await;
        until(row, || bench.stdout_if_any(id).filter(|text| text.contains("ready"))).await;
        let shim = until("its shim", || bench.shim(id)).await;
        kill_process(shim, Signal::KILL).unwrap();
        let status = bench.end(id).await;
        assert_eq!(status.record.status, JobState::Lost, "{row}");
        assert_eq!(bench.alive(id), [""; 0], "{row}");
        let ending = status.record.ending.unwrap();
        assert!(ending.leaked >= 1 && ending.unkilled == 0, "{row}: {ending:?}");
    }
}

#[tokio::test]
async fn nothing_is_waited_for_because_a_descendant_holds_the_output() {
    let bench = Bench::new();
    let begin = Instant::now();
    let status = bench.run("setsid sleep 3600 & exit 0").await;
    assert_eq!(status.record.status, JobState::Completed);
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
}

/// No descriptor of the shim or of the server reaches the work.
#[tokio::test]
async fn the_work_gets_three_descriptors_and_no_more() {
    let bench = Bench::new();
    let id = bench.submit("ls -l /proc/$$/fd").await;
    bench.end(id).await;
    let mut seen = BTreeMap::new();
    for line in bench.stdout(id).lines().filter(|line| line.contains(" -> ")) {
        let (name, target) = line.split_once(" -> ").unwrap();
        seen.insert(name.rsplit(' ').next().unwrap().to_owned(), target.to_owned());
    }
    let log = |name: &str| bench.job(id).join(name).display().to_string();
    let expected = [("0", "/dev/null".to_owned()), ("1", log("stdout.log")), ("2", log("stderr.log"))];
    assert_eq!(seen, expected.map(|(number, target)| (number.to_owned(), target)).into());
}

/// Small while it runs: 4 MiB of memory of its own and its share of what others use too, in a release build. In a debug
/// build the program itself is larger.
#[tokio::test]
async fn a_shim_is_small_and_is_not_called_like_us() {
    let bench = Bench::new();
    let id = bench.submit("echo ready; exec sleep 3600").await;
    until("it runs", || bench.stdout_if_any(id).filter(|text| text.contains("ready"))).await;
    let shim = until("its shim", || bench.shim(id)).await;
    let folder = std::path::PathBuf::from(format!("/proc/{}", shim.as_raw_nonzero()));
    let rollup = fs::read_to_string(folder.join("smaps_rollup")).unwrap();
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    let kibibytes: u64 = pss.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    let limit = if cfg!(debug_assertions) { 8 } else { 4 };
    assert!(kibibytes <= limit << 10, "{kibibytes} KiB");
    assert_eq!(fs::read_to_string(folder.join("comm")).unwrap(), "mcp-job\n");
    let session = fs::read_to_string(folder.join("stat")).unwrap();
    let pid = shim.as_raw_nonzero().to_string();
    assert_eq!(session.rsplit(')').next().unwrap().split_whitespace().nth(3), Some(pid.as_str()));
    assert_eq!(fs::read(folder.join("environ")).unwrap(), b"");
    bench.engine.cancel(id).await.unwrap();
}
