//! Runs programs, each under a deadline after which nothing of it is left.
//!
//! # Theory of operation
//!
//! [`start`] gives the program a process group of its own, the null device as stdin and files for its output, so no
//! pipe can be held open by a grandchild; only a program that ends with its stdin has a pipe there. A thread waits for the process and hands its exit over; the deadline is kept
//! by the receiver. What leaves the group is found by its [`Marker`]. [`converse`] gives pipes instead, and its caller
//! keeps the deadline and ends what is left.
//!
//! # Invariants
//!
//! - This is the only place in this crate that starts a process.
//! - When [`run`] returns, no process of the group lives, whether the program ended or was ended.

use std::cell::Cell;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde_json::Value;

use crate::clock;
use crate::failure::ChoreFailure;
use crate::leftovers::{self, Marker};

/// How long after SIGKILL a process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Gives its session and itself the lowest priority, and becomes the program.
const YIELD: &str = r#"{ echo 19 > /proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@""#;

thread_local! {
    /// Whether the programs of this thread get only processors that nothing else wants.
    static YIELDS: Cell<bool> = const { Cell::new(false) };
}

/// What to run, and where its output goes.
#[derive(Debug, Clone)]
pub(crate) struct ProgramRun {
    program: OsString,
    arguments: Vec<OsString>,
    folder: PathBuf,
    environment: Vec<(String, OsString)>,
    /// Holds stdout, and stderr too unless that has its own file.
    output: PathBuf,
    errors: Option<PathBuf>,
    /// Whether stdin is a pipe that stays open, and not the null device.
    has_stdin: bool,
    deadline: Duration,
    marker: Marker,
}

impl ProgramRun {
    /// Runs `program` in `folder` for `deadline` at most and keeps its output in the file `output`.
    pub(crate) fn new(
        program: impl AsRef<OsStr>,
        folder: &Path,
        output: PathBuf,
        deadline: Duration,
    ) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            folder: folder.to_owned(),
            environment: Vec::new(),
            output,
            errors: None,
            has_stdin: false,
            deadline,
            marker: Marker::unique(),
        }
    }

    pub(crate) fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Keeps stdout in a file of its own, and stderr where both would have gone.
    pub(crate) fn answer(self, answer: PathBuf) -> Self {
        Self { errors: Some(self.output), output: answer, ..self }
    }

    /// Keeps stderr in a file of its own.
    pub(crate) fn errors(mut self, errors: PathBuf) -> Self {
        self.errors = Some(errors);
        self
    }

    /// Keeps stdin open, for programs that end with it; [`RunningProgram::close_stdin`] closes it.
    pub(crate) fn open_stdin(mut self) -> Self {
        self.has_stdin = true;
        self
    }

    pub(crate) fn marked(mut self, marker: &Marker) -> Self {
        self.marker = marker.clone();
        self
    }

    fn name(&self) -> String {
        Path::new(&self.program).file_name().unwrap_or(&self.program).to_string_lossy().into_owned()
    }

    /// The file that a person wants to read when this failed.
    fn story(&self) -> &Path {
        self.errors.as_deref().unwrap_or(&self.output)
    }
}

/// A program that was started and is to be finished or ended.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    task: ProgramRun,
    pid: u32,
    stdin: Option<ChildStdin>,
    exit: Receiver<std::io::Result<ExitStatus>>,
}

/// Starts a program. It is the caller's duty to call [`RunningProgram::finish`].
#[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do than to wait")]
pub(crate) fn start(task: ProgramRun) -> Result<RunningProgram, ChoreFailure> {
    let (output, errors) = open_output(&task)?;
    let input = if task.has_stdin { Stdio::piped() } else { Stdio::null() };
    let mut child = spawn(&task, [input, output.into(), errors.into()])?;
    let (sender, exit) = sync_channel(1);
    // The wait of the thread would close it.
    let (pid, stdin) = (child.id(), child.stdin.take());
    std::thread::spawn(move || {
        // The receiver is gone only when nobody wants to know any more.
        let _ = sender.send(child.wait());
    });
    Ok(RunningProgram { task, pid, stdin, exit })
}

/// Starts a program to talk to: all three streams are pipes, the deadline and the end are the caller's.
pub(crate) fn converse(task: &ProgramRun) -> Result<Child, ChoreFailure> {
    spawn(task, [Stdio::piped(), Stdio::piped(), Stdio::piped()])
}

/// Gives the programs that this thread starts from now on only processors that nothing else wants, where the system is Linux.
pub(crate) fn yield_processors() {
    YIELDS.set(cfg!(target_os = "linux"));
}

