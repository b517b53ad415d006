//! How `unhang wrap` is called and how it ends: flags, environment, exit codes (design 3 and 4, X-05).

#![expect(clippy::disallowed_methods, reason = "that an end comes in time is part of the promise")]

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    path::Path,
    process::{ChildStdout, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{
        Client, PATIENCE, Sandbox, Slowly, lab_program, run_to_end, server_pid, wait_until, write_program,
    },
    processes::{descriptors, holds},
};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// Runs unhang with nothing to say to it, and returns exit code, stdout and stderr.
#[track_caller]
fn run<Word: AsRef<OsStr>>(
    sandbox: &Sandbox,
    words: &[Word],
    variables: &[(&str, &str)],
) -> (i32, String, String) {
    let mut command = sandbox.unhang();
    command.args(words).envs(variables.iter().copied());
    run_to_end(command)
}

/// A guard of a command of the test's own choice.
fn guard_of(sandbox: &Sandbox, flags: &[&str], server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.arg("wrap").args(flags).arg("--").args(server);
    command
}

/// Words, variables, and what has to be said about them.
type WrongUsage<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn wrong_usage_is_exit_2_with_a_suggestion_and_nothing_on_stdout() {
    let table: &[WrongUsage] = &[
        (&["wrap", "--call-timeot", "5s", "--", "cat"], &[], &["--call-timeot", "--call-timeout"]),
        (&["wrap", "--call-timeout", "5", "--", "cat"], &[], &["needs a unit", "5s"]),
        (&["wrap", "--call-timeout", "0s", "--", "cat"], &[], &["longer than zero"]),
        (&["wrap", "--max-message", "64", "--", "cat"], &[], &["needs a unit", "64MiB"]),
        (&["wrap", "--max-message", "64MeB", "--", "cat"], &[], &["MeB", "MiB"]),
        (&["wrap", "--max-in-flight", "0", "--", "cat"], &[], &["--max-in-flight"]),
        (&["wrap", "--", "cat"], &[("UNHANG_CALL_TIMEOUT", "90")], &["needs a unit", "90s"]),
        (&["wrap", "--", "cat"], &[("UNHANG_QUEUE_BYTES", "many")], &["many", "16MiB"]),
        (&["wrap"], &[], &["CMD", "Usage"]),
        (&["wrap", "--"], &[], &["CMD", "Usage"]),
        (&["wrap", "--call-timeot", "5s", "cat"], &[], &["--call-timeout"]),
        (&["warp", "--", "cat"], &[], &["wrap"]),
        (&["--verbos", "wrap", "--", "cat"], &[], &["--verbose"]),
        (&[], &[], &["Usage"]),
    ];
    let sandbox = Sandbox::new();
    for (words, variables, told) in table {
        let (code, stdout, stderr) = run(&sandbox, words, variables);
        assert_eq!(code, 2, "{words:?} {variables:?}: {stderr}");
        assert_eq!(stdout, "", "{words:?} {variables:?}");
        for part in *told {
            assert!(stderr.contains(part), "{words:?} {variables:?} does not say `{part}`: {stderr}");
        }
    }
    assert_eq!(sandbox.files(), [] as [std::path::PathBuf; 0], "a wrong call leaves no log");
}

