//! What a person sees: the log file, our stderr, names, and the data of errors (L-07, L-70, design 3, 4 and 6).

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, lab_program, wait_until};

/// The log files of a sandbox, sorted by name.
fn logs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> =
        sandbox.files().into_iter().filter(|file| file.starts_with("state/logs")).collect();
    logs.sort();
    logs
}

fn names(logs: &[PathBuf]) -> Vec<String> {
    logs.iter().map(|log| log.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

/// A session with one call of `tool`, to its end.
#[track_caller]
fn session(sandbox: &Sandbox, flags: &[&str], faulty_server: &[&str]) -> Client {
    let mut client = sandbox.wrap(flags, faulty_server);
    client.initialize();
    client.tool_text("echo", json!({"text": "hello"}));
    client.finish();
    client
}

/// What the flood of the zoo writes: lines of 100 bytes that say where they begin.
fn flood_lines(bytes: usize) -> impl Iterator<Item = String> {
    (0..bytes).step_by(100).map(|start| format!("WARN something that happened at byte {start} ."))
}

#[test]
fn l_39_each_line_of_stderr_is_logged_as_a_warning() {
    let sandbox = Sandbox::new();
    session(&sandbox, &["--name", "flooder"], &["stderr-flood", "300"]);
    let log = sandbox.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("stderr:")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, start) in lines.iter().zip([0, 100, 200]) {
        let expect =
            format!(" WARN MCP server 'flooder' stderr: WARN something that happened at byte {start} .");
        assert!(line.contains(&expect), "{line}");
    }
}

/// The burst of 100 KB that blocks a server when nobody drains it; all of it is logged.
#[test]
fn l_70_a_burst_is_logged_whole_and_in_order() {
    let sandbox = Sandbox::new();
    session(&sandbox, &[], &["stderr-flood", "102400"]);
    let log = sandbox.log();
    let logged: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(" stderr: ")).map(|(_, text)| text).collect();
    let expected: Vec<String> = flood_lines(102_400).collect();
    assert_eq!(logged.len(), expected.len());
    for (logged, expected) in logged.iter().zip(&expected) {
        assert!(logged.starts_with(expected.as_str()), "{logged} is not {expected}");
    }
}

#[test]
fn stderr_is_copied_to_ours_line_by_line() {
    let sandbox = Sandbox::new();
    let client = session(&sandbox, &[], &["stderr-flood", "10000"]);
    let stderr = client.stderr_at_the_end();
    let copied: Vec<&str> = stderr.lines().filter(|line| line.starts_with("WARN something")).collect();
    assert_eq!(copied.len(), 100, "{stderr:.2000}");
    for (copied, expected) in copied.iter().zip(flood_lines(10_000)) {
        assert!(copied.starts_with(&expected), "{copied} is not {expected}");
    }
    assert!(!stderr.contains("MCP server 'unhang' stderr"), "not a second time in the words of the log");
}

#[test]
fn the_log_is_for_its_owner_alone() {
    let sandbox = Sandbox::new();
    // Some users have a generous mask.
    let mut command = sandbox.unhang();
    command.args(["wrap", "--name", "mine", "--", lab_program(), "zoo", "well-behaved"]);
    let mut client = Client::start(command);
    client.initialize();
    client.finish();
    let mode =
        |path: &str| fs::metadata(sandbox.path().join(path)).expect(path).permissions().mode() & 0o7777;
    let logs = logs(&sandbox);
    assert_eq!(names(&logs), [format!("mine-{}.log", client.pid())]);
    assert_eq!(mode(logs[0].to_str().expect("a path")), 0o600);
    assert_eq!(mode("state/logs"), 0o700);
    assert_eq!(mode("state"), 0o700);
}

