//! One stream of events to a client: its waiting events, its delivered events, and the body that reads it.
//!
//! Invariants
//!
//! - Adding an event never waits. The waiting events are bounded by the owner, which watches [`BufferedBytes`].
//! - Events have numbers, so that a client can resume a broken stream where it broke. Delivered events are kept for that within [`KEPT`]
//!   bytes, the last one in any case; undelivered events are kept anyway.
//! - The id of a priming event has the number of the last delivered event, so that a client that resumes there misses nothing. The number of
//!   its reader follows, because no two events have the same id.
//! - At most one body reads a stream. A later one takes its place.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, Sleep, sleep},
};
use unhang_net::serve::axum::body::{Bytes, HttpBody};

use crate::tally::FrontTally;
use unhang_core::{
    config::STREAM_RETRY,
    queue::{Class, Queue, Sink},
};

/// The most bytes of delivered events that are kept, in case their reader has missed them.
pub(super) const KEPT: usize = 64 << 10;

/// The longest silence on a stream. Proxies close a connection that looks dead, and a write shows unhang that a client has gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// The bytes that wait on all streams of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct BufferedBytes {
    own: Arc<AtomicUsize>,
    /// The counters of all sessions.
    tally: Arc<FrontTally>,
}

impl BufferedBytes {
    pub(super) fn new(tally: Arc<FrontTally>) -> BufferedBytes {
        BufferedBytes { own: Arc::default(), tally }
    }

