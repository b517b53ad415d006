//! What heartbeats, log chunks and whole jobs cost the database: time, bytes of the write-ahead log, dead rows, bytes of the tables.

use unhang::{
    jobs::{
        id::JobId,
        log::{LogPage, LogStream},
        timestamp::JobTimestamp,
    },
    postgres::{JobHeartbeat, PostgresStore, WorkerClaim},
};
use unhang_zoo::scale::uptime;

use super::{
    Amounts, count,
    failure::ScaleFailure,
    milliseconds_since, quantile,
    report::{ScaleFigure, ScaleUnit},
    rows::{JobTemplate, claimant, finish},
    sql::SqlClient,
    stage::{ScaleStage, StageClocks, StageProps, check_interrupted},
};

/// The jobs in one heartbeat of a worker.
const HELD: usize = 100;
const HEARTBEATS: usize = 100;
const CHUNKS: usize = 200;
/// A line of a log.
const LINE: usize = 100;
/// The heartbeats in the life of a job of half a minute.
const OF_A_LIFE: usize = 6;

/// A store of which the costs are measured.
struct MeasuredStore {
    store: PostgresStore,
    sql: SqlClient,
    template: JobTemplate,
}

/// Measures on a store without workers.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let stage = ScaleStage::set(props, "costs", StageClocks::Usual, (0, &[]))?;
    let template = JobTemplate::take(&stage)?;
    let mut measured =
        MeasuredStore { store: stage.store()?, sql: SqlClient::connect(&stage.database.url())?, template };
    // What would be tidied up is to be counted.
    measured.sql.execute(
        "ALTER TABLE unhang.jobs SET (autovacuum_enabled = false);
         ALTER TABLE unhang.log_blocks SET (autovacuum_enabled = false)",
    )?;
    let mut figures = measured.heartbeats(1)?;
    figures.extend(measured.heartbeats(HELD)?);
    figures.extend(measured.chunks()?);
    measured.sql.execute("TRUNCATE unhang.jobs CASCADE")?;
    figures.extend(measured.lives(amounts.lives)?);
    Ok(figures)
}

impl MeasuredStore {
    /// Measures heartbeats of a worker with so many jobs.
    fn heartbeats(&mut self, jobs: usize) -> Result<Vec<ScaleFigure>, ScaleFailure> {
        let held: Vec<(JobId, WorkerClaim)> = (0..jobs).map(|_| self.job()).collect::<Result<_, _>>()?;
        let begin_wal = self.wal()?;
        let mut times = Vec::new();
        for _ in 0..HEARTBEATS {
            check_interrupted()?;
            let begin = uptime();
            self.beat(&held)?;
            times.push(milliseconds_since(begin));
        }
        let bytes = (self.wal()? - begin_wal) / count(HEARTBEATS * jobs);
        let figure = |measure: String, unit, value| ScaleFigure::new("costs", measure, unit, value);
        Ok(vec![
            figure(
                format!("heartbeat of {jobs} jobs, p50"),
                ScaleUnit::Milliseconds,
                quantile(&mut times, 0.5),
            ),
            figure(format!("heartbeat of {jobs} jobs, log of the database a job"), ScaleUnit::Bytes, bytes),
        ])
    }

    /// Measures short pieces of a log.
    fn chunks(&mut self) -> Result<Vec<ScaleFigure>, ScaleFailure> {
        let (id, claimant) = self.job()?;
        let begin_wal = self.wal()?;
        let mut times = Vec::new();
        for chunk in 0..CHUNKS {
            let begin = uptime();
            self.append(id, &claimant, chunk)?;
            times.push(milliseconds_since(begin));
        }
        let bytes = (self.wal()? - begin_wal) / count(CHUNKS);
        let figure = |measure: &str, unit, value| ScaleFigure::new("costs", measure, unit, value);
        Ok(vec![
            figure("log chunk of 100 B, p50", ScaleUnit::Milliseconds, quantile(&mut times, 0.5)),
            figure("log chunk of 100 B, log of the database", ScaleUnit::Bytes, bytes),
        ])
    }

