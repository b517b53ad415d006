//! The folder that a run works in, and what runs in it. It lies where jobs would, for what they cost is the disk.
//!
//! # Invariants
//!
//! - It is new, and for its owner alone.
//! - When it is dropped, nothing that stands in it runs any more, and it is gone.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use unhang_demo_servers::{bounded_waits, processes};

use crate::child_processes;
use crate::load::LoadPrograms;

/// How long what runs in the folder may take to end when it is told to; jobs get a grace of five seconds.
const CLEARING: Duration = Duration::from_secs(15);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(10);
/// How often its removal is tried: a process in its last moments may write once more.
const REMOVALS: usize = 3;

/// The folder.
#[derive(Debug)]
pub(in crate::load) struct JobsFolder {
    folder: PathBuf,
    unhang: String,
    zoo: String,
}

impl JobsFolder {
    /// With tools that are jobs.
    pub(super) fn make(parent: &Path, programs: LoadPrograms<'_>) -> io::Result<Self> {
        let jobs_folder = Self::make_bare(parent, programs)?;
        fs::write(jobs_folder.configuration(), configuration(programs.zoo, &jobs_folder.waiting()))?;
        Ok(jobs_folder)
    }

    /// With nothing in it.
    pub(in crate::load) fn make_bare(parent: &Path, programs: LoadPrograms<'_>) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.recursive(true).create(parent)?;
        let name = format!("bench-{}-{}", std::process::id(), child_processes::epoch_milliseconds());
        let folder = parent.canonicalize()?.join(name);
        builder.recursive(false).create(&folder)?;
        Ok(Self { folder, unhang: programs.unhang.to_owned(), zoo: programs.zoo.to_owned() })
    }

    /// A folder in it.
    pub(in crate::load) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same, made where it is missing.
    pub(super) fn sub_folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    fn configuration(&self) -> PathBuf {
        self.path("unhang.toml")
    }

    fn gate(&self) -> PathBuf {
        self.path("gate")
    }

    /// The command of a server that runs so many jobs at the same time.
    pub(super) fn server(&self, at_once: usize) -> Vec<String> {
        let configuration = self.configuration().to_string_lossy().into_owned();
        let at_once = at_once.to_string();
        let words =
            [&self.unhang, "serve", "--stdio", "--config", &configuration, "--max-concurrent", &at_once];
        words.map(str::to_owned).to_vec()
    }

    /// The command of a job that runs until there is a gate.
    pub(super) fn waiting(&self) -> Vec<String> {
        let gate = self.gate().to_string_lossy().into_owned();
        [&self.zoo, "zoo", "slow", "--gate", &gate].map(str::to_owned).to_vec()
    }

    /// Lets jobs that wait go on for as long as there is no gate.
    pub(super) fn close_gate(&self) -> io::Result<()> {
        match fs::remove_file(self.gate()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets them end.
    pub(super) fn open_gate(&self) -> io::Result<()> {
        File::create(self.gate()).map(drop)
    }

    /// On which kind of file system it lies.
    pub(super) fn file_system(&self) -> Option<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        kind_of_mount(&mounts, &self.folder).map(str::to_owned)
    }

    /// Tells everything that runs in it to end. True where there was nothing.
    pub(super) fn end_jobs(&self) -> bool {
        let _the_folder_may_be_full = self.open_gate();
        let standing = processes::standing_in(&self.folder);
        standing.iter().for_each(|process| process.signal(Signal::TERM));
        standing.is_empty()
    }
}

impl Drop for JobsFolder {
    fn drop(&mut self) {
        let begin = bounded_waits::now();
        // A job that ends starts the next one of its queue, so that one look is not enough.
        while !self.end_jobs() && begin.elapsed() < 2 * CLEARING {
            if begin.elapsed() >= CLEARING {
                processes::standing_in(&self.folder).iter().for_each(processes::WatchedProcess::kill);
            }
            bounded_waits::pause(LOOK);
        }
        let _nothing_more_can_be_done =
            (0..REMOVALS).map(|_| fs::remove_dir_all(&self.folder)).find(Result::is_ok);
    }
}

/// The tools: jobs that end at once, wait for the gate, and write without a pause.
fn configuration(zoo: &str, waiting: &[String]) -> String {
    // A text of JSON is one of TOML too, and so is a list of such.
    let (zoo, waiting) = (Value::from(zoo), Value::from(waiting));
    format!(
        r#"[jobs]
memory-limit = 100

[tools.trivial]
command = ["true"]
mode = "job"

[tools.waits]
command = {waiting}
mode = "job"

[tools.floods]
command = [{zoo}, "zoo", "floods", "{{args.bytes}}"]
mode = "job"
input-schema = {{ properties = {{ bytes = {{ type = "integer" }} }}, required = ["bytes"] }}
log-limit = "8MiB"
timeout = "2m"
"#
    )
}

/// The kind of the file system that a path lies on, from the lines of `mountinfo`.
fn kind_of_mount<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        Some((Path::new(mount.split(' ').nth(4)?), rest.split(' ').next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point));
    // Of two on one point the later one is seen.
    above.max_by_key(|(point, _)| point.components().count()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts_and_of_two_there_the_later() {
        let mounts = "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      22 21 0:5 / /home/a rw - tmpfs none rw\n\
                      23 21 0:6 / /home/a rw master:2 - xfs /dev/vdb rw\n\
                      a torn line\n";
        let kind = |path: &str| kind_of_mount(mounts, Path::new(path));
        assert_eq!(kind("/home/a/jobs"), Some("xfs"));
        assert_eq!(kind("/home/ab"), Some("ext4"));
        assert_eq!(kind_of_mount("", Path::new("/")), None);
    }

    #[test]
    fn a_path_with_quotes_stays_one_word_of_the_configuration() {
        let program = r#"/a "b"\c/unhang"#;
        let text = configuration(program, &[program.to_owned(), "zoo".to_owned()]);
        assert!(text.contains(r#"command = ["/a \"b\"\\c/unhang","zoo"]"#), "{text}");
        assert!(
            text.contains(r#"command = ["/a \"b\"\\c/unhang", "zoo", "floods", "{args.bytes}"]"#),
            "{text}"
        );
    }
}