#[test]
fn version_and_help_go_to_stdout() {
    let sandbox = Sandbox::new();
    let version = format!("unhang {}\n", env!("CARGO_PKG_VERSION"));
    for words in [&["--version"][..], &["-V"]] {
        assert_eq!(run(&sandbox, words, &[]), (0, version.clone(), String::new()));
    }
    for (words, expect) in
        [(&["--help"][..], "wrap"), (&["wrap", "--help"], "--call-timeout"), (&["wrap", "-h"], "Exit codes")]
    {
        let (code, stdout, stderr) = run(&sandbox, words, &[]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{words:?}");
        assert!(stdout.contains(expect), "{words:?}: {stdout}");
    }
}

/// The table in `docs/guide/wrap.md` names flags, variables and defaults: the help has to know each, and each variable has
/// to be listened to.
#[test]
fn the_guide_the_help_and_the_environment_agree() {
    let guide = include_str!("../../../../docs/guide/wrap.md");
    let sandbox = Sandbox::new();
    let (_, help, _) = run(&sandbox, &["wrap", "--help"], &[]);
    let flags_in_the_help = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    // Long lines are wrapped.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .filter(|line| line.starts_with("| `--"))
        .map(|line| {
            line.split('|')
                .map(|cell| cell.trim().trim_matches('`'))
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(rows.len(), flags_in_the_help, "the guide has the flags of the help: {help}");
    for row in &rows {
        let (flag, variable, default) = (row[0], row[1], row[2]);
        let at = help
            .find(&format!(" {flag} "))
            .unwrap_or_else(|| panic!("the help does not know {flag}: {help}"));
        let entry = help[at + 1..].split(" --").next().expect("a first part");
        let has_number = default.starts_with(|first: char| first.is_ascii_digit());
        if has_number {
            assert!(entry.contains(&format!("[default: {default}")), "{flag} is not {default}: {entry}");
            let (code, _, stderr) = run(&sandbox, &["wrap", "--", "cat"], &[(variable, "nonsense")]);
            assert_eq!(code, 2, "{variable} is not listened to");
            assert!(stderr.contains(variable) && stderr.contains("nonsense"), "{flag}: {stderr}");
        }
    }
}

/// Some clients swallow the first `--` that they are given.
#[test]
fn a_command_is_taken_without_the_dashes_too() {
    let sandbox = Sandbox::new();
    for words in [
        &["wrap", lab_program(), "zoo", "well-behaved", "--page", "2"][..],
        &["wrap", "--eof-grace", "1s", lab_program(), "zoo", "well-behaved"],
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let mut client = Client::start(command);
        client.initialize();
        client.finish();
    }
}

#[test]
fn a_session_that_the_client_ends_is_exit_0() {
    let sandbox = Sandbox::new();
    let (code, stdout, _) = run(&sandbox, &["wrap", "--", lab_program(), "zoo", "well-behaved"], &[]);
    assert_eq!((code, stdout.as_str()), (0, ""));
}

/// Demands -31003 for a request, with these words in its message, and exit 3.
#[track_caller]
fn cannot_start(client: &mut Client, words: &[&str]) -> Value {
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    let error = client.answer(id)["error"].take();
    assert_eq!(error["code"], -31003, "{error}");
    assert_eq!(error["data"]["kind"], "start_failed", "{error}");
    let message = error["message"].as_str().expect("a sentence");
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert_eq!(client.exit_code(), 3, "{}", client.stderr());
    error
}

const FOLDERS: &[&str] = &["no-such-program-anywhere", "not found", "/usr/local/bin", "/usr/bin", "/bin"];

#[test]
fn a_missing_program_is_named_with_the_folders_that_were_searched() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(guard_of(&sandbox, &[], &["no-such-program-anywhere", "argument"]));
    cannot_start(&mut client, FOLDERS);
}

#[test]
fn the_first_later_request_hears_of_a_missing_program_too() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(guard_of(&sandbox, &[], &["no-such-program-anywhere"]));
    wait_until("the start has failed", PATIENCE, || client.stderr().contains("no-such-program-anywhere"));
    cannot_start(&mut client, FOLDERS);
}

#[test]
fn a_missing_program_is_exit_3_without_any_request() {
    let sandbox = Sandbox::new();
    let (code, stdout, stderr) = run(&sandbox, &["wrap", "--", "no-such-program-anywhere"], &[]);
    assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
    assert!(stderr.contains("no-such-program-anywhere"), "{stderr}");
    let mut silent =
        Client::start(guard_of(&sandbox, &["--eof-grace", "200ms"], &["no-such-program-anywhere"]));
    assert_eq!(silent.exit_code(), 3, "a client that never asks is not waited for");
}

#[test]
fn a_file_that_is_no_program_is_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("not-executable");
    fs::write(&file, "#!/bin/sh\n").expect("a file");
    let path = file.to_str().expect("a path");
    let mut client = Client::start(guard_of(&sandbox, &[], &[path]));
    cannot_start(&mut client, &[path, "cannot be executed"]);
    write_program(&file, "#!/no/such/interpreter\n");
    let mut client = Client::start(guard_of(&sandbox, &[], &[path]));
    cannot_start(&mut client, &[path, "interpreter"]);
}

