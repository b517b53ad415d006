//! A writer that never blocks its caller: bytes that the sink does not take in time are dropped and counted.
//!
//! Our own stderr may be unread, and a log may sit on a disk that hangs (promise 3).
//!
//! Invariants: at most `capacity` bytes wait. Callers never wait for the sink, except in [`LossyWriter::send_patiently`] and
//! [`LossyWriter::flush`], which have limits. Pieces are never torn: each is written whole or dropped whole. The thread ends when the last
//! handle is dropped and everything is written, or at the first error of the sink.

use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The writer's stack; a sink writes to a file at most.
const STACK: usize = 128 * 1024;

/// A handle to a writer; clones share it.
#[derive(Clone, Debug)]
pub struct LossyWriter {
    shared: Arc<LossyShared>,
    /// Counts the handles, so that the thread can tell the last one.
    _handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle(Arc<LossyShared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_all();
    }
}

#[derive(Debug)]
struct LossyShared {
    state: Mutex<LossyState>,
    /// Signals that there is something to write, that there is room, or that the end has come.
    changed: Condvar,
    capacity: usize,
    /// Words the note about a loss of so many bytes.
    loss: fn(u64) -> String,
}

#[derive(Debug, Default)]
struct LossyState {
    waiting: Vec<u8>,
    /// Bytes dropped since the last note about a loss.
    unsaid: u64,
    dropped: u64,
    /// Bytes that the thread is writing to the sink at this moment.
    in_sink: usize,
    /// Whether a patient caller has waited in vain since there was room last.
    is_stuck: bool,
    is_closed: bool,
    /// Whether the sink has failed, or there is no thread.
    is_broken: bool,
}

impl LossyState {
    /// Appends a note of how much was dropped, at the place of the loss. The note may exceed the capacity by a few bytes, once: the reader
    /// is owed it.
    fn own_up(&mut self, loss: fn(u64) -> String) {
        if self.unsaid > 0 {
            self.waiting.extend_from_slice(loss(self.unsaid).as_bytes());
            self.unsaid = 0;
        }
    }
}

impl LossyWriter {
    /// Starts a writer with a thread of its own, called `name`. At most `capacity` bytes wait for the sink.
    pub fn new(name: &str, sink: impl Write + Send + 'static, capacity: usize) -> Self {
        let loss = |bytes| format!("[unhang: {bytes} bytes dropped, because they were not read]\n");
        Self::telling(name, sink, capacity, loss)
    }

    /// Starts a writer as [`Self::new`] does, with `loss` to word the note about a loss of so many bytes. The note ends with a line ending.
    pub fn telling(
        name: &str,
        sink: impl Write + Send + 'static,
        capacity: usize,
        loss: fn(u64) -> String,
    ) -> Self {
        let shared =
            Arc::new(LossyShared { state: Mutex::default(), changed: Condvar::new(), capacity, loss });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(move || own.write_all(sink));
        // Without a thread everything is dropped and counted, as a lossy writer may do.
        shared.state().is_broken = thread.is_err();
        Self { _handle: Arc::new(Handle(Arc::clone(&shared))), shared }
    }

    /// Hands over a piece, or drops it if there is no room. Never waits.
    pub fn send(&self, bytes: &[u8]) {
        let mut state = self.shared.state();
        self.shared.put(&mut state, bytes);
    }

    /// Hands over a piece, and waits at most `limit` for room. After a wait in vain it does not wait again until there was room. So a stuck
    /// sink costs one wait, and not one for each line. It blocks the thread, and so is not for async code.
    pub fn send_patiently(&self, bytes: &[u8], limit: Duration) {
        let mut state = self.shared.state();
        let may_fit = bytes.len() <= self.shared.capacity;
        if !self.shared.fits(&state, bytes) && !state.is_stuck && may_fit {
            let fits = |state: &LossyState| state.is_broken || self.shared.fits(state, bytes);
            state = self.shared.wait_until(state, limit, fits);
            state.is_stuck = !self.shared.fits(&state, bytes);
        }
        self.shared.put(&mut state, bytes);
    }

    /// Returns how many bytes were dropped in all.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.state().dropped
    }

    /// Waits until everything was written, at most `limit`. Returns whether it was. Blocks the thread.
    pub fn flush(&self, limit: Duration) -> bool {
        let is_done =
            |state: &LossyState| state.is_broken || (state.waiting.is_empty() && state.in_sink == 0);
        let state = self.shared.wait_until(self.shared.state(), limit, is_done);
        is_done(&state) && !state.is_broken
    }
}

