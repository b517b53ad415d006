//! Whose turn it is at a server: one call at a time where it asks things about its calls, and as many of a tool as are wanted.
//!
//! Invariants
//!
//! - Turns come in the order in which they were asked for. Who stops waiting for one keeps nobody from theirs.
//! - The turn of a tool is taken before the server's, so that no two wait for each other.

use std::{collections::HashMap, pin::pin, time::Duration};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use unhang_bridge::Era;
use unhang_switches::stands;

use super::backend::Backend;
use crate::{
    client::{Error, Failure},
    fault::{Kind, in_words},
    route::rules::ToolRules,
};

/// The turns at one server.
pub(super) struct Turns {
    /// At the server as a whole.
    server: Semaphore,
    /// At single tools.
    tools: HashMap<String, ToolTurns>,
}

struct ToolTurns {
    /// How many there are.
    most: usize,
    free: Semaphore,
}

impl Turns {
    pub(super) fn new(rules: &ToolRules) -> Self {
        let tools = rules.tools.iter().filter_map(|(name, rule)| {
            let most = rule.max_in_flight?.min(Semaphore::MAX_PERMITS);
            Some((name.clone(), ToolTurns { most, free: Semaphore::new(most) }))
        });
        Self { server: Semaphore::new(1), tools: tools.collect() }
    }

    fn of(&self, tool: Option<&str>) -> Option<&ToolTurns> {
        self.tools.get(tool?)
    }
}

impl Backend {
    /// Waits until this tool may be called; there is nothing to wait for where that may be done as often as anybody likes. Cancel-safe.
    pub(super) async fn turn_of(&self, tool: Option<&str>) -> Option<SemaphorePermit<'_>> {
        let turns = self.turns.of(tool).filter(|_| stands("calls-of-a-tool-bounded"))?;
        // It is never closed.
        turns.free.acquire().await.ok()
    }

    /// Waits until it may be asked: a server that asks back has one call at a time, so that it is known what its questions are about
    /// (protocol.md 3.3, row 8). Cancel-safe.
    pub(super) async fn turn(&self, era: Era) -> Option<SemaphorePermit<'_>> {
        match era == Era::Legacy && self.ear.asks() && stands("one-call-where-questions-come") {
            true => {
                let mut turn = pin!(self.turns.server.acquire());
                let turn = match timeout(self.turn_patience, turn.as_mut()).await {
                    Ok(turn) => turn,
                    Err(_) => {
                        if stands("nobody-keeps-a-server-by-silence") {
                            self.ear.ring();
                        }
                        turn.await
                    }
                };
                // It is never closed.
                turn.ok()
            }
            false => None,
        }
    }

    /// Our verdict for a caller whose time was over before it was their turn.
    pub(super) fn still_busy(&self, method: &str, limit: Duration) -> Error {
        let happened = format!("`{}` was not free for `{method}` within {}", self.name(), in_words(limit));
        let hint =
            "it asks things about its calls and has one at a time; ask again when the others have ended";
        self.overloaded(method, limit, happened, hint)
    }

    /// The same where others were calling the same tool.
    pub(super) fn tool_still_busy(&self, tool: Option<&str>, method: &str, limit: Duration) -> Error {
        let (name, most) = (self.name(), self.turns.of(tool).map_or(0, |turns| turns.most));
        let tool = tool.unwrap_or_default();
        let happened = format!("`{tool}` of `{name}` was not free within {}", in_words(limit));
        let hint = format!(
            "it has max-in-flight = {most} calls at a time; ask again when the others have ended, or raise that in \
             [servers.{name}.tools.{tool}]"
        );
        self.overloaded(method, limit, happened, &hint)
    }

    fn overloaded(&self, method: &str, limit: Duration, happened: String, hint: &str) -> Error {
        let failure = self.failure(Kind::Overloaded, method, happened, hint);
        Failure { limit: Some(limit), elapsed: limit, ..failure }.into()
    }
}
