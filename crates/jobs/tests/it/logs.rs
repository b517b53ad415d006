//! What a job writes: kept within its limit, and readable by offsets that never move.

use std::{fs, os::unix::fs::MetadataExt, path::Path, pin::pin, time::Duration};

use unhang_jobs::{log::LogStream, record::JobState};

use crate::common::{Bench, until};

/// The growth of a file, as a test sees it that looks at the file every millisecond.
#[derive(Default)]
struct SeenGrowth {
    /// The most bytes that it had on the disk.
    most_on_disk: u64,
    /// The most bytes that a writer added between two looks. A busy machine makes the test look later.
    largest_step: u64,
}

/// Awaits a future, and looks at a file meanwhile.
async fn growth_during<T>(path: &Path, awaited: impl Future<Output = T>) -> (T, SeenGrowth) {
    let (mut seen, mut length) = (SeenGrowth::default(), 0);
    let mut awaited = pin!(awaited);
    loop {
        tokio::select! {
            biased;
            value = &mut awaited => return (value, seen),
            // Between two looks at a file that others write.
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                let Ok(metadata) = path.metadata() else { continue };
                seen.most_on_disk = seen.most_on_disk.max(metadata.blocks() * 512);
                seen.largest_step = seen.largest_step.max(metadata.len() - length);
                length = metadata.len();
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
    let (status, SeenGrowth { most_on_disk, largest_step }) = growth_during(&log, bench.end(id)).await;
    assert_eq!(status.record.status, JobState::Completed);
    // A busy machine delays the supervisor as it delays this test, twice in each round: at the write, and after the pause.
    let most = ((64 << 20) + 2 * largest_step).min(GIBIBYTE / 4);
    assert!(most_on_disk <= most, "{} MiB were on the disk, not {}", most_on_disk >> 20, most >> 20);
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
