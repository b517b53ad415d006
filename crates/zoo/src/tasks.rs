//! Tasks as a server keeps them, whatever dialect it speaks of them: begun, asked for input, ended, and kept over a restart.
//!
//! # Theory of operation
//!
//! What a tool does is a [`plan`], known beforehand to the millisecond. So a [`record`] holds only what happened from outside:
//! the creation, the answers and the cancellation. What has become of a task is worked out whenever somebody asks.
//! Nothing runs meanwhile, and a task goes on while its server is not there.
//!
//! # Invariants
//!
//! - A task whose id was given out is in the file, where there is one: it is replaced by a rename before anybody is answered.
//! - A task is forgotten when its time to live is over, and not before.

pub(crate) mod modern;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod record;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits::lock};

use plan::TaskTool;
use record::{TaskEntry, TaskStage};

/// The arguments of a server with tasks.
pub(crate) const USAGE: &str = "[--state FILE] [--poll MS] [--ttl MS]";

/// How long to wait between two polls, as clients are told when nobody says otherwise.
const POLL: u64 = 200;

/// The tool that tells of tasks.
pub(crate) const SEEN: &str = "seen";

/// Every task of a server.
pub(crate) struct Tasks {
    by_id: Mutex<BTreeMap<String, TaskEntry>>,
    file: Option<PathBuf>,
    /// What clients are told to wait between two polls, in milliseconds.
    pub(crate) poll: u64,
    /// How long a task is kept for whom nothing else was asked for, in milliseconds; `None` for ever.
    ttl: Option<u64>,
}

impl Tasks {
    /// Takes up what a file holds, where one is named and there.
    pub(crate) fn open(arguments: &ProgramArguments) -> io::Result<Self> {
        let file = arguments.option("state")?.map(PathBuf::from);
        let kept: Vec<TaskEntry> = match file.as_ref().map(fs::read) {
            Some(Ok(bytes)) => serde_json::from_slice(&bytes)?,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => Vec::new(),
        };
        let by_id = kept.into_iter().map(|task| (task.id.clone(), task)).collect();
        Ok(Self {
            by_id: Mutex::new(by_id),
            file,
            poll: arguments.number_option("poll", POLL)?.max(1),
            ttl: Some(arguments.number_option("ttl", 0)?).filter(|ttl| *ttl > 0),
        })
    }

    /// Begins a task; `ttl` is what its client wants it to live.
    pub(crate) fn begin(
        &self,
        plan: &TaskTool,
        arguments: &Value,
        answers: Value,
        ttl: Option<u64>,
    ) -> io::Result<TaskEntry> {
        let mut number = [0; 16];
        SystemRandom::new().fill(&mut number).map_err(|_| io::Error::other("there is no random number"))?;
        let id: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        let task = TaskEntry::new(id.clone(), plan, arguments.clone(), answers, now(), ttl.or(self.ttl));
        let mut by_id = lock(&self.by_id);
        by_id.insert(id, task.clone());
        self.save(&by_id)?;
        Ok(task)
    }

    /// Returns a task as it is now; `None` when there is none with this id any more.
    pub(crate) fn get(&self, id: &str) -> Option<TaskEntry> {
        lock(&self.by_id).get(id).filter(|task| task.lives_at(now())).cloned()
    }

    /// Returns a task to whoever polls, and counts that.
    pub(crate) fn poll(&self, id: &str) -> Option<TaskEntry> {
        let mut by_id = lock(&self.by_id);
        let task = by_id.get_mut(id).filter(|task| task.lives_at(now()))?;
        task.polls += 1;
        Some(task.clone())
    }

    /// Returns every task, the oldest first.
    pub(crate) fn all(&self) -> Vec<TaskEntry> {
        let now = now();
        let mut tasks: Vec<_> =
            lock(&self.by_id).values().filter(|task| task.lives_at(now)).cloned().collect();
        tasks.sort_by_key(|task| task.created);
        tasks
    }

    /// Takes answers to what a task asks at the moment; others are passed over. `None` when there is no such task.
    pub(crate) fn answer(&self, id: &str, answers: &Value) -> Option<io::Result<TaskEntry>> {
        self.change(id, |task, now| task.take(answers, now))
    }

