//! Admission to a server. It bounds the requests at a time and the calls of single tools. A server that asks questions during calls has
//! calls of one session at a time.
//!
//! Invariants
//!
//! - At each bound, permits go out fairly between the clients that ask ([`Fair`](unhang_core::fair::Fair)). A client that stops waiting
//!   keeps nobody from a permit.
//! - A request takes the permit of the tool before the permit of the server, and that before the permit of all servers together. So no two
//!   requests wait for each other, and no request holds a permit that others need while it waits for something else.

use std::{collections::HashMap, future::ready, pin::pin, sync::Arc, time::Duration};

use tokio::time::Instant;
use unhang_bridge::Era;
use unhang_proc::deadline::Deadline;

use super::{
    OfSession, SessionKey,
    notification_listener::NotificationListener,
    permits::{Permit, PermitQueue, QueueFull},
    session_turns::{SessionTurn, SessionTurns},
    verdicts,
    waiting_requests::WaitingRequests,
};
use crate::route::rules::ToolRules;
use unhang_core::{
    fair::{Bounds, FairnessKey},
    fault::FaultKind,
    limits::Limits,
    units::in_words,
};
use unhang_upstream::client::{Error, Failure};

/// The bounds on requests to one server.
pub(super) struct AdmissionLimits {
    /// The server's name, for errors.
    name: String,
    /// Knows whether the server asks questions during calls, and who waits for the server.
    listener: Arc<NotificationListener>,
    /// Requests that are with the server, or wait until it has started.
    server: Arc<PermitQueue>,
    /// Calls, if the server asks questions during calls.
    sessions: Arc<SessionTurns>,
    /// Calls of single tools, by the server's names for them.
    tools: HashMap<String, Arc<PermitQueue>>,
}

/// A request that wants to go to the server.
#[derive(Clone, Copy)]
pub(super) struct PermitRequest<'a> {
    pub fairness_key: &'a FairnessKey,
    /// The session that makes the request, if a session does.
    pub session: Option<OfSession>,
    pub method: &'a str,
    /// The tool that the request calls, by the server's name for it.
    pub tool: Option<&'a str>,
    /// How long the request may wait, and the deadline that follows from it.
    pub limit: Duration,
    pub deadline: Deadline,
    /// When the request began to wait.
    pub since: Instant,
}

/// The permits that a request holds while it is with a server.
#[expect(dead_code, reason = "held, and given back when they are dropped")]
pub(super) struct Permits(Option<Permit>, Option<Permit>);

/// The permits that a request holds besides, once the server is ready.
#[expect(dead_code, reason = "held, and given back when they are dropped")]
pub(super) struct ReadyPermits(Option<SessionTurn>, Option<Permit>);

impl AdmissionLimits {
    pub(super) fn new(
        name: String,
        rules: &ToolRules,
        limits: &Limits,
        listener: Arc<NotificationListener>,
    ) -> Self {
        let bounds = |permits| Bounds { permits, room: limits.max_waiting };
        let tools = rules.tools.iter().filter_map(|(name, rule)| {
            let most = rule.max_in_flight?;
            Some((name.clone(), PermitQueue::new(bounds(most))))
        });
        Self {
            name,
            listener,
            server: PermitQueue::new(bounds(limits.max_in_flight)),
            sessions: SessionTurns::new(limits.max_waiting),
            tools: tools.collect(),
        }
    }

    /// Returns how many requests wait.
    pub(super) fn waiting(&self) -> usize {
        let tools = self.tools.values().map(|permits| permits.waiting());
        self.server.waiting() + self.sessions.waiting() + tools.sum::<usize>()
    }

    /// Waits until the server may have this request and, if it is a call, until this tool may be called. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if there is no room to wait, or if the time of the request is over. The error says what to do.
    pub(super) async fn turn(&self, acquire: &PermitRequest<'_>) -> Result<Permits, Error> {
        let tool = acquire.tool.and_then(|tool| self.tools.get_key_value(tool));
        let of_tool = match tool {
            Some((tool, permits)) => {
                let permit = in_line(&self.listener.waiting, acquire, turn(permits, acquire)).await;
                Some(permit.map_err(|refused| self.tool_busy(tool, permits, acquire, &refused))?)
            }
            None => None,
        };
        let of_server = {
            let permit = in_line(&self.listener.waiting, acquire, turn(&self.server, acquire)).await;
            Some(permit.map_err(|refused| self.busy(acquire, &refused))?)
        };
        Ok(Permits(of_tool, of_server))
    }

