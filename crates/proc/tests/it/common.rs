//! What the integration tests share: specifications, waiting with limits, and the search for survivors.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::process::Pid;
use tokio::time::{Instant, sleep, timeout};
use unhang_proc::{
    identity::Identity,
    lifeline::ARGUMENT,
    server::{ErrorPipe, Exit, LifelineCommand, Server, ServerEvent, ServerSpec, SweptTree, Tier},
    spawn::{Environment, Launch, Process, Stream, spawn},
};

/// For everything that a test waits for; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that leaves a daemon behind, which says that it is there.
pub(crate) const DAEMON: &str = "(setsid sh -c 'echo ready; exec sleep $0' $1 &) ; cat >/dev/null";

/// The path of the fixture.
pub(crate) fn fixture() -> PathBuf {
    env!("CARGO_BIN_EXE_proc-fixture").into()
}

/// A word that no other process has in its command line: a number of seconds to sleep.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3600{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A server that runs a shell script, in which `$1` is the marker.
pub(crate) fn script(script: &str, marker: &str, tier: Tier) -> ServerSpec {
    ServerSpec {
        program: "sh".into(),
        arguments: ["-c", script, "sh", marker].map(Into::into).into(),
        environment: Environment::Inherit,
        folder: None,
        grace: Duration::from_millis(200),
        stop_limit: Duration::from_secs(3),
        lifeline: LifelineCommand {
            program: fixture(),
            arguments: vec![ARGUMENT.into(), format!("--tier={tier}").into()],
        },
    }
}

/// A started server, and what became of it.
pub(crate) struct Run {
    pub(crate) server: Server,
    /// Nobody reads it, unless a test takes it.
    pub(crate) stderr: Option<ErrorPipe>,
    pub(crate) marker: String,
    pub(crate) output: Vec<u8>,
    pub(crate) tier: Option<Tier>,
    pub(crate) exit: Option<Exit>,
    pub(crate) swept: Option<SweptTree>,
    /// The answers of the lifeline that was asked to keep something.
    pub(crate) kept: Vec<Result<(), String>>,
}

impl Run {
    pub(crate) fn new(text: &str, tier: Tier) -> Self {
        let marker = marker();
        Self::of(&script(text, &marker, tier), marker)
    }

    /// The same with graces that are long enough for a server that minds, on a busy machine too.
    pub(crate) fn patient(text: &str, tier: Tier) -> Self {
        let marker = marker();
        let (grace, stop_limit) = (Duration::from_secs(5), Duration::from_secs(15));
        Self::of(&ServerSpec { grace, stop_limit, ..script(text, &marker, tier) }, marker)
    }

    pub(crate) fn of(spec: &ServerSpec, marker: String) -> Self {
        let (server, stderr) = Server::start(spec).unwrap();
        Self {
            server,
            stderr: Some(stderr),
            marker,
            output: Vec::new(),
            tier: None,
            exit: None,
            swept: None,
            kept: Vec::new(),
        }
    }

    /// Lives on until the condition holds.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut ended = false;
        while !condition(self) {
            let mut bytes = vec![0; 65536];
            let step = async {
                tokio::select! {
                    event = self.server.event() => Some(event),
                    ready = self.server.output.readable(), if !ended => {
                        ready.unwrap();
                        None
                    }
                }
            };
            let event =
                tokio::time::timeout_at(deadline, step).await.unwrap_or_else(|_| panic!("{what}: timed out"));
            match event {
                Some(ServerEvent::Started { tier, .. }) => self.tier = Some(tier),
                Some(ServerEvent::Failed(error)) => panic!("{what}: {error}"),
                Some(ServerEvent::Exited(exit)) => self.exit = Some(exit),
                Some(ServerEvent::Kept) => self.kept.push(Ok(())),
                Some(ServerEvent::NotKept(error)) => self.kept.push(Err(error.to_string())),
                Some(ServerEvent::Gone(swept)) => self.swept = Some(swept),
                None => match self.server.output.try_read(&mut bytes) {
                    Ok(0) => ended = true,
                    Ok(count) => self.output.extend(&bytes[..count]),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{what}"),
                },
            }
        }
    }

    /// Waits for the word that the scripts say when everything of theirs has started.
    pub(crate) async fn ready(&mut self) {
        self.until("ready", |run| run.tier.is_some() && run.output.windows(5).any(|word| word == b"ready"))
            .await;
    }

    /// Waits for the end of everything, and looks for survivors.
    pub(crate) async fn gone(&mut self) -> SweptTree {
        self.until("gone", |run| run.swept.is_some()).await;
        assert_no_survivors(&self.marker).await;
        self.swept.unwrap()
    }
}