    /// Cancels a task, unless it has ended. `None` when there is no such task.
    pub(crate) fn cancel(&self, id: &str) -> Option<io::Result<TaskEntry>> {
        self.change(id, TaskEntry::cancel)
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut TaskEntry, u64)) -> Option<io::Result<TaskEntry>> {
        let now = now();
        let mut by_id = lock(&self.by_id);
        let task = by_id.get_mut(id).filter(|task| task.lives_at(now))?;
        change(task, now);
        let task = task.clone();
        Some(self.save(&by_id).map(|()| task))
    }

    fn save(&self, by_id: &BTreeMap<String, TaskEntry>) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let beside = file.with_extension("new");
        fs::write(&beside, serde_json::to_vec(&by_id.values().collect::<Vec<_>>())?)?;
        fs::rename(beside, file)
    }

    /// Tells of every task what a test wants to know: above all how often somebody polled, in the life of this process.
    pub(crate) fn tell(&self) -> Value {
        let now = now();
        let tasks: Vec<_> = self
            .all()
            .iter()
            .map(|task| {
                json!({
                    "taskId": task.id, "tool": task.tool, "arguments": task.arguments,
                    "status": task.stage_at(now).word(), "polls": task.polls,
                })
            })
            .collect();
        json!({"pid": std::process::id(), "tasks": tasks})
    }
}

/// Hears what becomes of tasks.
pub(crate) struct StatusWatcher {
    /// Those that it listens to; all where there is nothing.
    ids: Option<Vec<String>>,
    /// What was told of each, or known before there was anybody to tell.
    told: BTreeMap<String, (&'static str, u64)>,
}

impl StatusWatcher {
    /// What has happened already is no news: it is for whoever polls.
    pub(crate) fn new(tasks: &Tasks, ids: Option<Vec<String>>) -> Self {
        let mut watcher = Self { ids, told: BTreeMap::new() };
        watcher.news(tasks);
        watcher
    }

    /// Returns the tasks whose status has changed since the last time. One that is new has not changed.
    pub(crate) fn news(&mut self, tasks: &Tasks) -> Vec<(TaskEntry, u64)> {
        let now = now();
        let mut changed = Vec::new();
        for task in tasks.all() {
            if self.ids.as_ref().is_some_and(|ids| !ids.contains(&task.id)) {
                continue;
            }
            let state = (task.stage_at(now).word(), task.updated_at(now));
            let is_known = self.told.insert(task.id.clone(), state);
            let is_new = is_known.is_none() && matches!(task.stage_at(now), TaskStage::Working);
            if !is_new && is_known != Some(state) {
                changed.push((task, now));
            }
        }
        changed
    }
}

/// The tool that tells of tasks, as `tools/list` shows it.
pub(crate) fn seen() -> Value {
    json!({
        "name": SEEN,
        "description": "Returns every task, and how often it was polled",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "idempotentHint": true},
    })
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes milliseconds since 1970 as ISO 8601 has them.
pub(crate) fn timestamp(milliseconds: u64) -> String {
    let (seconds, fraction) = (milliseconds / 1000, milliseconds % 1000);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // Years begin in March here, so that the odd day is the last one; eras have 400 years (146,097 days).
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(line: &str) -> Tasks {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Tasks::open(&ProgramArguments::new(&args)).expect("it opens")
    }

    #[test]
    fn times_are_written_as_people_read_them() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_790_000_000_007, "2026-09-21T14:13:20.007Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        ] {
            assert_eq!(timestamp(milliseconds), expected);
        }
    }

    #[test]
    fn what_a_file_holds_is_taken_up() {
        let file = std::env::temp_dir().join(format!("zoo-tasks-{}", std::process::id()));
        let line = format!("--state {}", file.display());
        let plan = plan::find("slow_compute").expect("it is there");
        let first = open(&line);
        let task = first.begin(plan, &json!({"seconds": 3600}), json!({}), None).expect("begun");
        first.cancel(&task.id).expect("it is there").expect("saved");
        let other = first.begin(plan, &json!({"seconds": 0}), json!({}), None).expect("begun");
        let second = open(&line);
        assert_eq!(second.get(&task.id).expect("kept").stage_at(now()).word(), "cancelled");
        assert!(second.get(&other.id).is_some() && second.get("other").is_none());
        fs::remove_file(file).expect("the file is ours");
        assert!(open(&line).all().is_empty());
    }

    #[test]
    fn a_change_is_news_once() {
        let tasks = open("");
        let plan = plan::find("slow_compute").expect("it is there");
        let mut watcher = StatusWatcher::new(&tasks, None);
        let task = tasks.begin(plan, &json!({"seconds": 3600}), json!({}), None).expect("begun");
        assert!(watcher.news(&tasks).is_empty());
        tasks.cancel(&task.id).expect("it is there").expect("saved");
        assert_eq!(watcher.news(&tasks).len(), 1);
        assert!(watcher.news(&tasks).is_empty());
        assert!(StatusWatcher::new(&tasks, Some(vec!["other".to_owned()])).news(&tasks).is_empty());
    }
}
