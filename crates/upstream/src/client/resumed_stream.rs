//! A client of one call over HTTP that another process has made, and from which that process has gone: the stream of the answer is resumed.
//!
//! Invariants
//!
//! - The call is not sent again, and its session is greeted by nobody again.
//! - The session is deleted only if somebody says that no other call needs it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use unhang_core::{limits::Limits, revision::Revision};
use unhang_wire::Id;

use super::{Client, Error, ProgressSender, ServerListener};
use crate::{
    call_stream::{CallStream, StreamPoint},
    handshake::ServerInfo,
    http::{
        HttpServer,
        resumption::{StreamResumption, resume},
    },
    question::{OfSession, SideMessageSender},
    resumed_request::ResumedRequest,
    upstream_session::RequestOrigin,
};

/// A call whose answer comes on a stream of another process.
pub struct ResumedStream {
    /// The server's name in errors and logs.
    pub name: String,
    /// The way to the server.
    pub server: HttpServer,
    /// The server's limits.
    pub limits: Limits,
    /// The listener that hears the notifications that are not about the call.
    pub listener: Arc<dyn ServerListener>,
    /// The point from which the stream is resumed.
    pub point: StreamPoint,
    /// The time for which the server has worked on the call.
    pub elapsed: Duration,
    /// The time that the call may take in all.
    pub limit: Duration,
    /// The session of the client that has called, as unhang numbers sessions.
    pub session: Option<OfSession>,
    /// Receives the newest progress.
    pub progress: ProgressSender,
    /// Receives the log messages and questions of the server about the call.
    pub asides: SideMessageSender,
    /// Hears of the stream from now on.
    pub stream: CallStream,
}

/// The outcome of a resumed call, once it is there.
pub type ResumedOutcome = Pin<Box<dyn Future<Output = Result<Box<RawValue>, Error>> + Send>>;

/// The client of a resumed call, and the end of its session.
#[derive(Clone)]
pub struct ResumedClient {
    client: Client,
    deletes_session: Arc<AtomicBool>,
}

impl ResumedStream {
    /// Resumes the stream, and returns the outcome of the call beside the client. Dropping the outcome withdraws the call. Must be called in a
    /// runtime. Returns `None` if the revision of the session has no sessions.
    #[must_use]
    pub fn resume(self) -> Option<(ResumedClient, ResumedOutcome)> {
        let ResumedStream {
            name,
            server,
            limits,
            listener,
            point,
            elapsed,
            limit,
            session,
            progress,
            asides,
            stream,
        } = self;
        let revision = Revision::of_handshake(&point.revision)?;
        let (client, config, mailbox) = Client::with_actor(name, limits, listener, None, true);
        let (reply, received) = oneshot::channel();
        let origin = RequestOrigin::Caller {
            reply,
            progress: Some(progress),
            asides: Some(asides),
            session,
            stream: Some(stream.clone()),
        };
        let id = Id::Integer(point.request);
        let method = "tools/call".into();
        let request = ResumedRequest { id: id.clone(), token: Some(id), method, elapsed, limit };
        let outcome = Box::pin(client.link.outcome(received));
        let deletes_session = Arc::new(AtomicBool::new(false));
        let resumption = StreamResumption {
            point,
            info: ServerInfo::read(revision, RawValue::NULL),
            request,
            origin,
            stream,
            deletes_session: Arc::clone(&deletes_session),
        };
        tokio::spawn(resume(server, resumption, config, mailbox));
        Some((ResumedClient { client, deletes_session }, outcome))
    }
}

impl ResumedClient {
    /// Ends the client. `deletes_session` says whether the session is deleted at the server: no other call needs it.
    pub async fn end(&self, deletes_session: bool) {
        self.deletes_session.store(deletes_session, Ordering::Relaxed);
        self.client.dispose().await;
    }
}