    /// Waits until the ready server of this era may have this request, and until all servers together may have it. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if there is no room to wait, or if the time of the request is over. The error says what to do.
    pub(super) async fn turns_once_ready(
        &self,
        era: Era,
        all: &Arc<PermitQueue>,
        acquire: &PermitRequest<'_>,
    ) -> Result<ReadyPermits, Error> {
        loop {
            let of_session = self.session_turn(era, acquire).await?;
            let of_all = self.turn_of_all(all, acquire).await?;
            // The server may have begun to ask questions while this request waited.
            if !of_session.as_ref().is_some_and(|joined| joined.is_early() && self.listener.asks()) {
                return Ok(ReadyPermits(of_session, of_all));
            }
        }
    }

    /// Waits until the server may have this call. A server that asks questions during calls has calls of one session at a time. So it is
    /// known which client a question is for (protocol.md 3.3, row 8). Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if there is no room to wait, or if the time of the request is over. The error says what to do.
    async fn session_turn(
        &self,
        era: Era,
        acquire: &PermitRequest<'_>,
    ) -> Result<Option<SessionTurn>, Error> {
        if era != Era::Legacy {
            return Ok(None);
        }
        let session = acquire.client();
        if !self.listener.asks() {
            return Ok(Some(self.sessions.early(session)));
        }
        let taking = self.sessions.take(session, acquire.fairness_key, self.listener.asked_one_first());
        let turn = in_line(&self.listener.waiting, acquire, in_time(acquire, taking)).await;
        turn.map(Some).map_err(|refused| {
            let what = "it sends requests about its calls, so it gets the calls of one session at a time";
            self.overloaded(acquire, &refused, &format!("`{}`", self.name), what)
        })
    }

    /// Waits until all servers together may have this request. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if there is no room to wait, or if the time of the request is over. The error says what to do.
    async fn turn_of_all(
        &self,
        all: &Arc<PermitQueue>,
        acquire: &PermitRequest<'_>,
    ) -> Result<Option<Permit>, Error> {
        turn(all, acquire).await.map(Some).map_err(|refused| {
            let what = format!(
                "all servers together have max-in-flight = {} of [gateway] requests at a time",
                all.bounds().permits
            );
            self.overloaded(acquire, &refused, "unhang", &what)
        })
    }

    /// Waits until one of so many instances of the server is free for this request. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if there is no room to wait, or if the time of the request is over. The error says what to do.
    pub(super) async fn instance_turn<T>(
        &self,
        acquire: &PermitRequest<'_>,
        instances: usize,
        taking: impl Future<Output = Result<T, QueueFull>>,
    ) -> Result<T, Error> {
        let turn = in_line(&self.listener.waiting, acquire, in_time(acquire, taking)).await;
        turn.map_err(|refused| {
            let name = &self.name;
            let what =
                format!("each of its instances = {instances} of [servers.{name}] has one request at a time");
            self.overloaded(acquire, &refused, &format!("`{name}`"), &what)
        })
    }

    /// Checks that a request that had to wait has time left.
    ///
    /// # Errors
    /// Fails with [`FaultKind::Overloaded`] if no time is left, so that the server is not asked in vain.
    pub(super) fn in_time(&self, acquire: &PermitRequest<'_>) -> Result<(), Error> {
        match acquire.deadline.remaining().is_zero() {
            true => Err(self.busy(acquire, &NotAdmitted::Late)),
            false => Ok(()),
        }
    }

    fn busy(&self, acquire: &PermitRequest<'_>, refused: &NotAdmitted) -> Error {
        let (name, most) = (&self.name, self.server.bounds().permits);
        let what = format!("it has max-in-flight = {most} of [servers.{name}.limits] requests at a time");
        self.overloaded(acquire, refused, &format!("`{name}`"), &what)
    }

    fn tool_busy(
        &self,
        tool: &str,
        permits: &PermitQueue,
        acquire: &PermitRequest<'_>,
        refused: &NotAdmitted,
    ) -> Error {
        let (name, most) = (&self.name, permits.bounds().permits);
        let what = format!("it has max-in-flight = {most} of [servers.{name}.tools.{tool}] calls at a time");
        self.overloaded(acquire, refused, &format!("`{tool}` of `{name}`"), &what)
    }

