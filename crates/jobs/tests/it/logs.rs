//! What a job writes: kept within its limit, and readable by offsets that never move.

use std::{fs, os::unix::fs::MetadataExt, path::Path, pin::pin, time::Duration};

use unhang_jobs::{log::LogStream, record::JobState};

use crate::common::{Bench, until};

/// The most bytes that a file has on the disk while something is awaited.
async fn peak_during<T>(path: &Path, awaited: impl Future<Output = T>) -> (T, u64) {
    let mut most = 0;
    let mut awaited = pin!(awaited);
    loop {
        tokio::select! {
            biased;
            value = &mut awaited => return (value, most),
            // Between two looks at a file that others write.
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                most = most.max(path.metadata().map_or(0, |metadata| metadata.blocks() * 512));
            }
        }
    }
}

const GIBIBYTE: u64 = 1 << 30;

#[tokio::test]
async fn a_gibibyte_at_full_speed_does_not_stay_on_the_disk_and_keeps_its_last_line() {
    let bench = Bench::new();
    let id = bench
        .submit(&format!("yes 'what nobody reads' | head -c {GIBIBYTE}; echo; echo the last line"))
        .await;
    let log = bench.job(id).join("stdout.log");
    let (status, peak) = peak_during(&log, bench.end(id)).await;
    assert_eq!(status.record.status, JobState::Completed);
    assert!(peak <= 64 << 20, "{} MiB were on the disk", peak >> 20);
    let metadata = log.metadata().unwrap();
    assert!(metadata.len() > GIBIBYTE && metadata.blocks() * 512 <= 9 << 20, "{metadata:?}");
    let results = bench.engine.results(id).await.unwrap();
    assert!(results.stdout_tail.ends_with("\nthe last line\n"), "{}", results.stdout_tail);
    let page = bench.engine.logs(id, LogStream::Stdout, 0, 100).await.unwrap();
    assert!(page.dropped_before > GIBIBYTE / 2 && page.offset == page.dropped_before, "{page:?}");
}

#[tokio::test]
async fn j_148_a_log_can_be_followed_while_it_grows() {
    let bench = Bench::new();
    let gate = bench.folder.path().join("gate");
    let id = bench
        .submit(&format!("echo one; until [ -e {} ]; do sleep 0.01; done; echo two", gate.display()))
        .await;
    until("the first line", || bench.stdout_if_any(id).filter(|text| text.contains("one"))).await;
    let first = bench.engine.logs(id, LogStream::Stdout, 0, 1000).await.unwrap();
    assert_eq!((first.text.as_str(), first.next_offset, first.eof), ("one\n", 4, false));
    fs::write(gate, "").unwrap();
    bench.end(id).await;
    let second = bench.engine.logs(id, LogStream::Stdout, first.next_offset, 1000).await.unwrap();
    assert_eq!((second.text.as_str(), second.offset, second.eof), ("two\n", 4, true));
}
