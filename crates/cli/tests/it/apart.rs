//! Disks that are full or read-only, in a mount namespace of the test's own: nothing that it mounts is seen outside, or left.
//!
//! Invariants: where mounting is not permitted a test fails and says so; the mounts go with the last process that sees them.

use std::{ffi::OsStr, path::PathBuf, process::Command};

use crate::harness::{Client, PATIENCE, run_to_end};

/// Enters a folder of the namespace; what comes along from outside is another one.
const ENTER: &str = r#"cd -- "$1" && shift && exec "$@""#;

/// A namespace with a disk of its own where the data folder is.
pub(crate) struct Apart {
    holder: Client,
}

impl Apart {
    /// Lets a shell script mount something; `$UNHANG_HOME` is an empty folder. `command` is any that belongs to the test.
    #[track_caller]
    pub(crate) fn new(command: &Command, script: &str) -> Apart {
        let whole = format!("set -e; mkdir -p \"$UNHANG_HOME\"; {script}; echo mounted; exec cat");
        let mut unshare = beside(command, "unshare");
        // Whoever is not root is root in there.
        unshare.args(["--mount", "--map-root-user", "sh", "-c", &whole]);
        let mut holder = Client::start(unshare);
        let said = holder.next_line(PATIENCE);
        assert_eq!(
            said.as_deref(),
            Some("mounted\n"),
            "this test mounts a disk of its own, which is not permitted here (it takes root or user namespaces): {}",
            holder.stderr()
        );
        Apart { holder }
    }

    /// The same command in there.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut inside = beside(command, "nsenter");
        let folder = command.get_current_dir().expect("the sandbox");
        inside.args([
            "--user",
            "--preserve-credentials",
            "--mount",
            "--target",
            &self.holder.pid().to_string(),
        ]);
        inside.args(["--", "sh", "-c", ENTER, "sh"]).arg(folder);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Runs a shell script in there, and demands that it does not fail.
    #[track_caller]
    pub(crate) fn shell(&self, command: &Command, script: &str) -> String {
        let mut shell = beside(command, "sh");
        shell.args(["-c", script]);
        let (code, stdout, stderr) = run_to_end(self.enter(&shell));
        assert_eq!(code, 0, "{script}: {stdout} {stderr}");
        stdout
    }

    /// A path in there, as it is seen from outside.
    pub(crate) fn path(&self, path: &std::path::Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }
}

/// Another program with the environment and the folder of a command.
#[expect(
    clippy::disallowed_methods,
    reason = "the harness starts it; this only says what else is to be started"
)]
pub(crate) fn beside(command: &Command, program: impl AsRef<OsStr>) -> Command {
    let mut other = Command::new(program);
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    other.env_clear().envs(variables).current_dir(command.get_current_dir().expect("the sandbox"));
    other
}
