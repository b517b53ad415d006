//! The tables of the shared store, and their versions.
//!
//! Each migration has a number. It also names the oldest version that may use its tables. So two versions of unhang share a database while
//! machines are brought up to date one after the other, as long as the later one allows the earlier one.
//!
//! Invariants
//!
//! - All missing migrations are made in one transaction, by one process: the others wait for its lock.
//! - A migration that does not allow earlier versions renames the tables that it changes. So a statement of an earlier version that is
//!   connected already fails, and writes nothing.

use tokio_postgres::{
    Client, GenericClient, Transaction,
    types::{ToSql, Type},
};

use crate::error::{PostgresError, explain};

/// A change of the tables.
struct Migration {
    /// The oldest version that may use the tables after this change.
    serves_from: i32,
    sql: &'static str,
}

/// All migrations. The first one has number 1.
const MIGRATIONS: &[Migration] = &[Migration {
    serves_from: 1,
    // No index has a column that a heartbeat changes: the database then writes nothing but the row.
    // Records are text: the type for JSON refuses the character U+0000, and nothing here looks into them.
    // The search for the next job is a function, which chooses its plan itself. Statistics of a queue are old as soon as they are made, and
    // with wrong ones the database sorts the whole queue for each claim. No pause is longer than five minutes: a later time is from before
    // the clock was set back.
    sql: "
        CREATE TABLE unhang.jobs (
            sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id text NOT NULL UNIQUE CHECK (id ~ '^[a-z2-7]{12}$'),
            state text NOT NULL
                CHECK (state IN ('queued', 'active', 'completed', 'failed', 'cancelled', 'lost')),
            revision bigint NOT NULL DEFAULT 1,
            owner text,
            labels text[] NOT NULL,
            any_label text[],
            is_repeatable boolean NOT NULL,
            max_attempts integer NOT NULL,
            claims integer NOT NULL DEFAULT 0 CHECK (claims BETWEEN 0 AND 1000000),
            worker text,
            token text,
            heartbeat bigint NOT NULL DEFAULT 0,
            heard_at timestamptz,
            lease_ms double precision CHECK (lease_ms BETWEEN 0 AND 1e12),
            lease_until timestamptz,
            not_before timestamptz,
            started_at bigint,
            progress double precision,
            progress_message text,
            is_cancel_wanted boolean NOT NULL DEFAULT false,
            completed_at bigint,
            retention_ms bigint NOT NULL,
            record text NOT NULL,
            orders text,
            trouble text,
            CHECK (state <> 'active' OR (worker IS NOT NULL AND token IS NOT NULL AND lease_ms IS NOT NULL
                AND lease_until IS NOT NULL AND heard_at IS NOT NULL))
        );
        CREATE TABLE unhang.log_blocks (
            job bigint NOT NULL REFERENCES unhang.jobs (sequence) ON DELETE CASCADE,
            attempt integer NOT NULL,
            stream smallint NOT NULL,
            block bigint NOT NULL,
            first bigint NOT NULL CHECK (first BETWEEN 0 AND 1000000000000000000),
            bytes bytea NOT NULL,
            PRIMARY KEY (job, attempt, stream, block)
        );
        CREATE TABLE unhang.file_pieces (
            job bigint NOT NULL REFERENCES unhang.jobs (sequence) ON DELETE CASCADE,
            attempt integer NOT NULL,
            name text NOT NULL,
            piece integer NOT NULL,
            bytes bytea NOT NULL,
            PRIMARY KEY (job, attempt, name, piece)
        );
        -- The rows outlive their jobs, so that the objects of a removed job are found.
        CREATE TABLE unhang.artifacts (
            job_id text NOT NULL CHECK (job_id ~ '^[a-z2-7]{12}$'),
            attempt integer NOT NULL CHECK (attempt >= 0),
            digest bytea NOT NULL CHECK (length(digest) = 32),
            location text NOT NULL,
            name text NOT NULL,
            bytes bigint NOT NULL CHECK (bytes >= 0),
            job bigint,
            state text NOT NULL DEFAULT 'writing' CHECK (state IN ('writing', 'written', 'removing')),
            made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (job_id, attempt, digest, location)
        );
        CREATE INDEX artifacts_job ON unhang.artifacts (job);
        CREATE TABLE unhang.state_documents (
            owner text NOT NULL,
            field text NOT NULL,
            version bigint NOT NULL CHECK (version > 0),
            value text NOT NULL,
            updated_at timestamptz NOT NULL,
            PRIMARY KEY (owner, field)
        );
        CREATE TABLE unhang.workers (
            name text PRIMARY KEY,
            host text NOT NULL,
            version text NOT NULL,
            labels text[] NOT NULL,
            slots integer NOT NULL,
            is_drain_wanted boolean NOT NULL DEFAULT false,
            silent_after_ms double precision NOT NULL,
            started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            heard_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX jobs_queued ON unhang.jobs (sequence) WHERE state = 'queued';
        CREATE INDEX jobs_active ON unhang.jobs (worker) WHERE state = 'active';
        CREATE INDEX jobs_state ON unhang.jobs (state, sequence);
        CREATE INDEX jobs_owner ON unhang.jobs (owner, sequence);
        CREATE INDEX jobs_completed ON unhang.jobs (completed_at) WHERE completed_at IS NOT NULL;
        CREATE FUNCTION unhang.next_job(worker_labels text[]) RETURNS bigint LANGUAGE sql VOLATILE
            SET search_path = pg_catalog SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off
            AS $$
                SELECT sequence FROM unhang.jobs
                WHERE state = 'queued' AND labels <@ worker_labels
                    AND (any_label IS NULL OR any_label && worker_labels)
                    AND (not_before IS NULL
                        OR not_before NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '5 min')
                ORDER BY sequence LIMIT 1 FOR UPDATE SKIP LOCKED
            $$;
    ",
}];

/// The lock that a migration holds. Any number that no other program uses will do: it is `unhang` in ASCII.
const LOCK: i64 = 0x756e_6861_6e67;

/// The versions of the tables.
#[derive(Clone, Copy, Debug)]
struct TableVersions {
    version: i32,
    serves_from: i32,
}

/// The version that this unhang knows.
fn known() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

/// Makes the missing migrations, or refuses tables that do not allow this version.
///
/// # Errors
/// Fails if the tables are too new, or if the user may not change them.
pub(crate) async fn bring_up_to_date(client: &mut Client, store: &str) -> Result<(), PostgresError> {
    let explain = |error: tokio_postgres::Error| explain(store, "looked at the tables", &error);
    let found = versions(client).await.map_err(explain)?;
    if is_usable(found, store)? {
        return Ok(());
    }
    let made = migrate(client).await.map_err(explain)?;
    // Another process may have been first, with a newer version.
    is_usable(made, store).map(drop)
}

/// Returns whether this version may use the tables as they are; false if migrations are missing.
fn is_usable(found: Option<TableVersions>, store: &str) -> Result<bool, PostgresError> {
    let Some(TableVersions { version, serves_from }) = found else { return Ok(false) };
    let known = known();
    if serves_from > known {
        return Err(PostgresError::NewerTables {
            store: store.to_owned(),
            found: version,
            serves_from,
            known,
        });
    }
    Ok(version >= known)
}

/// Returns the versions of the tables; `None` if there are none.
async fn versions(client: &impl GenericClient) -> Result<Option<TableVersions>, tokio_postgres::Error> {
    let of_ours = "pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
        WHERE space.nspname = 'unhang' AND class.relname = 'versions'";
    if !exists(client, of_ours).await? {
        return Ok(None);
    }
    let newest = "SELECT version, serves_from FROM unhang.versions ORDER BY version DESC LIMIT 1";
    let rows = client.query_typed(newest, &[]).await?;
    Ok(rows.first().map(|row| TableVersions { version: row.get(0), serves_from: row.get(1) }))
}

/// Returns whether the catalogue has such a row. It is read as a table: `to_regclass` and its like may answer from a cache of the session,
/// which does not know what another process has made since the transaction began.
async fn exists(client: &impl GenericClient, rows: &str) -> Result<bool, tokio_postgres::Error> {
    let found = client.query_typed(&format!("SELECT FROM pg_catalog.{rows}"), &[]).await?;
    Ok(!found.is_empty())
}

/// Makes the missing migrations. Returns the versions afterwards.
async fn migrate(client: &mut Client) -> Result<Option<TableVersions>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    let mut made = versions(&transaction).await?;
    if made.is_none() {
        create_versions(&transaction).await?;
    }
    for (number, migration) in (1..).zip(MIGRATIONS) {
        if made.is_some_and(|made| made.version >= number) {
            continue;
        }
        transaction.batch_execute(migration.sql).await?;
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&number, Type::INT4), (&migration.serves_from, Type::INT4)];
        transaction
            .execute_typed("INSERT INTO unhang.versions (version, serves_from) VALUES ($1, $2)", &values)
            .await?;
        made = Some(TableVersions { version: number, serves_from: migration.serves_from });
    }
    transaction.commit().await?;
    Ok(made)
}

/// Makes the table of the versions, in a schema that may exist: a user without the right to make one may use that of somebody else.
async fn create_versions(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    if !exists(transaction, "pg_namespace WHERE nspname = 'unhang'").await? {
        transaction.batch_execute("CREATE SCHEMA unhang").await?;
    }
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS unhang.versions (
                version integer PRIMARY KEY,
                serves_from integer NOT NULL,
                made_at timestamptz NOT NULL DEFAULT now()
            )",
        )
        .await
}
