//! Tests of the pipe ends, with every kind of descriptor that a client may hand us.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use rustix::io::ioctl_fionread;

use super::*;
use crate::{
    deadline::Deadline,
    testing::{PATIENCE, wait_until, without_hanging},
};

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

pub(super) async fn read(reader: &mut PipeReader, buffer: &mut [u8]) -> usize {
    loop {
        within(reader.readable()).await.unwrap();
        match reader.try_read(buffer) {
            Ok(count) => return count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

async fn read_to_end(reader: &mut PipeReader) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        match read(reader, &mut buffer).await {
            0 => return all,
            count => all.extend(&buffer[..count]),
        }
    }
}

async fn write(writer: &mut PipeWriter, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        within(writer.writable()).await.unwrap();
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        match writer.try_write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

fn is_nonblocking(descriptor: &impl AsFd) -> bool {
    fcntl_getfl(descriptor).unwrap().contains(OFlags::NONBLOCK)
}

fn blocking_pipe() -> (OwnedFd, OwnedFd) {
    pair().unwrap()
}

#[tokio::test]
async fn an_inherited_pipe_keeps_its_flags_and_its_bytes() {
    let (reader, mut writer) = blocking_pipe();
    let shared = reader.try_clone().unwrap();
    let mut adopted = adopt_input(reader).unwrap();
    assert_eq!(adopted.kind, PipeKind::Pipe);
    rustix::io::write(&writer, b"hello").unwrap();
    let mut buffer = [0; 3];
    assert_eq!(read(&mut adopted, &mut buffer).await, 3);
    assert_eq!(adopted.try_read(&mut buffer).unwrap(), 2);
    assert_eq!(adopted.try_read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(!is_nonblocking(&shared) && !is_nonblocking(&writer));
    rustix::io::write(&writer, b"more").unwrap();
    drop(std::mem::replace(&mut writer, shared));
    assert_eq!(read_to_end(&mut adopted).await, b"more");

    let (reader, writer) = blocking_pipe();
    let shared = writer.try_clone().unwrap();
    let (mut adopted, flush) = adopt_output(writer).unwrap();
    write(&mut adopted, b"answer").await;
    assert!(!is_nonblocking(&shared) && !is_nonblocking(&reader));
    drop((adopted, shared));
    assert!(flush.finish(Deadline::after(PATIENCE)).await);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert_eq!(text, "answer");
}

#[tokio::test]
async fn an_inherited_socket_keeps_its_flags_and_its_bytes() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (shared, output) = (near.try_clone().unwrap(), near.try_clone().unwrap());
    let mut input = adopt_input(near.into()).unwrap();
    let (mut output, _) = adopt_output(output.into()).unwrap();
    assert_eq!((input.kind, output.kind), (PipeKind::Socket, PipeKind::Socket));
    far.write_all(b"question").unwrap();
    let mut buffer = [0; 20];
    assert_eq!(read(&mut input, &mut buffer).await, 8);
    assert_eq!(input.try_read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    write(&mut output, b"answer").await;
    far.read_exact(&mut buffer[..6]).unwrap();
    assert_eq!(&buffer[..6], b"answer");
    assert!(!is_nonblocking(&shared) && !is_nonblocking(&far));
    assert!(!output.reader_gone());
    drop(far);
    within(output.closed()).await;
    assert!(output.reader_gone());
    assert_eq!(read(&mut input, &mut buffer).await, 0);
}

#[tokio::test]
async fn a_file_and_the_null_device_go_through_a_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let (mut output, flush) = adopt_output(File::create(&path).unwrap().into()).unwrap();
    let text = vec![b'x'; 300_000];
    write(&mut output, &text).await;
    drop(output);
    assert!(flush.finish(Deadline::after(PATIENCE)).await);
    assert_eq!(std::fs::read(&path).unwrap(), text);
    let mut input = adopt_input(File::open(&path).unwrap().into()).unwrap();
    assert_eq!(read_to_end(&mut input).await, text);
    let mut input = adopt_input(File::open("/dev/null").unwrap().into()).unwrap();
    assert_eq!(read_to_end(&mut input).await, b"");
}

#[tokio::test]
async fn an_output_that_takes_nothing_is_not_waited_for_beyond_the_deadline() {
    // A pipe that cannot be opened again stands for a terminal that was stopped.
    let (near, far) = blocking_pipe();
    let (reader, writer) = blocking_pipe();
    set_nonblocking(&writer).unwrap();
    let (done, flushed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(adopt::pump(&reader, &far).map(|()| done.send(()))));
    let mut output = PipeWriter::new(writer, PipeKind::Pipe).unwrap();
    // What the stuck pipe holds, and some more, which the pump then has in its hands.
    write(&mut output, &[b'x'; 70_000]).await;
    drop(output);
    let flush = Flush::waiting_for(flushed);
    assert!(!flush.finish(Deadline::after(Duration::from_millis(50))).await);
    drop(near);
}

#[tokio::test(start_paused = true)]
async fn an_output_that_takes_nothing_is_waited_for_until_the_deadline() {
    let (_done, flushed) = tokio::sync::oneshot::channel();
    let finish = Flush::waiting_for(flushed).finish(Deadline::after(Duration::from_millis(50)));
    assert_eq!(tokio::time::timeout(PATIENCE, finish).await, Ok(false));
}

/// As where the client has made its own terminal non-blocking.
#[test]
fn a_pump_waits_for_room_where_the_output_does_not() {
    let (far, source) = blocking_pipe();
    let (reader, near) = blocking_pipe();
    set_nonblocking(&near).unwrap();
    let mut filled = 0;
    while let Ok(count) = rustix::io::write(&near, &[b'x'; 4096]) {
        filled += count;
    }
    rustix::io::write(&source, b"answer").unwrap();
    let source_left = far.try_clone().unwrap();
    let pump = std::thread::spawn(move || adopt::pump(&far, &near));
    wait_until("the pump has the answer", || ioctl_fionread(&source_left).unwrap() == 0);
    // A pump that gives up does so now.
    let until = Deadline::after(Duration::from_millis(200));
    while !pump.is_finished() && !until.is_past() {
        wait(&mut [], Some(Duration::from_millis(1)));
    }
    drop(source);
    let mut all = Vec::new();
    File::from(reader).read_to_end(&mut all).unwrap();
    assert_eq!(all.get(filled..), Some(&b"answer"[..]));
    assert!(pump.join().unwrap().is_ok());
}

#[test]
fn a_socket_is_never_waited_for() {
    let (full, empty) = without_hanging(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let (near, _far) = UnixStream::pair().unwrap();
            let (mut output, _) = adopt_output(near.try_clone().unwrap().into()).unwrap();
            output.writable().await.unwrap();
            let full = loop {
                if let Err(error) = output.try_write_vectored(&[IoSlice::new(&[b'x'; 4096])]) {
                    break error.kind();
                }
            };
            let mut input = adopt_input(near.into()).unwrap();
            let empty = input.read_now(&mut [0; 8]).unwrap_err().kind();
            (full, empty)
        })
    });
    assert_eq!((full, empty), (io::ErrorKind::WouldBlock, io::ErrorKind::WouldBlock));
}

