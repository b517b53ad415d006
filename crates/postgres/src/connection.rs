//! One connection to the database, for one thread: made when it is needed, and made anew when it broke.
//!
//! Theory of operation. The client library is asynchronous, and the callers of a store block. So a connection has a runtime of its own, which
//! runs while an operation does. Between two operations nothing has to be done for a connection.
//!
//! Invariants
//!
//! - An operation has a time limit, connecting included.
//! - An operation is repeated if the database asks for it, which has undone the first try. If the connection broke, the first try may have
//!   been done: then only an operation that allows it is repeated ([`Repetition`]).

use std::time::Duration;

use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, timeout},
};
use tokio_postgres::{Client, Connection, Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    address::StoreAddress,
    error::{CONNECTED, ErrorRemedy, PostgresError, explain, remedy, words},
    schema, tls,
};

/// The time that an operation may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The time after which a connection is asked whether it still lives before it is used.
const RESTED: Duration = Duration::from_secs(1);
/// The most tries of an operation that the database breaks off because of others.
const TRIES: u32 = 6;
/// The longest pause before the second try. It doubles with each try.
const FIRST_PAUSE_MICROS: u64 = 2_000;

/// Whether an operation may be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// A second try finds what the first has done.
    Allowed,
    /// A second try would do it again.
    Forbidden,
}

/// A connection to the database.
#[derive(Debug)]
pub(crate) struct DatabaseConnection {
    address: StoreAddress,
    /// `None` only while the connection is dropped.
    runtime: Option<Runtime>,
    client: Option<Client>,
    used_at: Instant,
}

impl DatabaseConnection {
    /// Connects, and brings the tables to the version of this unhang.
    pub(crate) fn open(address: StoreAddress) -> Result<Self, PostgresError> {
        let made = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = made.map_err(|error| PostgresError::Unreachable {
            store: address.shown().to_owned(),
            detail: format!("unhang cannot wait for the network: {error}"),
            may_be_done: false,
        })?;
        let mut connection = Self { address, runtime: Some(runtime), client: None, used_at: Instant::now() };
        connection.run(CONNECTED, Repetition::Allowed, &async |_: &mut Client| Ok(()))?;
        Ok(connection)
    }

    /// Returns the address of the store, without its password.
    pub(crate) fn shown(&self) -> &str {
        self.address.shown()
    }

    /// Runs an operation, again if that helps. Blocks. `doing` ends the sentence "when unhang ...".
    pub(crate) fn run<T>(
        &mut self,
        doing: &'static str,
        repetition: Repetition,
        work: &impl AsyncFn(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, PostgresError> {
        let Self { address, runtime: Some(runtime), client, used_at } = self else {
            unreachable!("a connection has its runtime until it is dropped")
        };
        let rested = used_at.elapsed() >= RESTED;
        let outcome = runtime.block_on(async {
            timeout(LIMIT, async {
                if rested {
                    drop_broken(client).await;
                }
                repeated(address, client, doing, repetition, work).await
            })
            .await
        });
        *used_at = Instant::now();
        outcome.unwrap_or_else(|_| {
            // The operation may still go on in this session, so nothing else is asked there.
            *client = None;
            Err(PostgresError::TimedOut { store: address.shown().to_owned(), doing, waited: LIMIT })
        })
    }
}

impl Drop for DatabaseConnection {
    fn drop(&mut self) {
        self.client = None;
        // A plain drop of the runtime waits for its threads, which a task of another runtime must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn repeated<T>(
    address: &StoreAddress,
    client: &mut Option<Client>,
    doing: &'static str,
    repetition: Repetition,
    work: &impl AsyncFn(&mut Client) -> Result<T, tokio_postgres::Error>,
) -> Result<T, PostgresError> {
    // A connection that was good before may have broken since. A new one that breaks at once is not tried again.
    let mut is_old = client.is_some();
    let (mut tries, mut has_begun) = (0, false);
    loop {
        let connected = match client {
            Some(connected) if !connected.is_closed() => connected,
            _ => {
                let connected = connect(address).await;
                client.insert(connected.map_err(|error| if has_begun { error.begun() } else { error })?)
            }
        };
        let error = match work(connected).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        tries += 1;
        let remedy = remedy(&error);
        if matches!(remedy, ErrorRemedy::Reconnect | ErrorRemedy::LookAtTables) {
            *client = None;
        }
        has_begun |= remedy == ErrorRemedy::Reconnect;
        match remedy {
            ErrorRemedy::Repeat if tries < TRIES => pause(tries).await,
            ErrorRemedy::Repeat => {
                let (store, detail) = (address.shown().to_owned(), words(&error));
                return Err(PostgresError::Conflict { store, doing, tries, detail });
            }
            ErrorRemedy::Reconnect if is_old && repetition == Repetition::Allowed => {}
            ErrorRemedy::LookAtTables if is_old => {}
            ErrorRemedy::Reconnect => return Err(explain(address.shown(), doing, &error).begun()),
            _ => return Err(explain(address.shown(), doing, &error)),
        }
        is_old &= remedy == ErrorRemedy::Repeat;
    }
}

/// Drops a connection that has broken. An operation that finds out itself cannot know whether the database has done it.
async fn drop_broken(client: &mut Option<Client>) {
    if let Some(connected) = client
        && connected.check_connection().await.is_err()
    {
        *client = None;
    }
}

/// Waits a random time, so that those who broke each other off do not do it again.
async fn pause(tries: u32) {
    let most = FIRST_PAUSE_MICROS << tries;
    let random = getrandom::u64().unwrap_or(most);
    tokio::time::sleep(Duration::from_micros(random % most)).await;
}

/// The part of a connection that talks to the database while somebody polls it.
pub(crate) type Traffic = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Connects, within the limit of an operation. Somebody has to poll the second part.
pub(crate) async fn client_of(address: &StoreAddress) -> Result<(Client, Traffic), PostgresError> {
    let store = || address.shown().to_owned();
    let tls =
        tls::connector(&address.check).map_err(|detail| PostgresError::Tls { store: store(), detail })?;
    let late = |_| PostgresError::TimedOut { store: store(), doing: CONNECTED, waited: LIMIT };
    let connected = timeout(LIMIT, address.config.connect(tls)).await.map_err(late)?;
    connected.map_err(|error| explain(address.shown(), CONNECTED, &error))
}

/// Polls a connection in a task of its own, until its client is dropped.
pub(crate) fn forward(traffic: Traffic) {
    // Its error comes with the next operation, too.
    tokio::spawn(async move { drop(traffic.await) });
}

async fn connect(address: &StoreAddress) -> Result<Client, PostgresError> {
    let (mut client, traffic) = client_of(address).await?;
    forward(traffic);
    schema::bring_up_to_date(&mut client, address.shown()).await?;
    Ok(client)
}
