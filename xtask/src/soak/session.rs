//! One client session, done as its plan says and judged to its end.
//!
//! # Invariants
//!
//! - A session is over when its guard has exited with a documented code and no process of it is left.
//! - What goes wrong is told with what was said last; nothing of the session survives that either.

use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::clock;
use crate::leftovers::Marker;
use crate::run::{self, ProgramRun};

use super::client::{SoakClient, SoakTimeouts};
use super::faulty_servers::{self, CommandWords};
use super::ledger::WireTally;
use super::plan::{BATCH_REVISION, GarbageLine, SessionEnding, SessionPlan, SessionStep};

const PATIENCE: SoakTimeouts = SoakTimeouts {
    start: Duration::from_secs(3),
    request: Duration::from_secs(2),
    call: Duration::from_millis(1500),
};
/// Limits that make a session short and its limits worth meeting.
const FLAGS: &[&str] = &[
    "--eof-grace",
    "1s",
    "--stop-grace",
    "200ms",
    "--restart-delay",
    "20ms",
    "--breaker-cooldown",
    "1s",
    "--health-interval",
    "400ms",
    "--max-message",
    "1MiB",
    "--queue-bytes",
    "4MiB",
    "--max-in-flight",
    "150",
];
/// More than [`FLAGS`] allow in one message.
const OVERSIZED: usize = (1 << 20) + 1000;
/// How long the last process of a session may take to disappear.
const CLEARING: Duration = Duration::from_secs(10);
/// What a whole session may take, far beyond the sum of its limits.
const DEADLINE: Duration = Duration::from_mins(3);

/// Where sessions take place.
#[derive(Debug, Clone)]
pub(crate) struct SoakStage {
    pub(crate) unhang: String,
    /// The program with the faulty servers.
    pub(crate) lab: String,
    /// For files of the sessions, the logs of the guards and reports.
    pub(crate) folder: PathBuf,
}

impl SoakStage {
    /// A guard in front of a faulty server.
    pub(crate) fn wrap(
        &self,
        folder: &Path,
        marker: &Marker,
        flags: &[String],
        faulty_server: &[String],
    ) -> ProgramRun {
        ProgramRun::new(&self.unhang, folder, PathBuf::from("/dev/null"), DEADLINE)
            .arguments(["wrap"])
            .arguments(flags)
            .arguments(["--"])
            .arguments(faulty_server)
            .variable("UNHANG_HOME", self.home())
            .marked(marker)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// Makes a folder for one session or lane.
    pub(crate) fn room(&self, name: &str) -> Result<PathBuf, String> {
        let room = self.folder.join(name);
        fs::create_dir_all(&room).map_err(|error| format!("{}: {error}", room.display()))?;
        Ok(room)
    }
}

/// What went wrong, and what was said before.
#[derive(Debug)]
pub(crate) struct SessionFailure {
    pub(crate) what: String,
    pub(crate) story: String,
}

impl SessionFailure {
    /// Writes all of it down, with the plan that led there; returns a few words on where.
    pub(crate) fn keep(&self, stage: &SoakStage, name: &str, plan: &impl fmt::Debug) -> String {
        let file = stage.folder.join(format!("broken-{name}.txt"));
        match fs::write(&file, format!("{}\n\n{plan:#?}\n\n{}", self.what, self.story)) {
            Ok(()) => format!("more in {}", file.display()),
            Err(error) => format!("{} could not be written: {error}", file.display()),
        }
    }

