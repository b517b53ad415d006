//! The actor's reactions to events of exchanges: messages for the session, streams that break off, sessions that the server has forgotten.
//!
//! Invariants: a request whose exchange has ended is answered, taken up again, posted once more, or has failed; it is never forgotten.

use std::time::Duration;

use tokio::time::Instant;
use unhang_net::{http::HttpError, sse::SseEvent};
use unhang_wire::{Id, Line};

use super::{
    BrokenStream, Exchange, Handshake, HttpActor, HttpTransport, LEAST_RETRY, LISTENING, MOST_RETRY,
    Outgoing, RETRY,
    era_probe::Suspicion,
    exchange::{Close, ExchangeEvent, ExchangeKind, ResumePoint},
    resumption::{MOST_VAIN, WatchedStream, without_session},
    verdict::{TOO_LARGE, error_member, in_short, is_answer},
};
use unhang_core::{
    error::{Error, ServerError},
    fault::FaultKind,
    wording::is_round,
};

/// The methods that may be sent once more, because they change nothing. Only its server knows whether a tool changes something.
const SAFE: [&str; 10] = [
    "completion/complete",
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "tools/list",
];

/// The hint, besides a login, for a server whose URL was typed.
const TYPED_TOKEN_HINT: &str = "or give it a token with --header 'Authorization: Bearer TOKEN'";

/// The most attempts in a row to take a stream up again while the server cannot be asked.
const VAIN: u32 = 5;

impl HttpActor {
    pub(super) fn hear(&mut self, which: ExchangeKind, said: ExchangeEvent) {
        match said {
            // The actor has closed this stream since.
            _ if matches!(which, ExchangeKind::Stream(number) if !self.is_current(number)) => {}
            ExchangeEvent::Opened(session) => self.opened(&which, session),
            ExchangeEvent::Event(event) => self.event(&which, event),
            ExchangeEvent::Marked(point) => self.marked(&which, point),
            ExchangeEvent::Whole(session, message) => {
                self.opened(&which, session);
                self.event(&which, SseEvent::Message(message));
                self.ended(which, Close::Whole);
            }
            ExchangeEvent::Closed(close) => self.ended(which, close),
        }
        self.heed_refusals();
    }

    fn ended(&mut self, which: ExchangeKind, close: Close) {
        match which {
            ExchangeKind::Request(id) if self.upstream_session.awaits(&id) => self.closed(&id, close),
            // The tasks that have ended are removed: kept until they are due, they would hold memory and wake the actor for nothing.
            ExchangeKind::Request(_) => {
                self.lingering.retain(|(_, task)| !task.is_finished());
            }
            ExchangeKind::Stream(_) => self.stream_closed(close),
            ExchangeKind::Initialized => {
                self.initialized();
                self.word_closed(close);
            }
            ExchangeKind::Word => self.word_closed(close),
        }
    }

