//! The way from a caller to the actor that has sent its request: a request that becomes a job is kept.
//!
//! Invariants
//!
//! - A [`SentRequest`] holds no handle of the server, so the server ends without its last handle as before.
//! - The call leaves the plan when its [`KeptRequest`] is dropped. So a caller drops it after the job has ended.

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::timeout,
};
use unhang_jobs::{id::JobId, record::Holder};
use unhang_proc::server::HolderCommand;
use unhang_wire::Id;

use super::{
    ActorCommand, Mailbox,
    keeping::{KEEP_LIMIT, WhoIsAsked},
};
use unhang_core::units::in_words;

/// Receives the request as a server process was sent it last. `None` means that no process has it yet.
pub type SentSender = watch::Sender<Option<SentRequest>>;

/// A request that a server process was sent.
#[derive(Clone, Debug)]
pub struct SentRequest {
    id: Id,
    /// The way to the actor of the server; `None` for a server over HTTP.
    commands: Option<mpsc::WeakSender<ActorCommand>>,
    changed: Arc<Notify>,
}

/// The order to keep a request.
#[derive(Clone, Debug)]
pub struct KeepOrder {
    /// The job that the request has become.
    pub job: JobId,
    /// The party that gets the server's questions about it.
    pub who: WhoIsAsked,
    /// The data folder of the job.
    pub data_folder: PathBuf,
    /// The command of a call holder, without its plan.
    pub command: HolderCommand,
}

/// The reason why a request is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// The request has its outcome, or no process of its server has it.
    #[error("the server does not work on the call any more")]
    Over,
    /// No server can be kept here.
    #[error(
        "a limit of the system for the size of files (`ulimit -f`) is too low to keep the server's output"
    )]
    Impossible,
    /// A step failed, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// A keep order on its way to the actor of the server.
#[derive(Debug)]
pub(crate) struct KeepCommand {
    pub(super) id: Id,
    pub(super) order: KeepOrder,
    pub(super) reply: oneshot::Sender<Result<KeptRequest, KeepError>>,
    pub(super) changed: Arc<Notify>,
}

/// A request whose server goes on for it when this process ends. Dropping it takes the request out of the plan.
#[derive(Debug)]
pub struct KeptRequest {
    id: Id,
    keeper: Holder,
    server_left: Arc<AtomicBool>,
    is_left_to_holder: Arc<AtomicBool>,
    settled: Option<oneshot::Sender<Infallible>>,
    changed: Arc<Notify>,
}

/// The actor's side of a [`KeptRequest`].
#[derive(Debug)]
pub(super) struct FollowedRequest {
    /// The id under which the request came into the plan.
    pub(super) first: Id,
    pub(super) settled: oneshot::Receiver<Infallible>,
    pub(super) server_left: Arc<AtomicBool>,
    /// The answer is for the call holder, and the job has not ended though its caller has gone.
    pub(super) is_left_to_holder: Arc<AtomicBool>,
}

impl SentRequest {
    pub(crate) fn new(id: Id, mailbox: &Mailbox) -> Self {
        Self { id, commands: Some(mailbox.own_commands.clone()), changed: Arc::clone(&mailbox.withdrawn) }
    }

    /// Makes a request that a server over HTTP was sent. No lifeline keeps such a server.
    pub(crate) fn remote(id: Id) -> Self {
        Self { id, commands: None, changed: Arc::default() }
    }

    /// Returns the id if the actor with this mailbox has sent the request.
    pub(crate) fn id_here(self, mailbox: &Mailbox) -> Option<Id> {
        Arc::ptr_eq(&self.changed, &mailbox.withdrawn).then_some(self.id)
    }

    /// Has the lifeline of the server keep it for this request. The server then goes on when this process has ended.
    ///
    /// # Errors
    /// Fails with the reason why the request ends with this process.
    pub async fn keep(&self, order: KeepOrder) -> Result<KeptRequest, KeepError> {
        let (reply, received) = oneshot::channel();
        let changed = Arc::clone(&self.changed);
        let command = KeepCommand { id: self.id.clone(), order, reply, changed: Arc::clone(&changed) };
        let commands = self.commands.as_ref().and_then(mpsc::WeakSender::upgrade).ok_or(KeepError::Over)?;
        let _abandoned = NotifyOnDrop(changed);
        let kept = timeout(KEEP_LIMIT, async {
            commands.send(ActorCommand::Keep(Box::new(command))).await.map_err(|_| KeepError::Over)?;
            drop(commands);
            received.await.unwrap_or(Err(KeepError::Over))
        });
        kept.await.unwrap_or_else(|_| {
            let limit = in_words(KEEP_LIMIT);
            Err(KeepError::Refused(format!(
                "its lifeline, which has to keep its pipes, did not answer within {limit}"
            )))
        })
    }
}