#[expect(clippy::disallowed_methods, reason = "the one place in this crate that starts processes")]
fn spawn(task: &ProgramRun, [input, output, errors]: [Stdio; 3]) -> Result<Child, ChoreFailure> {
    let yields = YIELDS.get();
    let mut command = Command::new(if yields { OsStr::new("setsid") } else { &task.program });
    if yields {
        // Linux may share the processors among sessions before it looks at priorities. So the program has a session of its own.
        command.args(["sh", "-c", YIELD, "sh"]).arg(&task.program);
    } else {
        command.process_group(0);
    }
    // Cargo describes the package of this program in variables. If they differ between two builds, the build script of ring runs again, and
    // cargo builds everything that needs ring.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command
        .args(&task.arguments)
        .current_dir(&task.folder)
        .envs(task.environment.iter().map(|(name, value)| (name, value)))
        .env(leftovers::VARIABLE, task.marker.value())
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| ChoreFailure::io(format!("cannot start {}", task.name()), &error))
}

/// Returns whether cargo describes the package of a program in this variable.
fn is_of_package(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Returns a path of this program that holds when cargo has put another one in its place, as the tests of the workspace do.
pub(crate) fn this_program_path() -> Result<PathBuf, ChoreFailure> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Ok(running.to_owned());
    }
    env::current_exe().map_err(|error| ChoreFailure::io("cannot find this program", &error))
}

/// Starts this very program with other arguments, on the same terminal. Whoever does so waits for all its children.
#[expect(clippy::disallowed_methods, reason = "the one place in this crate that starts processes")]
pub(crate) fn this_program(
    word: &str,
    arguments: impl Iterator<Item = String>,
) -> Result<Child, ChoreFailure> {
    Command::new(this_program_path()?)
        .arg(word)
        .args(arguments)
        .spawn()
        .map_err(|error| ChoreFailure::io("cannot start this program once more", &error))
}

/// Runs a program that answers with JSON on its stdout, and returns the answer; what it says on stderr goes beside the file.
pub(crate) fn run_for_json(task: ProgramRun) -> Result<Value, ChoreFailure> {
    let answer = task.output.clone();
    run(task.errors(answer.with_extension("log")))?;
    let text = fs::read(&answer).map_err(|error| ChoreFailure::io(answer.display(), &error))?;
    serde_json::from_slice(&text)
        .map_err(|error| ChoreFailure::new(format!("{} is not JSON: {error}", answer.display())))
}

/// Runs a program and returns what it printed on stdout. Its stderr is kept where both would have gone.
pub(crate) fn run_for_text(task: ProgramRun) -> Result<String, ChoreFailure> {
    let answer = task.output.with_extension("txt");
    run(task.answer(answer.clone()))?;
    fs::read_to_string(&answer).map_err(|error| ChoreFailure::io(answer.display(), &error))
}

/// Runs a program to its end; anything but exit code 0 within the deadline is a failure.
pub(crate) fn run(task: ProgramRun) -> Result<(), ChoreFailure> {
    start(task)?.finish()
}

fn open_output(task: &ProgramRun) -> Result<(File, File), ChoreFailure> {
    let create = |path: &Path| {
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent)
            .and_then(|()| File::create(path))
            .map_err(|error| ChoreFailure::io(format!("cannot create {}", path.display()), &error))
    };
    let output = create(&task.output)?;
    let errors = match &task.errors {
        Some(path) => create(path)?,
        None => {
            output.try_clone().map_err(|error| ChoreFailure::io("cannot share the output file", &error))?
        }
    };
    Ok((output, errors))
}

impl RunningProgram {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the program see the end of its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end, until the deadline at most, and ends what is left.
    pub(crate) fn finish(self) -> Result<(), ChoreFailure> {
        let outcome = self.wait();
        self.end();
        outcome
    }

    /// Waits for the end, until the deadline at most. What is left stays for the caller to look at and to [`end`].
    ///
    /// [`end`]: RunningProgram::end
    pub(crate) fn wait(&self) -> Result<(), ChoreFailure> {
        let status = self.status()?;
        if status.success() {
            return Ok(());
        }
        let failure = ChoreFailure::new(format!("{} failed: {status}", self.task.name()));
        Err(failure.with_output(self.task.story()))
    }