#[test]
fn the_log_has_a_size_that_it_does_not_exceed() {
    const CAP: u64 = 64 << 10;
    let sandbox = Sandbox::new();
    session(&sandbox, &["--stderr-log", "64KiB"], &["stderr-flood", "1000000"]);
    let sizes: Vec<u64> = logs(&sandbox)
        .iter()
        .map(|log| fs::metadata(sandbox.path().join(log)).expect("a log").len())
        .collect();
    let total: u64 = sizes.iter().sum();
    assert!(total <= CAP, "{sizes:?}");
    assert!(total >= CAP / 2, "the newest half is kept: {sizes:?}");
    assert!(sandbox.log().contains("at byte 999900 "), "the newest is kept");
}

#[test]
fn five_logs_of_a_server_are_kept() {
    let sandbox = Sandbox::new();
    let others = session(&sandbox, &["--name", "other-server"], &["well-behaved"]).pid();
    let mut pids = Vec::new();
    for _ in 0..7 {
        let mut client = sandbox.wrap(&["--name", "other"], &["well-behaved"]);
        client.initialize();
        client.finish();
        pids.push(client.pid());
    }
    let mut expected: Vec<String> = pids[2..].iter().map(|pid| format!("other-{pid}.log")).collect();
    expected.push(format!("other-server-{others}.log"));
    expected.sort();
    assert_eq!(names(&logs(&sandbox)), expected);
}

#[test]
fn a_name_does_not_lead_out_of_the_folder() {
    let sandbox = Sandbox::new();
    for name in ["../../evil", "/etc/evil", "a/b", "..", "two words \u{fc}", "x\ny"] {
        session(&sandbox, &["--name", name], &["well-behaved"]);
    }
    let files = sandbox.files();
    assert_eq!(logs(&sandbox).len(), 6, "{files:?}");
    assert_eq!(files.len(), 6, "{files:?}");
    for log in logs(&sandbox) {
        assert_eq!(log.parent(), Some("state/logs".as_ref()), "{}", log.display());
    }
}

#[test]
fn the_name_is_used_wherever_the_server_is_spoken_of() {
    let sandbox = Sandbox::new();
    for (flags, variable, name) in
        [(&["--name", "clock"][..], None, "clock"), (&[], Some("wall"), "wall"), (&[], None, "unhang-lab")]
    {
        let mut command = sandbox.unhang();
        command.arg("wrap").args(flags).args(["--", lab_program(), "zoo", "dies-every-call"]);
        command.envs(variable.map(|name| ("UNHANG_NAME", name)));
        let mut client = Client::start(command);
        client.initialize();
        let id = client.call("any", json!({}));
        let error = client.answer(id)["error"].take();
        assert_eq!(error["data"]["server"], name, "{error}");
        assert!(error["message"].as_str().expect("a sentence").contains(&format!("`{name}`")), "{error}");
        client.finish();
        assert!(names(&logs(&sandbox)).contains(&format!("{name}-{}.log", client.pid())));
        assert!(client.stderr_at_the_end().contains(&format!("`{name}` ended unexpectedly")));
    }
}

#[test]
fn a_home_that_cannot_be_written_is_said_once_and_stops_nothing() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("a-file");
    fs::write(&file, "no folder").expect("a file");
    let guard = || {
        let mut command = sandbox.unhang();
        command.env("UNHANG_HOME", file.join("state")).args(["wrap", "--", lab_program(), "zoo"]);
        command.args(["stderr-flood", "5000"]);
        command
    };
    let mut homeless = guard();
    homeless.env_remove("UNHANG_HOME").env_remove("HOME");
    for (command, why) in [(guard(), file.to_str().expect("a path")), (homeless, "UNHANG_HOME")] {
        let mut client = Client::start(command);
        client.initialize();
        assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello");
        client.finish();
        let stderr = client.stderr_at_the_end();
        assert_eq!(stderr.matches("the log cannot be kept").count(), 1, "{stderr:.2000}");
        assert!(stderr.contains(why), "{stderr:.2000}");
    }
    assert_eq!(sandbox.files(), [PathBuf::from("a-file")]);
}