#[test]
fn a_server_that_dies_at_its_start_is_exit_3_with_its_last_words() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["dies-at-start", "7"]);
    let error = cannot_start(&mut client, &["exit code 7", "no project file found"]);
    assert_eq!(error["data"]["exit"], "exit code 7");
    let tail = error["data"]["stderrTail"].to_string();
    assert!(tail.contains("error: no project file found in the working folder"), "{tail}");
}

#[test]
fn a_server_that_is_silent_from_the_start_is_exit_4() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--start-timeout", "300ms"], &["silent-at-start"]);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    let error = client.answer(id)["error"].take();
    assert_eq!((&error["code"], &error["data"]["limitMs"]), (&json!(-31001), &json!(300)), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("--start-timeout")), "{error}");
    assert!(client.is_running(), "a slow start may be an installation; the client decides");
    client.close_stdin();
    assert_eq!(client.exit_code(), 4, "{}", client.stderr());
}

#[test]
fn a_server_that_never_answers_what_is_in_flight_at_the_end_of_stdin_is_exit_4() {
    for start_timeout in ["300ms", "1m"] {
        let sandbox = Sandbox::new();
        let flags = ["--start-timeout", start_timeout, "--eof-grace", "600ms"];
        let mut client = sandbox.wrap(&flags, &["silent-at-start"]);
        let id = client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
        client.close_stdin();
        assert!(client.answer(id)["error"].is_object());
        assert_eq!(client.exit_code(), 4, "{}", client.stderr());
    }
}

/// What unhang does to a server is not told as something that the server did.
#[test]
fn a_server_that_is_ended_because_it_closed_a_pipe_is_told_with_the_reason() {
    let script = |close: &str| {
        let answer =
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        format!("read line; echo '{answer}'; read line; read line; {close}; sleep 600")
    };
    let unread = "closed its stdin and left input unread";
    for (close, told) in [("exec >&-", "closed its stdout"), ("exec <&-", unread)] {
        let sandbox = Sandbox::new();
        let mut client =
            Client::start(guard_of(&sandbox, &["--stop-grace", "200ms"], &["sh", "-c", &script(close)]));
        client.initialize();
        let ids = [client.call("one", json!({})), client.call("two", json!({}))];
        let message = client.answers(ids)[0]["error"]["message"].to_string();
        assert!(message.contains(&format!("`sh` {told}, and unhang ended it (signal 15")), "{message}");
        client.close_stdin();
        client.exit_code();
    }
}

#[test]
fn the_flag_goes_before_the_environment() {
    for (flags, expect) in [(&[][..], 250), (&["--call-timeout", "350ms"], 350)] {
        let sandbox = Sandbox::new();
        let mut command = guard_of(&sandbox, flags, &[lab_program(), "zoo", "never-answers", "hang"]);
        command.env("UNHANG_CALL_TIMEOUT", "250ms");
        let mut client = Client::start(command);
        client.initialize();
        let id = client.call("hang", json!({}));
        let error = client.answer(id)["error"].take();
        assert_eq!((&error["code"], &error["data"]["limitMs"]), (&json!(-31001), &json!(expect)), "{error}");
        client.finish();
    }
}