    /// Waits for the end as [`wait`] does, where any end will do.
    ///
    /// [`wait`]: RunningProgram::wait
    pub(crate) fn status(&self) -> Result<ExitStatus, ChoreFailure> {
        let name = self.task.name();
        let failure = match self.exit.recv_timeout(self.task.deadline) {
            Ok(Ok(status)) => return Ok(status),
            Ok(Err(error)) => ChoreFailure::io(format!("cannot wait for {name}"), &error),
            Err(_) => {
                ChoreFailure::new(format!("{name} was not done after {} s", self.task.deadline.as_secs()))
            }
        };
        Err(failure.with_output(self.task.story()))
    }

    /// Sends SIGTERM to the program alone; how it ends is for [`wait`] to see.
    ///
    /// [`wait`]: RunningProgram::wait
    pub(crate) fn ask_to_end(&self) {
        // Of a program that has ended already the wait tells.
        send("TERM", [self.pid.to_string()], &self.task.folder);
    }

    /// Kills the group and everything with the marker, and waits until it is gone.
    pub(crate) fn end(&self) {
        let marked = self.task.marker.processes();
        let group = format!("-{}", self.pid);
        let targets = marked.iter().map(|process| process.pid.to_string()).chain([group]);
        kill(targets, &self.task.folder);
        clock::wait_until(KILL_LIMIT, || self.task.marker.processes().is_empty());
    }
}

/// Sends SIGKILL to process ids, and to groups as `-ID`. Those that are gone already are no failure.
pub(crate) fn kill(targets: impl IntoIterator<Item = String>, folder: &Path) {
    send("KILL", targets, folder);
}

/// Sends SIGSTOP to a process.
pub(crate) fn pause(pid: u32, folder: &Path) {
    send("STOP", [pid.to_string()], folder);
}

/// Sends a signal, by the shell's own `kill`, since the standard library has none.
fn send(signal: &str, targets: impl IntoIterator<Item = String>, folder: &Path) {
    let script =
        r#"signal="$1"; shift; for target; do kill -s "$signal" -- "$target" 2>/dev/null; done; true"#;
    let task = ProgramRun::new("sh", folder, PathBuf::from("/dev/null"), KILL_LIMIT)
        .arguments(["-c", script, "kill", signal])
        .arguments(targets);
    if let Ok(running) = start(task) {
        // A shell that cannot kill says so by what is left, which the caller looks for.
        let _ = running.exit.recv_timeout(KILL_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, name: &str, deadline: Duration) -> (ProgramRun, PathBuf) {
        let folder = env::temp_dir();
        let output = folder.join(format!("unhang-xtask-{}-{name}", std::process::id()));
        (ProgramRun::new("sh", &folder, output.clone(), deadline).arguments(["-c", script]), output)
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let (task, output) = shell("echo out; echo err >&2; exit 3", "exit", Duration::from_secs(30));
        let failure = run(task).expect_err("exit code 3 is a failure");
        assert!(failure.to_string().contains("exit status: 3"), "{failure}");
        assert_eq!(fs::read_to_string(&output).expect("the output was kept"), "out\nerr\n");
        fs::remove_file(output).expect("the file is ours");
    }

    #[test]
    fn a_program_that_yields_has_the_lowest_priority_and_leaves_nothing() {
        let (task, output) = shell("nice; sleep 600 & exit 0", "yields", Duration::from_secs(30));
        let marker = task.marker.clone();
        let running = std::thread::spawn(|| {
            yield_processors();
            run(task)
        });
        running.join().expect("no panic").expect("the program itself ends at once");
        assert!(marker.processes().is_empty(), "{:?}", marker.processes());
        assert_eq!(fs::read_to_string(&output).expect("the output was kept"), "19\n");
        fs::remove_file(output).expect("the file is ours");
    }

    #[test]
    fn after_the_deadline_nothing_is_left_even_in_another_session() {
        let (task, output) = shell("setsid sleep 600 & sleep 600", "deadline", Duration::from_secs(1));
        let marker = task.marker.clone();
        let failure = run(task).expect_err("it sleeps for longer than its deadline");
        assert!(failure.to_string().contains("was not done"), "{failure}");
        assert!(marker.processes().is_empty(), "{:?}", marker.processes());
        fs::remove_file(output).expect("the file is ours");
    }

    #[test]
    fn a_background_process_does_not_outlive_a_program_that_ended_well() {
        let (task, output) = shell("sleep 600 & exit 0", "background", Duration::from_secs(30));
        let marker = task.marker.clone();
        run(task).expect("the program itself ends at once");
        assert!(marker.processes().is_empty(), "{:?}", marker.processes());
        fs::remove_file(output).expect("the file is ours");
    }
}
