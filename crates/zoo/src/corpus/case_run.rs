//! One trial to a faulty server: what a case is given to work with, and the clearing up after it.
//!
//! # Invariants
//!
//! - Every process of a trial carries its marker, in its environment or among its words, and only such processes are killed.
//! - A trial waits for a wrapper's own clearing up before it clears up itself, and nothing of it is left then.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unhang_demo_servers::{bounded_waits, processes};

use super::client::CorpusClient;
use super::verdict::{Flaw, Judged, demand};
use super::{CaseVerdict, Contender};

/// Carries the marker into every process that does not clean its environment.
const MARKER_VARIABLE: &str = "UNHANG_ZOO_VISIT";
/// How long a wrapper that has been ended may still clear up by its own means.
const CLEARING: Duration = Duration::from_secs(1);
/// How long clearing up goes on; the faulty server that forks for ever does so for 2 s.
const SWEEP: Duration = Duration::from_secs(6);
/// How often it is looked what is left.
const LOOK: Duration = Duration::from_millis(50);
/// For how long nothing may be seen before nothing counts as left: one look may miss what forks meanwhile.
const QUIET: Duration = Duration::from_millis(120);

/// What stands between and what is behind it, for one case.
pub(crate) struct WrapperTrial<'a> {
    contender: &'a Contender,
    /// The program that has the faulty servers.
    program: &'a str,
    marker: String,
    timeout: Duration,
}

impl<'a> WrapperTrial<'a> {
    pub(super) fn new(contender: &'a Contender, program: &'a str, timeout: Duration) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { contender, program, marker: format!("zoo-trial-{}-{number}", std::process::id()), timeout }
    }

    /// The program that has the faulty servers.
    pub(super) fn program(&self) -> &str {
        self.program
    }

    /// Connects to a faulty server, with a stderr that nobody reads.
    pub(super) fn connect(&self, faulty_server: &[&str]) -> Judged<CorpusClient> {
        self.connect_with(faulty_server, Stdio::piped())
    }

    /// Connects to a faulty server; `errors` is where the stderr of what is started goes.
    pub(super) fn connect_with(&self, faulty_server: &[&str], errors: Stdio) -> Judged<CorpusClient> {
        let (name, rest) = faulty_server.split_first().ok_or(Flaw::Failed("no program".to_owned()))?;
        let words = [&[self.program, "zoo", name, "--marker", &self.marker], rest].concat();
        let command: Vec<_> =
            self.contender.command.iter().cloned().chain(words.into_iter().map(str::to_owned)).collect();
        CorpusClient::start(&command, (MARKER_VARIABLE, &self.marker), errors, self.timeout)
    }

    /// Connects to a faulty server and does the handshake.
    pub(super) fn session(&self, faulty_server: &[&str]) -> Judged<CorpusClient> {
        let mut client = self.connect(faulty_server)?;
        client.shake_hands().map(|()| client)
    }

    /// A session, what to do in it, and the demand that all that came was clean.
    pub(super) fn meet(
        &self,
        faulty_server: &[&str],
        talk: impl FnOnce(&mut CorpusClient) -> Judged,
    ) -> Judged {
        let mut client = self.session(faulty_server)?;
        talk(&mut client)?;
        client.demand_clean_wire()
    }

    /// The name of a file in a folder of this trial's own.
    pub(super) fn file(&self, name: &str) -> Judged<String> {
        let folder = self.folder();
        if !folder.exists() {
            std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        }
        let path = folder.join(name).into_os_string().into_string();
        path.map_err(|_| Flaw::Failed("the folder for temporary files has a name that is no text".to_owned()))
    }

    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(&self.marker)
    }

    /// Demands that soon no process of this trial is left.
    pub(super) fn demand_nothing_left(&self) -> Judged {
        self.demand_nothing_left_for(QUIET)
    }

    /// Demands that soon no process of this trial is seen for a while.
    pub(super) fn demand_nothing_left_for(&self, quiet: Duration) -> Judged {
        let left = self.wait_for_no_processes(self.timeout, quiet);
        demand(left == 0, || match left {
            1 => "a process is left".to_owned(),
            count => format!("{count} processes are left"),
        })
    }

    /// Waits until no process with the marker has been seen for a while, which has to begin within the limit; returns how
    /// many there are when time is up.
    fn wait_for_no_processes(&self, limit: Duration, quiet: Duration) -> usize {
        let end = bounded_waits::now() + limit;
        let mut seen = bounded_waits::now();
        loop {
            let left = processes::marked(&self.marker).len();
            let now = bounded_waits::now();
            if left > 0 {
                seen = now;
            }
            if left > 0 && now >= end || now - seen >= quiet {
                return left;
            }
            bounded_waits::pause(LOOK);
        }
    }

    /// Settles what a case has found, and clears up.
    pub(super) fn end(self, judged: Judged) -> CaseVerdict {
        // Behind a bare connection there is nobody who would.
        let mut left =
            if self.contender.command.is_empty() { 1 } else { self.wait_for_no_processes(CLEARING, QUIET) };
        let end = bounded_waits::now() + SWEEP;
        while left > 0 && bounded_waits::now() < end {
            processes::marked(&self.marker).iter().for_each(processes::WatchedProcess::kill);
            left = self.wait_for_no_processes(LOOK, QUIET);
        }
        let folder = self.folder();
        if folder.exists() {
            // What cannot be removed is in the folder for temporary files.
            let _left_there = std::fs::remove_dir_all(folder);
        }
        if left == 0 {
            judged.into()
        } else {
            CaseVerdict::FailedToRun(format!("could not be ended: {left} left"))
        }
    }
}
