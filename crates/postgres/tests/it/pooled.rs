//! The store through a PgBouncer in the mode `transaction`, in which a session has another connection for each transaction.

use unhang_jobs::store::{JobStore, suite::StoreFixture};
use unhang_postgres::{PostgresStore, SharedOrders};
use unhang_zoo::{
    private_pgbouncer::PrivatePgbouncer,
    test_programs::{PGBOUNCER, named_by},
};

use crate::server::{TestDatabase, open};

/// Fewer connections than the tests have threads, so that each transaction may get another one.
const CONNECTIONS: u32 = 3;

/// An empty database behind a pooler of its own.
pub(crate) struct PooledDatabase {
    // The pooler ends before the server does.
    pooler: PrivatePgbouncer,
    database: TestDatabase,
}

impl PooledDatabase {
    pub(crate) fn url(&self) -> String {
        self.pooler.url(self.database.name())
    }
}

impl StoreFixture for PooledDatabase {
    type Store = PostgresStore;

    fn new() -> Self {
        let program = named_by(PGBOUNCER);
        let database = TestDatabase::new();
        let (server, name) = (database.server(), database.name());
        let pooler = PrivatePgbouncer::start(&program, name, server, CONNECTIONS).unwrap();
        Self { pooler, database }
    }

    fn connect(&self) -> PostgresStore {
        open(&self.url()).unwrap()
    }

    fn orders() -> Option<SharedOrders> {
        TestDatabase::orders()
    }

    fn claimant(&self, number: u32) -> <PostgresStore as JobStore>::Claimant {
        self.database.claimant(number)
    }
}

unhang_jobs::store_suite!(PooledDatabase, ignore = "needs PgBouncer; cargo xtask ci --only examples");
