//! A server that outlives its owner under a holder.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader, IoSlice, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use crate::common::{PATIENCE, Program, Run, assert_no_survivors, fixture, marked, marker, parent, wait_for};
use rustix::process::Signal;
use tokio::time::Instant;
use unhang_proc::{
    identity::Identity,
    server::{Exit, HolderCommand, Tier},
};

/// A server with journals, whose holder reports to us.
struct Scene {
    run: Run,
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Scene {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut run = Run::patient(script, Tier::Subreaper);
        run.server.output.begin_journal(&[]).unwrap();
        run.server.input.as_mut().unwrap().begin_journal().unwrap();
        Self { run, folder, listener }
    }

    fn holder(&self, how: &str) -> HolderCommand {
        HolderCommand {
            program: fixture(),
            arguments: vec!["holder".into(), self.folder.path().into(), how.into()],
            environment: vec![("A".into(), "1".into())],
            folder: "/usr".into(),
        }
    }

    fn keep(&mut self, holder: &HolderCommand) {
        let stderr = self.run.stderr.as_ref().unwrap();
        self.run.server.keep(holder, stderr.as_fd()).unwrap();
    }

    /// Asks the lifeline to keep the server, and waits for its answer.
    async fn kept(&mut self, holder: &HolderCommand) -> Result<(), String> {
        self.keep(holder);
        let before = self.run.kept.len();
        self.run.until("kept", |run| run.kept.len() > before).await;
        self.run.kept.last().unwrap().clone()
    }

    /// A server that is ready and kept, for a holder that reports.
    async fn ready(script: &str) -> Self {
        let mut scene = Self::new(script);
        let holder = scene.holder("report");
        scene.run.ready().await;
        scene.kept(&holder).await.unwrap();
        assert!(scene.run.server.is_kept());
        scene
    }

    /// Waits for the end of the server's tree. The lifeline is there still, and its watcher, and no other process.
    async fn tree_is_gone(&mut self) {
        self.run.until("gone", |run| run.swept.is_some()).await;
        let left: Vec<u32> = marked(&self.run.marker).iter().map(|(pid, _)| *pid).collect();
        let lifeline = self.run.server.lifeline_pid();
        let watcher = parent(lifeline).as_raw_nonzero().get().unsigned_abs();
        assert_eq!(HashSet::from_iter(left), HashSet::from([watcher, lifeline]));
    }

    /// The owner goes, and its holder comes.
    async fn leave(self) -> Holder {
        let Self { run, folder, listener } = self;
        let Run { server, marker, .. } = run;
        let lifeline = Identity::of(server.lifeline_pid()).unwrap();
        drop(server);
        Holder::accept(listener, folder, marker, lifeline).await
    }

    /// Whether a holder has been started.
    fn is_held(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

/// A holder that was started, and what it says.
struct Holder {
    lines: BufReader<UnixStream>,
    identity: Identity,
    marker: String,
    lifeline: Identity,
    /// What it has said of itself.
    about: String,
    /// All that it has said so far.
    said: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Holder {
    async fn accept(
        listener: UnixListener,
        folder: tempfile::TempDir,
        marker: String,
        lifeline: Identity,
    ) -> Self {
        let socket = std::cell::OnceCell::new();
        let accepted = || listener.accept().is_ok_and(|(accepted, _)| socket.set(accepted).is_ok());
        wait_for(accepted, || "no holder came".to_owned()).await;
        let socket = socket.into_inner().unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(socket);
        let mut about = String::new();
        lines.read_line(&mut about).unwrap();
        let mut words = about.split(' ').skip(1);
        let pid = words.next().unwrap().parse().unwrap();
        let identity = Identity { pid, start: words.next().unwrap().parse().unwrap() };
        Self { lines, identity, marker, lifeline, about, said: Vec::new(), _folder: folder }
    }

    /// Reads until a line begins with the word, and returns that line.
    fn until(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before {word}: {:?}", self.said);
            let line = line.trim_end().to_owned();
            self.said.push(line.clone());
            if line.starts_with(word) {
                return line;
            }
        }
    }

    /// Reads everything that comes.
    fn read_rest(&mut self) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).is_ok_and(|count| count > 0) {
            self.said.push(std::mem::take(&mut line).trim_end().to_owned());
        }
    }

    fn tell(&mut self, command: &str) {
        self.lines.get_mut().write_all(command.as_bytes()).unwrap();
    }

    /// All output of the server that it has read.
    fn output(&self) -> String {
        let texts = self.said.iter().filter_map(|line| line.strip_prefix("output \"")?.strip_suffix('"'));
        texts.collect::<String>().replace("\\n", "\n")
    }

