//! Processes that faulty programs start, and what those processes do: linger, detach, steal.
//!
//! # Invariants
//!
//! - A child is this very program again (`zoo HELPER ...`), so a faulty program needs nothing else on the machine.
//! - Every child that stays carries `--marker TEXT` in its command line and ends by itself after [`crate::BOUND`].

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, getpid, getppid, setsid};

use crate::arguments::ProgramArguments;
use crate::{bounded_waits, pipe};

/// Which of its parent's pipes a child keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// None: all three are the null device, as a tidy daemon has them.
    Nothing,
    /// stdout and stderr, so that their readers see no end while the child lives.
    Outputs,
    /// All three, stdin included (G-07).
    Everything,
}

/// A child to be started.
#[derive(Clone, Copy)]
pub struct Offspring<'a> {
    /// The words after `zoo`: a helper or a program, and its arguments.
    pub arguments: &'a [&'a str],
    /// Which of its parent's pipes it keeps.
    pub holds: Holds,
    /// Whether it begins a session of its own.
    pub own_session: bool,
    /// Whether it starts without any variable.
    pub empty_environment: bool,
    /// Whether the kernel kills it when its parent ends.
    pub dies_with_parent: bool,
}

impl<'a> Offspring<'a> {
    /// Describes a child in its parent's session that holds stdout and stderr.
    pub fn new(arguments: &'a [&'a str]) -> Self {
        Self {
            arguments,
            holds: Holds::Outputs,
            own_session: false,
            empty_environment: false,
            dies_with_parent: false,
        }
    }

    /// Starts the child and returns once it runs.
    pub fn start(self) -> io::Result<Child> {
        let output = if self.holds == Holds::Nothing { Stdio::null } else { Stdio::inherit };
        let mut command = new_command("/proc/self/exe");
        command.arg0("unhang").arg("zoo").args(self.arguments).stdout(output()).stderr(output());
        command.stdin(if self.holds == Holds::Everything { Stdio::inherit() } else { Stdio::null() });
        if self.empty_environment {
            command.env_clear();
        }
        if self.dies_with_parent {
            before_exec(&mut command, bind_to_parent(getpid()));
        }
        if self.own_session {
            before_exec(&mut command, || setsid().map(drop).map_err(io::Error::from));
        }
        spawn(&mut command)
    }
}

/// Starts another program with piped stdin and stdout that the kernel kills when this one dies.
pub fn start_bound(program: &str, arguments: &[String]) -> io::Result<Child> {
    start_with(program, arguments, ChildStreams::default(), false)
}

/// The same for one of several programs in a row, with stdin from the one before and nobody who hears its stderr.
pub fn start_link(program: &str, arguments: &[String], stdin: Stdio) -> io::Result<Child> {
    start_with(
        program,
        arguments,
        ChildStreams { stdin, stderr: Stdio::null(), ..ChildStreams::default() },
        false,
    )
}

/// The standard streams of a program that the command line names.
pub struct ChildStreams {
    /// The source of its stdin.
    pub stdin: Stdio,
    /// Where it writes its answers.
    pub stdout: Stdio,
    /// Where it writes its errors.
    pub stderr: Stdio,
}

impl Default for ChildStreams {
    fn default() -> Self {
        Self { stdin: Stdio::piped(), stdout: Stdio::piped(), stderr: Stdio::inherit() }
    }
}

/// Starts another program with these streams. Unless it is to live on, the kernel kills it when this one dies.
pub fn start_with(
    program: &str,
    arguments: &[String],
    streams: ChildStreams,
    lives_on: bool,
) -> io::Result<Child> {
    let mut command = prepare(program, arguments, streams);
    if !lives_on {
        before_exec(&mut command, bind_to_parent(getpid()));
    }
    spawn(&mut command)
}

/// The same with a variable in its environment, by which it and what it starts are found; the kernel kills it with this one.
pub fn start_marked(
    program: &str,
    arguments: &[String],
    streams: ChildStreams,
    (variable, marker): (&str, &str),
) -> io::Result<Child> {
    let mut command = prepare(program, arguments, streams);
    before_exec(command.env(variable, marker), bind_to_parent(getpid()));
    spawn(&mut command)
}

/// Whose process group a child is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChildGroup {
    /// That of its parent.
    OfItsParent,
    /// One of its own.
    Own,
}