#[tokio::test]
async fn our_ends_never_wait_and_the_servers_ends_do() {
    let (far_input, input) = to_server().unwrap();
    let (output, far_output) = from_server().unwrap();
    assert!(is_nonblocking(&input) && is_nonblocking(output.descriptor.get_ref()));
    assert!(!is_nonblocking(&far_input) && !is_nonblocking(&far_output));
}

/// On a runtime that has had no turn since the bytes came, as when an exit is heard of first.
#[tokio::test]
async fn last_words_are_read_though_the_runtime_has_not_heard_of_them() {
    let (mut reader, writer) = from_server().unwrap();
    rustix::io::write(&writer, b"last words").unwrap();
    let mut buffer = [0; 64];
    assert_eq!(reader.try_read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(reader.read_now(&mut buffer).unwrap(), 10);
    assert_eq!(reader.read_now(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(writer);
    assert_eq!(reader.read_now(&mut buffer).unwrap(), 0);
}

#[tokio::test]
async fn the_end_of_a_pumps_reader_is_noticed_without_a_write() {
    let (near, far) = blocking_pipe();
    let (reader, writer) = blocking_pipe();
    set_nonblocking(&writer).unwrap();
    std::thread::spawn(move || adopt::pump(&reader, &far));
    let output = PipeWriter::new(writer, PipeKind::Pipe).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), output.closed()).await.is_err());
    drop(near);
    within(output.closed()).await;
}

