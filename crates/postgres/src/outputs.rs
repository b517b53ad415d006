//! The output of jobs in the database: logs in blocks, and files in pieces.
//!
//! Theory of operation. A worker copies the log of a job while the job writes it. The bytes lie in blocks of [`BLOCK`] bytes, so that a job
//! that prints a line each second makes no row for each line. Files are put when the job has ended, and before its end is noted.
//!
//! Invariants
//!
//! - Each write names the token of the lease. It writes for the attempt that this lease is, so a former worker changes no later attempt.
//! - A repeated write changes nothing.
//! - A byte of a log keeps its offset. Only the head of a log is dropped. The log of a later attempt follows that of the earlier ones, so a
//!   reader misses and repeats nothing when a job moves to another worker.

use tokio_postgres::{
    Row, Transaction,
    types::{ToSql, Type},
};
use unhang_jobs::{
    id::JobId,
    log::{LogPage, LogStream},
};

use crate::{error::PostgresError, store::PostgresStore};

/// The bytes of a log in one row.
pub(crate) const BLOCK: u64 = 16 << 10;

/// The bytes of a file in one row.
const PIECE: usize = 1 << 20;

/// The job that a write is for: it is active, or was lost and has an end after all.
pub(crate) const HELD: &str = "SELECT sequence, claims FROM unhang.jobs
    WHERE id = $1 AND token = $2 AND state IN ('active', 'lost')";

/// The bytes of a log that exist in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogExtent {
    /// The offset before which everything has been dropped.
    pub dropped_before: u64,
    /// The offset of the next byte.
    pub end: u64,
}

