//! Promise 5: however unhang ends, every process that it started for a server ends too (X-05, X-12, C-72).
//!
//! The table of faulty servers is the one of processes.md 1.4; each row runs under every way to end.

#![expect(clippy::disallowed_methods, reason = "how long a stop takes is what is measured here")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    },
    process::{ChildStdout, Command},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use crate::{
    harness::{Client, PATIENCE, Sandbox, figure, is_alive, lab_program, server_pid, wait_until},
    processes::{children, command_line, control_groups, descriptors, entry, holds, lifeline, lifelines},
};

/// Programs that do not leave by themselves, or leave something behind, and how many processes they leave at least.
const PROGRAMS: &[(&str, usize)] = &[
    ("leaves-grandchild", 1),
    ("leaves-setsid-child", 1),
    ("leaves-daemon", 1),
    ("leaves-daemon-empty-env", 1),
    ("leaves-three-sessions", 3),
    ("forks-forever", 0),
    ("ignores-stdin-close", 0),
    ("ignores-everything", 0),
    ("stopped", 0),
];

/// Short graces, so that faulty servers that ignore them do not make the tests slow; the default has a test of its own.
const SHORT_GRACE: &[&str] = &["--stop-grace", "200ms"];
/// What a stop may take with that grace on a busy machine.
const PROMPT: Duration = Duration::from_secs(10);

/// One guarded faulty server that is up, with everything that it leaves behind.
struct Scene {
    faulty_server: &'static str,
    client: Client,
    lifeline: i32,
    sandbox: Sandbox,
}

impl Scene {
    fn start(faulty_server: &'static str, leaves: usize) -> Scene {
        Scene::start_in(Sandbox::new(), faulty_server, leaves, |_| {})
    }

    fn start_in(
        sandbox: Sandbox,
        faulty_server: &'static str,
        leaves: usize,
        change: impl FnOnce(&mut Command),
    ) -> Scene {
        let mut command = guard_of(&sandbox, SHORT_GRACE, faulty_server);
        change(&mut command);
        let mut client = Client::start(command);
        client.initialize();
        let lifeline = lifeline(&client);
        wait_until(&format!("what `{faulty_server}` leaves"), PATIENCE, || lingering(&sandbox) >= leaves);
        if faulty_server == "forks-forever" {
            client.tool_text("echo", json!({"text": "a line of processes has been started"}));
        }
        // Else that none is left at the end would say nothing.
        wait_until("the log says how the tree is held", PATIENCE, || sandbox.log().contains("tier"));
        let in_a_group = sandbox.log().contains("ControlGroup");
        assert_eq!(
            in_a_group,
            !control_groups(lifeline).is_empty(),
            "{faulty_server}: the log says how the tree is held"
        );
        Scene { faulty_server, client, lifeline, sandbox }
    }

    fn all() -> Vec<Scene> {
        PROGRAMS.iter().map(|(faulty_server, leaves)| Scene::start(faulty_server, *leaves)).collect()
    }

    /// Demands the exit code, and that neither process nor control group nor file is left.
    /// Returns how long that took, without the tidying up of the test itself.
    #[track_caller]
    fn expect_the_end(mut self, code: i32) -> Duration {
        let start = Instant::now();
        let faulty_server = self.faulty_server;
        assert_eq!(
            self.client.exit_code_within(PROMPT),
            code,
            "{faulty_server}: {:.2000}",
            self.client.stderr()
        );
        self.sandbox.assert_nothing_left_within(PROMPT);
        let elapsed = start.elapsed();
        figure(&format!("{faulty_server}: nothing left {elapsed:?} later"));
        wait_until("the control group is removed", PROMPT, || control_groups(self.lifeline).is_empty());
        for file in self.sandbox.files() {
            assert!(file.starts_with("state/logs"), "{faulty_server} left the file {}", file.display());
        }
        elapsed
    }