/// Where a program runs.
pub struct ChildPlace<'a> {
    /// Its current folder.
    pub folder: &'a Path,
    /// Folders that its environment names.
    pub variables: &'a [(&'a str, PathBuf)],
    /// Its process group.
    pub group: ChildGroup,
}

/// Starts another program in a place of its own, with piped stdin and stdout. It lives on when this one dies.
pub fn start_at(program: &str, arguments: &[String], place: &ChildPlace<'_>) -> io::Result<Child> {
    let mut command = prepare(program, arguments, ChildStreams::default());
    command.current_dir(place.folder).envs(place.variables.iter().map(|(name, path)| (name, path)));
    if place.group == ChildGroup::Own {
        command.process_group(0);
    }
    spawn(&mut command)
}

fn prepare(program: &str, arguments: &[String], streams: ChildStreams) -> Command {
    let mut command = new_command(program);
    command.args(arguments).stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
    command
}

/// Returns what makes the kernel kill a child when the calling thread of `parent` ends. Only Linux does that.
fn bind_to_parent(parent: Pid) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
    move || {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the kernel was asked.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

/// Waits for a child that is known to end soon.
#[expect(
    clippy::disallowed_methods,
    reason = "the zoo is the misbehaving side; its own children are bounded"
)]
pub fn wait(child: &mut Child) -> io::Result<()> {
    child.wait().map(drop)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the zoo shares no code with what it tests, so it spawns by itself"
)]
fn new_command(program: &str) -> Command {
    Command::new(program)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the zoo shares no code with what it tests, so it spawns by itself"
)]
fn spawn(command: &mut Command) -> io::Result<Child> {
    command.spawn()
}

#[expect(
    unsafe_code,
    reason = "only between fork and exec can a child change its session or its death signal"
)]
fn before_exec(command: &mut Command, action: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the callers above pass closures that make plain system calls and neither allocate nor take locks.
    unsafe { command.pre_exec(action) };
}

/// Leaves a daemon behind; `middle` is the one between, which ends at once while its own child stays.
pub fn leave_daemon(middle: &[&str]) -> io::Result<()> {
    wait(&mut Offspring { own_session: true, ..Offspring::new(middle) }.start()?)
}

/// `lingers --marker TEXT [--sessions N]`: stays for a while, with N more generations below it, each in its own session.
pub fn linger(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let sessions = arguments.number_option("sessions", 0)?;
    let deeper = sessions.saturating_sub(1).to_string();
    if sessions > 0 {
        let next = ["lingers", "--marker", arguments.required("marker")?, "--sessions", &deeper];
        let offspring = Offspring { own_session: true, ..Offspring::new(&next) };
        // Not waited for: that both of them stay is the point.
        drop(offspring.start()?);
    }
    Ok(bounded_waits::linger())
}

/// `hosts -- PROGRAM [ARGS...]`: stands for a client that lives on when its server has died; the faulty program has its streams.
pub fn host(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (faulty_server, rest) = arguments.command()?;
    let words: Vec<_> = std::iter::once(faulty_server).chain(rest.iter().map(String::as_str)).collect();
    wait(&mut Offspring { holds: Holds::Everything, ..Offspring::new(&words) }.start()?)?;
    Ok(bounded_waits::linger())
}

/// `detaches --marker TEXT [--environment empty]`: the middle of a double fork, started in its own session.
pub fn detach(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let daemon = ["lingers", "--marker", arguments.required("marker")?];
    let empty_environment = arguments.option("environment")? == Some("empty");
    let offspring = Offspring { holds: Holds::Nothing, empty_environment, ..Offspring::new(&daemon) };
    drop(offspring.start()?);
    Ok(ExitCode::SUCCESS)
}

/// `reads-one-line`: reads one line of the stdin that it inherited, byte by byte as a prompt does, and shows it on stderr.
pub fn read_one_line(_: &ProgramArguments) -> io::Result<ExitCode> {
    let (mut byte, mut count) = ([0], 0);
    while rustix::io::read(rustix::stdio::stdin(), &mut byte)? == 1 && byte != *b"\n" {
        count += 1;
    }
    pipe::complain(&format!("the child read {count} bytes that were not for it"))?;
    Ok(ExitCode::SUCCESS)
}