/// `wrap` hands its own environment and folder to the server unchanged (design 6).
#[test]
fn the_server_gets_environment_folder_and_words_unchanged() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("folder with blanks");
    fs::create_dir(&folder).expect("a folder");
    let strange = "a value\nof two lines, 'quoted' and \u{fc}mlauts";
    let mut command =
        guard_of(&sandbox, &[], &[lab_program(), "zoo", "well-behaved", "--page", "3", "--odd", "$HOME *"]);
    command.current_dir(&folder).env("STRANGE", strange).env("UNHANG_CALL_TIMEOUT", "1m");
    let mut client = Client::start(command);
    client.initialize();
    assert_eq!(client.tool_text("environment", json!({"name": "STRANGE"})), strange);
    assert_eq!(client.tool_text("environment", json!({"name": "UNHANG_CALL_TIMEOUT"})), "1m");
    let server = server_pid(&mut client);
    assert_eq!(
        fs::read_link(format!("/proc/{server}/cwd")).expect("its folder"),
        folder.canonicalize().expect("a folder")
    );
    assert_eq!(
        crate::processes::command_line(server)[1..],
        ["zoo", "well-behaved", "--page", "3", "--odd", "$HOME *"]
    );
    let variables = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/environ")).expect("its environment");
        let mut all: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(variables(server), variables(client.pid()));
    client.finish();
}

#[test]
fn the_program_is_looked_up_as_a_shell_would() {
    let sandbox = Sandbox::new();
    let binaries = Path::new(lab_program()).parent().expect("a folder");
    for (program, folder) in [("unhang-lab", None), ("./unhang-lab", Some(binaries))] {
        let mut command = guard_of(&sandbox, &[], &[program, "zoo", "well-behaved"]);
        command.env("PATH", format!("/no/such/folder:{}", binaries.display()));
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        let mut client = Client::start(command);
        client.initialize();
        client.finish();
    }
}

/// Everything is piped in at once, then the input ends: `unhang wrap -- server < requests`.
#[test]
fn one_shot_use_answers_everything() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    let mut input =
        format!("{INITIALIZE}\n{}\n", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for id in 2..=50 {
        let params = json!({"name": "echo", "arguments": {"text": id.to_string()}});
        input +=
            &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    // No line ending behind the last message either.
    client.write(input.trim_end().as_bytes()).expect("it is read");
    client.close_stdin();
    client.drain();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    let ids: Vec<i64> = client.seen().iter().filter_map(|message| message["id"].as_i64()).collect();
    assert_eq!(ids, (1..=50).collect::<Vec<_>>());
    assert!(client.seen().iter().all(|message| message.get("error").is_none()), "{:?}", client.seen());
}

/// A session that is over while so many answers of 80 kB, more than a pipe holds, wait for the client.
fn over_with_much_to_read(sandbox: &Sandbox, calls: usize) -> (Client, ChildStdout) {
    let (mut client, stdout) = Client::start_unread(sandbox.wrap_command(&[], &["well-behaved"]));
    let mut input =
        format!("{INITIALIZE}\n{}\n", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for id in 2..=calls {
        let params = json!({"name": "big", "arguments": {"bytes": 80_000}});
        input +=
            &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    client.write(input.as_bytes()).expect("it is read");
    client.close_stdin();
    (client, stdout)
}

#[test]
fn a_client_that_reads_slowly_gets_its_last_answers_whole() {
    // Enough for twice the longest pause that it may make.
    const CALLS: usize = 90;
    let sandbox = Sandbox::new();
    let (client, stdout) = over_with_much_to_read(&sandbox, CALLS);
    let mut client = client.reading(Slowly(stdout));
    client.drain();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    assert!((1..=CALLS).all(|id| client.answers_to(id) == 1), "{} answers", client.seen().len());
}

#[test]
fn x_05_a_signal_ends_the_delivery_of_the_last_answers() {
    const CALLS: usize = 80;
    let sandbox = Sandbox::new();
    let (mut client, mut stdout) = over_with_much_to_read(&sandbox, CALLS);
    // Before the first answer the guard may be alone because the server is still to be started.
    stdout.read_exact(&mut [0]).expect("an answer");
    let reader = thread::spawn(move || {
        let mut delivered = Vec::new();
        Slowly(stdout).read_to_end(&mut delivered).map(|_| delivered.len())
    });
    wait_until("the guard alone", PATIENCE, || sandbox.survivors().len() == 1);
    // The first may come a moment before the delivery, and then it says only what the end of stdin has said; the second
    // comes in the middle of it.
    let mut next = Instant::now();
    wait_until("the end", PATIENCE, || {
        if Instant::now() >= next {
            client.signal(Signal::TERM);
            next += Duration::from_millis(700);
        }
        !client.is_running()
    });
    let delivered = reader.join().expect("no panic").expect("it is readable");
    assert!(delivered < (CALLS - 1) * 80_000, "all of it was delivered: {delivered} bytes");
}

#[test]
fn calls_in_flight_are_answered_after_the_end_of_stdin() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let id = client.call("sleep", json!({"ms": 700}));
    client.close_stdin();
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "slept 700 ms");
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}

#[test]
fn the_wait_after_the_end_of_stdin_is_bounded() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--eof-grace", "300ms"], &["never-answers", "hang"]);
    client.initialize();
    let id = client.call("hang", json!({}));
    let start = Instant::now();
    client.close_stdin();
    let error = client.answer(id)["error"].take();
    assert_eq!(
        (&error["code"], &error["data"]["kind"]),
        (&json!(-31008), &json!("shutting_down")),
        "{error}"
    );
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// What ends the wait before its time: a signal, and a client that reads no more.
#[test]
fn the_wait_after_the_end_of_stdin_is_cut_short() {
    for (signal, code) in [(Some(Signal::TERM), 143), (Some(Signal::INT), 130), (None, 0)] {
        let sandbox = Sandbox::new();
        let (mut client, stdout) = Client::start_unread(guard_of(
            &sandbox,
            &["--eof-grace", "1m"],
            &[lab_program(), "zoo", "never-answers", "hang"],
        ));
        client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
        client.call("hang", json!({}));
        wait_until("the session is up", PATIENCE, || sandbox.log().contains("ready"));
        client.close_stdin();
        let start = Instant::now();
        match signal {
            Some(signal) => client.signal(signal),
            None => drop(stdout),
        }
        assert_eq!(client.exit_code(), code, "{signal:?}: {}", client.stderr());
        assert!(start.elapsed() < Duration::from_secs(10), "{signal:?}: {:?}", start.elapsed());
    }
}

#[test]
fn calls_in_flight_are_told_of_a_signal() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&[], &["never-answers", "hang"]);
        client.initialize();
        let id = client.call("hang", json!({}));
        client.tool_text("echo", json!({"text": "the call before was read"}));
        client.signal(signal);
        let error = client.answer(id)["error"].take();
        assert_eq!(error["code"], -31008, "{error}");
        assert_eq!(client.exit_code(), code);
        client.drain();
        assert_eq!(client.answers_to(id), 1);
    }
}

