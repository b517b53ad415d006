//! Tests of the journals. A second journal on the same file stands for the successor of a process that was killed.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use rustix::{fs::fstat, pipe::fcntl_setpipe_size};

use super::*;
use crate::pipe::{
    PipeKind, PipeReader, PipeWriter, from_server,
    tests::{read, within},
    to_server,
};

/// The bytes of memory that a journal takes.
fn memory(journal: &impl AsFd) -> u64 {
    u64::try_from(fstat(journal).unwrap().st_blocks).unwrap() * 512
}

fn same(file: &impl AsFd) -> OwnedFd {
    file.as_fd().try_clone_to_owned().unwrap()
}

/// Numbers that differ at each place.
fn text(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_le_bytes).take(length).collect()
}

fn write_journal(writer: &PipeWriter) -> &WriteJournal {
    writer.journal.as_ref().unwrap()
}

fn read_journal(reader: &PipeReader) -> &ReadJournal {
    reader.journal.as_ref().unwrap()
}

/// A long stream through both journals. The reader processes everything at once, or always leaves the last bytes for later.
async fn a_stream_takes_little_memory(left: u64) {
    const LENGTH: usize = 48 << 20;
    let (far_input, mut writer) = to_server().unwrap();
    let (mut reader, far_output) = from_server().unwrap();
    writer.begin_journal().unwrap();
    reader.begin_journal(&[]).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut from, mut to) = (File::from(far_input), File::from(far_output));
        let mut buffer = vec![0; 40_000];
        while let count @ 1.. = from.read(&mut buffer).unwrap() {
            to.write_all(&buffer[..count]).unwrap();
        }
    });
    let text = text(1 << 16);
    let (mut sent, mut came, mut processed) = (0, 0, 0);
    let mut buffer = vec![0; 50_000];
    let mut writer = Some(writer);
    while came < LENGTH {
        if writer.as_ref().is_some_and(|writer| sent == LENGTH && writer.backlog() == 0) {
            writer = None;
        }
        let may_write = writer.as_ref().is_some_and(|writer| writer.backlog() > 0 || sent < LENGTH);
        tokio::select! {
            ready = async { writer.as_ref().unwrap().writable().await }, if may_write => {
                ready.unwrap();
                let writer = writer.as_mut().unwrap();
                // Lines of many lengths.
                let from = sent % text.len();
                let part = &text[from..text.len().min(from + 1 + sent % 9973)];
                if sent - came > 1 << 20 || sent == LENGTH {
                    let _ = writer.flush_journal();
                } else {
                    let part = &part[..part.len().min(LENGTH - sent)];
                    assert_eq!(writer.try_write_vectored(&[IoSlice::new(part)]).unwrap(), part.len());
                    sent += part.len();
                }
                assert!(memory(write_journal(writer)) < 4 << 20, "{}", memory(write_journal(writer)));
            }
            ready = reader.readable() => {
                ready.unwrap();
                if let Ok(count) = reader.try_read(&mut buffer) {
                    assert!(count > 0);
                    let expected = text.iter().cycle().skip(came % text.len()).take(count);
                    assert!(buffer[..count].iter().eq(expected), "after {came} bytes");
                    came += count;
                    let done = (came as u64).saturating_sub(left).saturating_sub(processed);
                    reader.processed(done).unwrap();
                    processed += done;
                    assert!(memory(read_journal(&reader)) < 4 << 20, "{}", memory(read_journal(&reader)));
                }
            }
        }
    }
    echo.join().unwrap();
    if left == 0 {
        // A limit of the file size does not end the stream.
        assert!(read_journal(&reader).taken < 4 << 20);
    }
}

#[tokio::test]
async fn the_journals_of_a_long_stream_take_little_memory() {
    a_stream_takes_little_memory(0).await;
    a_stream_takes_little_memory(10).await;
}

