//! Several servers by name, each with one connection, and one end for all of them.
//!
//! Invariants
//!
//! - A server is started when it is first asked, and again when it is asked after its end; there is never more than one of it.
//! - The end takes [`DISPOSE_LIMIT`] at most, whatever the servers do: all are ended at once, none waits for another (C-53, C-55).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value, value::RawValue};
use tokio::task::JoinSet;
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

use super::{Client, ClientSpec, Error, RequestOptions};
use unhang_core::{config::DISPOSE_LIMIT, wording::did_you_mean};

/// Servers by name.
#[derive(Default)]
pub struct ServerPool {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    servers: BTreeMap<String, PoolEntry>,
    is_disposed: bool,
}

struct PoolEntry {
    spec: ClientSpec,
    client: Option<Client>,
}

/// What came of the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisposeOutcome {
    /// Servers that have gone, with everything that they had started.
    pub gone: Vec<String>,
    /// Servers that had not gone in time. Their lifelines end them without us.
    pub left: Vec<String>,
}

impl ServerPool {
    /// A pool of these servers. None is started yet.
    #[must_use]
    pub fn new(specs: impl IntoIterator<Item = ClientSpec>) -> Self {
        let pool = ServerPool::default();
        specs.into_iter().for_each(|spec| pool.register(spec));
        pool
    }

    /// Adds a server, or replaces what its name stood for so far.
    pub fn register(&self, spec: ClientSpec) {
        self.entries().servers.insert(spec.name.clone(), PoolEntry { spec, client: None });
    }

    /// The names of all servers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.entries().servers.keys().cloned().collect()
    }

    /// The server of this name, started if need be. Must be called in a runtime.
    ///
    /// # Errors
    /// [`Error::NoSuchServer`], with the nearest name; [`Error::Disposed`] after the end.
    pub fn client(&self, name: &str) -> Result<Client, Error> {
        let mut entries = self.entries();
        if entries.is_disposed {
            return Err(Error::Disposed);
        }
        let hint = did_you_mean(name, entries.servers.keys().map(String::as_str));
        let Some(entry) = entries.servers.get_mut(name) else {
            return Err(Error::NoSuchServer { name: name.to_owned(), hint });
        };
        let is_usable = |client: &Client| client.is_usable() || !stands("dead-client-replaced");
        match entry.client.clone().filter(is_usable) {
            Some(client) => Ok(client),
            None => Ok(entry.client.insert(Client::start(entry.spec.clone())).clone()),
        }
    }

    /// Calls a tool whose arguments are JSON text (C-17, C-21).
    ///
    /// # Errors
    /// [`Error::InvalidArguments`] for what is no JSON object; else as [`ServerPool::client`] and [`Client::request`].
    pub async fn use_mcp_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: &str,
    ) -> Result<Box<RawValue>, Error> {
        let arguments: Map<String, Value> = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(error) => {
                return Err(Error::InvalidArguments { tool: tool.to_owned(), reason: error.to_string() });
            }
        };
        self.client(server)?.call_tool(tool, arguments, &RequestOptions::default()).await
    }

    /// Reads a resource (C-18, C-22).
    ///
    /// # Errors
    /// As [`ServerPool::client`] and [`Client::request`].
    pub async fn access_mcp_resource(&self, server: &str, uri: &str) -> Result<Box<RawValue>, Error> {
        self.client(server)?.read_resource(uri, &RequestOptions::default()).await
    }

    /// Ends all servers, for good. May be called as often as anybody likes; there is nothing left to do from the second time on.
    pub async fn dispose(&self) -> DisposeOutcome {
        let clients: Vec<Client> = {
            let mut entries = self.entries();
            entries.is_disposed = stands("disposed-is-disposed");
            entries.servers.values_mut().filter_map(|entry| entry.client.take()).collect()
        };
        let deadline = Deadline::after(DISPOSE_LIMIT);
        let (mut disposed, mut ends) = (DisposeOutcome::default(), JoinSet::new());
        for client in clients {
            disposed.left.push(client.name().to_owned());
            ends.spawn(async move {
                let has_gone = client.dispose_by(deadline).await;
                (client.name().to_owned(), has_gone)
            });
        }
        while let Some(end) = ends.join_next().await {
            // One that panics stays with what is left, and keeps no other from its end.
            if let Ok((name, true)) = end {
                disposed.left.retain(|left| *left != name);
                disposed.gone.push(name);
            }
        }
        for name in &disposed.left {
            tracing::warn!("`{name}` had not ended in time; its lifeline ends it");
        }
        disposed
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