#[test]
fn verbose_speaks_on_stderr_only() {
    let sandbox = Sandbox::new();
    let quiet = session(&sandbox, &[], &["well-behaved"]).stderr_at_the_end();
    let client = session(&sandbox, &["-v"], &["well-behaved"]);
    let verbose = client.stderr_at_the_end();
    assert_eq!(quiet, "", "nothing to say about a session without trouble");
    assert!(verbose.contains("started after") && verbose.contains("done"), "{verbose}");
    // The client takes nothing but JSON-RPC, and this is all that it got.
    assert_eq!(client.seen().len(), 2);
}

#[test]
fn stray_output_is_shown_with_what_it_is() {
    let sandbox = Sandbox::new();
    let client = session(&sandbox, &[], &["stdout-noise"]);
    let stderr = client.stderr_at_the_end();
    assert!(stderr.contains("Starting server on stdio..."), "{stderr}");
    assert!(stderr.contains("stdout"), "{stderr}");
    assert!(!stderr.contains('\u{1b}'), "control characters are not passed on to a terminal: {stderr:?}");
    assert!(sandbox.log().contains("MCP server 'unhang-lab' stdout"), "{}", sandbox.log());
}

/// All that design 4 promises of `error.data`, on a server that has left every kind of trace.
#[test]
fn an_error_carries_all_that_may_explain_it() {
    let sandbox = Sandbox::new();
    let script = sandbox.path().join("server.sh");
    // Thirty lines on stderr and ten on stdout, then it answers the first request and nothing more.
    let text = r#"for line in $(seq 30); do echo "trouble $line" >&2; done
for line in $(seq 10); do echo "noise $line"; done
read request
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}'
cat > /dev/null"#;
    fs::write(&script, text).expect("a script");
    let mut command = sandbox.unhang();
    command.args(["wrap", "--name", "chatty", "--call-timeout", "300ms", "--", "sh"]).arg(&script);
    let mut client = Client::start(command);
    client.initialize();
    wait_until("its stderr was read", PATIENCE, || client.stderr().contains("trouble 30"));
    let id = client.call("any", json!({}));
    let error = client.answer(id)["error"].take();
    let data = &error["data"];
    assert_eq!(error["code"], -31001, "{error}");
    assert_eq!(
        [&data["origin"], &data["kind"], &data["server"], &data["method"], &data["limitMs"]],
        [&json!("unhang"), &json!("deadline"), &json!("chatty"), &json!("tools/call"), &json!(300)]
    );
    assert!(data["elapsedMs"].as_u64().is_some_and(|elapsed| (300..20_000).contains(&elapsed)), "{data}");
    assert!(data.get("exit").is_none(), "it lives: {data}");
    let lines = |member: &Value| -> Vec<String> {
        member.as_array().expect("lines").iter().map(|line| line.as_str().expect("text").to_owned()).collect()
    };
    let numbered = |word: &str, from: u32, to: u32| -> Vec<String> {
        (from..=to).map(|number| format!("{word} {number}")).collect()
    };
    assert_eq!(lines(&data["stderrTail"]), numbered("trouble", 11, 30), "the last twenty");
    assert_eq!(lines(&data["junk"]), numbered("noise", 6, 10), "the last five");
    let (message, hint) =
        (error["message"].as_str().expect("a sentence"), data["hint"].as_str().expect("advice"));
    assert!(
        message.contains("`chatty`") && message.contains("`tools/call`") && message.contains("300ms"),
        "{message}"
    );
    assert!(message.contains(hint) && hint.contains("--call-timeout"), "{hint}");
    client.finish();
}

#[test]
fn the_tail_in_memory_has_a_limit_of_its_own() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--stderr-tail", "450B"], &["stderr-flood-while-dying", "100000"]);
    client.initialize();
    let id = client.call("any", json!({}));
    let error = client.answer(id)["error"].take();
    let tail = error["data"]["stderrTail"].as_array().expect("lines");
    let bytes: usize = tail.iter().map(|line| line.as_str().expect("text").len() + 1).sum();
    assert!((300..=450).contains(&bytes), "{bytes} bytes: {tail:?}");
    assert_eq!(tail.last().expect("a line"), "the last words");
    client.finish();
}