    fn opened(&mut self, which: &ExchangeKind, session: Option<String>) {
        match which {
            ExchangeKind::Request(id)
                if self.upstream_session.of_handshake(id) == Some(Handshake::Initialize) =>
            {
                self.session = session;
            }
            ExchangeKind::Stream(_) => {
                self.listens_by = None;
                if let Some(stream) = &mut self.stream {
                    (stream.open, stream.has_been_open) = (Some(Instant::now()), true);
                }
            }
            ExchangeKind::Initialized => self.initialized(),
            ExchangeKind::Request(id) => {
                if let Some(broken) = self.exchanges.get_mut(id).and_then(|exchange| exchange.broken.as_mut())
                {
                    broken.vain = 0;
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, which: &ExchangeKind, event: SseEvent) {
        self.upstream_session.alive();
        if let (ExchangeKind::Stream(_), Some(stream)) = (which, &mut self.stream) {
            stream.pause = Duration::ZERO;
        }
        match (event, which) {
            (SseEvent::Message(message), _) => {
                let request = match which {
                    ExchangeKind::Request(id) => Some(id),
                    _ => None,
                };
                self.upstream_session.line_beside(request, Line::Whole(&unhang_wire::one_line(&message)));
                if let ExchangeKind::Request(id) = which
                    && self.upstream_session.awaits(id)
                    && is_answer(&message)
                    && let Some(exchange) = self.exchanges.get_mut(id)
                {
                    exchange.is_crossed = true;
                }
            }
            (SseEvent::Oversized(length), ExchangeKind::Request(id)) => {
                let name = self.upstream_session.name.clone();
                let limit = self.upstream_session.limits.max_message;
                let happened = |method: &str| {
                    format!("`{name}` answered `{method}` with {length} bytes, over the limit of {limit}")
                };
                self.upstream_session.fail(id, FaultKind::TooLarge, happened, TOO_LARGE);
            }
            (SseEvent::Oversized(length), _) => {
                tracing::warn!(
                    "unhang dropped a message of `{}` with {length} bytes, over the limit",
                    self.upstream_session.name
                );
            }
            (SseEvent::Endpoint(reference), ExchangeKind::Stream(_))
                if matches!(self.way, HttpTransport::Sse(None)) =>
            {
                match self.connection.resolve(&reference) {
                    Ok(url) => self.way = HttpTransport::Sse(Some(url)),
                    Err(error) => {
                        let why = format!("gave no address for POST: {error}");
                        self.lose(FaultKind::BadResponse, &why, "check whether it is an MCP server");
                    }
                }
            }
            (SseEvent::Endpoint(_) | SseEvent::Mark(_), _) => {}
        }
    }

    /// Returns the watch over the stream of a request that is posted now, if somebody wants to hear of the stream.
    pub(super) fn watched(&self, id: &Id) -> Option<WatchedStream> {
        let stream = self.upstream_session.stream_of(id)?.clone();
        Some(WatchedStream::begin(stream, self.upstream_session.session.as_ref()?.revision))
    }

    /// Notes from where the stream of a request can be resumed. The point of the answer itself is of no use to anybody.
    fn marked(&mut self, which: &ExchangeKind, point: ResumePoint) {
        let ExchangeKind::Request(id) = which else { return };
        let (is_asked, is_awaited) = (self.upstream_session.is_asked(), self.upstream_session.awaits(id));
        let Some(exchange) = self.exchanges.get_mut(id).filter(|_| is_awaited) else { return };
        if let Some(watched) = &mut exchange.watched {
            watched.marked(id, exchange.session.as_deref(), point, is_asked);
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.number == number)
    }

    /// Ends the wait for `notifications/initialized`, whether the server has taken it or not. Other requests go out either way, for the
    /// server may still answer them.
    fn initialized(&mut self) {
        let was_awaited = std::mem::take(&mut self.awaits_initialized);
        if was_awaited && matches!(self.way, HttpTransport::Streamable) && self.stream.is_none() {
            self.open_stream();
            if self.upstream_session.may_be_asked() {
                self.listens_by = Some(Instant::now() + LISTENING);
            }
        }
    }

    fn word_closed(&mut self, close: Close) {
        let why = match close {
            Close::Refused(status, _) => format!("HTTP {status}"),
            Close::Failed(error) | Close::Broke(error, _) => error.to_string(),
            Close::Ended(_) | Close::Whole | Close::NoMessage(..) => return,
        };
        self.lost_words += 1;
        if is_round(self.lost_words) {
            let (name, count) = (&self.upstream_session.name, self.lost_words);
            tracing::warn!("{count} notifications or answers did not reach `{name}`; the last: {why}");
        }
    }

    fn stream_closed(&mut self, close: Close) {
        self.listens_by = None;
        let Some(stream) = &mut self.stream else { return };
        if let HttpTransport::Sse(endpoint) = &self.way {
            let what = match (endpoint, self.dialect) {
                (Some(_), _) => "has ended the stream on which it answers",
                (None, Some(_)) => "opens no stream",
                (None, None) => "speaks neither Streamable HTTP nor the old HTTP+SSE",
            };
            let why = format!("{what}: {}", close.told());
            return self.lose(FaultKind::ServerExited, &why, close.stream_hint());
        }
        let resume_point = match close {
            // The server has no such stream to offer, or not to this client. Either is allowed.
            Close::NoMessage(..) => return self.stream = None,
            Close::Refused(status, _) if !stream.has_been_open || !matches!(status, 429 | 500..) => {
                return self.stream = None;
            }
            Close::Ended(resume_point) | Close::Broke(_, resume_point) => resume_point,
            _ => None,
        };
        let was_well = stream.open.take().is_some_and(|open| open.elapsed() >= MOST_RETRY);
        if was_well {
            stream.pause = Duration::ZERO;
        }
        let retry = resume_point.as_ref().and_then(|resume_point| resume_point.retry).unwrap_or(RETRY);
        stream.last_id = resume_point.and_then(|resume_point| resume_point.last_id).or(stream.last_id.take());
        stream.at = Some(Instant::now() + retry.max(LEAST_RETRY).max(stream.pause));
        stream.pause = (stream.pause * 2).clamp(LEAST_RETRY, MOST_RETRY);
    }

    /// Ends the session with a server whose connection is of no use any more.
    fn lose(&mut self, kind: FaultKind, why: &str, hint: &'static str) {
        let kind = if self.upstream_session.is_shaking() && kind == FaultKind::ServerExited {
            FaultKind::StartFailed
        } else {
            kind
        };
        let happened = format!("`{}` {why}", self.upstream_session.name);
        let failure = self.upstream_session.failure(kind, happened, hint);
        self.upstream_session.end(failure);
    }

    /// Handles the end of an exchange whose request is still unanswered.
    fn closed(&mut self, id: &Id, close: Close) {
        let is_posted_elsewhere = matches!(self.way, HttpTransport::Sse(Some(_)));
        let is_crossed = self.exchanges.get(id).is_some_and(|exchange| exchange.is_crossed);
        match close {
            // The answer comes on the stream.
            Close::Ended(_) | Close::Whole | Close::NoMessage(..) if is_posted_elsewhere => {}
            // The request's own answer may come with another request.
            Close::Ended(_) | Close::Whole if is_crossed => {}
            close if self.resumes(id, &close) => {}
            // The protocol has 404 for it, and some servers say 410.
            Close::Refused(404 | 410, _) if self.may_renew(id) => self.renew(id),
            Close::Refused(status, told) if self.era_probe.is_refused(id, status) => {
                self.has_changed(&format!("HTTP {status}{}", in_short(&told)));
            }
            Close::Refused(status @ (400 | 404 | 405), told)
                if self.may_be_old(id) && error_member(&told).is_none() =>
            {
                tracing::debug!(
                    "`{}` answers HTTP {status}; perhaps it speaks HTTP+SSE",
                    self.upstream_session.name
                );
                self.try_old(id);
            }
            Close::Failed(HttpError::Authorization(error)) => {
                // A server whose name is its URL is in no configuration file.
                let is_typed = self.upstream_session.name == self.address;
                let hint = if is_typed { TYPED_TOKEN_HINT } else { "or give it a token in `headers`" };
                let kind = FaultKind::StartFailed;
                self.upstream_session.fail(id, kind, |_| error.to_string(), hint);
            }
            close if close.is_lost() && self.repeats(id) => {}
            Close::Refused(status, told) if !self.is_broken(id) => {
                let is_doubtful = self.may_speak_otherwise(id, status, &told);
                self.refused(id, status, &told);
                if is_doubtful {
                    self.probe_era(Suspicion::OtherEra);
                }
            }
            // That is neither an answer nor an error: a page, or nothing.
            Close::NoMessage(..) | Close::Whole if self.is_of_session(id) && !self.is_broken(id) => {
                self.lost(id, &close);
                self.probe_era(Suspicion::OtherEra);
            }
            close => self.lost(id, &close),
        }
    }

    /// Fails a request whose exchange has ended without an answer, and without a way to get one.
    fn lost(&mut self, id: &Id, close: &Close) {
        let is_away = matches!(close, Close::Failed(HttpError::Unreachable(_)));
        let is_broken = self.is_broken(id);
        let method = self.exchanges.get(id).map_or("", |exchange| &exchange.method);
        let (mut kind, mut hint) = close.verdict(self.upstream_session.session.is_none(), method);
        let is_discovery = self.upstream_session.of_handshake(id) == Some(Handshake::Discover);
        if is_discovery && close.is_lost() && !self.upstream_session.is_leader() {
            // Some servers of handshakes drop the connection at a request that they do not know.
            kind = FaultKind::BadResponse;
        }
        if is_broken && kind == FaultKind::BadResponse {
            kind = FaultKind::ServerExited;
        }
        if is_broken && kind == FaultKind::ServerExited {
            hint = "the server may have carried out the request; send it again if it is safe to repeat";
        }
        let exchange = self.exchanges.get(id);
        let is_resumed = exchange.is_some_and(|exchange| exchange.is_resumed);
        let why = without_session(close.told(), exchange.and_then(|exchange| exchange.session.as_deref()));
        let name = self.upstream_session.name.clone();
        let at = if name == self.address { String::new() } else { format!(" at {}", self.address) };
        let happened = |method: &str| match (is_broken, is_away) {
            _ if is_resumed => {
                format!(
                    "the unhang process that had called `{name}` ended before the answer to `{method}` came, \
                     and the answer could not be resumed at `{name}`: {why}"
                )
            }
            (true, _) => {
                format!(
                    "`{name}` broke off in its answer to `{method}`, and unhang could not resume the \
                     answer: {why}"
                )
            }
            (_, true) => format!("`{name}` could not be reached{at}: {why}"),
            _ => format!("`{name}` gave no answer to `{method}`: {why}"),
        };
        self.upstream_session.fail(id, kind, happened, hint);
    }

    fn is_broken(&self, id: &Id) -> bool {
        self.exchanges.get(id).is_some_and(|exchange| exchange.broken.is_some())
    }

    /// Takes a broken stream up again if that can be done, and returns whether it is.
    fn resumes(&mut self, id: &Id, close: &Close) -> bool {
        let has_streams_of_old = !self.upstream_session.is_stateless()
            && self.upstream_session.of_handshake(id) != Some(Handshake::Discover);
        let Some(exchange) = self.exchanges.get_mut(id).filter(|_| has_streams_of_old) else { return false };
        let (last_id, retry, is_vain) = match close {
            Close::Broke(HttpError::TooLarge(_), _) => return false,
            Close::Ended(resume_point) | Close::Broke(_, resume_point) => {
                let resume_point = resume_point.as_ref();
                (
                    resume_point.and_then(|resume_point| resume_point.last_id.clone()),
                    resume_point.and_then(|resume_point| resume_point.retry),
                    false,
                )
            }
            Close::Failed(HttpError::Unreachable(_) | HttpError::Broken(_))
            | Close::Refused(429 | 500.., _) => (None, None, true),
            // The server has not noticed yet that the other process has gone.
            Close::Refused(409, _) if exchange.is_resumed => (None, None, true),
            _ => return false,
        };
        let earlier = exchange.broken.take();
        let vain = earlier.as_ref().map_or(0, |broken| broken.vain) + u32::from(is_vain);
        let known = earlier.map(|broken| (broken.last_id, broken.retry));
        let (known_id, known_retry) = known.unzip();
        let Some(last_id) = last_id.or(known_id) else {
            return false;
        };
        let retry = retry.or(known_retry).unwrap_or(RETRY).max(LEAST_RETRY);
        let (most, longest) =
            if exchange.is_resumed { (MOST_VAIN, MOST_RETRY.max(retry)) } else { (VAIN, Duration::MAX) };
        let may_go_on = vain < most;
        // The pause grows each time that nobody is there.
        let at = may_go_on.then(|| Instant::now() + (retry * 2_u32.pow(vain.min(VAIN))).min(longest));
        exchange.broken = Some(BrokenStream { last_id, retry, at, vain });
        may_go_on
    }

    /// Sends a lost request once more if it changes nothing; returns whether it has.
    fn repeats(&mut self, id: &Id) -> bool {
        let Some(mut exchange) = self.exchanges.remove(id) else { return false };
        let may = SAFE.contains(&&*exchange.method) && !exchange.is_repeated;
        if may {
            tracing::debug!(
                "unhang asks `{}` for `{}` once more",
                self.upstream_session.name,
                exchange.method
            );
            (exchange.is_repeated, exchange.broken) = (true, None);
            exchange.task = self.post(
                ExchangeKind::Request(id.clone()),
                &exchange.method,
                &exchange.mirrored,
                exchange.line.clone(),
            );
        }
        self.exchanges.insert(id.clone(), exchange);
        may
    }

    fn may_renew(&self, id: &Id) -> bool {
        // A request whose answer has begun was taken by the server.
        let is_fresh = |exchange: &Exchange| exchange.session.is_some() && exchange.broken.is_none();
        self.exchanges.get(id).is_some_and(is_fresh)
            && !self.repeated.contains(id)
            && !self.era_probe.is_confirmed_by(id)
            && self.upstream_session.of_handshake(id).is_none()
    }

    /// Begins the session and the request anew. The server has forgotten the session, and so has not carried the request out.
    fn renew(&mut self, id: &Id) {
        let Some(exchange) = self.exchanges.remove(id) else { return };
        let Exchange { method, line, mirrored, session, .. } = exchange;
        self.held.push_back(Outgoing::Request { id: id.clone(), method, line: line.into(), mirrored });
        self.repeated.insert(id.clone());
        // Another request may have found that out before.
        if !self.upstream_session.is_shaking() && self.session == session {
            tracing::info!(
                "`{}` has forgotten the session, and unhang begins another",
                self.upstream_session.name
            );
            self.session = None;
            if let Some(stream) = self.stream.take() {
                stream.task.abort();
            }
            self.upstream_session.begin(Handshake::Initialize);
        }
    }

    /// Returns whether the server may speak the old HTTP+SSE, and refuse what it does not know.
    fn may_be_old(&self, id: &Id) -> bool {
        let is_handshake = self.upstream_session.of_handshake(id) == Some(Handshake::Initialize);
        is_handshake
            && !self.upstream_session.is_greeted_on_a_guess()
            && self.dialect.is_none()
            && matches!(self.way, HttpTransport::Streamable)
            && self.session.is_none()
    }

    fn try_old(&mut self, id: &Id) {
        self.open_old_stream();
        if let Some(Exchange { method, line, mirrored, .. }) = self.exchanges.remove(id) {
            self.held.push_back(Outgoing::Request { id: id.clone(), method, line: line.into(), mirrored });
        }
    }

    /// Fails a request that the server refuses: with an error of its own in the body, or with a status alone.
    fn refused(&mut self, id: &Id, status: u16, told: &[u8]) {
        let name = self.upstream_session.name.clone();
        let is_probe = self.upstream_session.of_handshake(id) == Some(Handshake::Discover);
        // A proxy before the server, or a server in trouble, may use this form too (design 4: 5xx is not reached).
        let is_its_word = !matches!(status, 401 | 403 | 429) && (status < 500 || is_probe);
        if let Some(error) = error_member(told).filter(|_| is_its_word) {
            return self.upstream_session.complete(id, |_, call| {
                Error::Server(Box::new(ServerError::read(&name, &call.method, &error)))
            });
        }
        // A guess may be wrong, so the server is asked for the other era as well.
        let is_probe = is_probe
            || (self.upstream_session.is_greeted_on_a_guess()
                && self.upstream_session.of_handshake(id).is_some());
        let (kind, hint) = match status {
            401 | 403 if status == 401 || !is_probe => {
                (FaultKind::StartFailed, "log in with `unhang login`, or give it the header that it requires")
            }
            // Legacy servers, and proxies before them, answer a request that they do not know with anything.
            _ if is_probe => (FaultKind::BadResponse, "check whether it is an MCP server"),
            404 | 405 => (FaultKind::StartFailed, "check the path of its URL"),
            429 => (FaultKind::Overloaded, "ask again later, or send fewer requests at a time"),
            500.. => (FaultKind::ServerExited, "try again later, or see its log"),
            _ => (FaultKind::BadResponse, "check whether it is an MCP server"),
        };
        let words = in_short(told);
        let happened = |method: &str| format!("`{name}` answered `{method}` with HTTP {status}{words}");
        self.upstream_session.fail(id, kind, happened, hint);
    }
}
