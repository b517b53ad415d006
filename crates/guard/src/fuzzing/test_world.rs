//! The world around the session: two queues with pipes behind them, and the models of both sides.
//!
//! Invariants: lines go through real queues. Lines come out in the order in which they were put in. A line that does not come out is of a
//! class that may be shed (promise 3).

use std::{
    collections::{HashMap, VecDeque},
    io::{self, IoSlice},
    sync::Arc,
    time::Duration,
};

use unhang_jobs::id::JobId;
use unhang_wire::Id;

use super::{
    super::effects::{JobNews, WrapEffects},
    client::ClientModel,
    job_bridge::TestJobBridge,
    server::ServerModel,
    speech::ScriptedRequest,
};
use unhang_core::{
    limits::Limits,
    queue::{Class, Queue, Sink},
};
use unhang_tools::job_report::ToolNames;

/// The way to one side, which takes as many bytes as that side has room for.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) room: usize,
    pub(super) broken: bool,
    taken: Vec<u8>,
}

impl Pipe {
    pub(super) fn new() -> Pipe {
        Pipe { room: usize::MAX, broken: false, taken: Vec::new() }
    }
}

impl Sink for Pipe {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        for part in parts {
            let take = part.len().min(self.room);
            self.taken.extend_from_slice(&part[..take]);
            self.room -= if self.room == usize::MAX { 0 } else { take };
            count += take;
        }
        Ok(count)
    }
}

/// Lines that were put into a queue and have not come out.
#[derive(Debug, Default)]
struct Expected(VecDeque<(Class, Vec<u8>)>);

impl Expected {
    fn put(&mut self, class: Class, line: &[u8]) {
        self.0.push_back((class, line.to_vec()));
    }

    /// Compares the lines that have come out with those that were put in.
    fn take(&mut self, pipe: &mut Pipe) {
        while let Some(end) = pipe.taken.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pipe.taken.drain(..=end).collect();
            loop {
                let (class, expected) = self.0.pop_front().expect("what comes out was put in");
                if expected == line[..end] {
                    break;
                }
                assert_ne!(
                    class,
                    Class::Kept,
                    "lost or out of order: {}",
                    String::from_utf8_lossy(&expected)
                );
            }
        }
    }
}

/// The world around the session.
#[derive(Debug)]
pub(super) struct TestWorld {
    pub(super) now: Duration,
    pub(super) client: ClientModel,
    pub(super) server: ServerModel,
    pub(super) requests: HashMap<u64, ScriptedRequest>,
    pub(super) bridge: TestJobBridge,
    /// Whether the server is speaking in a quiet guard: only answers may reach the client while a call runs.
    pub(super) hushed: bool,
    pub(super) to_client: Queue,
    pub(super) client_pipe: Pipe,
    pub(super) to_server: Queue,
    pub(super) server_pipe: Pipe,
    pub(super) busy: bool,
    pub(super) processor: Duration,
    /// The memory of the line that is being handled.
    pub(super) memory: Option<Arc<Vec<u8>>>,
    gathered: usize,
    client_expects: Expected,
}

impl TestWorld {
    pub(super) fn new(limits: &Limits) -> TestWorld {
        TestWorld {
            now: Duration::ZERO,
            client: ClientModel::new(limits),
            server: ServerModel::default(),
            requests: HashMap::new(),
            bridge: TestJobBridge::default(),
            hushed: false,
            to_client: Queue::new(limits.queue_bytes),
            client_pipe: Pipe::new(),
            to_server: Queue::new(usize::MAX),
            server_pipe: Pipe::new(),
            busy: false,
            processor: Duration::ZERO,
            memory: None,
            gathered: limits.queue_bytes / 4,
            client_expects: Expected::default(),
        }
    }

    pub(super) fn flush(&mut self) {
        self.to_client.flush(&mut self.client_pipe);
        self.client_expects.take(&mut self.client_pipe);
        self.to_server.flush(&mut self.server_pipe);
        self.server_pipe.taken.clear();
    }

    /// Empties the way to the server, because a fresh process reads from an empty pipe.
    pub(super) fn restarted(&mut self) {
        self.to_server.clear();
        self.server_pipe = Pipe::new();
        self.server.restarted();
    }

    /// Checks at the end, with a client that reads everything, that no line is missing that must arrive.
    pub(super) fn check_delivered(&mut self) {
        self.client_pipe.room = usize::MAX;
        self.flush();
        let lost = self.client_expects.0.iter().find(|(class, _)| *class == Class::Kept);
        assert!(self.client_pipe.broken || lost.is_none(), "never delivered: {lost:?}");
    }
}

impl WrapEffects for TestWorld {
    fn to_client(&mut self, class: Class, line: &[u8]) {
        self.client.hears(self.now, line, &self.server.suspicious, self.hushed);
        self.client_expects.put(class.clone(), line);
        let full = line.len() + self.to_client.cost() > self.gathered;
        self.to_client.push(class, line, full.then_some(&mut self.client_pipe), self.memory.as_ref());
    }

    fn to_server(&mut self, line: &[u8]) {
        self.server.hears(line, &self.requests);
        let full = line.len() + self.to_server.cost() > self.gathered;
        self.to_server.push(Class::Kept, line, full.then_some(&mut self.server_pipe), self.memory.as_ref());
    }

    fn flush_server(&mut self) {
        self.to_server.flush(&mut self.server_pipe);
    }

    fn client_backlog(&self) -> usize {
        self.to_client.cost()
    }

    fn server_backlog(&self) -> usize {
        self.to_server.cost()
    }

    fn stderr_tail(&self) -> Vec<String> {
        vec!["last words".to_owned()]
    }

    fn processor_time(&self) -> Option<Duration> {
        Some(self.processor)
    }

    fn show(&mut self, _: &str) {}

    fn to_job(&mut self, call: &Id, news: JobNews<'_>) {
        self.bridge.hears(call, news);
    }

    fn to_job_server(&mut self, line: &[u8], _: ToolNames) {
        self.bridge.is_asked(line);
    }

    fn job_server_backlog(&self) -> usize {
        0
    }

    fn same_call(&self, _: Option<&str>, params: &[u8]) -> Option<JobId> {
        self.bridge.same_call(params)
    }
}
