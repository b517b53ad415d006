//! A folder of its own for each server that keeps something, removed in the end.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use unhang_zoo::processes::{self, Process};

/// A folder for the data of one server, removed in the end. Its path is in the environment of the server.
pub(super) struct Home(PathBuf);

impl Home {
    /// One of this name, which nobody else here has.
    pub(super) fn new(which: &str) -> io::Result<Home> {
        let folder = std::env::temp_dir().join(format!("unhang-demo-{}-{which}", std::process::id()));
        // It must not be there already: the folder for temporary files belongs to everybody.
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Home(folder))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Kills those of this home's processes whose command begins with these words.
    pub(super) fn kill(&self, command: &[&str]) {
        let found = processes::marked(self.text());
        found.iter().filter(|process| process.begins_with(command)).for_each(Process::kill);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _nothing_more_can_be_done = fs::remove_dir_all(&self.0);
    }
}
