//! Who keeps the jobs that calls of a guarded session become.
//!
//! ```text
//! machine ─ Action::Promote ─► Keeper::order ─ the data folder, opened by the first ─ PromotedCalls::adopt ─► Event::Adopted
//! machine ─ Outside::to_job ─► Keeper::tell ─► what the job waits for ─► PromotedCalls::keep ─► the job
//! machine ◄── Event::Withdrawn ◄── nobody waits for it any more: it was cancelled, or has ended
//! ```
//!
//! # Invariants
//!
//! - Nothing is opened, and no file touched, before the first call is slow.
//! - Where no job comes of a call it stays one, and the log says why.
//! - What is told of a job never waits for it.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{OnceCell, mpsc, oneshot, watch},
    task::{JoinSet, spawn_blocking},
};
use unhang_bridge::Era;
use unhang_jobs::error::JobError as EngineError;
use unhang_wire::{Body, Id, Json, Message, Outcome, Piece, read, text_member};

use super::{handover::Promote, machine::JobNews};
use crate::{
    client::{Error, ServerError},
    gateway::{Answered, Aside},
    job_report::ToolNames,
    promoted::{ASIDES, Ending, Going, Promotable, Promoted, PromotedCalls, Source, UnderWay, WhoIsAsked},
    tools::{
        EngineService,
        service::{Caller, JobError},
    },
};

/// Opens the data folder that jobs lie in. It may wait for the disk.
pub type OpenJobs = Box<dyn FnOnce() -> EngineService + Send>;

/// The data folder, once somebody needs it.
struct House {
    opened: OnceCell<EngineService>,
    open: Mutex<Option<OpenJobs>>,
    names: ToolNames,
}

impl House {
    async fn service(&self) -> EngineService {
        let open = || async {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            let opened = match open {
                Some(open) => spawn_blocking(open).await.ok(),
                None => None,
            };
            // A panic, which has been told.
            let opened =
                opened.unwrap_or_else(|| EngineService::new(Err(EngineError::Closed), Default::default()));
            opened.called_by(self.names)
        };
        self.opened.get_or_init(open).await.clone()
    }
}

/// What a job hears of its call by.
struct Relay {
    key: u64,
    answer: oneshot::Sender<Answered>,
    progress: watch::Sender<Option<Box<RawValue>>>,
    aside: mpsc::Sender<Aside>,
}

/// What is wanted of the server.
enum Wish {
    Withdraw(u64),
    Ask { params: Arc<str>, relay: Relay },
}

/// A call of which a job was to be made.
pub(super) struct Adopted {
    pub call: Id,
    /// What its client calls the tool.
    pub tool: String,
    promoted: Promoted,
    going: Going,
    calls: PromotedCalls,
}

/// What has happened.
pub(super) enum Event {
    /// There is a job, of which its client is to hear.
    Adopted(Box<Adopted>),
    /// There is none, for this reason.
    Refused(Id, JobError),
    /// Nobody waits for this call any more.
    Withdrawn(Id),
    /// The server is to be asked this, on behalf of a job.
    Asked(Arc<str>, Again),
}

/// What hears of a request that was made once more.
pub(super) struct Again(Relay);

/// See the module's text.
pub(super) struct Keeper {
    house: Arc<House>,
    server: String,
    relays: HashMap<Id, Relay>,
    adopting: JoinSet<Result<Adopted, (Id, JobError)>>,
    line: Line,
    wishes: mpsc::UnboundedReceiver<Wish>,
}

/// The way from jobs to the keeper; each has one wish at a time, so that it needs no bound.
#[derive(Clone)]
struct Line {
    wishes: mpsc::UnboundedSender<Wish>,
    last: Arc<std::sync::atomic::AtomicU64>,
}

impl Line {
    /// A request that is about to be made: what hears of it, and by what.
    fn open(&self) -> (UnderWay, Relay) {
        let key = self.last.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let (progress, seen) = watch::channel(None);
        let (aside, said) = mpsc::channel(ASIDES);
        let withdrawal = Withdrawal { key, wishes: Some(self.wishes.clone()) };
        let answering = Box::pin(async move {
            let mut withdrawal = withdrawal;
            let answered = answered.await;
            withdrawal.wishes = None;
            answered.unwrap_or_else(|_| Answered {
                era: Era::Legacy,
                server_info: None,
                outcome: Err(Error::Disposed),
                asked_for: None,
            })
        });
        (UnderWay { answering, seen, said }, Relay { key, answer, progress, aside })
    }
}

/// Tells that nobody waits any more, unless there was an answer.
struct Withdrawal {
    key: u64,
    wishes: Option<mpsc::UnboundedSender<Wish>>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(wishes) = self.wishes.take() {
            // The session may be over.
            let _over = wishes.send(Wish::Withdraw(self.key));
        }
    }
}

impl Source for Line {
    fn ask(&mut self, params: Arc<str>) -> UnderWay {
        let (way, relay) = self.open();
        // The session may be over; then nobody answers.
        let _over = self.wishes.send(Wish::Ask { params, relay });
        way
    }
}

impl Keeper {
    /// One for this server, whose client calls the tools about jobs by these names.
    pub(super) fn new(server: String, open: OpenJobs, names: ToolNames) -> Keeper {
        let (sender, wishes) = mpsc::unbounded_channel();
        Keeper {
            house: Arc::new(House { opened: OnceCell::new(), open: Mutex::new(Some(open)), names }),
            server,
            relays: HashMap::new(),
            adopting: JoinSet::new(),
            line: Line { wishes: sender, last: Arc::default() },
            wishes,
        }
    }