    /// Words the error for a caller whose request was not admitted.
    fn overloaded(
        &self,
        acquire: &PermitRequest<'_>,
        refused: &NotAdmitted,
        whose: &str,
        what: &str,
    ) -> Error {
        let PermitRequest { method, limit, deadline, .. } = *acquire;
        let elapsed = limit.saturating_sub(deadline.remaining());
        match refused {
            NotAdmitted::Late => {
                let happened = format!("{whose} was not free for `{method}` within {}", in_words(limit));
                let hint = format!("{what}; ask again when others have ended");
                let failure = verdicts::failure(&self.name, FaultKind::Overloaded, method, happened, &hint);
                Failure { limit: Some(limit), elapsed: limit, ..failure }.into()
            }
            NotAdmitted::Full(QueueFull { bounds, retry_after }) => {
                let happened = format!(
                    "{whose} has no room for `{method}`: {} requests already wait for their turn",
                    bounds.room
                );
                let hint = format!("{what}; ask again in {}", in_words(*retry_after));
                let failure = verdicts::failure(&self.name, FaultKind::Overloaded, method, happened, &hint);
                Failure { elapsed, retry_after: Some(*retry_after), ..failure }.into()
            }
        }
    }
}

impl PermitRequest<'_> {
    /// Returns the session of the request, if any of its calls can carry a question about another of them.
    fn client(&self) -> Option<SessionKey> {
        self.session.filter(|session| session.is_one_client).map(|session| session.key)
    }
}

/// Waits for a permit until the deadline of the request.
async fn turn(permits: &Arc<PermitQueue>, acquire: &PermitRequest<'_>) -> Result<Permit, NotAdmitted> {
    in_time(acquire, permits.take(acquire.fairness_key)).await
}

/// Waits for a permit that a server's calls hold. The wait is registered, so that clients whose answers the server waits for are hurried.
/// Cancel-safe.
async fn in_line<T>(
    waiting: &WaitingRequests,
    acquire: &PermitRequest<'_>,
    turn: impl Future<Output = T>,
) -> T {
    let mut turn = pin!(turn);
    tokio::select! {
        biased;
        turn = &mut turn => return turn,
        // A request that need not wait is in no line.
        () = ready(()) => {}
    }
    let _waits = waiting.enter(acquire.client(), acquire.since);
    turn.await
}

async fn in_time<T>(
    acquire: &PermitRequest<'_>,
    taking: impl Future<Output = Result<T, QueueFull>>,
) -> Result<T, NotAdmitted> {
    match acquire.deadline.timeout(taking).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(full)) => Err(NotAdmitted::Full(full)),
        Err(_) => Err(NotAdmitted::Late),
    }
}