    /// Demands that everything that was there has ended, while the guard itself lives on, and can be used.
    #[track_caller]
    fn expect_a_new_server(mut self, gone: &[(i32, String)]) {
        let faulty_server = self.faulty_server;
        for (pid, command) in gone {
            wait_until(&format!("{faulty_server}: the end of {pid} {command}"), PROMPT, || !is_alive(*pid));
        }
        assert!(self.client.is_running(), "{faulty_server}: {:.2000}", self.client.stderr());
        wait_until("the control group is removed", PROMPT, || control_groups(self.lifeline).is_empty());
        // A call that reaches the guard together with the news of the death is answered with that death.
        wait_until("a new lifeline", PATIENCE, || lifeline(&self.client) != self.lifeline);
        // A stopped faulty server stops again, so that one is not asked.
        if faulty_server != "stopped" {
            assert_eq!(self.client.tool_text("echo", json!({"text": "back"})), "back", "{faulty_server}");
        }
        self.client.close_stdin();
        self.expect_the_end(0);
    }

    /// Every process of the scene except the guard.
    fn servants(&self) -> Vec<(i32, String)> {
        let guard = self.client.pid();
        self.sandbox.survivors().into_iter().filter(|(pid, _)| *pid != guard).collect()
    }
}

fn guard_of(sandbox: &Sandbox, flags: &[&str], faulty_server: &str) -> Command {
    let mut command = sandbox.unhang();
    command.arg("wrap").args(flags).arg("--").arg(lab_program()).args(["zoo", faulty_server]);
    command.args(["--marker", sandbox.marker()]);
    command
}

/// Processes that a faulty server of this sandbox left to themselves.
fn lingering(sandbox: &Sandbox) -> usize {
    sandbox.survivors().iter().filter(|(_, command)| command.contains("zoo lingers")).count()
}

#[test]
fn x_12_the_client_closes_stdin() {
    for mut scene in Scene::all() {
        scene.client.close_stdin();
        scene.expect_the_end(0);
    }
}

#[test]
fn signals_end_everything_with_their_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 143)] {
        let scenes = Scene::all();
        for scene in &scenes {
            scene.client.signal(signal);
        }
        for scene in scenes {
            scene.expect_the_end(code);
        }
    }
}

#[test]
fn the_guard_is_killed() {
    let scenes = Scene::all();
    for scene in &scenes {
        scene.client.signal(Signal::KILL);
    }
    for scene in scenes {
        scene.expect_the_end(128 + 9);
    }
}

#[test]
fn the_guard_is_killed_in_the_middle_of_a_call() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let lifeline = lifeline(&client);
    client.call("sleep", json!({"ms": 60_000}));
    client.tool_text("echo", json!({"text": "the other call has been read"}));
    client.signal(Signal::KILL);
    assert_eq!(client.exit_code(), 128 + 9);
    sandbox.assert_nothing_left_within(PROMPT);
    wait_until("the control group is removed", PROMPT, || control_groups(lifeline).is_empty());
}

#[test]
fn the_lifeline_is_killed() {
    for scene in Scene::all() {
        let gone = scene.servants();
        crate::harness::signal(scene.lifeline, Signal::KILL);
        scene.expect_a_new_server(&gone);
    }
}

#[test]
fn the_server_is_killed() {
    for scene in Scene::all() {
        let gone = scene.servants();
        let server = children(scene.lifeline);
        let server = server
            .iter()
            .find(|child| command_line(child.pid).iter().any(|word| word == scene.faulty_server));
        crate::harness::signal(server.expect("the server").pid, Signal::KILL);
        scene.expect_a_new_server(&gone);
    }
}

/// The client reads nothing, so that the test holds the only ends of both pipes and can close them as a death would.
fn start_unread(faulty_server: &'static str, leaves: usize) -> (Sandbox, Client, ChildStdout) {
    let sandbox = Sandbox::new();
    let (mut client, stdout) = Client::start_unread(guard_of(&sandbox, SHORT_GRACE, faulty_server));
    client.request("ping", json!({}));
    // Guard, lifeline and server, and what it leaves.
    wait_until(&format!("`{faulty_server}` is up"), PATIENCE, || {
        lingering(&sandbox) >= leaves && sandbox.survivors().len() >= 3 + leaves
    });
    (sandbox, client, stdout)
}

#[test]
fn the_client_dies() {
    for (faulty_server, leaves) in PROGRAMS {
        let (sandbox, mut client, stdout) = start_unread(faulty_server, *leaves);
        drop(stdout);
        client.close_stdin();
        assert_eq!(client.exit_code_within(PROMPT), 0, "{faulty_server}: {:.2000}", client.stderr());
        sandbox.assert_nothing_left_within(PROMPT);
    }
}

