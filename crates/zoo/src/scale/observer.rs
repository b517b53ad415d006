//! Sees from outside which work runs, when, and in how many places.
//!
//! # Theory of operation
//!
//! All processes of a job's work have a token in their environment that nobody can guess. A look goes through the table of processes of the
//! whole system. The processes of one attempt are one session, as seen from outside, and no two attempts have the same. The kernel says when a process
//! began. So two attempts ran at one moment if one began before the other was last seen alive, however short that was.
//!
//! # Invariants
//!
//! - A process counts as alive only while the kernel has not ended it: a zombie does not.
//! - The time of a look is taken before the look. So "seen alive at" is never later than the truth.
//! - Nothing of the observed programs is asked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use unhang_demo_servers::bounded_waits::{self, lock};
use unhang_demo_servers::processes::WatchedProcess;

/// The variable with the token of a job, which its work hands on to all that it starts.
pub const TOKEN_VARIABLE: &str = "UNHANG_SCALE_TOKEN";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(15);
/// A process becomes another program soon after it has begun, or not at all.
const YOUNG: Duration = Duration::from_secs(2);

/// One attempt at the work of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkAttempt {
    /// The process namespace, which tells the life of a machine.
    pub namespace: String,
    /// The end of the tick in which its first process began: it had begun by then.
    pub began_by: Duration,
    /// The time at which one of its processes was last seen alive.
    pub alive_at: Duration,
    /// The time by which all of its processes had ended; `None` while one lives.
    pub ended_by: Option<Duration>,
}

/// All attempts, by the token of the job and the number of the session.
type Attempts = BTreeMap<(String, u32), WorkAttempt>;

/// A thread that looks.
pub struct WorkObserver {
    attempts: Arc<Mutex<Attempts>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A process of an attempt.
struct WorkProcess {
    process: WatchedProcess,
    attempt: (String, u32),
    namespace: String,
}

/// What is known of the table of processes.
#[derive(Default)]
struct ProcessTable {
    /// The processes that are no work so far, with the time at which they were seen first.
    others: HashMap<u32, Duration>,
    work: HashMap<u32, WorkProcess>,
}

impl WorkObserver {
    /// Begins to look.
    #[must_use]
    pub fn start() -> Self {
        let (attempts, is_over) = (Arc::<Mutex<Attempts>>::default(), Arc::new(AtomicBool::new(false)));
        let (seen, ends) = (Arc::clone(&attempts), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut table = ProcessTable::default();
            while !ends.load(Ordering::Relaxed) {
                table.look(&seen);
                bounded_waits::pause(LOOK);
            }
        });
        Self { attempts, is_over, thread: Some(thread) }
    }

    /// Returns the attempts at the work of the job with this token, in the order of their beginnings.
    #[must_use]
    pub fn attempts(&self, token: &str) -> Vec<WorkAttempt> {
        let attempts = lock(&self.attempts);
        let own = attempts.iter().filter(|((of, _), _)| of == token);
        let mut own: Vec<WorkAttempt> = own.map(|(_, attempt)| attempt.clone()).collect();
        own.sort_unstable_by_key(|attempt| attempt.began_by);
        own
    }
}

impl Drop for WorkObserver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl ProcessTable {
    /// Looks at all processes.
    fn look(&mut self, attempts: &Mutex<Attempts>) {
        let now = uptime();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: HashSet<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        self.others.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            let is_old = self.others.get(&pid).is_some_and(|since| now.saturating_sub(*since) > YOUNG);
            if is_old || self.work.contains_key(&pid) {
                continue;
            }
            match work_process(pid) {
                Some((work, began_by)) => {
                    self.others.remove(&pid);
                    let mut attempts = lock(attempts);
                    let attempt = attempts.entry(work.attempt.clone()).or_insert_with(|| WorkAttempt {
                        namespace: work.namespace.clone(),
                        began_by,
                        alive_at: began_by,
                        ended_by: None,
                    });
                    attempt.began_by = attempt.began_by.min(began_by);
                    attempt.ended_by = None;
                    self.work.insert(pid, work);
                }
                None => drop(self.others.entry(pid).or_insert(now)),
            }
        }
        self.look_at_work(attempts);
    }

    fn look_at_work(&mut self, attempts: &Mutex<Attempts>) {
        let mut attempts = lock(attempts);
        let mut ended = Vec::new();
        self.work.retain(|_, work| {
            let now = uptime();
            let is_alive = !work.process.wait(Duration::ZERO).unwrap_or(true);
            if let Some(attempt) = attempts.get_mut(&work.attempt).filter(|_| is_alive) {
                attempt.alive_at = attempt.alive_at.max(now);
            }
            if !is_alive {
                ended.push(work.attempt.clone());
            }
            is_alive
        });
        for key in ended {
            let is_over = self.work.values().all(|work| work.attempt != key);
            if let Some(attempt) = attempts.get_mut(&key).filter(|_| is_over) {
                attempt.ended_by = Some(uptime());
            }
        }
    }
}

