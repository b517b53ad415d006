//! The processes of [`unhang_demo_servers::child_processes`], and those that only the zoo has: that breed, print and end their parent.
//!
//! # Invariants
//!
//! - Every child that stays carries `--marker TEXT` in its command line and ends by itself after [`crate::BOUND`].

use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, getppid, kill_process};
use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, pipe};

pub(crate) use unhang_demo_servers::child_processes::*;

/// How long a line goes on; a sweep is bounded by as much (processes.md 1.4).
const LINE_MILLISECONDS: u64 = 2000;
/// How many processes a line has at most.
const MOST_PROCESSES: &str = "1000";

/// Leaves three generations behind, each in a session of its own.
pub(crate) fn leave_nested(marker: &str) -> io::Result<()> {
    let child = ["lingers", "--marker", marker, "--sessions", "2"];
    // Not waited for: that it stays is the vice.
    Offspring { own_session: true, ..Offspring::new(&child) }.start().map(drop)
}

/// Starts one line of processes that live 2 ms each; its last one stays, so that a test can tell that it got away.
pub(crate) fn leave_line(marker: &str) -> io::Result<()> {
    let until = (epoch_milliseconds() + LINE_MILLISECONDS).to_string();
    let first = ["hops", "--marker", marker, "--left", MOST_PROCESSES, "--until", &until];
    Offspring { own_session: true, holds: Holds::Nothing, ..Offspring::new(&first) }.start().map(drop)
}

/// `hops --marker TEXT --left N --until EPOCH_MS`: starts its successor in a new session after 2 ms and is gone.
///
/// The last of the line lingers, so that a test that looks late still finds what was missed.
pub(crate) fn hop(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (marker, until) = (arguments.required("marker")?, arguments.number_option("until", 0)?);
    let left = arguments.number_option("left", 0)?.saturating_sub(1).to_string();
    bounded_waits::pause(Duration::from_millis(2));
    let until_text = until.to_string();
    let next: &[&str] = if left == "0" || epoch_milliseconds() >= until {
        &["lingers", "--marker", marker]
    } else {
        &["hops", "--marker", marker, "--left", &left, "--until", &until_text]
    };
    drop(Offspring { holds: Holds::Nothing, own_session: true, ..Offspring::new(next) }.start()?);
    Ok(ExitCode::SUCCESS)
}

/// `prints --marker TEXT --id ID`: prints answers to a request and questions of its own on the stdout that it inherited.
pub(crate) fn print_on(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let id = json!(arguments.number_option("id", 0)?);
    let end = bounded_waits::now() + bounded_waits::BOUND;
    while bounded_waits::now() < end {
        pipe::send(&pipe::result(&id, pipe::text("from beyond")))?;
        pipe::send(&json!({"jsonrpc": "2.0", "id": "from-beyond", "method": "ping"}))?;
        bounded_waits::pause(Duration::from_millis(20));
    }
    Ok(ExitCode::SUCCESS)
}

/// `chatters --marker TEXT`: prints lines on both outputs that it inherited.
pub(crate) fn chatter(_: &ProgramArguments) -> io::Result<ExitCode> {
    let end = bounded_waits::now() + bounded_waits::BOUND;
    while bounded_waits::now() < end {
        pipe::send_line("a child that goes on")?;
        pipe::complain("and on")?;
        bounded_waits::pause(Duration::from_millis(5));
    }
    Ok(ExitCode::SUCCESS)
}

/// `ends-parent`: kills its stopped parent after the bound that the parent cannot keep itself.
pub(crate) fn end_parent(_: &ProgramArguments) -> io::Result<ExitCode> {
    let code = bounded_waits::linger();
    // The kernel ties this process to its parent, so the parent still is who it was.
    getppid().map_or(Ok(()), |parent| kill_process(parent, Signal::KILL))?;
    Ok(code)
}

/// Returns the wall clock in milliseconds, to be handed from process to process.
pub(crate) fn epoch_milliseconds() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