#[test]
fn the_client_closes_its_reading_end_alone() {
    for (faulty_server, leaves) in [("leaves-daemon", 1), ("ignores-everything", 0)] {
        let (sandbox, mut client, stdout) = start_unread(faulty_server, leaves);
        drop(stdout);
        assert_eq!(client.exit_code_within(PROMPT), 0, "{faulty_server}: {:.2000}", client.stderr());
        sandbox.assert_nothing_left_within(PROMPT);
    }
}

/// Nothing is written any more by which it could be noticed.
#[test]
fn the_client_closes_its_reading_end_when_all_is_said() {
    let sandbox = Sandbox::new();
    let (mut client, stdout) = Client::start_unread(sandbox.wrap_command(SHORT_GRACE, &["well-behaved"]));
    client.request("ping", json!({}));
    let mut reader = BufReader::new(stdout);
    let mut answer = String::new();
    reader.read_line(&mut answer).expect("an answer");
    assert!(answer.contains("result"), "{answer}");
    drop(reader);
    assert_eq!(client.exit_code_within(PROMPT), 0, "{:.2000}", client.stderr());
}

/// The end of a socket's reader shows nowhere but at a write.
#[test]
fn a_client_that_shuts_its_socket_down_is_noticed_at_the_next_write() {
    let sandbox = Sandbox::new();
    let (stdin, writer) = std::io::pipe().expect("a pipe");
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let command = sandbox.wrap_command(SHORT_GRACE, &["well-behaved"]);
    let mut client = Client::start_on(command, stdin.into(), OwnedFd::from(theirs).into(), writer)
        .reading(ours.try_clone().expect("a duplicate"));
    client.initialize();
    ours.shutdown(Shutdown::Read).expect("our direction");
    client.request("ping", json!({}));
    assert_eq!(client.exit_code_within(PROMPT), 0, "{:.2000}", client.stderr());
}

/// Without a writable control group the lifeline is what holds a tree together, and its watcher where that was killed.
#[test]
fn an_ordinary_user_leaves_nothing_either() {
    // One who is not root is an ordinary user already.
    let is_root = rustix::process::geteuid().is_root();
    let endings: [fn(&mut Scene) -> Option<i32>; 3] = [
        |scene| {
            scene.client.close_stdin();
            Some(0)
        },
        |scene| {
            scene.client.signal(Signal::KILL);
            Some(128 + 9)
        },
        |scene| {
            crate::harness::signal(scene.lifeline, Signal::KILL);
            None
        },
    ];
    for end in endings {
        for (faulty_server, leaves) in PROGRAMS {
            let sandbox = Sandbox::new();
            // The build's own folder may be closed to others.
            let program = sandbox.path().join("program");
            fs::copy(env!("CARGO_BIN_EXE_unhang"), &program).expect("a copy");
            let lab = sandbox.path().join("lab");
            fs::copy(lab_program(), &lab).expect("a copy");
            fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777))
                .expect("the sandbox is ours");
            let mut scene = Scene::start_in(sandbox, faulty_server, *leaves, |command| {
                let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
                let mut own = Command::new(&program);
                let folder = command.get_current_dir().expect("a folder").to_owned();
                own.env_clear()
                    .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
                    .current_dir(folder);
                own.args(words.iter().map(|word| if word == lab_program() { lab.as_os_str() } else { word }));
                if is_root {
                    own.uid(65534).gid(65534);
                }
                *command = own;
            });
            let groups = control_groups(scene.lifeline);
            assert!(!is_root || groups.is_empty(), "this is about the tier without: {groups:?}");
            if !groups.is_empty() {
                figure(&format!(
                    "{faulty_server}: this user may make control groups, so the tier without is not shown"
                ));
            }
            let gone = scene.servants();
            let code = end(&mut scene);
            fs::remove_file(&program).ok();
            fs::remove_file(&lab).ok();
            match code {
                Some(code) => {
                    scene.expect_the_end(code);
                }
                // The program is gone, so no new server can be seen; what was there must have ended all the same.
                None => {
                    for (pid, command) in gone {
                        wait_until(&format!("{faulty_server}: the end of {pid} {command}"), PROMPT, || {
                            !is_alive(pid)
                        });
                    }
                    scene.client.close_stdin();
                    assert!([0, 3].contains(&scene.client.exit_code_within(PROMPT)), "{faulty_server}");
                }
            }
        }
    }
}

