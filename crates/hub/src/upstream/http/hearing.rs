//! What the actor makes of what exchanges say: messages for the dialogue, streams that break off, sessions that are forgotten.
//!
//! Invariants: a request whose exchange has ended is answered, taken up again, posted once more, or has failed; it is never
//! forgotten.

use tokio::time::Instant;
use unhang_net::{http::HttpError, sse::Event};
use unhang_switches::stands;
use unhang_wire::{Id, Line};

use super::{
    Actor, Exchange, Handshake, LEAST_RETRY, MOST_RETRY, Out, RETRY, Stream, Way,
    exchange::{Close, Place, Said, Which},
    verdict::{TOO_LARGE, error_member, in_short},
};
use crate::{
    client::{Error, ServerError},
    fault::Kind,
};

impl Actor {
    pub(super) fn hear(&mut self, which: Which, said: Said) {
        match said {
            Said::Opened(session) => self.opened(&which, session),
            Said::Event(event) => self.event(&which, event),
            Said::Closed(close) => match which {
                Which::Request(id) if self.dialogue.awaits(&id) => self.closed(&id, close),
                Which::Request(_) => {}
                Which::Stream => self.stream_closed(close),
                Which::Initialized => self.initialized(close),
                Which::Word => self.word_closed(close),
            },
        }
    }

