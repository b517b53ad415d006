//! Tests of the drain: the cutting of lines, the ring, and the end of the thread.

use std::{
    fs::File,
    io::Write,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::testing::PATIENCE;

fn pipe() -> (ErrorPipe, File) {
    let (reader, writer) = pair().unwrap();
    (reader.into(), writer.into())
}

/// The pieces that come out when the text comes in chunks of the given size.
fn pieces(text: &[u8], chunk: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut cutter = LineCutter { piece: Vec::new(), on_line: |line: &[u8]| found.push(line.to_vec()) };
    text.chunks(chunk).for_each(|chunk| cutter.push(chunk));
    cutter.finish();
    found
}

#[test]
fn any_split_of_the_bytes_gives_the_same_lines() {
    let mut text = b"one\r\n\ntwo\n".to_vec();
    text.extend([b'x'; 20_000]);
    text.extend(b"\nlast without an end");
    let expected = pieces(&text, text.len());
    assert_eq!(expected[..3], [b"one".to_vec(), Vec::new(), b"two".to_vec()]);
    assert_eq!(expected[3..].iter().map(Vec::len).collect::<Vec<_>>(), [8192, 8192, 3616, 19]);
    for chunk in [1, 2, 7, 8191, 8192, 8193, 65536] {
        assert_eq!(pieces(&text, chunk), expected, "chunks of {chunk}");
    }
}

#[test]
fn the_tail_keeps_the_newest_bytes() {
    let tail = Tail::new(10);
    tail.push(b"0123456789abcdef\n");
    assert_eq!(tail.last_lines(5), ["789abcdef"]);
    tail.push(b"xyz\n");
    assert_eq!(tail.last_lines(5), ["bcdef", "xyz"]);
    assert_eq!(tail.last_lines(1), ["xyz"]);
    assert_eq!(tail.bytes_seen(), 21);
}

#[test]
fn the_tail_is_fit_to_be_shown() {
    let tail = Tail::new(64 * 1024);
    tail.push(b"\x1b[31mred\x1b[0m\ta\x07\r\n\n \xff \n");
    tail.push("é".repeat(3_000).as_bytes());
    let lines = tail.last_lines(9);
    assert_eq!(lines[..2], ["[31mred[0m a", " \u{fffd}"]);
    assert_eq!(lines[2].chars().count(), 2_000);
}

#[test]
fn a_character_cut_by_the_ring_leaves_no_trace() {
    let tail = Tail::new(5);
    tail.push("ééé".as_bytes());
    assert_eq!(tail.last_lines(1), ["éé"]);
}

#[tokio::test]
async fn l_06_the_drain_ends_at_end_of_file() {
    let (reader, mut writer) = pipe();
    let tail = Tail::new(1024);
    let mut drain = drain(reader, tail.clone(), |_| {});
    writer.write_all(b"hello\nworld").unwrap();
    drop(writer);
    assert!(drain.finish(Deadline::after(PATIENCE)).await);
    assert_eq!(tail.last_lines(9), ["hello", "world"]);
}

#[tokio::test]
async fn a_pipe_that_a_stranger_holds_is_given_up_and_closed() {
    let (reader, mut writer) = pipe();
    let mut drain = drain(reader, Tail::new(1024), |_| {});
    assert!(!drain.finish(Deadline::after(Duration::from_millis(50))).await);
    wait_until_broken(&mut writer).await;
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_a_stranger_holds_is_waited_for_until_the_deadline() {
    let (reader, _writer) = pipe();
    let mut drain = drain(reader, Tail::new(1024), |_| {});
    let finish = drain.finish(Deadline::after(Duration::from_millis(50)));
    assert_eq!(tokio::time::timeout(PATIENCE, finish).await, Ok(false));
}

/// The thread of the drain does not get its turn before the deadline, as on a busy machine.
#[tokio::test]
async fn what_was_written_before_the_end_is_read_although_the_drain_is_late() {
    let (reader, mut writer) = pipe();
    let tail = Tail::new(1024);
    let (turn, is_its_turn) = std::sync::mpsc::sync_channel::<()>(1);
    let mut drain = drain(reader, tail.clone(), move |_| is_its_turn.recv().unwrap_or_default());
    writer.write_all(b"first\n").unwrap();
    while tail.bytes_seen() == 0 {
        tokio::task::yield_now().await;
    }
    writer.write_all(b"last\n").unwrap();
    let deadline = Deadline::after(Duration::from_millis(20));
    // Looked at in the moment in which it is told to be done.
    let ((), (is_end, told)) = tokio::join!(
        async {
            deadline.sleep().await;
            // Past the deadline: the lateness is what is tested, and nobody else is waited for.
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(turn);
        },
        async { (drain.finish(deadline).await, tail.last_lines(9)) }
    );
    assert!(!is_end);
    assert_eq!(told, ["first", "last"]);
    drop(writer);
}

#[tokio::test]
async fn l_40_a_dropped_drain_ends_its_thread() {
    let (reader, mut writer) = pipe();
    drop(drain(reader, Tail::new(1024), |_| {}));
    wait_until_broken(&mut writer).await;
}

/// The thread owns the reading end; when that is closed the thread has ended.
async fn wait_until_broken(writer: &mut File) {
    tokio::time::timeout(PATIENCE, async {
        while writer.write_all(b"x").is_ok() {
            // Between two tries: a writer is not told when the other end is closed.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the drain's thread goes on");
}

#[tokio::test]
async fn an_endless_line_costs_no_memory_and_stops_nothing() {
    let (reader, mut writer) = pipe();
    let longest = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&longest);
    let tail = Tail::new(64 * 1024);
    let mut drain = drain(reader, tail.clone(), move |piece| {
        seen.fetch_max(piece.len(), Ordering::Relaxed);
    });
    let flood = thread::spawn(move || {
        let chunk = vec![b'x'; 1 << 20];
        (0..64).for_each(|_| writer.write_all(&chunk).unwrap());
    });
    assert!(drain.finish(Deadline::after(PATIENCE)).await);
    flood.join().unwrap();
    assert_eq!(tail.bytes_seen(), 64 << 20);
    assert_eq!(longest.load(Ordering::Relaxed), LONGEST_PIECE);
    assert!(tail.ring().bytes.capacity() <= 256 * 1024);
}