#[test]
fn x_05_a_server_that_ignores_everything_is_gone_within_three_seconds() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["ignores-everything"]);
    client.initialize();
    let start = Instant::now();
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    let elapsed = start.elapsed();
    sandbox.assert_nothing_left_within(Duration::from_secs(1));
    figure(&format!("whole stop of `ignores-everything`: {elapsed:?}"));
    assert!(elapsed < Duration::from_secs(4), "{elapsed:?}; 3 s and what a busy machine adds");
    assert!(elapsed > Duration::from_millis(1900), "{elapsed:?}; both graces were given");
}

#[test]
fn a_well_behaved_server_is_gone_at_once() {
    for signal in [None, Some(Signal::TERM)] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&[], &["well-behaved"]);
        client.initialize();
        let start = Instant::now();
        match signal {
            Some(signal) => client.signal(signal),
            None => client.close_stdin(),
        }
        assert_eq!(client.exit_code(), if signal.is_some() { 143 } else { 0 });
        let elapsed = start.elapsed();
        sandbox.assert_nothing_left_within(Duration::from_secs(1));
        figure(&format!("whole stop of `well-behaved` by {signal:?}: {elapsed:?}"));
        assert!(
            elapsed < Duration::from_secs(2),
            "{elapsed:?}; 100 ms in a release build on a quiet machine"
        );
    }
}

#[test]
fn x_05_a_second_signal_ends_at_once_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["ignores-everything"]);
    client.initialize();
    let server = server_pid(&mut client);
    let stdin = descriptors(server).into_iter().find(|(number, _)| *number == 0).expect("a stdin").1;
    assert!(holds(client.pid(), &stdin));
    client.signal(Signal::TERM);
    // Two signals of a kind that come at once are one.
    wait_until("the stop has begun", PATIENCE, || !holds(client.pid(), &stdin));
    let start = Instant::now();
    client.signal(Signal::TERM);
    assert_eq!(client.exit_code(), 143);
    let elapsed = start.elapsed();
    figure(&format!("exit after a second signal: {elapsed:?}"));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}; the ladder of this server takes 2 s");
    sandbox.assert_nothing_left_within(Duration::from_secs(5));
}

/// Wherever the start has got to when the guard goes.
#[test]
fn the_guard_ends_while_it_starts() {
    for (signal, code) in [(Signal::KILL, 128 + 9), (Signal::TERM, 143), (Signal::INT, 130)] {
        for round in 0..6 {
            let sandbox = Sandbox::new();
            let mut client = Client::start(guard_of(&sandbox, SHORT_GRACE, "leaves-daemon"));
            let processes = round / 2;
            wait_until("some of it is there", PATIENCE, || sandbox.survivors().len() >= processes);
            client.signal(signal);
            assert_eq!(client.exit_code_within(PROMPT), code, "{signal:?} with {processes} processes");
            sandbox.assert_nothing_left_within(PROMPT);
        }
    }
}

/// A stopped lifeline neither hears nor reports; its owner ends the tree, and it, by itself.
#[test]
fn a_lifeline_that_does_not_answer_holds_nothing_up() {
    for faulty_server in ["leaves-three-sessions", "ignores-everything"] {
        let mut scene = Scene::start(faulty_server, 0);
        crate::harness::signal(scene.lifeline, Signal::STOP);
        scene.client.close_stdin();
        let elapsed = scene.expect_the_end(0);
        assert!(
            elapsed < Duration::from_secs(6),
            "{faulty_server}: {elapsed:?}; 3 s and what a busy machine adds"
        );
    }
}

