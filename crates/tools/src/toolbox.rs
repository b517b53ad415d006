//! The tools behind a front, as the front sees them.

use std::{pin::Pin, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{Definition, ToolAnswer, service::Caller};

/// Tells a call that nobody waits for it any more.
#[derive(Clone, Debug)]
pub struct Cancellation(watch::Receiver<bool>);

impl Cancellation {
    /// Makes a cancellation, and the sender that sets it off. Dropping the sender sets it off too.
    pub fn new() -> (watch::Sender<bool>, Cancellation) {
        let (sender, receiver) = watch::channel(false);
        (sender, Cancellation(receiver))
    }

    /// Waits until nobody waits for the call any more. Cancel-safe.
    pub async fn cancelled(&mut self) {
        let _nobody_is_left = self.0.wait_for(|cancelled| *cancelled).await;
    }
}

/// A tool, and the arguments that it is called with.
#[derive(Debug)]
pub struct ToolCall {
    /// One of the names that the toolbox gave.
    pub tool: String,
    /// The arguments, not yet checked.
    pub arguments: Map<String, Value>,
    /// The length of the arguments as JSON, in bytes.
    pub length: usize,
    /// The owner of the job, if the call becomes one.
    pub caller: Caller,
    /// The time for which the caller waits for the answer from now on.
    pub limit: Duration,
    /// Tells the call when to stop.
    pub cancellation: Cancellation,
}

/// An answer that is on its way.
pub type ToolAnswerFuture = Pin<Box<dyn Future<Output = ToolAnswer> + Send>>;

/// The tools behind a front.
pub trait Toolbox: Send + Sync + 'static {
    /// Returns all tools, in the order in which they are listed. A session asks when it begins, and when the tools have changed.
    fn definitions(&self) -> Arc<[Definition]>;

    /// Returns a receiver that hears when the tools change, or `None` if they cannot.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// Executes a call of one of the tools. A failure is an answer as well. A call that is cancelled has to end soon.
    fn call(&self, call: ToolCall) -> ToolAnswerFuture;
}

/// A toolbox without tools.
pub struct NoTools;

impl Toolbox for NoTools {
    fn definitions(&self) -> Arc<[Definition]> {
        [].into()
    }

    fn call(&self, call: ToolCall) -> ToolAnswerFuture {
        Box::pin(async move { ToolAnswer::error(format!("there is no tool `{}`", call.tool)) })
    }
}
