//! A client of a server that another process has started and asked, and from which that process has gone.
//!
//! Invariants
//!
//! - The server is greeted by nobody again, and no request is sent twice: the client only waits for the answers.
//! - Each request has one outcome, within what is left of its limit.

use std::{path::PathBuf, pin::Pin, sync::Arc};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use unhang_proc::{
    server::{ErrorPipe, Server},
    unnamed_file::FilePart,
};
use unhang_wire::Id;

use super::{Client, Error, ServerListener};
use crate::{
    handshake::ServerInfo,
    long_answers::LongAnswers,
    question::{ASIDES, OfSession, SideMessage},
    resumed_request::ResumedRequest,
    stdio,
    upstream_session::RequestOrigin,
};
use unhang_core::limits::Limits;

/// A server that another process has asked.
pub struct ResumedServer {
    /// The server's name in errors and logs.
    pub name: String,
    /// The server's limits.
    pub limits: Limits,
    /// The listener that hears the server's notifications and answers its questions.
    pub listener: Arc<dyn ServerListener>,
    /// The server's process.
    pub process: Server,
    /// The server's stderr.
    pub stderr: ErrorPipe,
    /// The server's answer to the handshake of the other process.
    pub info: ServerInfo,
    /// The folder to whose file system long answers go.
    pub folder: PathBuf,
    /// The requests whose answers the other process has read. An answer may come once more, and nobody waits for it.
    pub answered: Vec<Id>,
}

/// The answer to a resumed request, and what the server says before it. Dropping it withdraws the request.
pub struct ResumedAnswer {
    /// The outcome, once it is there.
    pub outcome: Pin<Box<dyn Future<Output = Result<Box<RawValue>, Error>> + Send>>,
    /// The newest progress.
    pub progress: watch::Receiver<Option<Box<RawValue>>>,
    /// The log messages and questions of the server about the request.
    pub asides: mpsc::Receiver<SideMessage>,
    /// The result, if it is in a file because it is long. The outcome has a short one in its place.
    pub long_result: oneshot::Receiver<FilePart>,
}

impl ResumedServer {
    /// Goes on with a server from which another process has gone. Returns the answers to these requests, in their order. Each request comes
    /// with its session, if it has one. Must be called in a runtime.
    pub fn resume(self, requests: Vec<(ResumedRequest, Option<OfSession>)>) -> (Client, Vec<ResumedAnswer>) {
        let ResumedServer { name, limits, listener, process, stderr, info, folder, answered } = self;
        let mut long_answers = LongAnswers::new(folder, limits.max_message);
        let (client, config, mailbox) = Client::with_actor(name, limits, listener, None, false);
        let (sent, answers) = requests
            .into_iter()
            .map(|(request, session)| {
                let (reply, received) = oneshot::channel();
                let (told, progress) = watch::channel(None);
                let (said, asides) = mpsc::channel(ASIDES);
                let origin = RequestOrigin::Caller {
                    reply,
                    progress: Some(told),
                    asides: Some(said),
                    session,
                    stream: None,
                };
                let outcome = Box::pin(client.link.outcome(received));
                let long_result = long_answers.wanted(request.id.clone());
                ((request, origin), ResumedAnswer { outcome, progress, asides, long_result })
            })
            .unzip();
        let requests = (sent, answered);
        tokio::spawn(stdio::resume((process, stderr, info), requests, long_answers, config, mailbox));
        (client, answers)
    }
}