/// A guard in front of a guard, as when a wrapped command is itself configured with one.
#[test]
fn a_guard_of_a_guard_leaves_nothing_either() {
    for (signal, code) in [(None, 0), (Some(Signal::TERM), 143), (Some(Signal::KILL), 128 + 9)] {
        for faulty_server in ["leaves-daemon", "ignores-everything"] {
            let sandbox = Sandbox::new();
            let binary = env!("CARGO_BIN_EXE_unhang");
            let mut command = sandbox.unhang();
            command.arg("wrap").args(SHORT_GRACE).args(["--", binary, "wrap"]).args(SHORT_GRACE);
            command.args(["--", lab_program(), "zoo", faulty_server, "--marker", sandbox.marker()]);
            let mut client = Client::start(command);
            client.initialize();
            let lifeline = lifeline(&client);
            match signal {
                Some(signal) => client.signal(signal),
                None => client.close_stdin(),
            }
            assert_eq!(
                client.exit_code_within(PROMPT),
                code,
                "{faulty_server}, {signal:?}: {}",
                client.stderr()
            );
            sandbox.assert_nothing_left_within(PROMPT);
            wait_until("the control group is removed", PROMPT, || control_groups(lifeline).is_empty());
        }
    }
}

/// A guard may run for weeks, and its server may end a thousand times.
#[test]
fn r_42_restarts_leave_no_descriptor_thread_or_process_in_the_guard() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--restart-delay", "1ms"], &["exits-zero-after-each-answer"]);
    client.initialize();
    let guard = client.pid();
    let threads = || fs::read_dir(format!("/proc/{guard}/task")).expect("the guard").count();
    let mut restart = |round: u32| {
        let before = lifeline(&client);
        client.tool_text("echo", json!({"text": round.to_string()}));
        wait_until("the next server", PATIENCE, || {
            children(guard).is_empty()
                && lifelines(guard).iter().all(|lifeline| *lifeline != before)
                && client.stderr().matches("is back").count() > round as usize
        });
    };
    restart(0);
    let before = (descriptors(guard).len(), threads());
    (1..12).for_each(&mut restart);
    wait_until("what was open before", PATIENCE, || (descriptors(guard).len(), threads()) <= before);
    client.finish();
}

/// The server's command must not contain the name either, so that only the lifeline's own words are judged.
#[test]
fn a_kill_by_name_spares_the_lifeline() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", "sleep", "120"]);
    let mut client = Client::start(command);
    let lifeline = lifeline(&client);
    wait_until("the server runs", PATIENCE, || children(lifeline).iter().any(|child| child.name == "sleep"));
    let name = entry(lifeline).expect("the lifeline").name;
    let words = command_line(lifeline);
    assert!(!name.contains("unhang") && !name.is_empty(), "pkill would find {name}");
    assert!(!words.iter().any(|word| word.contains("unhang")), "pkill -f would find {words:?}");
    client.signal(Signal::TERM);
    client.exit_code();
}

/// A terminal sends Ctrl+C to its whole foreground group; the server must hear of it from the guard alone.
#[test]
fn the_terminals_signals_do_not_reach_the_server() {
    let sandbox = Sandbox::new();
    let mut command = guard_of(&sandbox, &[], "leaves-grandchild");
    command.process_group(0);
    let mut client = Client::start(command);
    client.initialize();
    let guard = entry(client.pid()).expect("the guard");
    let server = entry(server_pid(&mut client)).expect("the server");
    let lifeline = entry(lifeline(&client)).expect("the lifeline");
    for other in [&server, &lifeline] {
        assert_ne!(other.group, guard.group, "{other:?}");
        assert_ne!(other.session, guard.session, "{other:?}");
    }
    kill_process_group(Pid::from_raw(guard.group).expect("a group"), Signal::INT)
        .expect("the group is there");
    assert_eq!(client.exit_code(), 130);
}

#[test]
fn zombies_are_reaped() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(guard_of(&sandbox, &["--restart-delay", "1ms"], "forks-forever"));
    client.initialize();
    let first = lifeline(&client);
    client.tool_text("echo", json!({"text": "a line of orphans"}));
    wait_until("orphans come to the lifeline", PATIENCE, || children(first).len() > 1);
    wait_until("the line of orphans is at its end", PATIENCE, || lingering(&sandbox) == 1);
    wait_until("no zombie is left", PROMPT, || !children(first).iter().any(|child| child.is_zombie));
    crate::harness::signal(server_pid(&mut client), Signal::KILL);
    wait_until("the next server", PATIENCE, || lifelines(client.pid()).iter().any(|next| *next != first));
    wait_until("what has started the lifelines is reaped", PROMPT, || children(client.pid()).is_empty());
    client.finish();
}