    /// Makes a job of a call that may take so long in all.
    pub(super) fn order(&mut self, order: Promote, limit: Duration) {
        let Promote { call, params, elapsed } = order;
        let Ok(params) = String::from_utf8(params.into_vec()) else { return };
        let (way, relay) = self.line.open();
        self.relays.insert(call.clone(), relay);
        let json = Json::new(params.as_bytes());
        let tool = json.and_then(|params| text_member(params, "name")).unwrap_or_default();
        let arguments = json.and_then(|params| params.member("arguments")).map(|raw| raw.get().to_owned());
        let promotable = Promotable {
            name: tool.clone(),
            server: self.server.clone(),
            tool: tool.clone(),
            is_repeatable: false,
            arguments,
            elapsed,
            limit,
            same: None,
        };
        let going = Going { params: params.into(), way, source: Box::new(self.line.clone()) };
        let house = Arc::clone(&self.house);
        self.adopting.spawn(async move {
            let service = house.service().await;
            let adopted = match (service.promoted(), service.engine()) {
                (Some(calls), _) => {
                    calls.adopt(&Caller::owner(), promotable).await.map(|promoted| (calls, promoted))
                }
                (None, Err(why)) => Err(why),
                (None, Ok(_)) => Err(JobError("calls are not kept".to_owned())),
            };
            match adopted {
                Ok((calls, promoted)) => Ok(Adopted { call, tool, promoted, going, calls }),
                Err(why) => Err((call, why)),
            }
        });
    }

    /// Tells a job of its call.
    pub(super) fn tell(&mut self, call: &Id, news: JobNews<'_>) {
        let raw = |params: &[u8]| {
            let text = String::from_utf8(params.to_vec()).ok()?;
            RawValue::from_string(text).ok()
        };
        match news {
            JobNews::Answer(era, line) => {
                if let Some(relay) = self.relays.remove(call)
                    && let Some(outcome) = outcome(&self.server, line)
                {
                    // Nobody may wait for it any more.
                    let _gone =
                        relay.answer.send(Answered { era, server_info: None, outcome, asked_for: None });
                }
            }
            JobNews::Progress(params) => {
                if let Some(relay) = self.relays.get(call) {
                    relay.progress.send_replace(raw(params));
                }
            }
            JobNews::Log(params) => {
                if let (Some(relay), Some(params)) = (self.relays.get(call), raw(params)) {
                    // Where there are too many on their way it is lost.
                    let _lossy = relay.aside.try_send(Aside::Logged(params));
                }
            }
        }
    }

    /// Waits for something to happen. Cancel-safe.
    pub(super) async fn event(&mut self) -> Event {
        loop {
            tokio::select! {
                Some(adopted) = self.adopting.join_next() => match adopted {
                    Ok(Ok(adopted)) => return Event::Adopted(Box::new(adopted)),
                    Ok(Err((call, why))) => {
                        self.relays.remove(&call);
                        return Event::Refused(call, why);
                    }
                    // A panic, which has been told; the call stays one.
                    Err(_panic) => {}
                },
                Some(wish) = self.wishes.recv() => match wish {
                    Wish::Ask { params, relay } => return Event::Asked(params, Again(relay)),
                    Wish::Withdraw(key) => {
                        let call = self.relays.iter().find(|(_, relay)| relay.key == key);
                        if let Some(call) = call.map(|(call, _)| call.clone()) {
                            self.relays.remove(&call);
                            return Event::Withdrawn(call);
                        }
                    }
                },
                else => pending().await,
            }
        }
    }

    /// The client has heard of the job, or nobody waits for it.
    pub(super) fn adopted(&mut self, adopted: Adopted, is_told: bool) {
        let Adopted { call, promoted, going, calls, .. } = adopted;
        if is_told {
            return calls.keep(promoted, going, WhoIsAsked::Nobody);
        }
        self.relays.remove(&call);
        drop(going);
        calls.forget(async move { Ok(promoted) });
    }

    /// A request of a job was made, and goes by this id.
    pub(super) fn asked(&mut self, call: Id, again: Again) {
        self.relays.insert(call, again.0);
    }

    /// Ends all jobs, each with the reason.
    pub(super) async fn end(&self, why: Ending) {
        let Some(service) = self.house.opened.get() else { return };
        if let Some(calls) = service.promoted() {
            calls.end(why).await;
        }
        service.close().await;
    }
}

impl Adopted {
    /// What its client is told of it.
    pub(super) fn report(&self) -> &crate::job_report::JobReport {
        &self.promoted.report
    }
}

/// What a response says; nothing where it is none.
fn outcome(server: &str, line: &[u8]) -> Option<Result<Box<RawValue>, Error>> {
    let piece = read(line).next()?;
    let Piece::Message(Message { body: Body::Response { outcome, .. }, .. }) = piece else { return None };
    Some(match outcome {
        Outcome::Result(result) => Ok(RawValue::from_string(result.get().to_owned()).ok()?),
        Outcome::Error(error) => {
            Err(Error::Server(ServerError::read(server, "tools/call", error.get()).into()))
        }
    })
}
