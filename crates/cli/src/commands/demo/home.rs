//! A folder for each server that keeps something. The demonstration removes it in the end.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use unhang::process::deadline::Deadline;
use unhang_demo_servers::processes::{self, WatchedProcess};

/// The time that the lifelines may take to end their servers before those are killed.
const GRACE: Duration = Duration::from_secs(3);
/// The time that killed processes may take to be gone.
const LIMIT: Duration = Duration::from_secs(3);

/// Returns the mark of this demonstration. All its processes have it in their environment, and the names of its folders begin with it.
pub(super) fn mark() -> String {
    format!("unhang-demo-{}-", std::process::id())
}

/// Waits until everything ends that the dropped acts have started, and removes its folders. Bounded.
pub(super) async fn clear() {
    let mark = mark();
    let left = || processes::marked(&mark);
    let grace = Deadline::after(GRACE);
    while !left().is_empty() && !grace.is_past() {
        Deadline::after(Duration::from_millis(20)).sleep().await;
    }
    let limit = Deadline::after(LIMIT);
    loop {
        let left = left();
        if left.is_empty() || limit.is_past() {
            break;
        }
        left.iter().for_each(WatchedProcess::kill);
        Deadline::after(Duration::from_millis(20)).sleep().await;
    }
    // A process that was just killed may have added a file to a folder while that was emptied.
    let limit = Deadline::after(LIMIT);
    while !remove_folders(&mark) && !limit.is_past() {
        Deadline::after(Duration::from_millis(20)).sleep().await;
    }
}

/// Removes the folders with this mark. Returns whether there were none.
fn remove_folders(mark: &str) -> bool {
    let folders = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let is_ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(mark.as_bytes());
    let ours: Vec<PathBuf> =
        folders.filter(|folder| is_ours(&folder.file_name())).map(|folder| folder.path()).collect();
    ours.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    ours.is_empty()
}

/// A folder for the data of one server, removed on drop. The server has its path in the environment.
pub(super) struct Home(PathBuf);

impl Home {
    /// Makes a folder of this name, which no other part of the demonstration uses.
    pub(super) fn new(which: &str) -> io::Result<Home> {
        let folder = std::env::temp_dir().join(format!("{}{which}", mark()));
        // The folder must not exist already: the folder for temporary files belongs to everybody.
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Home(folder))
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Kills those of this home's processes whose command begins with these words, and returns whether there were some.
    pub(super) fn kill(&self, command: &[&str]) -> bool {
        let mut found = processes::marked(self.text());
        found.retain(|process| process.begins_with(command));
        found.iter().for_each(WatchedProcess::kill);
        !found.is_empty()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _nothing_more_can_be_done = fs::remove_dir_all(&self.0);
    }
}