/// What was on its way when the signal came is answered too.
#[test]
fn a_request_that_comes_while_the_server_is_stopped_is_refused() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["ignores-everything"]);
    client.initialize();
    let server = server_pid(&mut client);
    let stdin = descriptors(server).into_iter().find(|(number, _)| *number == 0).expect("a stdin").1;
    client.signal(Signal::TERM);
    wait_until("the stop has begun", PATIENCE, || !holds(client.pid(), &stdin));
    let id = client.request("tools/list", json!({}));
    let error = client.answer(id)["error"].take();
    assert_eq!(error["code"], -31008, "{error}");
    assert_eq!(client.exit_code(), 143);
}

/// A failure keeps its code, however the end comes (X-05).
#[test]
fn x_05_a_signal_does_not_hide_that_the_server_never_started() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(guard_of(&sandbox, &["--eof-grace", "1m"], &["no-such-program-anywhere"]));
    wait_until("the start has failed", PATIENCE, || client.stderr().contains("no-such-program-anywhere"));
    client.signal(Signal::TERM);
    assert_eq!(client.exit_code(), 3);
}

/// Ctrl+C reaches the guard and never its server, which some servers would survive, deaf (contract.md part 4).
#[test]
fn an_interrupt_ends_a_server_that_is_deaf_to_it() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["sigint-deaf"]);
    client.initialize();
    let server = server_pid(&mut client);
    client.signal(Signal::INT);
    assert_eq!(client.exit_code(), 130, "{}", client.stderr_at_the_end());
    assert!(!client.stderr().contains("KeyboardInterrupt"), "it was told to end by other means");
    assert!(!crate::harness::is_alive(server));
}
