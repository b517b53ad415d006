//! The named state of the shared store: one JSON document for each owner and field.
//!
//! Invariants
//!
//! - The end of a job and the change of a document by its result are one statement. So a result reaches the state exactly once, and in the
//!   order in which the jobs ended.
//! - Each change adds one to the version of the document.
//! - Documents are read as they were at one moment.

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use unhang_jobs::{
    document::{DocumentEntry, Field},
    record::JobRecord,
    shared_jobs::{DocumentName, SharedDocument},
    store::state_column,
    timestamp::JobTimestamp,
};

use crate::{
    error::PostgresError,
    leases::of_unix_millis,
    store::{FINISH, PostgresStore, WorkerClaim, completed_at},
};

/// Replaces a document that exists.
const SET: &str = "ON CONFLICT (owner, field) DO UPDATE
    SET version = known.version + 1, value = excluded.value, updated_at = excluded.updated_at";

/// The time of the last change, in milliseconds since 1970.
const UPDATED_AT: &str = "(extract(epoch FROM updated_at) * 1000)::bigint";

/// A document with its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    /// The name of the document.
    pub name: DocumentName,
    /// The new value as JSON.
    pub text: String,
}

/// The documents of a store.
#[derive(Debug)]
pub struct StateDocuments<'a>(pub &'a mut PostgresStore);

impl StateDocuments<'_> {
    /// Reads documents as they are at one moment, in the order of their names. A field that was never set has `None`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn get(&mut self, names: &[DocumentName]) -> Result<Vec<Option<SharedDocument>>, PostgresError> {
        let owners: Vec<String> = names.iter().map(|name| owner_column(name.owner.as_deref())).collect();
        let fields: Vec<&str> = names.iter().map(|name| name.field.as_str()).collect();
        let sql = format!(
            "SELECT value, version, {UPDATED_AT}
             FROM unnest($1, $2) WITH ORDINALITY AS wanted (owner, field, place)
                LEFT JOIN unhang.state_documents USING (owner, field) ORDER BY place"
        );
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&owners, Type::TEXT_ARRAY), (&fields, Type::TEXT_ARRAY)];
        let rows = self.0.rows("read the named state", &sql, &values)?;
        let document = |row: &Row| {
            Some(SharedDocument {
                text: row.get::<_, Option<String>>(0)?,
                version: u64::try_from(row.get::<_, i64>(1)).unwrap_or_default(),
                updated_at: of_unix_millis(row.get(2))?,
            })
        };
        Ok(rows.iter().map(document).collect())
    }

    /// Replaces a document. Returns its new time.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn set(&mut self, change: &DocumentChange) -> Result<Option<JobTimestamp>, PostgresError> {
        let sql = format!(
            "INSERT INTO unhang.state_documents AS known (owner, field, version, value, updated_at)
             VALUES ($1, $2, 1, $3, clock_timestamp()) {SET} RETURNING {UPDATED_AT}"
        );
        let values: [(&(dyn ToSql + Sync), Type); 3] = [
            (&owner_column(change.name.owner.as_deref()), Type::TEXT),
            (&change.name.field.as_str(), Type::TEXT),
            (&change.text, Type::TEXT),
        ];
        let rows = self.0.rows("set a state field", &sql, &values)?;
        Ok(rows.first().and_then(|row| of_unix_millis(row.get(0))))
    }

    /// Lists the documents of this owner by name.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn list(&mut self, owner: Option<&str>) -> Result<Vec<DocumentEntry>, PostgresError> {
        let sql = format!(
            "SELECT field, octet_length(value)::bigint, {UPDATED_AT} FROM unhang.state_documents
             WHERE owner = $1 ORDER BY field COLLATE \"C\""
        );
        let rows = self.0.rows("listed the named state", &sql, &[(&owner_column(owner), Type::TEXT)])?;
        let entry = |row: &Row| {
            Some(DocumentEntry {
                field: row.get::<_, &str>(0).parse::<Field>().ok()?,
                bytes: u64::try_from(row.get::<_, i64>(1)).unwrap_or_default(),
                updated_at: of_unix_millis(row.get(2))?,
            })
        };
        Ok(rows.iter().filter_map(entry).collect())
    }

    /// Notes the end of a job, and changes a document by its result. Returns false if the job is not the claimant's any more: the document
    /// stays then.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn finish(
        &mut self,
        record: &JobRecord,
        claimant: &WorkerClaim,
        change: &DocumentChange,
    ) -> Result<bool, PostgresError> {
        let sql = format!(
            "WITH ended AS ({FINISH} RETURNING id)
             INSERT INTO unhang.state_documents AS known (owner, field, version, value, updated_at)
             SELECT $6, $7, 1, $8, clock_timestamp() FROM ended {SET}"
        );
        self.0.changes(
            "noted the end of a job",
            &sql,
            &[
                (&record.job_id.as_str(), Type::TEXT),
                (&state_column(record.status), Type::TEXT),
                (&self.0.to_json(record)?, Type::TEXT),
                (&completed_at(record), Type::INT8),
                (&claimant.token, Type::TEXT),
                (&owner_column(change.name.owner.as_deref()), Type::TEXT),
                (&change.name.field.as_str(), Type::TEXT),
                (&change.text, Type::TEXT),
            ],
        )
    }
}

/// Returns the column of an owner. An owner may have an empty name, which is not the same as none.
fn owner_column(owner: Option<&str>) -> String {
    owner.map(|owner| format!("={owner}")).unwrap_or_default()
}