/// Looks whether a process is work. Returns it with the end of the tick in which it began.
fn work_process(pid: u32) -> Option<(WorkProcess, Duration)> {
    let token = token(&fs::read(format!("/proc/{pid}/environ")).ok()?)?;
    let process = WatchedProcess::open(pid, &[])?;
    let (session, began_by) = session_and_beginning(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    // Read again, now that no other process can have its number: it is the one that was opened.
    let still =
        fs::read(format!("/proc/{pid}/environ")).ok().and_then(|environment| self::token(&environment));
    let (attempt, namespace) = ((token, session), namespace(pid)?);
    (still.as_ref() == Some(&attempt.0)).then_some((WorkProcess { process, attempt, namespace }, began_by))
}

/// Returns the process namespace of a process; `None` once it has gone.
pub(super) fn namespace(pid: u32) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?.to_string_lossy().into_owned())
}

/// Finds the token in an environment.
fn token(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        variable.strip_prefix(TOKEN_VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    })?;
    String::from_utf8(value.to_vec()).ok()
}

/// Reads the session, and the end of the tick of the beginning, from a line of `stat`.
fn session_and_beginning(stat: &str) -> Option<(u32, Duration)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // The fields begin with the third one.
    let (session, ticks): (u32, u64) = (fields.get(3)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    Some((session, Duration::from_millis((ticks + 1) * 1000 / clock_ticks_per_second())))
}

/// Returns the time since the system was started, by the clock with which the kernel notes when processes begin.
#[must_use]
pub fn uptime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use unhang_demo_servers::child_processes::{ChildStreams, start_marked, wait};

    use super::*;

    #[test]
    fn fields_are_found() {
        let stat = "7 (a) b) S 1 7 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 250 8 9";
        assert_eq!(session_and_beginning(stat), Some((9, Duration::from_millis(2510))));
        assert_eq!(token(b"A=1\0UNHANG_SCALE_TOKEN=xyz\0B=2\0").as_deref(), Some("xyz"));
        assert_eq!(token(b"A=1\0UNHANG_SCALE_TOKENS=xyz\0"), None);
    }

    /// Two sessions with one token at one moment are seen as that, and so are their ends.
    #[test]
    fn work_in_two_places_is_seen() {
        let token = format!("two-{}", std::process::id());
        let observer = WorkObserver::start();
        let start = || {
            let words = ["sleep", "60"].map(str::to_owned);
            let streams = ChildStreams { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() };
            start_marked("setsid", &words, streams, (TOKEN_VARIABLE, &token)).expect("it starts")
        };
        let mut children = [start(), start()];
        let until = |what: &str, condition: &dyn Fn(&[WorkAttempt]) -> bool| {
            let limit = bounded_waits::now() + Duration::from_secs(30);
            while !condition(&observer.attempts(&token)) {
                assert!(bounded_waits::now() < limit, "in vain: {what}: {:?}", observer.attempts(&token));
                bounded_waits::pause(LOOK);
            }
        };
        until("both are seen at one moment", &|seen| seen.len() == 2 && seen[1].began_by < seen[0].alive_at);
        for child in &mut children {
            child.kill().expect("it is there");
            wait(child).expect("it has ended");
        }
        until("both have ended", &|seen| seen.iter().all(|attempt| attempt.ended_by.is_some()));
        assert_eq!(observer.attempts("another"), []);
    }
}
