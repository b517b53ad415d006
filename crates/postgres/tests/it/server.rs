//! The server of the tests: one for all that run at the same time, and an empty database for each.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU32, Ordering},
};

use tokio_postgres::NoTls;
use unhang_jobs::store::{JobStore, suite::StoreFixture};
use unhang_postgres::{
    PasswordSources, PostgresError, PostgresStore, SharedOrders, StoreAddress, WorkerClaim,
};
use unhang_zoo::{
    private_postgres::{OWNER, PASSWORD, PrivatePostgres},
    test_programs::{POSTGRES, named_by},
};

/// Durability is PostgreSQL's own matter, and the tests of a crash have a server of their own.
const SETTINGS: &str = "fsync = off\nmax_connections = 100";

/// An empty database. The last one ends the server.
pub(crate) struct TestDatabase {
    server: Arc<PrivatePostgres>,
    name: String,
}

/// Runs statements as the owner of the server.
pub(crate) fn execute(
    server: &PrivatePostgres,
    database: &str,
    sql: &str,
) -> Result<(), tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server.url(OWNER, PASSWORD, database), NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(sql).await
    })
}

/// Connects to a database.
pub(crate) fn open(url: &str) -> Result<PostgresStore, PostgresError> {
    PostgresStore::open(StoreAddress::parse(url, &PasswordSources::default()).unwrap())
}

impl TestDatabase {
    pub(crate) fn url(&self) -> String {
        self.server.url(OWNER, PASSWORD, &self.name)
    }

    pub(crate) fn execute(&self, sql: &str) {
        execute(&self.server, &self.name, sql).unwrap();
    }

    pub(crate) fn server(&self) -> &PrivatePostgres {
        &self.server
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl StoreFixture for TestDatabase {
    type Store = PostgresStore;

    fn new() -> Self {
        static SERVER: Mutex<Weak<PrivatePostgres>> = Mutex::new(Weak::new());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.upgrade().unwrap_or_else(|| {
            let server =
                PrivatePostgres::start(&named_by(POSTGRES), &format!("shared-{number}"), SETTINGS).unwrap();
            let server = Arc::new(server);
            *shared = Arc::downgrade(&server);
            server
        });
        drop(shared);
        let name = format!("test_{number}");
        execute(&server, "postgres", &format!("CREATE DATABASE {name}")).unwrap();
        Self { server, name }
    }

    fn connect(&self) -> PostgresStore {
        open(&self.url()).unwrap()
    }

    fn orders() -> Option<SharedOrders> {
        Some(SharedOrders { max_attempts: 1, ..SharedOrders::default() })
    }

    fn claimant(&self, number: u32) -> <PostgresStore as JobStore>::Claimant {
        WorkerClaim { worker: "worker".to_owned(), token: format!("token-{number}") }
    }
}