impl LossyShared {
    fn state(&self) -> MutexGuard<'_, LossyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, state: &LossyState, bytes: &[u8]) -> bool {
        let in_sink = state.in_sink;
        state.waiting.len() + in_sink + bytes.len() <= self.capacity
    }

    fn put(&self, state: &mut LossyState, bytes: &[u8]) {
        if state.is_broken || (!self.fits(state, bytes)) {
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            state.dropped += count;
            state.unsaid += count;
            return;
        }
        state.is_stuck = false;
        state.own_up(self.loss);
        state.waiting.extend_from_slice(bytes);
        self.changed.notify_all();
    }

    fn wait_until<'a>(
        &self,
        mut state: MutexGuard<'a, LossyState>,
        limit: Duration,
        is_done: impl Fn(&LossyState) -> bool,
    ) -> MutexGuard<'a, LossyState> {
        let until = now().saturating_add(limit);
        while !is_done(&state) {
            let left = until.saturating_sub(now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Runs the thread: takes all that waits at once, and writes it.
    fn write_all(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state();
            while state.waiting.is_empty() && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.waiting.is_empty() {
                return;
            }
            std::mem::swap(&mut state.waiting, &mut batch);
            state.in_sink = batch.len();
            drop(state);
            self.changed.notify_all();
            let result = sink.write_all(&batch).and_then(|()| sink.flush());
            batch.clear();
            let mut state = self.state();
            state.in_sink = 0;
            if result.is_ok() {
                state.own_up(self.loss);
            } else {
                state.is_broken = true;
                let lost = u64::try_from(state.waiting.len()).unwrap_or(u64::MAX);
                state.dropped += lost;
                state.waiting = Vec::new();
            }
            let is_broken = state.is_broken;
            drop(state);
            self.changed.notify_all();
            if is_broken {
                return;
            }
        }
    }
}

/// Returns the time since some fixed moment.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::mpsc::{Receiver, SyncSender, sync_channel},
    };

    use super::*;
    use crate::testing::{PATIENCE, wait_until, without_hanging};

    /// A sink that takes one batch for each permission, and shows what it took.
    struct GatedSink {
        permissions: Receiver<()>,
        taken: Arc<Mutex<Vec<u8>>>,
        entered: SyncSender<()>,
    }

    impl Write for GatedSink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The test may not be waiting for it.
            let _ = self.entered.try_send(());
            self.permissions.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.taken.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Gated {
        writer: LossyWriter,
        permit: SyncSender<()>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    /// A writer whose sink is stuck with the five bytes of `first`.
    fn stuck(capacity: usize) -> Gated {
        let (permit, permissions) = sync_channel(100);
        let (entered, inside) = sync_channel(100);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let writer =
            LossyWriter::new("test", GatedSink { permissions, taken: Arc::clone(&taken), entered }, capacity);
        writer.send(b"first");
        inside.recv_timeout(PATIENCE).unwrap();
        Gated { writer, permit, taken }
    }

    #[test]
    fn a_stuck_sink_delays_nobody_and_the_loss_is_told() {
        let gated = stuck(15);
        gated.writer.send(b"0123456789");
        for _ in 0..1000 {
            gated.writer.send(b"lost");
        }
        assert_eq!(gated.writer.dropped(), 4000);
        assert!(!gated.writer.flush(Duration::from_millis(20)));
        for _ in 0..4 {
            gated.permit.send(()).unwrap();
        }
        assert!(gated.writer.flush(PATIENCE));
        gated.writer.send(b"after");
        assert!(gated.writer.flush(PATIENCE));
        let expected = "first0123456789[unhang: 4000 bytes dropped, because they were not read]\nafter";
        let taken = String::from_utf8(gated.taken.lock().unwrap().clone()).unwrap();
        assert_eq!(taken, expected);
    }

    #[test]
    fn patience_is_spent_once_on_a_stuck_sink() {
        let gated = stuck(5);
        let begun = now();
        for _ in 0..50 {
            gated.writer.send_patiently(b"patient", Duration::from_millis(1));
            gated.writer.send_patiently(b"wait", Duration::from_millis(200));
        }
        let took = now() - begun;
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(5), "{took:?}");
        assert_eq!(gated.writer.dropped(), 50 * 11);
    }

    #[test]
    fn a_patient_caller_gets_the_room_that_comes_free() {
        let gated = stuck(8);
        let permit = gated.permit.clone();
        let other = thread::spawn(move || permit.send(()).unwrap());
        gated.writer.send_patiently(b"second", PATIENCE);
        other.join().unwrap();
        assert_eq!(gated.writer.dropped(), 0);
        gated.permit.send(()).unwrap();
        assert!(gated.writer.flush(PATIENCE));
        assert_eq!(&*gated.taken.lock().unwrap(), b"firstsecond");
    }

    #[test]
    fn a_wait_for_a_stuck_sink_has_an_end() {
        let gated = stuck(5);
        let writer = gated.writer;
        assert!(!without_hanging(move || writer.flush(Duration::from_millis(20))));
    }

    #[test]
    fn a_broken_sink_drops_and_counts() {
        let gated = stuck(100);
        gated.writer.send(b"waiting");
        drop(gated.permit);
        assert!(!gated.writer.flush(PATIENCE), "a broken sink has written nothing");
        gated.writer.send(b"more");
        assert_eq!(gated.writer.dropped(), 7 + 4);
    }

    #[test]
    fn the_thread_writes_the_rest_and_ends_with_the_last_handle() {
        let gated = stuck(100);
        let clone = gated.writer.clone();
        drop(gated.writer);
        clone.send(b" and rest");
        drop(clone);
        gated.permit.send(()).unwrap();
        gated.permit.send(()).unwrap();
        // The sink's own count of its buffer falls when the thread drops it.
        wait_until("the thread ends", || Arc::strong_count(&gated.taken) == 1);
        assert_eq!(&*gated.taken.lock().unwrap(), b"first and rest");
    }
}
