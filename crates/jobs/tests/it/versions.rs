//! An older unhang beside a newer one on one data folder (F-16).

use unhang_jobs::{
    error::JobError,
    record::JobState,
    store::{JobOwnerFilter, StoreError},
};

use crate::common::Bench;

fn change(bench: &Bench, sql: &str) {
    let database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn f_16_tables_that_became_newer_are_not_written() {
    let bench = Bench::new();
    let before = bench.run("true").await.record.job_id;
    change(&bench, "PRAGMA user_version = 99");
    let error = bench.engine.submit(bench.submission("true")).await.unwrap_err();
    let JobError::Store(store) = &error else { panic!("{error}") };
    assert!(matches!(**store, StoreError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("use the newer unhang"), "{error}");
    assert!(bench.engine.remove(before).await.is_err());
    let count: u32 = rusqlite::Connection::open(bench.folder.path().join("unhang.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
    let folders = std::fs::read_dir(bench.folder.path().join("jobs")).unwrap().count();
    assert_eq!(folders, 1, "what was not accepted leaves no folder");
}

#[tokio::test]
async fn f_16_a_record_that_nobody_here_knows_takes_no_other_with_it() {
    let bench = Bench::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(bench.run("true").await.record.job_id);
    }
    change(
        &bench,
        &format!("UPDATE jobs SET record = json_set(record, '$.status', 'dreaming') WHERE id = '{}'", ids[1]),
    );
    let bench = bench.reopen();
    let listed = bench.engine.list(None, JobOwnerFilter::Anybodys, 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|status| status.record.job_id).collect();
    assert_eq!(listed, [ids[2], ids[0]]);
    let error = bench.engine.status(ids[1]).await.unwrap_err().to_string();
    assert!(error.contains("cannot be read") && error.contains("newer unhang"), "{error}");
    assert_eq!(bench.run("true").await.record.status, JobState::Completed);
    assert_eq!(bench.engine.counts().await.unwrap().iter().map(|(_, count)| count).sum::<u64>(), 4);
}