#[tokio::test]
async fn a_full_journal_waits_until_something_is_processed() {
    let (mut reader, far) = from_server().unwrap();
    reader.begin_journal(&[]).unwrap();
    reader.journal.as_mut().unwrap().limit = 1000;
    rustix::io::write(&far, &text(1500)).unwrap();
    let mut buffer = [0; 4096];
    assert_eq!(read(&mut reader, &mut buffer).await, 1000);
    assert_eq!(reader.try_read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(reader.read_now(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let waits = tokio::time::timeout(std::time::Duration::from_millis(20), reader.readable()).await;
    assert!(waits.is_err(), "an owner would ask for ever");
    reader.processed(300).unwrap();
    assert_eq!(read(&mut reader, &mut buffer).await, 300);
    reader.processed(1000).unwrap();
    assert_eq!(read(&mut reader, &mut buffer).await, 200);
    assert_eq!(buffer[..200], text(1500)[1300..]);
    drop(far);
    assert_eq!(read(&mut reader, &mut buffer).await, 0);
}

#[tokio::test]
async fn a_writer_with_a_long_backlog_accepts_no_more_and_goes_on_when_it_is_short() {
    let (far, mut writer) = to_server().unwrap();
    writer.begin_journal().unwrap();
    let megabyte = text(1 << 20);
    let mut sent = 0;
    let refusal = loop {
        match writer.try_write_vectored(&[IoSlice::new(&megabyte), IoSlice::new(&[])]) {
            Ok(count) => sent += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal.kind(), io::ErrorKind::WouldBlock);
    assert!(
        (LONGEST_BACKLOG..LONGEST_BACKLOG + (2 << 20)).contains(&writer.backlog()),
        "{}",
        writer.backlog()
    );
    assert_eq!(writer.unread(), sent);
    assert!(writer.end_journal().is_err());
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        File::from(far).read_to_end(&mut all).unwrap();
        all
    });
    while writer.backlog() > 0 {
        within(writer.writable()).await.unwrap();
        let _ = writer.flush_journal();
    }
    writer.end_journal().unwrap();
    drop(writer);
    assert!(reader.join().unwrap() == megabyte.repeat(usize::try_from(sent >> 20).unwrap()));
}

/// A process may be killed between any two steps.
#[tokio::test]
async fn a_successor_finds_nothing_left_in_the_middle_of_a_rewind() {
    let mut reader = ReadJournal::create(b"processed").unwrap();
    reader.cursor = reader.taken;
    reader.processed(9).unwrap();
    reader.file.rewind().unwrap();
    let reader = ReadJournal::resume(same(&reader)).unwrap();
    assert_eq!((reader.unread(), reader.processed), (0, START));
    assert_eq!(reader.file.mark().unwrap(), Mark::at(START), "or new bytes would count as processed");

    let (far, pipe) = super::super::pair().unwrap();
    let mut writer = WriteJournal::create().unwrap();
    writer.accept(&[IoSlice::new(b"before")], 0).unwrap();
    writer.flush(&pipe).unwrap();
    writer.file.note(Mark::at(START)).unwrap();
    let mut writer = WriteJournal::resume(same(&writer)).unwrap();
    assert_eq!(writer.backlog(), 0);
    writer.accept(&[IoSlice::new(b"after")], 6).unwrap();
    assert_eq!(writer.flush(&pipe).unwrap(), 5);
    let mut buffer = [0; 20];
    assert_eq!(rustix::io::read(far, &mut buffer).unwrap(), 11);
    assert_eq!(&buffer[..11], b"beforeafter");
}

#[tokio::test]
async fn a_successor_drops_what_was_not_accepted_as_a_whole() {
    let (far, pipe) = super::super::pair().unwrap();
    let mut writer = WriteJournal::create().unwrap();
    writer.accept(&[IoSlice::new(b"whole ")], 0).unwrap();
    writer.file.write_at(&[IoSlice::new(b"half a li")], writer.accepted).unwrap();
    let mut successor = WriteJournal::resume(same(&writer)).unwrap();
    assert_eq!(successor.backlog(), 6);
    successor.accept(&[IoSlice::new(b"new")], 0).unwrap();
    assert_eq!(successor.flush(&pipe).unwrap(), 9);
    let mut buffer = [0; 20];
    assert_eq!(rustix::io::read(far, &mut buffer).unwrap(), 9);
    assert_eq!(&buffer[..9], b"whole new");
}

/// A server may pass the pages of its input on, without copying them.
#[tokio::test]
async fn what_has_entered_a_pipe_never_changes() {
    let (far, mut writer) = to_server().unwrap();
    let (onward, other) = super::super::pair().unwrap();
    fcntl_setpipe_size(&other, 1 << 18).unwrap();
    writer.begin_journal().unwrap();
    let line = text(100_000);
    within(writer.writable()).await.unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut moved = 0;
    writer.try_write_vectored(&[IoSlice::new(&line)]).unwrap();
    while moved < line.len() {
        moved += system::move_bytes(&far, &other, line.len() - moved).unwrap();
        let _ = writer.flush_journal();
        within(writer.writable()).await.unwrap();
    }
    // Enough for several rewinds, and for memory to be given back.
    for _ in 0..40 {
        writer.try_write_vectored(&[IoSlice::new(&[b'y'; 50_000])]).unwrap();
        while writer.unread() > 0 {
            let _ = writer.flush_journal();
            rustix::io::read(&far, &mut buffer).unwrap();
            within(writer.writable()).await.unwrap();
        }
    }
    assert!(write_journal(&writer).accepted < START + (1 << 20), "it was rewound");
    let mut read = vec![0; line.len()];
    File::from(onward).read_exact(&mut read).unwrap();
    assert!(read == line);
}

#[tokio::test]
async fn only_a_pipe_has_a_journal_and_only_one() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut reader = PipeReader::new(near.try_clone().unwrap().into(), PipeKind::Socket).unwrap();
    let mut writer = PipeWriter::new(near.into(), PipeKind::Socket).unwrap();
    assert_eq!(reader.begin_journal(&[]).unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(writer.begin_journal().unwrap_err().kind(), io::ErrorKind::Unsupported);
    let (mut reader, _far) = from_server().unwrap();
    reader.begin_journal(b"unprocessed").unwrap();
    assert_eq!(reader.begin_journal(&[]).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(reader.processed(12).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    reader.processed(11).unwrap();
    reader.end_journal().unwrap();
    reader.processed(1).unwrap();
}

#[tokio::test]
async fn a_journal_with_unread_bytes_does_not_end() {
    let (mut reader, far) = from_server().unwrap();
    reader.begin_journal(&[]).unwrap();
    rustix::io::write(&far, b"some bytes").unwrap();
    let mut buffer = [0; 10];
    assert_eq!(read(&mut reader, &mut buffer[..4]).await, 4);
    let journal = reader.journal.as_mut().unwrap();
    let successor = ReadJournal::resume(same(journal)).unwrap();
    assert_eq!(successor.unread(), 4, "what is not processed is unread for a successor");
    journal.cursor -= 1;
    assert_eq!(reader.end_journal().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(read(&mut reader, &mut buffer).await, 1);
    reader.end_journal().unwrap();
    assert_eq!(read(&mut reader, &mut buffer).await, 6);
}

#[test]
fn a_successor_knows_how_many_bytes_were_accepted_in_all() {
    let (far, pipe) = super::super::pair().unwrap();
    let mut journal = WriteJournal::create().unwrap();
    let (text, mut buffer) = (text(200 << 10), vec![0; 1 << 16]);
    let (mut accepted, mut is_rewound) = (0, false);
    for _ in 0..4 {
        accepted += journal.accept(&[IoSlice::new(&text), IoSlice::new(b"\n")], 0).unwrap() as u64;
        assert_eq!(journal.accepted(), accepted);
        assert_eq!(WriteJournal::resume(same(&journal)).unwrap().accepted(), accepted);
        is_rewound |= journal.earlier > 0;
        while journal.backlog() > 0 {
            journal.flush(&pipe).unwrap();
            rustix::io::read(&far, &mut *buffer).unwrap();
        }
    }
    assert!(is_rewound);
}
