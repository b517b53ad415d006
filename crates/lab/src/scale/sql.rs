//! A connection to the database for statements that unhang has no function for: figures of the database, rows by the million, the floor
//! beside which a submission is measured.

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{
    Client, NoTls, Row,
    types::{ToSql, Type},
};

use super::failure::ScaleFailure;

/// A value with its type.
pub(super) type SqlValue<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection for one thread. Its methods block.
pub(super) struct SqlClient {
    runtime: Runtime,
    client: Client,
}

impl SqlClient {
    pub(super) fn connect(url: &str) -> Result<Self, ScaleFailure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ScaleFailure::of("make a runtime"))?;
        let connected = runtime.block_on(tokio_postgres::connect(url, NoTls));
        let (client, connection) = connected.map_err(ScaleFailure::of("connect to the database"))?;
        // Its error comes with the next statement, too.
        runtime.spawn(async move { drop(connection.await) });
        Ok(Self { runtime, client })
    }

    /// Runs statements.
    pub(super) fn execute(&self, sql: &str) -> Result<(), ScaleFailure> {
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.map_err(|error| refused(&error))
    }

    /// Runs a statement with values, in one exchange.
    pub(super) fn rows(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, ScaleFailure> {
        let done = self.runtime.block_on(self.client.query_typed(sql, values));
        done.map_err(|error| refused(&error))
    }

    /// Returns the one number of a query.
    pub(super) fn number(&self, sql: &str) -> Result<f64, ScaleFailure> {
        let rows = self.rows(&format!("SELECT ({sql})::float8"), &[])?;
        rows.first().map(|row| row.get(0)).ok_or_else(|| ScaleFailure::new("a query has no row"))
    }
}

/// Says what the database says, which the error itself does not.
fn refused(error: &tokio_postgres::Error) -> ScaleFailure {
    let told = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    ScaleFailure::new(format!("a statement failed: {told}"))
}