    fn opened(&mut self, which: &Which, session: Option<String>) {
        match which {
            Which::Request(id) if self.dialogue.of_handshake(id) == Some(Handshake::Initialize) => {
                self.session = session;
            }
            Which::Stream => {
                if let Some(stream) = &mut self.stream {
                    (stream.is_open, stream.retry) = (true, RETRY);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, which: &Which, event: Event) {
        self.dialogue.alive();
        match (event, which) {
            (Event::Message(message), _) => {
                self.dialogue.line(Line::Whole(&unhang_wire::one_line(&message)));
            }
            (Event::Oversized(length), Which::Request(id)) => {
                let name = self.dialogue.name.clone();
                let limit = self.dialogue.limits.max_message;
                let happened = |method: &str| {
                    format!("`{name}` answered `{method}` with {length} bytes, over the limit of {limit}")
                };
                self.dialogue.fail(id, Kind::TooLarge, happened, TOO_LARGE);
            }
            (Event::Oversized(length), _) => {
                tracing::warn!(
                    "`{}` said {length} bytes at once, over the limit; they were dropped",
                    self.dialogue.name
                );
            }
            (Event::Endpoint(reference), Which::Stream) if matches!(self.way, Way::Sse(None)) => {
                match self.connection.resolve(&reference) {
                    Ok(url) => self.way = Way::Sse(Some(url)),
                    Err(error) => self.lose(Kind::BadResponse, &format!("gave no place to post to: {error}")),
                }
            }
            (Event::Endpoint(_), _) => {}
        }
    }

    /// The server has taken the end of the handshake, or has not; other requests go out either way, for it may still answer them.
    fn initialized(&mut self, close: Close) {
        self.awaits_initialized = false;
        self.word_closed(close);
        if matches!(self.way, Way::Streamable) && self.stream.is_none() {
            let task = self.get(Which::Stream, None);
            self.stream = Some(Stream { task, is_open: false, again: None, retry: RETRY });
        }
    }

    fn word_closed(&mut self, close: Close) {
        match close {
            Close::Refused(status, _) => {
                tracing::warn!(
                    "`{}` refused a notification or an answer with HTTP {status}",
                    self.dialogue.name
                );
            }
            Close::Failed(error) | Close::Broke(error, _) => {
                tracing::warn!("a notification or an answer did not reach `{}`: {error}", self.dialogue.name);
            }
            Close::Ended(_) | Close::NoMessage(_) => {}
        }
    }

    fn stream_closed(&mut self, close: Close) {
        let Some(stream) = &mut self.stream else { return };
        if let Way::Sse(place) = &self.way {
            let what = match (place, self.dialect) {
                (Some(_), _) => "has ended the stream on which it answers",
                (None, Some(_)) => "opens no stream",
                (None, None) => "speaks neither Streamable HTTP nor the old HTTP+SSE",
            };
            let why = format!("{what}: {}", close.told());
            return self.lose(Kind::ServerExited, &why);
        }
        let place = match close {
            // It has none to offer, which it may.
            Close::Refused(..) | Close::NoMessage(_) if !stream.is_open => {
                self.stream = None;
                return;
            }
            Close::Ended(place) | Close::Broke(_, place) => place,
            _ => None,
        };
        let wait = place.as_ref().and_then(|place| place.retry).unwrap_or(stream.retry).max(LEAST_RETRY);
        stream.retry = (stream.retry * 2).min(MOST_RETRY);
        stream.again = Some((Instant::now() + wait, place.map(|place| place.last_id)));
    }

    /// The connection is of no use any more.
    fn lose(&mut self, kind: Kind, why: &str) {
        let kind =
            if self.dialogue.is_shaking() && kind == Kind::ServerExited { Kind::StartFailed } else { kind };
        let happened = format!("`{}` {why}", self.dialogue.name);
        let failure = self.dialogue.failure(kind, happened, "see whether it runs, and its log");
        self.dialogue.end(failure);
    }

    /// An exchange has ended, and its request is still unanswered.
    fn closed(&mut self, id: &Id, close: Close) {
        let is_posted_elsewhere = matches!(self.way, Way::Sse(Some(_)));
        match close {
            // Its answer comes on the stream.
            Close::Ended(_) | Close::NoMessage(_) if is_posted_elsewhere => {}
            Close::Ended(Some(place)) | Close::Broke(_, Some(place))
                if !self.dialogue.is_stateless() && stands("broken-stream-resumed") =>
            {
                self.resume(id, place);
            }
            Close::Refused(404, _) if self.session.is_some() && self.may_repeat(id) => self.renew(id),
            Close::Refused(status @ (400 | 404 | 405), _) if self.may_be_old(id) => {
                tracing::debug!("`{}` answers HTTP {status}; perhaps it speaks HTTP+SSE", self.dialogue.name);
                self.try_old(id);
            }
            Close::Refused(status, told) => self.refused(id, status, &told),
            Close::Failed(HttpError::Authorization(error)) => {
                let (kind, hint) = (Kind::StartFailed, "or give it a token in `headers`");
                self.dialogue.fail(id, kind, |_| error.to_string(), hint);
            }
            close => {
                let is_away = matches!(close, Close::Failed(HttpError::Unreachable(_)));
                let (kind, hint) = close.verdict(self.dialogue.session.is_none());
                let (name, why) = (self.dialogue.name.clone(), close.told());
                let happened = |method: &str| match is_away {
                    true => format!("`{name}` could not be reached: {why}"),
                    false => format!("`{name}` gave no answer to `{method}`: {why}"),
                };
                self.dialogue.fail(id, kind, happened, hint);
            }
        }
    }

    fn resume(&mut self, id: &Id, place: Place) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            let wait = place.retry.unwrap_or(RETRY).max(LEAST_RETRY);
            exchange.resume = Some((Instant::now() + wait, place.last_id));
        }
    }

    fn may_repeat(&self, id: &Id) -> bool {
        !self.repeated.contains(id)
            && self.dialogue.of_handshake(id).is_none()
            && stands("forgotten-session-renewed")
    }

    /// The server has forgotten the session, and so has not carried the request out: both are begun anew.
    fn renew(&mut self, id: &Id) {
        if let Some(exchange) = self.exchanges.remove(id) {
            let Exchange { method, line, mirrored, .. } = exchange;
            self.held.push_back(Out::Request { id: id.clone(), method, line: line.into(), mirrored });
            self.repeated.insert(id.clone());
        }
        if !self.dialogue.is_shaking() {
            tracing::info!("`{}` has forgotten the session, and is asked for another", self.dialogue.name);
            self.session = None;
            if let Some(stream) = self.stream.take() {
                stream.task.abort();
            }
            self.dialogue.begin(Handshake::Initialize);
        }
    }

    /// Whether the server may be one of HTTP+SSE that refuses what it does not know.
    fn may_be_old(&self, id: &Id) -> bool {
        let is_handshake = self.dialogue.of_handshake(id) == Some(Handshake::Initialize);
        is_handshake
            && self.dialect.is_none()
            && matches!(self.way, Way::Streamable)
            && self.session.is_none()
    }

    fn try_old(&mut self, id: &Id) {
        self.open_old_stream();
        if let Some(Exchange { method, line, mirrored, .. }) = self.exchanges.remove(id) {
            self.held.push_back(Out::Request { id: id.clone(), method, line: line.into(), mirrored });
        }
    }

    /// The server refuses a request: with an error of its own in the body, or with a status alone.
    fn refused(&mut self, id: &Id, status: u16, told: &[u8]) {
        let name = self.dialogue.name.clone();
        if let Some(error) = error_member(told).filter(|_| !matches!(status, 401 | 403)) {
            return self.dialogue.complete(id, |_, call| {
                Error::Server(Box::new(ServerError::read(&name, &call.method, &error)))
            });
        }
        let is_probe = self.dialogue.of_handshake(id) == Some(Handshake::Discover);
        let (kind, hint) = match status {
            401 | 403 => (Kind::StartFailed, "log in, or give it the header that it wants"),
            // Servers of old answer what they do not know with anything.
            _ if is_probe => (Kind::BadResponse, "see whether it is an MCP server"),
            404 | 405 => (Kind::StartFailed, "check the path of its URL"),
            500.. => (Kind::ServerExited, "try again later, or see its log"),
            _ => (Kind::BadResponse, "see whether it is an MCP server"),
        };
        let words = in_short(told);
        let happened = |method: &str| format!("`{name}` answered `{method}` with HTTP {status}{words}");
        self.dialogue.fail(id, kind, happened, hint);
    }
}