    /// A thread of the soak itself did not get through.
    pub(crate) fn panicked() -> Self {
        Self { what: "a thread of the soak panicked".to_owned(), story: String::new() }
    }
}

/// Does what the plan says; returns what went over the wire.
pub(crate) fn perform(plan: &SessionPlan, stage: &SoakStage) -> Result<WireTally, SessionFailure> {
    let plainly = |what| SessionFailure { what, story: String::new() };
    let room = stage.room(&format!("session-{}", plan.number)).map_err(plainly)?;
    let marker = Marker::unique();
    let command_words = CommandWords { marker: marker.value(), folder: &room, lab: &stage.lab };
    let mut flags = PATIENCE.flags();
    flags.extend(FLAGS.iter().map(|flag| (*flag).to_owned()));
    flags.extend(plan.quiet.then(|| "--quiet".to_owned()));
    flags.extend(["--name".to_owned(), plan.faulty_server.to_owned()]);
    let task =
        stage.wrap(&room, &marker, &flags, &faulty_servers::command(plan.faulty_server, command_words));
    let mut client = SoakClient::start(&task, plan.reads_stderr, plan.revision, PATIENCE).map_err(plainly)?;
    client.answers_asks = plan.answers_asks;
    let outcome = play(plan, &mut client).and_then(|()| demand_nothing_left(&marker));
    if let Err(what) = outcome {
        let story = format!("{}\n\nprocesses of the session:\n{}", client.guard.story(), listed(&marker));
        end_all(&marker);
        return Err(SessionFailure { what, story });
    }
    fs::remove_dir_all(&room).map_err(|error| plainly(format!("{}: {error}", room.display())))?;
    Ok(client.ledger.into_tally())
}

/// Demands that no process with this marker is left.
pub(crate) fn demand_nothing_left(marker: &Marker) -> Result<(), String> {
    if clock::wait_until(CLEARING, || marker.processes().is_empty()) {
        return Ok(());
    }
    Err(format!("left behind {} s after the guard's exit:\n{}", CLEARING.as_secs(), listed(marker)))
}

fn listed(marker: &Marker) -> String {
    marker.processes().iter().map(|process| format!("  {} {}\n", process.pid, process.command)).collect()
}

/// Ends whatever is left of a session that went wrong.
pub(crate) fn end_all(marker: &Marker) {
    run::kill(marker.processes().iter().map(|process| process.pid.to_string()), Path::new("/"));
}

fn play(plan: &SessionPlan, client: &mut SoakClient) -> Result<(), String> {
    let end = clock::now() + DEADLINE;
    client.shake_hands();
    if plan.waits_for_start && !plan.is_modern() {
        client.until("the handshake", DEADLINE, SoakClient::is_greeted)?;
    }
    client.say_initialized();
    for step in &plan.steps {
        if client.has_gone() {
            break;
        }
        if clock::now() > end {
            return Err(format!("the session was not done after {} s", DEADLINE.as_secs()));
        }
        take(step, plan, client)?;
        client.turn(Duration::ZERO)?;
    }
    finish(plan, client)
}

fn take(step: &SessionStep, plan: &SessionPlan, client: &mut SoakClient) -> Result<(), String> {
    match step {
        SessionStep::Call { tool, size, progress } => {
            client.call(tool, &arguments(tool, *size), *progress, None);
        }
        SessionStep::Burst(count) => {
            for number in 0..*count {
                client.call("echo", &json!({"text": format!("burst {number}")}), false, None);
            }
        }
        SessionStep::Request(method) => {
            client.request(method, params(method));
        }
        SessionStep::Listen if plan.is_modern() => {
            client.request("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        }
        SessionStep::Listen => {}
        SessionStep::Cancel => cancel(client),
        SessionStep::Again => again(client),
        SessionStep::Garbage(garbage) => litter(*garbage, client),
        SessionStep::Batch(count) => batch(*count, plan, client),
        SessionStep::TwoPieces(pause) => {
            let id = client.fresh_id();
            let line = client.compose(
                &id,
                "tools/call",
                json!({"name": "echo", "arguments": {"text": "two"}}),
                None,
            );
            client.send_in_two(&line, *pause)?;
        }
        SessionStep::Pause(length) => client.pause(*length)?,
        SessionStep::Deaf(length) => client.be_deaf(*length)?,
        SessionStep::Settle => client.settle()?,
        SessionStep::StopServer => signal(plan, client, false, Signal::STOP),
        SessionStep::ContinueServer => signal(plan, client, false, Signal::CONT),
        SessionStep::KillServer => signal(plan, client, false, Signal::KILL),
        SessionStep::KillLifeline => signal(plan, client, true, Signal::KILL),
    }
    Ok(())
}

fn signal(plan: &SessionPlan, client: &mut SoakClient, lifeline: bool, signal: Signal) {
    // Between two processes there is nobody to signal.
    let _whether_there_was_one = client.guard.signal_below(plan.faulty_server, lifeline, signal);
}

fn cancel(client: &mut SoakClient) {
    let ledger = &client.ledger;
    client.open.retain(|id| ledger.waits(id));
    if let Some(id) = client.open.last().cloned() {
        client.cancel(&id);
    }
}

fn again(client: &mut SoakClient) {
    if let Some(id) = client.ledger.free_id() {
        let line = client.compose(&id, "tools/list", json!({}), None);
        client.send_line(&line);
    }
}

fn litter(garbage: GarbageLine, client: &mut SoakClient) {
    let id = client.fresh_id();
    match garbage {
        GarbageLine::Nameless(line) => {
            client.ledger.garbage();
            client.send_bytes(&[line, b"\n"].concat());
        }
        GarbageLine::Silent(line) => client.send_bytes(&[line, b"\n"].concat()),
        GarbageLine::NoMethod => {
            client.expect(&id, "a number", None);
            client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":7}}"#));
        }
        GarbageLine::NoVersion => {
            client.expect(&id, "ping", None);
            client.send_line(&format!(r#"{{"id":{id},"method":"ping"}}"#));
        }
        GarbageLine::TwoOnALine => {
            let second_id = client.fresh_id();
            let first = client.compose(&id, "ping", json!({}), None);
            let second = client.compose(&second_id, "tools/list", json!({}), None);
            client.send_line(&(first + &second));
        }
        GarbageLine::TextBefore => {
            client.ledger.garbage();
            let line = client.compose(&id, "ping", json!({}), None);
            client.send_line(&format!("hello {line}"));
        }
        GarbageLine::Oversized => {
            let line = client.compose(&id, "ping", json!({"text": "x".repeat(OVERSIZED)}), None);
            client.send_line(&line);
        }
    }
}

/// One array of calls and a notification; only one revision has that, and what it is depends on what was settled.
fn batch(count: usize, plan: &SessionPlan, client: &mut SoakClient) {
    if plan.revision == BATCH_REVISION && !client.is_greeted() {
        return;
    }
    let mut elements = vec![r#"{"jsonrpc":"2.0","method":"notifications/no-such-thing"}"#.to_owned()];
    if client.negotiated.as_deref() == Some(BATCH_REVISION) {
        for _ in 0..count {
            let id = client.fresh_id();
            elements.push(client.compose(&id, "tools/list", json!({}), None));
        }
    } else {
        client.ledger.garbage();
    }
    client.send_line(&format!("[{}]", elements.join(",")));
}

/// Ends the session as planned, or looks at how it ended by itself.
fn finish(plan: &SessionPlan, client: &mut SoakClient) -> Result<(), String> {
    let by_itself = client.has_gone();
    if !by_itself {
        match plan.ending {
            SessionEnding::EndOfInput => {
                client.flush()?;
                client.guard.close_input();
            }
            SessionEnding::EndInMidLine => {
                client.ledger.garbage();
                // What the server asks from now on stays unanswered.
                client.answers_asks = false;
                client.send_bytes(br#"{"jsonrpc":"2.0","method":"ping","params":{"half":"#);
                client.flush()?;
                client.guard.close_input();
            }
            SessionEnding::Interrupt | SessionEnding::Terminate => {
                client.flush()?;
                let interrupts = plan.ending == SessionEnding::Interrupt;
                client.guard.signal(if interrupts { Signal::INT } else { Signal::TERM });
            }
            SessionEnding::KillGuard => client.guard.signal(Signal::KILL),
            SessionEnding::Vanish => client.guard.vanish(),
        }
    }
    let status = client.await_exit()?;
    let heard_server = client.ledger.heard_server();
    let expected =
        if by_itself { expected_by_itself(heard_server) } else { expected(plan.ending, heard_server) };
    if !expected.contains(&code(status)) {
        let when = if by_itself { "by itself".to_owned() } else { format!("at {:?}", plan.ending) };
        return Err(format!("the guard exited {when} with {status}; {expected:?} is documented"));
    }
    let was_cut = matches!(plan.ending, SessionEnding::KillGuard | SessionEnding::Vanish) && !by_itself;
    if !was_cut && !client.guard.partial().is_empty() {
        return Err("half a line at the end of the guard's stdout".to_owned());
    }
    if was_cut {
        return Ok(());
    }
    // A server that never came up ends the session, and what is written then finds no reader.
    if code(status) == 3 {
        let is_greeted = plan.is_modern() || client.is_greeted();
        return if is_greeted { Ok(()) } else { Err("the first request was never answered".to_owned()) };
    }
    client.ledger.demand_complete()
}

/// The exit code, or the signal as a shell shows it.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// The documented codes of a guard that nobody ended: only a server that never came up is a reason to leave.
fn expected_by_itself(heard_server: bool) -> &'static [i32] {
    if heard_server { &[] } else { &[3] }
}

/// The documented codes: 3 and 4 need a server that never answered anything.
fn expected(ending: SessionEnding, heard_server: bool) -> &'static [i32] {
    match (ending, heard_server) {
        (SessionEnding::EndOfInput | SessionEnding::EndInMidLine | SessionEnding::Vanish, true) => &[0],
        (SessionEnding::EndOfInput | SessionEnding::EndInMidLine | SessionEnding::Vanish, false) => {
            &[0, 3, 4]
        }
        (SessionEnding::Interrupt, true) => &[130],
        (SessionEnding::Interrupt, false) => &[130, 3],
        (SessionEnding::Terminate, true) => &[143],
        (SessionEnding::Terminate, false) => &[143, 3],
        (SessionEnding::KillGuard, true) => &[137],
        (SessionEnding::KillGuard, false) => &[137, 3],
    }
}

fn arguments(tool: &str, size: usize) -> Value {
    match tool {
        "big" => json!({"bytes": size}),
        "sleep" => json!({"ms": size % 4000}),
        "log" => json!({"count": size % 300}),
        "die" => json!({"code": size % 100}),
        "ask" => json!({"method": "roots/list"}),
        _ => json!({"text": "x".repeat(size)}),
    }
}

fn params(method: &str) -> Value {
    match method {
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            json!({"uri": "zoo://numbers/3"})
        }
        "prompts/get" => json!({"name": "farewell"}),
        "logging/setLevel" => json!({"level": "debug"}),
        _ => json!({}),
    }
}