/// Wakes the actor when its caller has stopped waiting.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl KeepCommand {
    /// Returns whether nobody waits for the reply.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) fn refuse(self, why: KeepError) {
        // The caller may have gone.
        let _gone = self.reply.send(Err(why));
    }

    /// Tells the caller that its request is kept by this process. `first` is the id under which it came into the plan.
    pub(super) fn confirm(self, first: Id, keeper: Holder) -> FollowedRequest {
        let (tell, settled) = oneshot::channel();
        let [server_left, is_left_to_holder] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let kept = KeptRequest {
            id: self.id,
            keeper,
            server_left: Arc::clone(&server_left),
            is_left_to_holder: Arc::clone(&is_left_to_holder),
            settled: Some(tell),
            changed: self.changed,
        };
        // If the caller has gone, dropping `kept` settles the request.
        let _gone = self.reply.send(Ok(kept));
        FollowedRequest { first, settled, server_left, is_left_to_holder }
    }
}

impl KeptRequest {
    /// Returns the process that has the request resumed when this process has gone.
    #[must_use]
    pub fn keeper(&self) -> &Holder {
        &self.keeper
    }

    /// Returns whether this is the request that was sent so.
    #[must_use]
    pub fn is_of(&self, sent: &SentRequest) -> bool {
        self.id == sent.id && Arc::ptr_eq(&self.changed, &sent.changed)
    }

    /// Returns whether this process has let go of the server, which goes on for the request.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.server_left.load(Ordering::Acquire)
    }

    /// Leaves the request to the call holder. It stays in the plan, and its answer in the journal, also if this process has read the answer.
    pub fn leave_to_holder(self) {
        // Before the drop, which tells the actor that nobody waits.
        self.is_left_to_holder.store(true, Ordering::Release);
    }
}

impl Drop for KeptRequest {
    fn drop(&mut self) {
        self.settled = None;
        self.changed.notify_one();
    }
}

impl FollowedRequest {
    /// Returns whether the job of the request has ended.
    pub(super) fn is_settled(&mut self) -> bool {
        matches!(self.settled.try_recv(), Err(oneshot::error::TryRecvError::Closed))
            && !self.is_left_to_holder()
    }

    /// Returns whether the call holder has to settle the job.
    pub(super) fn is_left_to_holder(&self) -> bool {
        self.is_left_to_holder.load(Ordering::Acquire)
    }

    /// Notes that the server goes on without this process.
    pub(super) fn leave(&self) {
        self.server_left.store(true, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use unhang_jobs::record::ProcessRecord;

    use super::*;

    fn order() -> KeepOrder {
        KeepOrder {
            job: JobId::random().unwrap(),
            who: WhoIsAsked::Nobody,
            data_folder: PathBuf::new(),
            command: HolderCommand {
                program: PathBuf::new(),
                arguments: Vec::new(),
                environment: Vec::new(),
                folder: PathBuf::new(),
            },
        }
    }

    /// A request that is kept, from both sides.
    pub(crate) fn kept() -> (KeptRequest, FollowedRequest) {
        let (reply, mut received) = oneshot::channel();
        let command = KeepCommand { id: Id::Integer(1), order: order(), reply, changed: Arc::default() };
        let keeper = Holder { boot_id: "here".to_owned(), process: ProcessRecord { pid: 1, start: 1 } };
        let followed = command.confirm(Id::Integer(1), keeper);
        (received.try_recv().unwrap().unwrap(), followed)
    }

    #[test]
    fn a_request_that_is_left_to_the_call_holder_is_not_settled_when_its_caller_has_gone() {
        let (request, mut followed) = kept();
        assert!(!followed.is_settled());
        request.leave_to_holder();
        assert!(!followed.is_settled());
    }

    #[tokio::test]
    async fn a_request_to_a_server_over_http_is_not_kept() {
        let (request, _followed) = kept();
        let remote = SentRequest::remote(Id::Integer(1));
        assert!(!request.is_of(&remote));
        assert!(matches!(remote.keep(order()).await, Err(KeepError::Over)));
    }

    #[test]
    fn a_request_whose_caller_has_gone_is_settled() {
        let (request, mut followed) = kept();
        drop(request);
        assert!(followed.is_settled());
    }
}
