//! The arguments of a server's tools that are sent as headers as well. The client learns them from the list of tools, and asks for that
//! list if it does not know them yet.
//!
//! Invariants: a tool is called with the headers of the newest list. However many calls want the list, one asks for it. No call waits for
//! it beyond its own limit.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use unhang_proc::deadline::Deadline;
use unhang_wire::{Json, text_member};

use super::{Client, Error, RequestOptions};
use crate::http::{headers, param_headers::ParamHeaders};

/// The mirrored arguments by tool, once the tools have been listed.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    /// The server is the leading window, which has servers of both eras.
    pub(super) are_of_leader: bool,
    known: Mutex<Option<HashMap<String, ParamHeaders>>>,
    /// Held by the call that asks for the list.
    listing: tokio::sync::Mutex<()>,
}

#[derive(Deserialize)]
struct MirroredTool {
    name: String,
    #[serde(rename = "inputSchema", default)]
    input_schema: Value,
}

impl Mirrors {
    /// Knows no list yet. `are_of_leader` says that the server is the leading window.
    pub(super) fn new(are_of_leader: bool) -> Self {
        Self { are_of_leader, ..Self::default() }
    }

    /// Returns the headers of a request, besides those of every request.
    pub(super) async fn of_request(
        &self,
        client: &Client,
        method: &str,
        params: &str,
        deadline: Deadline,
    ) -> Result<Vec<(String, String)>, Error> {
        let params = Json::new(params.as_bytes()).unwrap_or(Json::EMPTY);
        let mut headers: Vec<_> = headers::of_request(method, params).into_iter().collect();
        let tool = (method == "tools/call").then(|| text_member(params, "name")).flatten();
        if let Some(tool) = tool {
            if self.known().is_none() {
                // If the turn does not come in time, the list does not either.
                let _turn = deadline.timeout(self.listing.lock()).await;
                if self.known().is_none() {
                    let timeout = Some(client.limits.request_timeout.min(deadline.remaining()));
                    // Boxed, because listing is a request too.
                    Box::pin(client.list_tools(&RequestOptions { timeout, ..RequestOptions::default() }))
                        .await?;
                }
            }
            let known = self.known();
            if let Some(declared) = known.as_ref().and_then(|known| known.get(&tool)) {
                headers.extend(declared.of_arguments(params.member("arguments")));
            }
        }
        Ok(headers)
    }

    /// Learns the headers from a list of tools, and removes the tools that break the rules.
    pub(super) fn learn(&self, server: &str, tools: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let mut known = HashMap::new();
        let mut is_usable = |raw: &RawValue| {
            // An item that cannot be read as a tool is for others to judge.
            let Ok(MirroredTool { name, input_schema }) = serde_json::from_str(raw.get()) else {
                return true;
            };
            match ParamHeaders::of_schema(&input_schema) {
                Ok(declared) => drop(known.insert(name, declared)),
                Err(why) => {
                    tracing::warn!("unhang leaves out the tool `{name}` of `{server}`: {why} (x-mcp-header)");
                    return false;
                }
            }
            true
        };
        let tools = tools.into_iter().filter(|tool| is_usable(tool)).collect();
        *self.known() = Some(known);
        tools
    }

    /// Forgets the list, which is known to be old.
    pub(super) fn forget(&self) {
        *self.known() = None;
    }

    fn known(&self) -> MutexGuard<'_, Option<HashMap<String, ParamHeaders>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