    /// Measures whole lives of jobs: submission, claim, heartbeats, a line of log, end.
    fn lives(&mut self, lives: usize) -> Result<Vec<ScaleFigure>, ScaleFailure> {
        let begin_wal = self.wal()?;
        for _ in 0..lives {
            check_interrupted()?;
            let (id, claimant) = self.job()?;
            for _ in 0..OF_A_LIFE {
                self.beat(&[(id, claimant.clone())])?;
            }
            self.append(id, &claimant, 0)?;
            let job = unhang::jobs::store::JobStore::get(&mut self.store, id);
            let job = job.map_err(ScaleFailure::of("look at a job"))?;
            let record = job.ok_or_else(|| ScaleFailure::new("a job is unknown"))?.record;
            finish(&mut self.store, record, &claimant)?;
        }
        let bytes = (self.wal()? - begin_wal) / count(lives);
        let size = |sql: &SqlClient, table: &str| {
            Ok::<_, ScaleFailure>(
                sql.number(&format!("SELECT pg_total_relation_size('unhang.{table}')"))? / count(lives),
            )
        };
        let (bloated, logs) = (size(&self.sql, "jobs")?, size(&self.sql, "log_blocks")?);
        self.sql.execute("CREATE EXTENSION pgstattuple")?;
        let dead = self.sql.number("SELECT dead_tuple_count FROM pgstattuple('unhang.jobs')")? / count(lives);
        let begin = uptime();
        self.sql.execute("VACUUM unhang.jobs")?;
        let vacuum = milliseconds_since(begin) * 1000.0 / count(lives);
        self.sql.execute("VACUUM FULL unhang.jobs")?;
        let full = size(&self.sql, "jobs")?;
        let figure = |measure: &str, unit, value| ScaleFigure::new("costs", measure, unit, value);
        Ok(vec![
            figure("life of a job (6 heartbeats), log of the database", ScaleUnit::Bytes, bytes),
            figure("dead rows of a life that no write has tidied up", ScaleUnit::Ratio, dead),
            figure("row of an ended job with its indexes, never vacuumed", ScaleUnit::Bytes, bloated),
            figure("row of an ended job with its indexes, packed", ScaleUnit::Bytes, full),
            figure("its log of one line", ScaleUnit::Bytes, logs),
            figure("vacuum of 1,000 ended jobs", ScaleUnit::Milliseconds, vacuum),
        ])
    }

    /// Makes a job that a worker has.
    fn job(&mut self) -> Result<(JobId, WorkerClaim), ScaleFailure> {
        let record = self.template.record()?;
        let claimant =
            claimant(&format!("worker-{}", record.job_id), &format!("{}-{}", record.job_id, "0".repeat(19)));
        self.template.accept(&mut self.store, &record)?;
        let claimed = self.template.claim(&mut self.store, &claimant)?;
        match claimed {
            Some(claimed) if claimed.job_id == record.job_id => Ok((record.job_id, claimant)),
            _ => Err(ScaleFailure::new("another job was claimed")),
        }
    }

    fn beat(&mut self, held: &[(JobId, WorkerClaim)]) -> Result<(), ScaleFailure> {
        let started_at = Some(JobTimestamp::now());
        let heartbeats: Vec<JobHeartbeat<'_>> = held
            .iter()
            .map(|(id, claimant)| JobHeartbeat {
                id: *id,
                token: &claimant.token,
                started_at,
                progress: None,
            })
            .collect();
        let renewed = self.store.renew(&heartbeats).map_err(ScaleFailure::of("send a heartbeat"))?;
        match renewed.len() == held.len() {
            true => Ok(()),
            false => Err(ScaleFailure::new("a heartbeat was not taken")),
        }
    }

    fn append(&mut self, id: JobId, claimant: &WorkerClaim, chunk: usize) -> Result<(), ScaleFailure> {
        let offset = u64::try_from(chunk * LINE).unwrap_or(u64::MAX);
        let page = LogPage {
            text: vec![b'x'; LINE],
            offset,
            next_offset: offset + 100,
            eof: false,
            dropped_before: 0,
        };
        let taken = self.store.append_log(id, &claimant.token, LogStream::Stdout, 0, &page);
        match taken.map_err(ScaleFailure::of("copy a log"))? {
            true => Ok(()),
            false => Err(ScaleFailure::new("a part of a log was not taken")),
        }
    }

    /// Returns the bytes that the database has written to its log.
    fn wal(&self) -> Result<f64, ScaleFailure> {
        self.sql.number("SELECT pg_current_wal_insert_lsn() - '0/0'")
    }
}
