//! The workers of the store, as people see them.
//!
//! Invariant: nothing here decides about a job. A worker without a row runs its jobs all the same.

use std::time::Duration;

use tokio_postgres::{Row, types::Type};
use unhang_jobs::shared_jobs::WorkerSummary;

use crate::{
    error::PostgresError,
    leases::{length, millis},
    store::PostgresStore,
};

/// The facts that a worker tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerNote {
    /// The worker, by a name that no other machine has.
    pub name: String,
    /// The name of its machine.
    pub host: String,
    /// The version of its unhang.
    pub version: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// The most jobs that it runs at the same time.
    pub slots: u32,
    /// The time after which it counts as silent.
    pub silent_after: Duration,
}

/// A worker, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownWorker {
    /// The facts that it told.
    pub note: WorkerNote,
    /// The number of its jobs.
    pub running: u64,
    /// The time since its last heartbeat, by the database's clock.
    pub heard_ago: Duration,
    /// Whether somebody wants it to take no more jobs.
    pub is_drain_wanted: bool,
}

impl KnownWorker {
    /// Returns whether the worker has missed its heartbeats.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.heard_ago > self.note.silent_after
    }

    /// Returns what people see of the worker.
    #[must_use]
    pub fn summary(&self) -> WorkerSummary {
        WorkerSummary {
            name: self.note.name.clone(),
            host: self.note.host.clone(),
            version: self.note.version.clone(),
            labels: self.note.labels.clone(),
            slots: self.note.slots,
            running: self.running,
            heard_seconds_ago: self.heard_ago.as_secs(),
            is_silent: self.is_silent(),
            is_draining: self.is_drain_wanted,
        }
    }
}

/// The list of all workers in a store.
#[derive(Debug)]
pub struct WorkerList<'a>(pub &'a mut PostgresStore);

impl WorkerList<'_> {
    /// Tells that this worker lives. Returns whether somebody wants it to take no more jobs.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn announce(&mut self, worker: &WorkerNote) -> Result<bool, PostgresError> {
        let rows = self.0.rows(
            "told that this worker lives",
            "INSERT INTO unhang.workers (name, host, version, labels, slots, silent_after_ms)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version,
                labels = excluded.labels, slots = excluded.slots, silent_after_ms = excluded.silent_after_ms,
                heard_at = clock_timestamp()
             RETURNING is_drain_wanted",
            &[
                (&worker.name, Type::TEXT),
                (&worker.host, Type::TEXT),
                (&worker.version, Type::TEXT),
                (&worker.labels, Type::TEXT_ARRAY),
                (&i32::try_from(worker.slots).unwrap_or(i32::MAX), Type::INT4),
                (&millis(worker.silent_after), Type::FLOAT8),
            ],
        )?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Removes a worker that has ended and has no jobs.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn sign_off(&mut self, name: &str) -> Result<(), PostgresError> {
        self.0
            .changes(
                "signed a worker off",
                "DELETE FROM unhang.workers
             WHERE name = $1 AND NOT EXISTS (SELECT FROM unhang.jobs WHERE state = 'active' AND worker = $1)",
                &[(&name, Type::TEXT)],
            )
            .map(drop)
    }

    /// Removes the workers that have been silent for this long and have no jobs.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn remove_silent(&mut self, silence: Duration) -> Result<(), PostgresError> {
        self.0
            .changes(
                "removed workers that have gone",
                "DELETE FROM unhang.workers
                 WHERE heard_at + $1 * interval '1 ms' < clock_timestamp()
                    AND NOT EXISTS (SELECT FROM unhang.jobs WHERE state = 'active' AND worker = name)",
                &[(&millis(silence), Type::FLOAT8)],
            )
            .map(drop)
    }

    /// Drains a worker, which takes no more jobs then, or undoes that. Returns false if there is no such worker.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn want_drain(&mut self, name: &str, is_wanted: bool) -> Result<bool, PostgresError> {
        self.0.changes(
            "drained a worker",
            "UPDATE unhang.workers SET is_drain_wanted = $2 WHERE name = $1",
            &[(&name, Type::TEXT), (&is_wanted, Type::BOOL)],
        )
    }

    /// Returns all workers by name, and those that have been silent for long with them.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn all(&mut self) -> Result<Vec<KnownWorker>, PostgresError> {
        let rows = self.0.rows(
            "listed the workers",
            "SELECT name, host, version, labels, slots, silent_after_ms, is_drain_wanted,
                (extract(epoch FROM clock_timestamp() - heard_at) * 1000)::float8,
                (SELECT count(*) FROM unhang.jobs WHERE state = 'active' AND worker = name)
             FROM unhang.workers ORDER BY name",
            &[],
        )?;
        let worker = |row: &Row| KnownWorker {
            note: WorkerNote {
                name: row.get(0),
                host: row.get(1),
                version: row.get(2),
                labels: row.get(3),
                slots: u32::try_from(row.get::<_, i32>(4)).unwrap_or_default(),
                silent_after: length(row.get(5)),
            },
            is_drain_wanted: row.get(6),
            heard_ago: length(row.get(7)),
            running: u64::try_from(row.get::<_, i64>(8)).unwrap_or_default(),
        };
        Ok(rows.iter().map(worker).collect())
    }
}
