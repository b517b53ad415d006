//! Tools behind a front.

use std::{pin::Pin, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{Definition, ToolAnswer, service::Caller};

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
    /// Whose job it is, where it becomes one.
    pub caller: Caller,
    /// How long whoever calls waits for the answer from now on.
    pub limit: Duration,
    /// When to stop.
    pub cancellation: Cancellation,
}

/// An answer that is on its way.
pub type ToolAnswerFuture = Pin<Box<dyn Future<Output = ToolAnswer> + Send>>;

/// Tools behind a front.
pub trait Toolbox: Send + Sync + 'static {
    /// All tools, in the order in which they are listed. A session asks when it begins, and when they have changed.
    fn definitions(&self) -> Arc<[Definition]>;

    /// Tells that there are others now, where that can be.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// Calls one of them. Whatever goes wrong is an answer; once it is cancelled it has to end soon.
    fn call(&self, call: ToolCall) -> ToolAnswerFuture;
}

/// A toolbox with nothing in it.
pub struct NoTools;

impl Toolbox for NoTools {
    fn definitions(&self) -> Arc<[Definition]> {
        [].into()
    }

    fn call(&self, call: ToolCall) -> ToolAnswerFuture {
        Box::pin(async move { ToolAnswer::error(format!("there is no tool `{}`", call.tool)) })
    }
}