impl PostgresStore {
    /// Adds a page to the log of a job, and drops what the job's worker has dropped. Returns false if the job is not the worker's any more.
    /// The page has the offsets of the attempt, whose log begins at `base` of the whole log.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn append_log(
        &mut self,
        id: JobId,
        token: &str,
        stream: LogStream,
        base: u64,
        page: &LogPage<Vec<u8>>,
    ) -> Result<bool, PostgresError> {
        let blocks = blocks(base + page.offset, &page.text);
        // An attempt that has dropped nothing keeps the log of the earlier ones.
        let dropped_before = if page.dropped_before > 0 { base + page.dropped_before } else { 0 };
        let numbers: Vec<i64> = blocks.iter().map(|(first, _)| signed(first / BLOCK)).collect();
        let firsts: Vec<i64> = blocks.iter().map(|(first, _)| signed(*first)).collect();
        let bytes: Vec<&[u8]> = blocks.iter().map(|(_, bytes)| *bytes).collect();
        // A page behind the end of a block follows bytes that were dropped unread, and those of the block with them.
        let sql = format!(
            "WITH held AS ({HELD}), dropped AS (
                DELETE FROM unhang.log_blocks USING held
                WHERE job = held.sequence AND stream = $3 AND first + length(bytes) <= $7
                    AND (attempt < held.claims OR block <> ALL ($4))
             ), added AS (
                INSERT INTO unhang.log_blocks AS known (job, attempt, stream, block, first, bytes)
                SELECT held.sequence, held.claims, $3, page.block, page.first, page.bytes
                FROM held, unnest($4, $5, $6) AS page (block, first, bytes)
                ON CONFLICT (job, attempt, stream, block) DO UPDATE
                SET bytes = CASE WHEN known.first + length(known.bytes) = excluded.first
                        THEN known.bytes || excluded.bytes ELSE excluded.bytes END,
                    first = CASE WHEN known.first + length(known.bytes) = excluded.first
                        THEN known.first ELSE excluded.first END
                WHERE known.first + length(known.bytes) <= excluded.first
             )
             SELECT FROM held"
        );
        let held = self.rows(
            "copied a log",
            &sql,
            &[
                (&id.as_str(), Type::TEXT),
                (&token, Type::TEXT),
                (&number(stream), Type::INT2),
                (&numbers, Type::INT8_ARRAY),
                (&firsts, Type::INT8_ARRAY),
                (&bytes, Type::BYTEA_ARRAY),
                (&signed(dropped_before), Type::INT8),
            ],
        )?;
        Ok(!held.is_empty())
    }

    /// Returns the bytes that the log of a job has in the store.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn log_extent(&mut self, id: JobId, stream: LogStream) -> Result<LogExtent, PostgresError> {
        let rows = self.rows(
            "looked at a log",
            "SELECT min(first), max(first + length(bytes))
             FROM unhang.log_blocks JOIN unhang.jobs ON job = sequence WHERE id = $1 AND stream = $2",
            &[(&id.as_str(), Type::TEXT), (&number(stream), Type::INT2)],
        )?;
        let offset = |row: &Row, column| row.get::<_, Option<i64>>(column).map_or(0, unsigned);
        Ok(rows.first().map_or_else(LogExtent::default, |row| LogExtent {
            dropped_before: offset(row, 0),
            end: offset(row, 1),
        }))
    }

    /// Reads bytes of the log of a job, from `offset` on or from where the log begins. Returns at most `max_bytes`, as the page
    /// that they make; `eof` is as the caller knows the end of the job.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn log_page(
        &mut self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
        has_ended: bool,
    ) -> Result<LogPage<Vec<u8>>, PostgresError> {
        let extent = self.log_extent(id, stream)?;
        let offset = offset.clamp(extent.dropped_before, extent.end.max(extent.dropped_before));
        let limit = offset.saturating_add(u64::try_from(max_bytes).unwrap_or(u64::MAX));
        let rows = self.rows(
            "read a log",
            "SELECT first, bytes
             FROM unhang.log_blocks JOIN unhang.jobs ON job = sequence
             WHERE id = $1 AND stream = $2 AND block BETWEEN $3 AND $4
             ORDER BY first",
            &[
                (&id.as_str(), Type::TEXT),
                (&number(stream), Type::INT2),
                (&signed(offset / BLOCK), Type::INT8),
                (&signed(limit / BLOCK), Type::INT8),
            ],
        )?;
        let mut page = LogPage {
            text: Vec::new(),
            offset,
            next_offset: offset,
            eof: false,
            dropped_before: extent.dropped_before,
        };
        for row in &rows {
            let (first, bytes): (i64, &[u8]) = (row.get(0), row.get(1));
            add(&mut page, unsigned(first), bytes, max_bytes);
        }
        page.eof = has_ended && page.next_offset >= extent.end;
        Ok(page)
    }

    /// Keeps a file of a job, in place of an earlier one of this name. Returns false if the job is not the worker's any more.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn put_file(
        &mut self,
        id: JobId,
        token: &str,
        name: &str,
        content: &[u8],
    ) -> Result<bool, PostgresError> {
        let sql = format!(
            "WITH held AS ({HELD}), added AS (
                INSERT INTO unhang.file_pieces AS known (job, attempt, name, piece, bytes)
                SELECT held.sequence, held.claims, $3, $4, $5 FROM held
                ON CONFLICT (job, attempt, name, piece) DO UPDATE SET bytes = excluded.bytes
             ), removed AS (
                DELETE FROM unhang.file_pieces USING held
                WHERE job = held.sequence AND attempt = held.claims AND name = $3 AND piece >= $6
             )
             SELECT FROM held"
        );
        let pieces: Vec<(i32, &[u8])> = pieces(content).collect();
        let count = i32::try_from(pieces.len()).unwrap_or(i32::MAX);
        for (piece, bytes) in pieces {
            let values: [(&(dyn ToSql + Sync), Type); 6] = [
                (&id.as_str(), Type::TEXT),
                (&token, Type::TEXT),
                (&name, Type::TEXT),
                (&piece, Type::INT4),
                (&bytes, Type::BYTEA),
                (&count, Type::INT4),
            ];
            if self.rows("kept a file", &sql, &values)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the files that are in the work's folder before the job starts.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn inputs(&mut self, id: JobId) -> Result<Vec<(String, Vec<u8>)>, PostgresError> {
        let rows = self.rows(
            "read the inputs of a job",
            "SELECT name, bytes FROM unhang.file_pieces JOIN unhang.jobs ON job = sequence
             WHERE id = $1 AND attempt = 0 ORDER BY name, piece",
            &[(&id.as_str(), Type::TEXT)],
        )?;
        let mut inputs: Vec<(String, Vec<u8>)> = Vec::new();
        for row in &rows {
            let (name, bytes): (&str, &[u8]) = (row.get(0), row.get(1));
            match inputs.last_mut().filter(|(last, _)| last == name) {
                Some((_, content)) => content.extend_from_slice(bytes),
                None => inputs.push((name.to_owned(), bytes.to_vec())),
            }
        }
        Ok(inputs)
    }

    /// Reads a file that the newest attempt of a job has left; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn file(&mut self, id: JobId, name: &str) -> Result<Option<Vec<u8>>, PostgresError> {
        let rows = self.rows(
            "read a file",
            "SELECT bytes FROM unhang.file_pieces JOIN unhang.jobs ON job = sequence AND attempt = claims
             WHERE id = $1 AND name = $2 ORDER BY piece",
            &[(&id.as_str(), Type::TEXT), (&name, Type::TEXT)],
        )?;
        let pieces: Vec<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
        Ok((!pieces.is_empty()).then(|| pieces.concat()))
    }
}