/// The fixture as a program of its own that can be killed, and what it says.
pub(crate) struct Program {
    pub(crate) process: Process,
    lines: BufReader<fs::File>,
}

impl Program {
    pub(crate) fn start(arguments: &[OsString]) -> Self {
        let (reader, writer): (OwnedFd, OwnedFd) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let program = fixture();
        let launch = Launch { output: Stream::Descriptor(writer), ..Launch::new(&program, arguments) };
        Self { process: spawn(launch).unwrap(), lines: BufReader::new(reader.into()) }
    }

    /// The next line that begins with the word.
    pub(crate) fn line_with(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before it said {word}");
            if line.starts_with(word) {
                return line.trim_end().to_owned();
            }
        }
    }

    pub(crate) async fn ended(&mut self) {
        // Between two looks: a child can only be waited for without a limit, and this has one.
        let reaped = async {
            while self.process.try_reap().is_none() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, reaped).await.expect("the process ends");
    }
}

/// A fixture that holds the tree of a script as the shim of a job would.
pub(crate) struct Shim {
    pub(crate) program: Program,
    folder: tempfile::TempDir,
    pub(crate) marker: String,
    pub(crate) cookie: String,
    pub(crate) identity: Identity,
    pub(crate) tier: String,
    pub(crate) group: Option<PathBuf>,
}

impl Shim {
    pub(crate) fn start(script: &str, tier: Tier) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = marker();
        let cookie = format!("UNHANG_TEST_JOB={marker}");
        let mut arguments = vec!["shim".into(), folder.path().into()];
        arguments.extend([&tier.to_string(), &cookie, script, &marker].map(OsString::from));
        let mut program = Program::start(&arguments);
        let running = program.line_with("running");
        let mut words = running.split(' ').skip(1);
        let start = words.next().unwrap().parse().unwrap();
        let identity = Identity { pid: program.process.pid(), start };
        let tier = words.nth(1).unwrap().to_owned();
        let group = words.next().map(PathBuf::from);
        Self { program, folder, marker, cookie, identity, tier, group }
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.folder.path().join("lock")
    }

    /// What the script has written.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap()
    }

    /// Waits for the word that the scripts say when everything of theirs has started.
    pub(crate) async fn ready(&self) {
        wait_for(|| self.output().contains("ready"), || format!("not ready: {}", self.output())).await;
    }
}

/// Numbers and command lines of the living processes that have the marker in their command line.
pub(crate) fn marked(marker: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A zombie has no command line.
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if pid != std::process::id() && line.contains(marker) {
            found.push((pid, line));
        }
    }
    found
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Pid {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = status.rsplit_once(')').unwrap().1;
    Pid::from_raw(fields.split_whitespace().nth(1).unwrap().parse().unwrap()).unwrap()
}

/// Waits until no process with the marker is left.
pub(crate) async fn assert_no_survivors(marker: &str) {
    wait_for(|| marked(marker).is_empty(), || format!("survivors: {:?}", marked(marker))).await;
}

/// Waits for a condition that nobody can tell us of.
pub(crate) async fn wait_for(condition: impl Fn() -> bool, complaint: impl Fn() -> String) {
    let check = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, check).await.is_ok(), "{}", complaint());
}