#[tokio::test]
async fn the_end_of_a_pipes_reader_is_noticed_without_a_write() {
    let (reader, mut writer) = to_server().unwrap();
    assert!(!is_nonblocking(&reader));
    write(&mut writer, b"unread").await;
    assert!(!writer.reader_gone());
    assert!(tokio::time::timeout(Duration::from_millis(20), writer.closed()).await.is_err());
    drop(reader);
    within(writer.closed()).await;
    assert!(writer.reader_gone());
    assert!(writer.try_write_vectored(&[IoSlice::new(b"x")]).is_err());
}

#[tokio::test]
async fn readiness_is_never_lost_between_short_reads_and_new_bytes() {
    let (mut reader, writer) = from_server().unwrap();
    assert!(!is_nonblocking(&writer));
    let text: Vec<u8> = (0..2_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let sent = text.clone();
    let sender = std::thread::spawn(move || {
        let mut writer = File::from(writer);
        let mut rest = &sent[..];
        let mut length = 1;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(length.min(rest.len()));
            writer.write_all(head).unwrap();
            rest = tail;
            length = length * 7 % 4099 + 1;
        }
    });
    assert_eq!(read_to_end(&mut reader).await, text);
    sender.join().unwrap();
}

#[tokio::test]
async fn a_full_pipe_says_so_and_wakes_when_there_is_room() {
    let (reader, mut writer) = to_server().unwrap();
    within(writer.writable()).await.unwrap();
    let chunk = [b'x'; 65536];
    let mut sent = 0;
    while let Ok(count) = writer.try_write_vectored(&[IoSlice::new(&chunk)]) {
        sent += count;
    }
    assert!(tokio::time::timeout(Duration::from_millis(20), writer.writable()).await.is_err());
    let mut taken = vec![0; sent];
    File::from(reader.try_clone().unwrap()).read_exact(&mut taken).unwrap();
    write(&mut writer, b"more").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_pipe_that_is_found_full_grows_and_is_never_made_smaller() {
    use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

    let text = vec![b'x'; 2 * ORDINARY];
    let (far, mut writer) = to_server().unwrap();
    let ordinary = fcntl_getpipe_size(&far).unwrap();
    write(&mut writer, b"short").await;
    assert_eq!(fcntl_getpipe_size(&far).unwrap(), ordinary);
    within(writer.writable()).await.unwrap();
    assert!(writer.try_write_vectored(&[IoSlice::new(&text)]).unwrap() < text.len());
    assert_eq!(fcntl_getpipe_size(&far).unwrap(), LARGE);

    let (mut reader, far) = from_server().unwrap();
    set_nonblocking(&far).unwrap();
    let mut buffer = vec![0; text.len()];
    rustix::io::write(&far, b"short").unwrap();
    assert_eq!(read(&mut reader, &mut buffer).await, 5);
    assert_eq!(fcntl_getpipe_size(&far).unwrap(), ordinary);
    let written = rustix::io::write(&far, &text).unwrap();
    assert_eq!(read(&mut reader, &mut buffer).await, written);
    assert_eq!(fcntl_getpipe_size(&far).unwrap(), LARGE);

    let (near, far) = blocking_pipe();
    fcntl_setpipe_size(&near, 2 * LARGE).unwrap();
    let (mut adopted, _) = adopt_output(far).unwrap();
    within(adopted.writable()).await.unwrap();
    let longer = vec![b'x'; 4 * LARGE];
    assert_eq!(adopted.try_write_vectored(&[IoSlice::new(&longer)]).unwrap(), 2 * LARGE);
    assert_eq!(fcntl_getpipe_size(&near).unwrap(), 2 * LARGE);
}