/// Why a request was not admitted.
enum NotAdmitted {
    /// No room to wait.
    Full(QueueFull),
    /// The time of the request was over first.
    Late,
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinHandle, yield_now};

    use super::{
        super::{
            ServerAnswer, ServerEntry, ServerRequest, Servers,
            testing::{call, mute},
        },
        *,
    };
    use crate::route::rules::ToolRule;

    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_secs(60);

    /// The only server, which never answers, and what it may have.
    fn servers(entry: ServerEntry, max_in_flight: usize, max_waiting: usize) -> Servers {
        let mut entry = entry;
        let limits = &mut entry.spec.limits;
        (limits.max_in_flight, limits.max_waiting) = (max_in_flight, max_waiting);
        Servers::start(vec![entry].into())
    }

    /// Asks, and goes on until that waits for something.
    async fn asking(servers: &Servers, asked: ServerRequest) -> JoinHandle<ServerAnswer> {
        let asking = tokio::spawn(servers.ask(asked, None, None));
        yield_now().await;
        asking
    }

    fn by(fairness_key: &str, limit: Duration) -> ServerRequest {
        ServerRequest { fairness_key: FairnessKey::new(fairness_key), ..call("tool", limit) }
    }

    fn failed(answered: ServerAnswer) -> Failure {
        match answered.outcome {
            Err(Error::Failure(failure)) => *failure,
            other => panic!("it never answers: {other:?}"),
        }
    }

    async fn failure(servers: &Servers, asked: ServerRequest) -> Failure {
        failed(servers.ask(asked, None, None).await)
    }

    #[tokio::test]
    async fn calls_of_a_tool_wait_for_their_turn_and_not_for_ever() {
        let (_mute, entry) = mute();
        let one = ToolRule { max_in_flight: Some(1), ..ToolRule::default() };
        let tool_rules = ToolRules { tools: [("slow".to_owned(), one)].into(), ..ToolRules::default() };
        let servers = servers(ServerEntry { tool_rules, ..entry }, 1000, 1000);
        let first = asking(&servers, call("slow", LATE)).await;
        let second = failure(&servers, call("slow", SOON)).await;
        assert_eq!(
            (second.kind, &*second.happened),
            (FaultKind::Overloaded, "`slow` of `srv` was not free for `tools/call` within 50ms")
        );
        assert!(second.hint.contains("max-in-flight = 1 of [servers.srv.tools.slow]"), "{}", second.hint);
        assert_eq!(
            failure(&servers, call("quick", SOON)).await.kind,
            FaultKind::Deadline,
            "others are not bounded"
        );
        first.abort();
        assert!(first.await.is_err(), "it was withdrawn");
        assert_eq!(failure(&servers, call("slow", SOON)).await.kind, FaultKind::Deadline, "it is its turn");
    }

    #[tokio::test]
    async fn a_server_has_so_many_requests_and_no_more() {
        let (_mute, entry) = mute();
        let servers = servers(entry, 1, 1000);
        let first = asking(&servers, by("one", LATE)).await;
        let second = failure(&servers, by("two", SOON)).await;
        assert_eq!((second.kind, second.limit), (FaultKind::Overloaded, Some(SOON)));
        assert!(second.hint.contains("max-in-flight = 1 of [servers.srv.limits]"), "{}", second.hint);
        first.abort();
        assert!(first.await.is_err(), "it was withdrawn");
        assert_eq!(failure(&servers, by("two", SOON)).await.kind, FaultKind::Deadline, "it is its turn");
    }

    #[tokio::test]
    async fn where_there_is_no_room_to_wait_it_is_said_when_there_will_be() {
        let (_mute, entry) = mute();
        let servers = servers(entry, 1, 2);
        let _first = asking(&servers, by("many", LATE)).await;
        let _second = asking(&servers, by("many", LATE)).await;
        let third = asking(&servers, by("many", LATE)).await;
        let refused = failure(&servers, by("many", LATE)).await;
        assert_eq!((refused.kind, refused.limit), (FaultKind::Overloaded, None));
        assert!(refused.retry_after.is_some() && refused.hint.contains("ask again in "), "{refused:?}");
        assert_eq!(servers.status()[0].waiting, 2);
        let _few = asking(&servers, by("few", LATE)).await;
        let displaced = failed(third.await.expect("no panic"));
        assert_eq!(displaced.kind, FaultKind::Overloaded, "whoever asks most has to give way");
        assert!(displaced.fault().data()["retryAfterMs"].is_u64());
    }

    #[tokio::test]
    async fn all_servers_together_have_so_many_requests_and_no_more() {
        let (_mute, entry) = mute();
        let servers = servers(entry, 1000, 1000);
        servers.core.all.bound(Bounds { permits: 0, room: 1 });
        // It is never ready to be asked; where it is, whoever has no turn asks nothing.
        let (backend, all) = (&servers.core.current()[0], &servers.core.all);
        let fairness_key = FairnessKey::new("one");
        let acquire = || {
            let (deadline, limit) = (Deadline::after(SOON), SOON);
            let since = Instant::now();
            PermitRequest {
                fairness_key: &fairness_key,
                session: None,
                method: "tools/call",
                tool: None,
                limit,
                deadline,
                since,
            }
        };
        let Err(Error::Failure(refused)) = backend.admission.turn_of_all(all, &acquire()).await else {
            panic!("there is no permit")
        };
        assert!(refused.hint.contains("max-in-flight = 0 of [gateway]"), "{}", refused.hint);
        servers.core.all.bound(Bounds { permits: 1, room: 1 });
        assert!(backend.admission.turn_of_all(all, &acquire()).await.is_ok());
        assert_eq!(servers.waiting(), 0);
    }
}
