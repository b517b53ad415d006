//! Hints: the database tells workers that there is something new, so that they need not wait for their next look.
//!
//! Theory of operation. Who submits a job sends a hint after the job is durable. The hint is a transaction of its own, which waits for no
//! disk: the database sends hints one after the other, and a submission with a hint inside would make all others wait. A worker listens on
//! a connection of its own. Before it relies on hints, it sends one to itself, on a channel that nobody else uses.
//!
//! Invariants
//!
//! - Nothing depends on a hint. A hint that is lost, or never sent, costs the time until the next look.
//! - A connection through a pooler that shares sessions passes on no hints, and is not used for them.
//! - A program that ends waits for its last hint, but only for a moment.

use std::{
    future::poll_fn,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::mpsc::{Receiver, channel},
    time::{interval, timeout},
};
use tokio_postgres::{AsyncMessage, Client, types::Type};

use crate::{
    address::StoreAddress,
    connection::{client_of, forward},
    connection_pool::ConnectionPool,
    error::{PostgresError, explain},
};

/// The channel of hints in the database.
const CHANNEL: &str = "unhang";

/// The least time between two hints of one process.
const PACE: Duration = Duration::from_millis(10);

/// The longest time that a program waits at its end for a hint.
const LAST_HINT: Duration = Duration::from_millis(500);

/// The time within which the hint to itself has to arrive.
const PROOF: Duration = Duration::from_secs(3);

/// The time between two questions whether the connection still lives.
const LOOK: Duration = Duration::from_secs(30);

/// The most hints that wait for the listener. More of them say nothing more.
const WAITING: usize = 16;

/// The news that a hint tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreHint {
    /// There is a job in the queue.
    Job,
    /// Somebody wants a job to be cancelled.
    Cancel,
}

impl StoreHint {
    const ALL: [Self; 2] = [Self::Job, Self::Cancel];

    fn payload(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Cancel => "cancel",
        }
    }
}

/// Sends hints, one at a time, on a thread that exists while there is something to send.
#[derive(Debug, Default)]
pub(crate) struct HintSender {
    shared: Arc<(Mutex<PendingHints>, Condvar)>,
}

/// The hints that have not been sent.
#[derive(Debug, Default)]
struct PendingHints {
    is_sending: bool,
    /// Whether the program is about to end, and waits.
    is_ending: bool,
    wanted: [bool; StoreHint::ALL.len()],
}

impl HintSender {
    /// Sends a hint soon, with a connection of this pool. Does not wait.
    pub(crate) fn send(&self, hint: StoreHint, pool: &Arc<ConnectionPool>) {
        let mut pending = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.wanted[hint as usize] = true;
        if pending.is_sending {
            return;
        }
        let (shared, pool) = (Arc::clone(&self.shared), Arc::clone(pool));
        let started =
            thread::Builder::new().name("unhang-hints".to_owned()).spawn(move || send_all(&shared, &pool));
        // Without a thread, workers find the job with their next look.
        pending.is_sending = started.is_ok();
    }
}

/// Waits for the thread, but only for a moment.
impl Drop for HintSender {
    fn drop(&mut self) {
        let mut pending = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.is_ending = true;
        self.shared.1.notify_all();
        drop(self.shared.1.wait_timeout_while(pending, LAST_HINT, |pending| pending.is_sending));
    }
}

/// Sends hints until none is wanted.
fn send_all((pending, changed): &(Mutex<PendingHints>, Condvar), pool: &ConnectionPool) {
    let mut guard = pending.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let wanted = std::mem::take(&mut guard.wanted);
        if !wanted.contains(&true) {
            guard.is_sending = false;
            changed.notify_all();
            return;
        }
        drop(guard);
        for hint in StoreHint::ALL.into_iter().filter(|hint| wanted[*hint as usize]) {
            let sent = pool.run(|store| {
                let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
                store.rows("sent a hint", sql, &[(&CHANNEL, Type::TEXT), (&hint.payload(), Type::TEXT)])
            });
            if let Err(error) = sent {
                tracing::debug!("a hint could not be sent: {error}");
            }
        }
        guard = pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Hints that come together are sent as one.
        let paced = changed.wait_timeout_while(guard, PACE, |pending| !pending.is_ending);
        guard = paced.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The reason why a listener has ended.
#[derive(Debug, thiserror::Error)]
pub enum ListenerEnd {
    /// The connection broke, or could not be made.
    #[error(transparent)]
    Broken(#[from] PostgresError),
    /// The connection passes on no hints, as one through a pooler that shares sessions.
    #[error(
        "the connection to the job store {store} passes on no notifications, as behind a pooler of connections"
    )]
    NotPassedOn {
        /// The store.
        store: String,
    },
}

/// Calls `begun` once hints arrive, and `hinted` for each of them, until the connection ends.
///
/// # Errors
/// Always ends with the reason.
pub async fn listen_for_hints(
    address: &StoreAddress,
    begun: impl FnOnce(),
    mut hinted: impl FnMut(StoreHint),
) -> ListenerEnd {
    match listen(address).await {
        Ok((client, mut hints)) => {
            begun();
            let mut looks = interval(LOOK);
            loop {
                tokio::select! {
                    hint = hints.recv() => match hint {
                        Some(payload) => {
                            StoreHint::ALL.into_iter().filter(|hint| hint.payload() == payload).for_each(&mut hinted);
                        }
                        None => return broken(address, "the connection for hints has ended").into(),
                    },
                    _ = looks.tick() => {
                        if !matches!(timeout(PROOF, client.check_connection()).await, Ok(Ok(()))) {
                            return broken(address, "the connection for hints does not answer").into();
                        }
                    }
                }
            }
        }
        Err(end) => end,
    }
}

/// Makes a connection to which hints come, and proves that they do.
async fn listen(address: &StoreAddress) -> Result<(Client, Receiver<String>), ListenerEnd> {
    let told = |error: tokio_postgres::Error| explain(address.shown(), "listened for hints", &error);
    let (client, mut connection) = client_of(address).await?;
    let (sender, mut hints) = channel(WAITING);
    // It ends with the client.
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(hint) = message {
                // A full channel has hints enough.
                let _ = sender.try_send(hint.payload().to_owned());
            }
        }
    });
    let random = getrandom::u64().unwrap_or_default();
    let proof = format!("{CHANNEL}_{random:016x}");
    client.batch_execute(&format!("LISTEN {proof}")).await.map_err(told)?;
    let (other, connection) = client_of(address).await?;
    forward(connection);
    other.query_typed("SELECT pg_notify($1, '')", &[(&proof, Type::TEXT)]).await.map_err(told)?;
    drop(other);
    if timeout(PROOF, hints.recv()).await.ok().flatten().is_none() {
        return Err(ListenerEnd::NotPassedOn { store: address.shown().to_owned() });
    }
    client.batch_execute(&format!("UNLISTEN {proof}; LISTEN {CHANNEL}")).await.map_err(told)?;
    Ok((client, hints))
}

fn broken(address: &StoreAddress, detail: &str) -> PostgresError {
    PostgresError::Unreachable {
        store: address.shown().to_owned(),
        detail: detail.to_owned(),
        may_be_done: false,
    }
}
