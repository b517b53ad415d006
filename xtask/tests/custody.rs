//! Nothing of a step outlives it, whatever it was: a cargo that is ours leaves what no group, session or environment leads to.

#![expect(
    clippy::disallowed_methods,
    reason = "the chores are judged from outside; each wait has a limit or is for a program that ends by itself"
)]

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves a process in a session of its own, with nothing in its environment, and notes its number.
const LEAVE: &str = r#"
env -i setsid sh -c 'echo $$ > left; exec sleep 300' &
until [ -s left ]; do sleep 0.01; done
"#;

/// Held while a program is written or started. A process that starts meanwhile would have the open file for a moment, and Linux starts no
/// program that somebody can write to.
static PROGRAMS: Mutex<()> = Mutex::new(());

/// Starts `cargo xtask ci --only fmt`, where `cargo fmt` is this script.
fn start_chore(folder: &Path, script: &str, stdout: Stdio) -> Child {
    let folder_path = folder.display();
    let metadata = format!(r#"{{"packages": [], "target_directory": "{folder_path}/target"}}"#);
    let cargo = format!(
        "#!/bin/sh\nif [ $1 = metadata ]; then echo '{metadata}'; exit; fi\ncd {folder_path}\n{script}\n"
    );
    let program = folder.join("cargo");
    let _programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    fs::write(&program, cargo).expect("the folder is ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("the file is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let path = std::env::var("PATH").expect("a path");
    command.args(["ci", "--only", "fmt"]).env("PATH", format!("{folder_path}:{path}"));
    command.stdin(Stdio::null()).stdout(stdout).spawn().expect("it runs")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The process that the script has noted, once it has.
fn noted(folder: &Path, name: &str) -> Pid {
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().parse().ok().and_then(Pid::from_raw).expect("a number");
        }
        assert!(begin.elapsed() < PATIENCE, "nothing noted in {name}");
        // Between two looks at a file that another process writes.
        thread::sleep(Duration::from_millis(10));
    }
}

/// A zombie has no command line any more.
fn is_gone(pid: Pid) -> bool {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default().is_empty()
}

#[test]
fn r_42_a_step_that_leaves_a_process_has_failed_and_the_process_is_named_and_ended() {
    let folder = folder();
    let output = start_chore(folder.path(), LEAVE, Stdio::piped()).wait_with_output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let left = noted(folder.path(), "left");
    assert!(told.contains(&format!("left behind: {} sleep 300", left.as_raw_nonzero())), "{told}");
    assert!(is_gone(left), "{told}");
}

#[test]
fn r_42_nothing_is_left_of_a_step_that_is_interrupted() {
    let folder = folder();
    let script = format!("{LEAVE}\necho $$ > step; exec sleep 300");
    let mut chore = start_chore(folder.path(), &script, Stdio::null());
    let pids = ["left", "step"].map(|name| noted(folder.path(), name));
    let pid = Pid::from_child(&chore);
    kill_process(pid, Signal::TERM).expect("it runs");
    let status = chore.wait().expect("our child");
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert_eq!(pids.map(is_gone), [true, true]);
}