    pub(super) fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn more(&self, bytes: usize) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.tally.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    fn less(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.tally.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The lines before the data of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventMarks {
    /// No line.
    None,
    /// A number, so that the stream can be resumed.
    Number,
    /// The kind of the event: clients of 2024-11-05 need it.
    Kind,
}

/// A stream. Clones share one stream.
#[derive(Clone)]
pub(super) struct ResponseStream(Arc<StreamShared>);

struct StreamShared {
    state: Mutex<StreamState>,
    held: BufferedBytes,
    /// Notified when a reader has left.
    left: Arc<Notify>,
}

struct StreamState {
    key: u64,
    queue: Queue,
    /// The bytes of the queue that were counted.
    counted: usize,
    /// The dropped events of the queue that were counted.
    shed: u64,
    /// Delivered events, with their numbers.
    taken: VecDeque<(u64, Bytes)>,
    taken_bytes: usize,
    /// Delivered events that are sent again to a reader that resumes the stream.
    again: VecDeque<Bytes>,
    /// The number of the last event; `None` if the stream cannot be resumed.
    last: Option<u64>,
    says_kind: bool,
    has_ended: bool,
    /// The number of the current reader.
    reader: u64,
    is_read: bool,
    waker: Option<Waker>,
}

/// Takes one event at a time.
#[derive(Default)]
struct SingleEvent(Option<Bytes>);

impl Sink for SingleEvent {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.0, parts.first()) {
            (None, Some(event)) => {
                self.0 = Some(Bytes::copy_from_slice(event));
                Ok(event.len())
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl ResponseStream {
    /// Makes an empty stream of this key. `left` is notified when a reader goes before the end.
    pub(super) fn new(
        key: u64,
        limit: usize,
        marks: EventMarks,
        held: BufferedBytes,
        left: Arc<Notify>,
    ) -> ResponseStream {
        let state = StreamState {
            key,
            queue: Queue::new(limit),
            counted: 0,
            shed: 0,
            taken: VecDeque::new(),
            taken_bytes: 0,
            again: VecDeque::new(),
            last: (marks == EventMarks::Number).then_some(0),
            says_kind: marks == EventMarks::Kind,
            has_ended: false,
            reader: 0,
            is_read: false,
            waker: None,
        };
        ResponseStream(Arc::new(StreamShared { state: Mutex::new(state), held, left }))
    }

    /// Adds an event with this data.
    pub(super) fn say(&self, class: Class, data: &[u8]) {
        self.event(class, "message", data);
    }

    /// Adds the event that tells where messages are posted (2024-11-05).
    pub(super) fn say_endpoint(&self, endpoint: &str) {
        self.event(Class::Kept, "endpoint", endpoint.as_bytes());
    }

    fn event(&self, class: Class, kind: &str, data: &[u8]) {
        let mut state = self.state();
        let mut event = Vec::with_capacity(data.len() + 40);
        if let Some(last) = state.last.as_mut() {
            *last += 1;
            let number = *last;
            event.extend_from_slice(format!("id: {}-{number}\n", state.key).as_bytes());
        }
        if state.says_kind {
            event.extend_from_slice(format!("event: {kind}\n").as_bytes());
        }
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(data);
        // The queue adds the newline that ends the event.
        event.push(b'\n');
        state.queue.push(class, &event, None::<&mut SingleEvent>, None);
        self.count(&mut state);
        state.wake();
    }

    /// Ends the stream: no more events come.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.wake();
    }

    /// Returns whether a client reads the stream.
    pub(super) fn is_read(&self) -> bool {
        self.state().is_read
    }

    /// Returns the bytes of the delivered events that are kept.
    pub(super) fn delivered_bytes(&self) -> usize {
        self.state().taken_bytes
    }

    /// Starts to read from here on. The reader first gets a priming event, which has a number, no data, and the time to wait before it
    /// resumes the stream. A stream whose events have no numbers begins without a priming event.
    pub(super) fn read_primed(&self) -> StreamBody {
        let mut body = self.read(None);
        let state = self.state();
        if state.last.is_some() {
            let delivered = state.taken.back().map_or(0, |(number, _)| *number);
            let retry = STREAM_RETRY.as_millis();
            let id = format!("{}-{delivered}-{}", state.key, body.reader);
            body.priming = Some(format!("id: {id}\nretry: {retry}\ndata: \n\n").into());
        }
        drop(state);
        body
    }

    /// Starts to read from here on, or after this event if the stream is resumed.
    pub(super) fn read(&self, after: Option<u64>) -> StreamBody {
        let mut state = self.state();
        state.reader += 1;
        state.is_read = true;
        state.again = match after {
            Some(after) => state
                .taken
                .iter()
                .filter(|(number, _)| *number > after)
                .map(|(_, event)| event.clone())
                .collect(),
            None => VecDeque::new(),
        };
        state.wake();
        StreamBody { stream: self.clone(), reader: state.reader, priming: None, life: None, is_over: false }
    }

    fn count(&self, state: &mut StreamState) {
        let now = state.queue.cost();
        if now > state.counted {
            self.0.held.more(now - state.counted);
        } else {
            self.0.held.less(state.counted - now);
        }
        state.counted = now;
        let shed = state.queue.shed();
        if shed > state.shed {
            self.0.held.tally.shed.fetch_add(shed - state.shed, Ordering::Relaxed);
            state.shed = shed;
        }
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next event for this reader; `None` at the end, or if another reader has taken its place.
    fn next(&self, reader: u64, waker: &Waker) -> Poll<Option<Bytes>> {
        let mut state = self.state();
        if state.reader != reader {
            return Poll::Ready(None);
        }
        if let Some(event) = state.again.pop_front() {
            return Poll::Ready(Some(event));
        }
        let mut one = SingleEvent::default();
        state.queue.flush(&mut one);
        self.count(&mut state);
        if let Some(event) = one.0 {
            state.remember(&event);
            return Poll::Ready(Some(event));
        }
        if state.has_ended {
            return Poll::Ready(None);
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.held.less(state.counted);
    }
}

impl StreamState {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn remember(&mut self, event: &Bytes) {
        let Some(number) = number(event).filter(|_| self.last.is_some()) else { return };
        self.taken_bytes += event.len();
        self.taken.push_back((number, event.clone()));
        while self.taken_bytes > KEPT
            && self.taken.len() > 1
            && let Some((_, old)) = self.taken.pop_front()
        {
            self.taken_bytes -= old.len();
        }
    }
}

/// Reads the number from an event's id.
fn number(event: &[u8]) -> Option<u64> {
    let line = event.split(|byte| *byte == b'\n').next()?;
    let id = std::str::from_utf8(line.strip_prefix(b"id: ")?).ok()?;
    parse_id(id).map(|(_, number)| number)
}

/// Reads the stream and the number from an event's id.
pub(super) fn parse_id(id: &str) -> Option<(u64, u64)> {
    let (stream, number) = id.split_once('-')?;
    let number = number.split_once('-').map_or(number, |(number, _reader)| number);
    Some((stream.parse().ok()?, number.parse().ok()?))
}

/// The body that a client reads from a stream. Dropping it leaves the stream.
pub(super) struct StreamBody {
    stream: ResponseStream,
    reader: u64,
    /// The priming event, until it is taken.
    priming: Option<Bytes>,
    /// The timer of the next sign of life.
    life: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        if let Some(event) = self.priming.take() {
            return Poll::Ready(Some(Ok(http_body::Frame::data(event))));
        }
        match self.stream.next(self.reader, context.waker()) {
            Poll::Ready(Some(event)) => {
                self.life = None;
                return Poll::Ready(Some(Ok(http_body::Frame::data(event))));
            }
            Poll::Ready(None) => {
                self.is_over = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let life = self.life.get_or_insert_with(|| Box::pin(sleep(SIGN_OF_LIFE)));
        if life.as_mut().poll(context).is_ready() {
            life.as_mut().reset(Instant::now() + SIGN_OF_LIFE);
            // This poll registers the waker with the timer.
            let _pending = life.as_mut().poll(context);
            return Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b":\n\n")))));
        }
        Poll::Pending
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        if state.reader == self.reader {
            state.is_read = false;
            state.waker = None;
        }
        drop(state);
        if !self.is_over {
            self.stream.0.left.notify_one();
        }
    }
}
