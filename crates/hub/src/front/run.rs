//! The shell around the front's machine: descriptors, the clock, and a task for each call.
//!
//! Theory of operation. One task, one `select!`. Reads feed the machine, the machine writes through [`World`], which hands
//! to the kernel what it takes now and queues the rest. Each call runs as a task beside, which ends with an answer, a panic,
//! or soon after it was cancelled; whichever it is, the machine is told.
//!
//! Invariants: no branch awaits a write or a call; after [`Action::Exit`] nothing is read any more, tasks that have not ended
//! are dropped, and what waits for the client is delivered for as long as it reads, within [`EXIT_LIMIT`].

use std::{collections::HashMap, future::pending, io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use serde_json::{Map, Value, value::RawValue};
use tokio::{
    sync::{mpsc, watch},
    task::{Id as TaskId, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

use super::machine::{Action, CallKey, Machine, Outside};
use crate::{
    config::{EXIT_LIMIT, FLUSH_LIMIT, LARGE_BUFFER_KEPT, Limits},
    exit,
    gateway::{Answered, Asked, Known, Servers},
    guard::Stop,
    queue::Class,
    shell::{FromClient, Taken, ToClient, set},
    tools::{Definition, ToolAnswer},
};

/// Reports of progress that may be on their way to the machine; it takes them at once.
const PROGRESS: usize = 1024;

/// Tells a call that nobody waits for it any more.
#[derive(Clone, Debug)]
pub struct Cancellation(watch::Receiver<bool>);

impl Cancellation {
    /// A cancellation and what sets it off; dropping that sets it off too.
    pub fn new() -> (watch::Sender<bool>, Cancellation) {
        let (sender, receiver) = watch::channel(false);
        (sender, Cancellation(receiver))
    }

    /// Waits until nobody waits any more. Cancel-safe.
    pub async fn cancelled(&mut self) {
        let _nobody_is_left = self.0.wait_for(|cancelled| *cancelled).await;
    }
}

/// A tool and what it is called with.
#[derive(Debug)]
pub struct ToolCall {
    /// One of the names that the toolbox gave.
    pub tool: String,
    /// The arguments, not yet checked.
    pub arguments: Map<String, Value>,
    /// How long they were, as JSON.
    pub length: usize,
    /// When to stop.
    pub cancellation: Cancellation,
}

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = ToolAnswer> + Send>>;

/// What is done at the end of a session.
pub type AtEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tools behind a front.
pub trait Toolbox: Send + Sync + 'static {
    /// All tools, in the order in which they are listed; asked for once.
    fn definitions(&self) -> Vec<Definition>;

    /// Calls one of them. Whatever goes wrong is an answer; once it is cancelled it has to end soon.
    fn call(&self, call: ToolCall) -> Answering;
}

/// What a front needs.
pub struct FrontSpec {
    /// The limits of its session.
    pub limits: Limits,
    /// What it offers.
    pub toolbox: Arc<dyn Toolbox>,
    /// Servers behind it, where there are any.
    pub servers: Option<Servers>,
    /// What the client is told about the whole, to give to its model.
    pub instructions: Option<String>,
    /// What else has to end with the session: it does while the client takes its last answers.
    pub at_end: Option<AtEnd>,
    /// Where the client writes to us; shared with the client, so it is never made non-blocking in place.
    pub client_input: OwnedFd,
    /// Where the client reads from us.
    pub client_output: OwnedFd,
}

/// Serves one client until it or a [`Stop`] ends the session. Returns the exit code (design 4). A second `Stop` ends it at
/// once.
///
/// # Errors
/// Only when the client's descriptors cannot be used at all.
pub async fn run(mut spec: FrontSpec, mut stops: mpsc::Receiver<Stop>) -> io::Result<u8> {
    let at_end = spec.at_end.take();
    let mut shell = Shell::new(spec)?;
    let mut timer = Box::pin(sleep_until(Instant::now()));
    let code = loop {
        if let Some(code) = shell.act() {
            break code;
        }
        set(&mut timer, shell.next_tick());
        let reads_client = !shell.from_client.ended && shell.machine.reads_client(&shell.world);
        tokio::select! {
            stop = stops.recv() => {
                if let Some(code) = shell.stop(stop.unwrap_or(Stop::Terminate)) {
                    return Ok(code);
                }
            }
            ready = shell.from_client.readable(), if reads_client => shell.read_client(ready),
            Some(ended) = shell.calls.join_next_with_id() => shell.call_ended(ended),
            Some((key, params)) = shell.told.recv() => shell.progressed(key, &params),
            () = changed(&mut shell.known) => shell.servers_changed(),
            () = shell.world.to_client.writable(), if shell.world.to_client.is_waiting() => {}
            () = shell.world.to_client.closed(), if !shell.ending => shell.client_gone(),
            () = &mut timer => shell.tick(),
        }
        shell.world.to_client.flush();
        if shell.world.to_client.peer_gone() && !shell.ending {
            shell.client_gone();
        }
    };
    let at_end = async {
        if let Some(at_end) = at_end {
            at_end.await;
        }
    };
    tokio::select! {
        _ended = async { tokio::join!(shell.finish(), at_end) } => {}
        // Nobody wants to wait for the last answers any more; the outcome stays.
        Some(_) = stops.recv() => {}
    }
    Ok(code)
}

/// Waits until something else is known of the servers; for ever where there are none. Cancel-safe.
async fn changed(known: &mut Option<watch::Receiver<Known>>) {
    let told = match known {
        Some(known) => known.changed().await.is_ok(),
        None => false,
    };
    if !told {
        pending::<()>().await;
    }
}

/// What comes of a task.
enum Ended {
    Tool(ToolAnswer),
    Server(Box<Answered>),
    /// Nobody waits for it any more.
    Nothing,
}

/// The machine's outside world.
struct World {
    to_client: ToClient,
}

impl Outside for World {
    fn to_client(&mut self, class: Class, line: &[u8]) {
        self.to_client.send(class, line, None);
    }

    fn client_backlog(&self) -> usize {
        self.to_client.backlog()
    }
}

struct Shell {
    machine: Machine,
    world: World,
    origin: Instant,
    from_client: FromClient,
    toolbox: Arc<dyn Toolbox>,
    servers: Option<Servers>,
    known: Option<watch::Receiver<Known>>,
    /// Progress of requests to servers, on its way from their tasks to the machine.
    tell: mpsc::Sender<(CallKey, Box<RawValue>)>,
    told: mpsc::Receiver<(CallKey, Box<RawValue>)>,
    calls: JoinSet<Ended>,
    keys: HashMap<TaskId, CallKey>,
    cancels: HashMap<CallKey, watch::Sender<bool>>,
    /// When memory that long lines needed is looked at.
    release_at: Option<Instant>,
    ending: bool,
    /// By when the process has to be gone, once something has ended the session.
    ends_by: Option<Deadline>,
}

impl Shell {
    fn new(spec: FrontSpec) -> io::Result<Shell> {
        let limits = spec.limits;
        let known = spec.servers.as_ref().map(Servers::known);
        let (tell, told) = mpsc::channel(PROGRESS);
        let to_client = ToClient::new(spec.client_output, limits.queue_bytes)?;
        let from_client = FromClient::new(spec.client_input, limits.max_message)?;
        let machine = Machine::new(limits, spec.toolbox.definitions(), spec.instructions);
        Ok(Shell {
            world: World { to_client },
            from_client,
            machine: match &known {
                Some(known) => machine.with_servers(known.borrow().clone()),
                None => machine,
            },
            origin: Instant::now(),
            toolbox: spec.toolbox,
            servers: spec.servers,
            known,
            tell,
            told,
            calls: JoinSet::new(),
            keys: HashMap::new(),
            cancels: HashMap::new(),
            release_at: None,
            ending: false,
            ends_by: None,
        })
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Carries out what the machine wants; returns the exit code at the end.
    fn act(&mut self) -> Option<u8> {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Call { key, tool, arguments, length } => {
                    let (cancel, cancellation) = Cancellation::new();
                    self.cancels.insert(key, cancel);
                    self.call(key, ToolCall { tool, arguments, length, cancellation });
                }
                Action::Ask { key, asked } => {
                    let (cancel, cancellation) = Cancellation::new();
                    self.cancels.insert(key, cancel);
                    self.ask(key, asked, cancellation);
                }
                Action::Cancel(key) => {
                    if let Some(cancel) = self.cancels.get(&key) {
                        cancel.send_replace(true);
                    }
                }
                Action::Exit(code) => return Some(code),
            }
        }
        None
    }

    fn call(&mut self, key: CallKey, call: ToolCall) {
        let toolbox = Arc::clone(&self.toolbox);
        // In the task already when the toolbox is asked, so that a panic of its is the task's.
        let task = self.calls.spawn(async move { Ended::Tool(toolbox.call(call).await) });
        self.keys.insert(task.id(), key);
    }

    fn ask(&mut self, key: CallKey, asked: Asked, mut cancellation: Cancellation) {
        let Some(servers) = self.servers.clone() else { return };
        let tell = self.tell.clone();
        let task = self.calls.spawn(async move {
            let (progress, mut seen) = watch::channel(None);
            let progress = asked.wants_progress.then_some(progress);
            let mut answering = servers.ask(asked, progress);
            loop {
                tokio::select! {
                    biased;
                    () = cancellation.cancelled() => return Ended::Nothing,
                    Ok(()) = seen.changed() => {
                        let newest: Option<Box<RawValue>> = seen.borrow_and_update().clone();
                        // Where it does not fit there is newer progress soon, or the end.
                        let _lossy = newest.map(|params| tell.try_send((key, params)));
                    }
                    answered = &mut answering => return Ended::Server(Box::new(answered)),
                }
            }
        });
        self.keys.insert(task.id(), key);
    }

    fn progressed(&mut self, key: CallKey, params: &RawValue) {
        self.machine.progressed(self.now(), key, params, &mut self.world);
    }

    fn servers_changed(&mut self) {
        let known = self.known.as_mut().map(|known| known.borrow_and_update().clone());
        if let Some(known) = known {
            self.machine.servers_changed(self.now(), &known, &mut self.world);
        }
    }

    fn call_ended(&mut self, ended: Result<(TaskId, Ended), JoinError>) {
        let panicked = ended.is_err();
        let (task, ended) = ended.unwrap_or_else(|error| {
            let text = "this tool failed by a bug in unhang, which goes on; its stderr and log say where";
            (error.id(), Ended::Tool(ToolAnswer::error(text)))
        });
        let Some(key) = self.keys.remove(&task).filter(|_| !panicked || stands("panic-is-answered")) else {
            return;
        };
        self.cancels.remove(&key);
        let now = self.now();
        match ended {
            Ended::Tool(answer) => self.machine.ended(now, key, &answer, &mut self.world),
            Ended::Server(answered) => {
                // What was told before the answer comes before it.
                while let Ok((key, params)) = self.told.try_recv() {
                    self.progressed(key, &params);
                }
                self.machine.answered(now, key, &answered, &mut self.world);
            }
            Ended::Nothing => self.machine.forgotten(now, key, &mut self.world),
        }
    }

    fn stop(&mut self, stop: Stop) -> Option<u8> {
        if self.ending {
            return Some(stop.exit_code());
        }
        self.begin_end();
        self.ending = true;
        self.machine.stop(self.now(), stop.exit_code(), stop.cause(), &mut self.world);
        None
    }

    fn client_gone(&mut self) {
        self.begin_end();
        self.ending = true;
        self.machine.stop(self.now(), exit::DONE, "the client reads no more", &mut self.world);
    }

    /// From now on the end has a deadline; the diagnostics after us need a moment of it.
    fn begin_end(&mut self) {
        self.ends_by.get_or_insert_with(|| Deadline::after(EXIT_LIMIT - FLUSH_LIMIT));
    }

    fn read_client(&mut self, ready: io::Result<()>) {
        let taken = self.from_client.read(ready);
        if taken == Taken::Nothing {
            return;
        }
        let now = self.now();
        while let Some(line) = self.from_client.lines.next_line() {
            self.machine.client_line(now, line, &mut self.world);
        }
        if taken == Taken::End {
            self.begin_end();
            while let Some(line) = self.from_client.lines.finish() {
                self.machine.client_line(now, line, &mut self.world);
            }
            self.machine.client_end(now, &mut self.world);
        }
    }

    fn next_tick(&mut self) -> Option<Instant> {
        if self.from_client.lines.is_large() {
            self.release_at.get_or_insert_with(|| Instant::now() + LARGE_BUFFER_KEPT);
        }
        let machine = self.machine.next_tick().map(|tick| self.origin + tick);
        machine.into_iter().chain(self.release_at).min()
    }

    fn tick(&mut self) {
        self.machine.tick(self.now(), &mut self.world);
        if self.release_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.from_client.lines.release();
        }
    }

    /// Delivers what waits for the client.
    async fn finish(mut self) {
        self.begin_end();
        let counters = self.machine.counters();
        self.world.to_client.deliver(self.ends_by).await;
        tracing::info!(?counters, "done");
    }
}
