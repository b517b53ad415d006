//! Several servers by name, each with one connection, and one end for all of them.
//!
//! Invariants
//!
//! - A server is started at its first request, and again at a request after its end. There is never more than one process of it.
//! - The end takes [`DISPOSE_LIMIT`] at most, whatever the servers do: all are ended at once, and none waits for another (C-53, C-55).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value, value::RawValue};
use tokio::task::JoinSet;
use unhang_proc::deadline::Deadline;

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

/// The result of ending all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisposeOutcome {
    /// The servers that have gone, with everything that they had started.
    pub gone: Vec<String>,
    /// The servers that had not gone in time. Their lifelines end them without this process.
    pub left: Vec<String>,
}

impl ServerPool {
    /// Makes a pool of these servers, and starts none of them yet.
    #[must_use]
    pub fn new(specs: impl IntoIterator<Item = ClientSpec>) -> Self {
        let pool = ServerPool::default();
        specs.into_iter().for_each(|spec| pool.register(spec));
        pool
    }

    /// Adds a server. Replaces the server that had its name.
    pub fn register(&self, spec: ClientSpec) {
        self.entries().servers.insert(spec.name.clone(), PoolEntry { spec, client: None });
    }

    /// Returns the names of all servers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.entries().servers.keys().cloned().collect()
    }

    /// Returns the client of this server, and starts it if need be. Must be called in a runtime.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchServer`], which has the nearest name, if there is none; with [`Error::Disposed`] after the end.
    pub fn client(&self, name: &str) -> Result<Client, Error> {
        let mut entries = self.entries();
        if entries.is_disposed {
            return Err(Error::Disposed);
        }
        let hint = did_you_mean(name, entries.servers.keys().map(String::as_str));
        let Some(entry) = entries.servers.get_mut(name) else {
            return Err(Error::NoSuchServer { name: name.to_owned(), hint });
        };
        let is_usable = |client: &Client| client.is_usable();
        match entry.client.clone().filter(is_usable) {
            Some(client) => Ok(client),
            None => Ok(entry.client.insert(Client::start(entry.spec.clone())).clone()),
        }
    }

    /// Calls a tool whose arguments are JSON text (C-17, C-21).
    ///
    /// # Errors
    /// Fails with [`Error::InvalidArguments`] if the text is not a JSON object; else as [`ServerPool::client`] and [`Client::request`] do.
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
    /// Fails as [`ServerPool::client`] and [`Client::request`] do.
    pub async fn access_mcp_resource(&self, server: &str, uri: &str) -> Result<Box<RawValue>, Error> {
        self.client(server)?.read_resource(uri, &RequestOptions::default()).await
    }

    /// Ends all servers, for good. May be called any number of times; from the second time on it has nothing left to do.
    pub async fn dispose(&self) -> DisposeOutcome {
        let clients: Vec<Client> = {
            let mut entries = self.entries();
            entries.is_disposed = true;
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
            // A server whose task panics stays in `left`, and keeps no other from its end.
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