/// Inserts a file of a job that the transaction has inserted.
pub(crate) async fn insert_file(
    transaction: &Transaction<'_>,
    id: JobId,
    attempt: i32,
    name: &str,
    content: &[u8],
) -> Result<(), tokio_postgres::Error> {
    for (piece, bytes) in pieces(content) {
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&id.as_str(), Type::TEXT),
            (&attempt, Type::INT4),
            (&name, Type::TEXT),
            (&piece, Type::INT4),
            (&bytes, Type::BYTEA),
        ];
        let sql = "INSERT INTO unhang.file_pieces (job, attempt, name, piece, bytes)
             SELECT sequence, $2, $3, $4, $5 FROM unhang.jobs WHERE id = $1";
        transaction.execute_typed(sql, &values).await?;
    }
    Ok(())
}

/// Cuts the content of a file into numbered pieces. An empty file has one.
fn pieces(content: &[u8]) -> impl Iterator<Item = (i32, &[u8])> {
    let empty = content.is_empty().then_some(content);
    (0..).zip(empty.into_iter().chain(content.chunks(PIECE)))
}

/// Cuts bytes with this offset at the borders of blocks. Returns each part with its offset.
pub(crate) fn blocks(mut offset: u64, mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let room = usize::try_from(BLOCK - offset % BLOCK).unwrap_or(usize::MAX).min(bytes.len());
        let (block, rest) = bytes.split_at(room);
        blocks.push((offset, block));
        offset += room as u64;
        bytes = rest;
    }
    blocks
}

/// Adds the bytes of a block to a page, as far as they follow it. A page ends where bytes were dropped.
fn add(page: &mut LogPage<Vec<u8>>, first: u64, bytes: &[u8], max_bytes: usize) {
    if page.text.is_empty() && first > page.next_offset {
        (page.offset, page.next_offset) = (first, first);
    }
    let Some(skipped) = page.next_offset.checked_sub(first).and_then(|skipped| usize::try_from(skipped).ok())
    else {
        return;
    };
    let wanted = bytes.get(skipped..).unwrap_or_default();
    let wanted = &wanted[..wanted.len().min(max_bytes - page.text.len())];
    page.text.extend_from_slice(wanted);
    page.next_offset += wanted.len() as u64;
}

pub(crate) fn number(stream: LogStream) -> i16 {
    match stream {
        LogStream::Stdout => 1,
        LogStream::Stderr => 2,
    }
}

pub(crate) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_at_the_borders_of_blocks() {
        let block = usize::try_from(BLOCK).unwrap();
        let bytes = vec![7; 2 * block];
        let lengths = |offset, length: usize| {
            let blocks = blocks(offset, &bytes[..length]);
            blocks.iter().map(|(first, bytes)| (*first, bytes.len())).collect::<Vec<_>>()
        };
        assert_eq!(lengths(0, 0), []);
        assert_eq!(lengths(5, 3), [(5, 3)]);
        assert_eq!(lengths(0, block), [(0, block)]);
        assert_eq!(lengths(BLOCK - 1, block + 1), [(BLOCK - 1, 1), (BLOCK, block)]);
        assert_eq!(lengths(1, 2 * block), [(1, block - 1), (BLOCK, block), (2 * BLOCK, 1)]);
    }

    #[test]
    fn a_page_ends_where_bytes_are_missing_and_at_its_limit() {
        let empty =
            |offset| LogPage { text: Vec::new(), offset, next_offset: offset, eof: false, dropped_before: 0 };
        let mut page = empty(2);
        add(&mut page, 0, b"abcd", 100);
        add(&mut page, 4, b"ef", 100);
        add(&mut page, 8, b"ij", 100);
        assert_eq!((page.text.as_slice(), page.offset, page.next_offset), (&b"cdef"[..], 2, 6));
        let mut page = empty(6);
        add(&mut page, 4, b"ef", 1);
        add(&mut page, 8, b"ij", 1);
        assert_eq!(
            (page.text.as_slice(), page.offset, page.next_offset),
            (&b"i"[..], 8, 9),
            "the gap is passed by"
        );
    }
}