    /// Nothing of it is left: server, lifeline, holder.
    async fn nothing_is_left(&self) {
        assert_no_survivors(&self.marker).await;
        for (who, identity) in [("lifeline", self.lifeline), ("holder", self.identity)] {
            wait_for(|| !identity.is_alive(), || format!("{who} lives")).await;
        }
    }
}

/// The numbers in a file, one a line.
fn numbers(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// An owner is killed while lines pass. What its server has read and written in the end is compared.
async fn owner_is_killed(after: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let marker = marker();
    let script = format!("exec tee {}/{marker}", path.display());
    let arguments = ["keeper".into(), path.into(), "sh".into(), "-c".into(), script.into()];
    let mut owner = Program::start(&arguments);
    owner.line_with("kept");
    // A moment that nothing depends on.
    let moment = Instant::now() + after;
    while Instant::now() < moment {
        std::thread::yield_now();
    }
    owner.process.signal(Signal::KILL);
    owner.ended().await;
    wait_for(|| path.join("done").exists(), || format!("no end after {after:?}")).await;
    assert_no_survivors(&marker).await;

    let read = fs::read(path.join(&marker)).unwrap();
    let read: Vec<&[u8]> = read.split_inclusive(|&byte| byte == b'\n').collect();
    let (by_owner, by_holder) = (numbers(&path.join("owner")), numbers(&path.join("holder")));
    let accepted = fs::read(path.join("accepted")).unwrap();
    let accepted = accepted.try_into().map_or(0, u64::from_ne_bytes);
    let count = read.len() as u64;
    assert!(accepted == count || accepted + 1 == count, "{accepted} accepted, {count} read");
    for (number, line) in (1..).zip(&read) {
        let text = format!("{number} {}\n", "x".repeat(usize::try_from(number * 7919 % 6000).unwrap()));
        assert!(*line == text.as_bytes(), "line {number} of {count}: {} bytes", line.len());
    }
    let first = by_holder.first().copied().unwrap_or(count + 1);
    assert_eq!(by_owner, (1..=by_owner.len() as u64).collect::<Vec<_>>());
    assert_eq!(by_holder, (first..=count).collect::<Vec<_>>());
    // The lines of one read may have been settled and not yet noted as processed. They come again, and none is left out.
    assert!(first <= by_owner.len() as u64 + 1, "{first} follows {}", by_owner.len());
}

#[tokio::test]
async fn no_line_is_lost_or_damaged_though_the_owner_is_killed_at_any_moment() {
    for round in 0..120_u64 {
        owner_is_killed(Duration::from_micros(round * 7919 % 25_000)).await;
    }
}

#[tokio::test]
async fn a_holder_gets_what_its_command_says_and_is_nobodys_child() {
    let scene = Scene::ready("echo ready; cat; exit 3").await;
    let group = rustix::process::getpgrp();
    let mut holder = scene.leave().await;
    // In a session of its own, with the null device and these variables only.
    assert!(holder.about.ends_with("true true /usr [\"A=1\"]\n"), "{}", holder.about);
    assert_eq!(holder.until("lifeline"), format!("lifeline {}", holder.lifeline.pid));
    assert!(holder.until("started").ends_with("subreaper"));
    let status = fs::read_to_string(format!("/proc/{}/stat", holder.identity.pid)).unwrap();
    let fields: Vec<&str> = status.rsplit(") ").next().unwrap().split(' ').collect();
    assert!(status.contains("(mcp-call-holder)"), "{status}");
    assert_ne!(fields[1], holder.lifeline.pid.to_string(), "its parent");
    assert_ne!(fields[2], group.as_raw_nonzero().to_string(), "its group");
    holder.tell("c");
    assert_eq!(holder.until("exited"), "exited exit code 3");
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn what_was_read_and_not_processed_is_read_again() {
    let mut scene = Scene::new("echo ready; echo one; echo two; cat");
    let holder = scene.holder("report");
    scene.run.until("the lines", |run| run.output == b"ready\none\ntwo\n").await;
    scene.run.server.output.processed(10).unwrap();
    assert!(scene.run.server.output.processed(5).is_err(), "only four bytes are left");
    scene.kept(&holder).await.unwrap();
    let mut holder = scene.leave().await;
    holder.until("output");
    assert_eq!(holder.output(), "two\n");
    holder.tell("c");
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn what_was_read_before_the_journal_began_is_read_again_too() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut run = Run::patient("printf 'ready\\nha'; read go; echo lf; cat", Tier::Subreaper);
    run.until("half a line", |run| run.output == b"ready\nha" && run.tier.is_some()).await;
    run.server.output.begin_journal(b"ha").unwrap();
    run.server.input.as_mut().unwrap().begin_journal().unwrap();
    let mut scene = Scene { run, folder, listener };
    scene.kept(&scene.holder("report")).await.unwrap();
    let input = scene.run.server.input.as_mut().unwrap();
    assert_eq!(input.try_write_vectored(&[IoSlice::new(b"go\n")]).unwrap(), 3);
    let mut holder = scene.leave().await;
    while holder.output().len() < 5 {
        holder.until("output");
    }
    assert_eq!(holder.output(), "half\n");
    holder.tell("c");
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn half_a_line_that_was_written_is_completed() {
    let gate = tempfile::tempdir().unwrap();
    let go = gate.path().join("go");
    let script = format!("echo ready; while [ ! -e {} ]; do sleep 0.01; done; wc -c", go.display());
    let mut scene = Scene::new(&script);
    scene.run.ready().await;
    scene.kept(&scene.holder("report")).await.unwrap();
    let input = scene.run.server.input.as_mut().unwrap();
    let line = vec![b'x'; 1 << 20];
    assert_eq!(input.try_write_vectored(&[IoSlice::new(&line), IoSlice::new(b"\n")]).unwrap(), (1 << 20) + 1);
    let backlog = input.backlog();
    assert!(backlog > 0 && input.unread() == (1 << 20) + 1, "{backlog}");
    let mut holder = scene.leave().await;
    fs::write(go, "").unwrap();
    holder.until("flushed");
    holder.tell("c");
    holder.until("end");
    assert_eq!(holder.output().trim_start_matches("ready\n").trim(), ((1 << 20) + 1).to_string());
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn a_server_whose_holder_cannot_be_started_ends() {
    let mut scene = Scene::new("echo ready; cat; sleep 3600");
    let holder = HolderCommand { program: "/nowhere/holder".into(), ..scene.holder("report") };
    scene.run.ready().await;
    scene.kept(&holder).await.unwrap();
    let Run { server, marker, .. } = scene.run;
    let lifeline = Identity::of(server.lifeline_pid()).unwrap();
    drop(server);
    assert_no_survivors(&marker).await;
    wait_for(|| !lifeline.is_alive(), || "the lifeline lives".to_owned()).await;
}

#[tokio::test]
async fn a_server_whose_holder_is_killed_ends() {
    let mut holder = Scene::ready("echo ready; cat").await.leave().await;
    holder.until("started");
    assert_eq!(marked(&holder.marker).len(), 3, "server, lifeline and watcher");
    assert!(holder.identity.signal(Signal::KILL));
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn a_holder_has_no_holder() {
    let mut holder = Scene::ready("echo ready; cat").await.leave().await;
    holder.tell("k");
    holder.until("NotKept");
    holder.tell("s");
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn a_holder_of_another_version_is_refused_with_the_reason() {
    let mut scene = Scene::new("echo ready; cat");
    scene.run.ready().await;
    scene.kept(&scene.holder("older")).await.unwrap();
    let mut holder = scene.leave().await;
    let told = holder.until("refused");
    assert!(told.contains("format 0") && told.contains("format 2"), "{told}");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn the_holder_that_was_named_last_comes() {
    let mut scene = Scene::ready("echo ready; cat").await;
    scene.kept(&scene.holder("older")).await.unwrap();
    let mut holder = scene.leave().await;
    holder.until("refused");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn after_a_release_the_ends_of_the_pipes_are_seen_as_before() {
    let mut scene = Scene::ready("echo ready; cat; exit 3").await;
    let pipes = |pid: u32| {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let is_pipe = |link: &Path| link.to_string_lossy().starts_with("pipe:");
        links.filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| is_pipe(&link))).count()
    };
    let lifeline = scene.run.server.lifeline_pid();
    assert_eq!(pipes(lifeline), 3);
    scene.run.server.release_kept();
    assert!(!scene.run.server.is_kept());
    wait_for(|| pipes(lifeline) == 0, || "the lifeline has pipes".to_owned()).await;
    let output = &mut scene.run.server.output;
    output.processed(6).unwrap();
    output.end_journal().unwrap();
    scene.run.server.input.as_mut().unwrap().end_journal().unwrap();
    // Only end-of-file ends this server with that code.
    scene.run.server.input = None;
    scene.run.gone().await;
    assert_eq!(scene.run.exit, Some(Exit::Code(3)));
    assert!(!scene.is_held());
}

#[tokio::test]
async fn a_release_in_the_same_moment_is_not_overtaken() {
    let mut scene = Scene::new("echo ready; cat");
    scene.run.ready().await;
    let holder = scene.holder("report");
    scene.keep(&holder);
    scene.run.server.release_kept();
    scene.keep(&holder);
    scene.run.server.terminate();
    scene.tree_is_gone().await;
    // The first of the two answers is of no interest any more.
    assert_eq!(scene.run.kept, [Ok(())]);
    assert!(scene.run.server.is_kept());
    scene.run.server.release_kept();
    assert_no_survivors(&scene.run.marker).await;

    let mut scene = Scene::ready("echo ready; cat").await;
    scene.keep(&holder);
    scene.run.server.release_kept();
    let marker = scene.run.marker.clone();
    drop(scene.run.server);
    assert_no_survivors(&marker).await;
    assert!(scene.listener.accept().is_err(), "nobody was to follow");
}

#[tokio::test]
async fn a_stop_climbs_the_ladder_though_the_server_is_kept() {
    let mut scene = Scene::ready("echo ready; cat; exit 3").await;
    let lifeline = Identity::of(scene.run.server.lifeline_pid()).unwrap();
    scene.run.server.begin_stop();
    scene.run.gone().await;
    assert_eq!(scene.run.exit, Some(Exit::Code(3)));
    wait_for(|| !lifeline.is_alive(), || "the lifeline lives".to_owned()).await;
    assert!(!scene.is_held());

    let mut scene = Scene::ready("trap '' TERM; echo ready; while :; do sleep $1; done").await;
    scene.run.server.kill_now();
    scene.run.gone().await;
    assert_eq!(scene.run.exit, Some(Exit::Signal(9)));
    assert!(!scene.is_held());
}

/// The answer of a server that has ended may be unread, or read and not settled.
#[tokio::test]
async fn a_server_that_ended_before_its_owner_is_handed_over_with_its_last_words() {
    let mut scene = Scene::ready("echo ready; read go; echo answer; exit 5").await;
    let input = scene.run.server.input.as_mut().unwrap();
    input.try_write_vectored(&[IoSlice::new(b"go\n")]).unwrap();
    scene.tree_is_gone().await;
    assert_eq!(scene.run.exit, Some(Exit::Code(5)));
    let lifeline = Identity::of(scene.run.server.lifeline_pid()).unwrap();
    assert!(lifeline.is_alive() && scene.run.server.is_kept());
    let mut holder = scene.leave().await;
    holder.until("end");
    assert_eq!(holder.output(), "ready\nanswer\n");
    holder.read_rest();
    let told = holder.said.join("\n");
    assert!(told.contains("exited exit code 5") && told.contains("gone 0 0"), "{told}");
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn a_lifeline_whose_server_has_ended_leaves_when_it_is_released() {
    let mut scene = Scene::ready("echo ready; read go; exit 5").await;
    let input = scene.run.server.input.as_mut().unwrap();
    input.try_write_vectored(&[IoSlice::new(b"go\n")]).unwrap();
    scene.tree_is_gone().await;
    let lifeline = Identity::of(scene.run.server.lifeline_pid()).unwrap();
    assert!(lifeline.is_alive());
    scene.run.server.release_kept();
    wait_for(|| !lifeline.is_alive(), || "the lifeline lives".to_owned()).await;
    assert!(!scene.is_held());
}

#[tokio::test]
async fn a_terminated_lifeline_ends_its_server_though_it_is_kept() {
    let mut scene = Scene::ready("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done").await;
    let lifeline = Identity::of(scene.run.server.lifeline_pid()).unwrap();
    assert!(lifeline.signal(Signal::TERM));
    scene.tree_is_gone().await;
    assert_eq!(scene.run.exit, Some(Exit::Code(4)));
    let mut holder = scene.leave().await;
    assert_eq!(holder.until("exited"), "exited exit code 4");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn a_holder_ends_the_server_of_a_lifeline_that_was_killed() {
    let mut holder =
        Scene::ready("trap '' TERM; (trap '' TERM; sleep $1) & echo ready; sleep $1").await.leave().await;
    holder.until("started");
    assert!(holder.lifeline.signal(Signal::KILL));
    // The holder is no parent of these processes; they are in the lifeline's session.
    holder.until("gone");
    holder.read_rest();
    holder.nothing_is_left().await;
}

#[tokio::test]
async fn without_journals_nothing_is_kept() {
    let mut run = Run::patient("echo ready; cat", Tier::Subreaper);
    run.ready().await;
    let stderr = run.stderr.take().unwrap();
    let holder = HolderCommand {
        program: fixture(),
        arguments: Vec::new(),
        environment: Vec::new(),
        folder: "/".into(),
    };
    let error = run.server.keep(&holder, stderr.as_fd()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    run.server.begin_stop();
    run.gone().await;
}
