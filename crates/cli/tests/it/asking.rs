//! `unhang servers`, `tools`, `resources`, `prompts`, `ping`, `call`, `read` and `prompt`: what they print, how they end, and that they
//! come home whatever the server does (C-66 to C-73).

use std::{
    fs::{self, File},
    io::{Read, Write},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, timed, wait_until},
    terminal::terminal,
};

/// `unhang WORDS -- unhang-lab zoo PROGRAM…`.
fn command(sandbox: &Sandbox, words: &[&str], faulty_server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(words).args(["--", lab_program(), "zoo"]).args(faulty_server);
    command
}

/// Runs it to its end: exit code, stdout and stderr.
#[track_caller]
fn ask(words: &[&str], faulty_server: &[&str]) -> (i32, String, String) {
    let sandbox = Sandbox::new();
    run_to_end(command(&sandbox, words, faulty_server))
}

/// Demands exit code 0, and returns what it says as JSON.
#[track_caller]
fn answer(words: &[&str], faulty_server: &[&str]) -> Value {
    let (code, stdout, stderr) = ask(words, faulty_server);
    assert_eq!(code, 0, "{words:?} {faulty_server:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {stdout}"))
}

#[test]
fn c_69_a_tool_is_listed_and_called() {
    let tools = answer(&["tools"], &["well-behaved"]);
    let echo = tools
        .as_array()
        .and_then(|tools| tools.iter().find(|tool| tool["name"] == "echo"))
        .expect("it has it");
    assert_eq!(echo["inputSchema"]["properties"]["text"]["type"], "string");
    let result = answer(&["call", "echo", "text=5"], &["well-behaved"]);
    assert_eq!(result["content"][0]["text"], "5", "the schema says that it is a text");
    let result = answer(&["call", "echo", "--json", r#"{"text": "from JSON"}"#], &["well-behaved"]);
    assert_eq!(result["content"][0]["text"], "from JSON");
    let (code, stdout, stderr) =
        ask(&["call", "--output", "text", "echo", "text=\u{1b}[1mplain"], &["well-behaved"]);
    assert_eq!((code, &*stdout, &*stderr), (0, "\u{1b}[1mplain\n", ""), "nobody looks at a terminal");
    let pinged = answer(&["ping"], &["well-behaved"]);
    assert!(pinged["server"] == "unhang-lab" && pinged["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{pinged}");
}

#[test]
fn resources_and_prompts_are_listed_and_got() {
    let resources = answer(&["resources"], &["well-behaved"]);
    let uri = resources[0]["uri"].as_str().expect("there is one");
    let read = answer(&["read", uri], &["well-behaved"]);
    assert_eq!(read["contents"][0]["uri"], uri);
    let (code, stdout, _) = ask(&["read", "--output", "text", uri], &["well-behaved"]);
    assert_eq!(
        (code, stdout.trim_end()),
        (0, read["contents"][0]["text"].as_str().expect("it is text").trim_end())
    );
    let prompts = answer(&["prompts"], &["well-behaved"]);
    let name = prompts[0]["name"].as_str().expect("there is one");
    let prompt = answer(&["prompt", name], &["well-behaved"]);
    assert!(prompt["messages"].is_array(), "{prompt}");
}

#[test]
fn all_pages_of_a_list_are_fetched() {
    let whole = answer(&["tools"], &["well-behaved"]);
    assert_eq!(answer(&["tools"], &["well-behaved", "--page", "2"]), whole);
}

/// What a server does to its own harm or nobody's.
#[test]
fn a_server_that_is_odd_is_understood() {
    for faulty_server in [
        &["answers-twice"][..],
        &["batch-answers"],
        &["crlf"],
        &["era-ambiguous"],
        &["era-locked"],
        &["glued-text"],
        &["json-logs"],
        &["late-discover", "4000"],
        &["many-on-a-line"],
        &["modern-only"],
        &["notification-before-each-answer"],
        &["notification-flood"],
        &["progress-flood"],
        &["floods-requests-to-client"],
        &["slow-start", "1000"],
        &["slow-writer"],
        &["stdout-noise"],
        &["string-id"],
    ] {
        let result = answer(&["call", "echo", "text=through"], faulty_server);
        let texts = result["content"].to_string();
        assert!(texts.contains("through"), "{faulty_server:?}: {result}");
    }
}

#[test]
fn a_server_that_asks_is_answered_though_nobody_is_there() {
    let result = answer(&["call", "echo", "text=x"], &["requests-to-client"]);
    assert_eq!(result["content"][0]["text"], "the client answered 4 questions");
}

#[test]
fn l_38_a_server_that_floods_its_stderr_hangs_nobody() {
    for faulty_server in [&["stderr-flood"][..], &["stderr-giant-line"]] {
        let result = answer(&["call", "echo", "text=through"], faulty_server);
        assert_eq!(result["content"][0]["text"], "through", "{faulty_server:?}");
    }
}

#[test]
fn what_goes_wrong_is_told_by_exit_code_and_sentence() {
    let echo: &[&str] = &["call", "echo", "text=x"];
    for (words, faulty_server, code, expect) in [
        (echo, &["dies-at-start", "7"][..], 3, "ended (exit code 7) before it answered anything"),
        (echo, &["dies-at-start", "7"], 3, "its stderr ended with:\n  | error: no project file"),
        (echo, &["dies-every-call"], 3, "`unhang-lab` ended (exit code"),
        (&["call", "die", "code=3"], &["well-behaved"], 3, "`unhang-lab` ended (exit code 3)"),
        (&["call", "--call-timeout", "20s", "echo", "text=x"], &["closes-stdout"], 3, "`unhang-lab` ended"),
        (
            &["tools", "--start-timeout", "1s"],
            &["silent-at-start"],
            4,
            "did not answer `server/discover` within",
        ),
        (
            &["call", "--call-timeout", "1s", "echo", "text=x"],
            &["never-answers", "echo"],
            4,
            "within 1s; unhang cancelled the call; raise --call-timeout",
        ),
        (
            &["call", "--call-timeout", "1s", "echo", "text=x"],
            &["wrong-id"],
            4,
            "did not answer `tools/call` within 1s",
        ),
        (echo, &["no-outcome"], 5, "has neither a `result` nor an `error`"),
        (echo, &["both-outcomes"], 5, "has both a `result` and an `error`"),
        (echo, &["no-jsonrpc"], 5, "has no `jsonrpc` member"),
        (echo, &["null-id"], 5, "an invalid response"),
        (echo, &["invalid-utf8"], 5, "is not valid UTF-8"),
        (
            &["call", "--max-message", "64KiB", "big", "bytes=100000"],
            &["well-behaved"],
            5,
            "over the limit of 65536",
        ),
        (echo, &["server-error"], 1, "refused `tools/call`"),
        (&["call", "--output", "text", "fail", "text=broken"], &["well-behaved"], 1, "`fail` failed: broken"),
        (&["call", "ecco", "text=x"], &["well-behaved"], 6, "has no tool `ecco`\nhint: did you mean `echo`?"),
        (&["call", "zzz"], &["well-behaved"], 6, "hint: it has "),
        (&["read", "nowhere:/x"], &["well-behaved"], 6, "has no resource `nowhere:/x`"),
        (&["prompt", "zzz"], &["well-behaved"], 6, "has no prompt `zzz`"),
        (
            &["call", "sleep", "ms=soon"],
            &["well-behaved"],
            2,
            "the argument `ms` must be integer, but `soon` is not",
        ),
        (&["call", "echo", "--json", "{"], &["well-behaved"], 2, "--json is not JSON"),
    ] {
        let (found, stdout, stderr) = ask(words, faulty_server);
        assert_eq!(found, code, "{words:?} {faulty_server:?}: {stdout}{stderr}");
        assert!(stderr.contains(expect), "{words:?} {faulty_server:?}: {stderr}");
        assert_eq!(stdout, "", "{words:?} {faulty_server:?}: errors are no data");
    }
    // A failure of the tool is data for a program.
    let (code, stdout, _) = ask(&["call", "fail", "text=broken"], &["well-behaved"]);
    assert_eq!((code, stdout.contains("\"isError\":true")), (1, true), "{stdout}");
    let (code, _, stderr) = ask(&["tools", "--output", "json"], &["dies-at-start", "7"]);
    let told: Value = serde_json::from_str(&stderr).expect("JSON");
    assert_eq!((code, &told["error"]["kind"]), (3, &json!("start_failed")));
    let data = &told["error"]["data"];
    assert_eq!((&data["origin"], &data["exit"]), (&json!("unhang"), &json!("exit code 7")));
    assert!(data["stderrTail"].as_array().is_some_and(|lines| !lines.is_empty()), "{told}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["tools", "--", "/nowhere/server"]);
    let (code, _, stderr) = run_to_end(command);
    assert!(code == 3 && stderr.contains("program `/nowhere/server` not found"), "{code} {stderr}");
}

/// The end has its limits, and takes no longer than it must.
#[test]
fn c_70_it_comes_home_and_leaves_nothing_whatever_the_server_does() {
    for (faulty_server, limit) in [
        (&["well-behaved"][..], 5),
        (&["ignores-stdin-close"], 10),
        (&["ignores-everything"], 10),
        (&["forks-forever", "--marker", "MARKER"], 10),
        (&["leaves-daemon", "--marker", "MARKER"], 10),
        (&["leaves-grandchild", "--marker", "MARKER"], 10),
        (&["leaves-three-sessions", "--marker", "MARKER"], 10),
    ] {
        let sandbox = Sandbox::new();
        let faulty_server: Vec<&str> = faulty_server
            .iter()
            .map(|word| if *word == "MARKER" { sandbox.marker() } else { word })
            .collect();
        let ((code, stdout, stderr), took) =
            timed(|| run_to_end(command(&sandbox, &["call", "echo", "text=x"], &faulty_server)));
        assert_eq!(code, 0, "{faulty_server:?}: {stdout}{stderr}");
        assert!(took < Duration::from_secs(limit), "{faulty_server:?}: {took:?}");
        sandbox.assert_nothing_left_within(Duration::from_secs(3));
    }
}

/// Asks what is never answered, and waits until the server has it: one that ends as it should, and one that ends by SIGKILL alone.
fn asked(sandbox: &Sandbox, is_stubborn: bool) -> Client {
    let (words, faulty_server, method) = match is_stubborn {
        false => (&["-v", "call", "sleep", "ms=3600000"][..], "well-behaved", "tools/call"),
        true => (&["-v", "tools"][..], "stopped", "tools/list"),
    };
    let client = Client::start(command(sandbox, words, &[faulty_server]));
    let asks = format!("to answer `{method}`");
    wait_until("the question is on its way", PATIENCE, || client.stderr().contains(&asks));
    client
}

#[test]
fn c_68_a_signal_ends_the_server_and_gives_its_exit_code() {
    for (signal, code, word) in [(Signal::INT, 130, "interrupted"), (Signal::TERM, 143, "told to end")] {
        for is_stubborn in [false, true] {
            let sandbox = Sandbox::new();
            let mut client = asked(&sandbox, is_stubborn);
            client.signal(signal);
            assert_eq!(client.exit_code(), code, "{}", client.stderr());
            let said = client.stderr_at_the_end();
            assert!(
                said.contains(&format!("unhang: {word}: ending the servers that were started")),
                "{said}"
            );
            sandbox.assert_nothing_left_within(Duration::from_secs(3));
        }
    }
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut client = asked(&sandbox, true);
    client.signal(Signal::INT);
    wait_until("it begins to end", PATIENCE, || client.stderr().contains("interrupted"));
    let (code, took) = timed(|| {
        client.signal(Signal::INT);
        client.exit_code()
    });
    assert_eq!(code, 130);
    assert!(took < Duration::from_secs(2), "{took:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn nobody_reading_is_a_quiet_end() {
    let sandbox = Sandbox::new();
    let mut client = Client::start_unread(command(&sandbox, &["tools"], &["well-behaved"])).0;
    // Its stdout has been dropped.
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    assert_eq!(client.stderr_at_the_end(), "");
}

/// A reader that stops reading holds up the data, and not the end.
#[test]
fn a_signal_ends_what_waits_for_its_reader() {
    let sandbox = Sandbox::new();
    let (mut client, unread) =
        Client::start_unread(command(&sandbox, &["-v", "call", "big", "bytes=10000000"], &["well-behaved"]));
    wait_until("it writes", PATIENCE, || {
        rustix::io::ioctl_fionread(&unread).is_ok_and(|waiting| waiting > 0)
    });
    client.signal(Signal::TERM);
    assert_eq!(client.exit_code(), 143, "{}", client.stderr());
    drop(unread);
}

/// A sandbox with files of clients in it.
fn configured() -> Sandbox {
    let sandbox = Sandbox::new();
    let lab = lab_program();
    let put = |path: &str, text: &str| {
        let path = sandbox.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    put(
        "unhang.toml",
        &format!(
            "[servers.own]\ncommand = '{lab}'\nargs = ['zoo', 'well-behaved']\nenv = {{ COLOUR = 'red' }}\nlimits = {{ call-timeout = '1s' }}"
        ),
    );
    put(
        ".mcp.json",
        &format!(
            "{{\"mcpServers\": {{ // of the project\n\"second\": {{\"command\": \"{lab}\", \"args\": [\"zoo\", \"modern-only\"]}}, }} }}"
        ),
    );
    put(
        ".cursor/mcp.json",
        "{\"mcpServers\": {\"own\": {\"command\": \"shadowed\"}, \"off\": {\"command\": \"x\", \"disabled\": true}}}",
    );
    put(
        ".vscode/mcp.json",
        "{\"servers\": {\"far\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:9/mcp\"}}}",
    );
    put(".codex/config.toml", "[mcp_servers.unset]\ncommand = \"${NOWHERE}\"");
    put(".gemini/settings.json", "{\"theme\": \"dark\"}");
    sandbox
}

fn in_folder(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.unhang();
    command.args(words);
    run_to_end(command)
}

#[test]
fn servers_are_found_where_clients_keep_them() {
    let sandbox = configured();
    let (code, stdout, stderr) = in_folder(&sandbox, &["servers"]);
    assert_eq!((code, &*stderr), (0, ""));
    let listed: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        (&listed[0]["command"], &listed[0]["args"]),
        (&json!(lab_program()), &json!(["zoo", "well-behaved"]))
    );
    assert_eq!(listed[4]["url"], "http://127.0.0.1:9/mcp");
    assert!(!stdout.contains("red"), "what the environment of a server is stays in its file: {stdout}");
    let listed: Vec<[&str; 4]> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|server| {
            ["name", "transport", "source", "unused"].map(|name| server[name].as_str().unwrap_or("-"))
        })
        .collect();
    let path = |file: &str| sandbox.path().join(file).display().to_string();
    let (mcp, cursor, code, codex) =
        (path(".mcp.json"), path(".cursor/mcp.json"), path(".vscode/mcp.json"), path(".codex/config.toml"));
    let unset = format!(
        "{codex}:2:1: mcp_servers.unset.command: the variable NOWHERE is not set; set it, or write `${{NOWHERE:-default}}`"
    );
    assert_eq!(
        listed,
        [
            ["own", "stdio", "unhang.toml", "-"],
            ["second", "stdio", &mcp, "-"],
            ["own", "stdio", &cursor, "another server of this name comes first"],
            ["off", "stdio", &cursor, "disabled"],
            ["far", "http", &code, "-"],
            ["unset", "-", &codex, &unset],
        ]
    );
    let (_, text, _) = in_folder(&sandbox, &["servers", "--output", "text"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_server_is_called_by_its_name_with_its_environment_and_limits() {
    let sandbox = configured();
    for (variable, expect) in
        [("COLOUR", "red"), ("HOME", sandbox.path().to_str().expect("text")), ("UNHANG_HOME", "")]
    {
        let name = format!("name={variable}");
        let (code, stdout, stderr) =
            in_folder(&sandbox, &["call", "own", "environment", &name, "--output", "text"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.contains(expect)
                && (stdout.trim().is_empty() || !expect.is_empty() || !stdout.contains("state")),
            "{variable}: {stdout}"
        );
    }
    let (code, _, stderr) = in_folder(&sandbox, &["call", "own", "sleep", "ms=3600000"]);
    assert!(code == 4 && stderr.contains("within 1s"), "the file says so: {code} {stderr}");
    let (code, _, stderr) =
        in_folder(&sandbox, &["call", "own", "sleep", "ms=3600000", "--call-timeout", "50ms"]);
    assert!(code == 4 && stderr.contains("within 50ms"), "the flag goes above it: {code} {stderr}");
    for (name, code, expect) in [
        ("seccond", 6, "there is no server `seccond`\nhint: did you mean `second`?"),
        ("zzz", 6, "hint: name one of these: own, second, far, unset"),
        ("unset", 2, "the variable NOWHERE is not set"),
    ] {
        let (found, _, stderr) = in_folder(&sandbox, &["tools", name]);
        assert!(found == code && stderr.contains(expect), "{name}: {found} {stderr}");
    }
}

#[test]
fn without_a_name_all_are_asked_side_by_side_and_one_that_fails_spoils_no_other() {
    let sandbox = configured();
    let (code, stdout, stderr) = in_folder(&sandbox, &["tools"]);
    assert_eq!(code, 3, "{stderr}");
    let tools: Value = serde_json::from_str(&stdout).expect("JSON");
    let of = |server: &str| {
        tools.as_array().expect("a list").iter().filter(|tool| tool["server"] == server).count()
    };
    assert!(of("own") > 5 && of("second") > 0 && of("far") == 0, "{stdout}");
    assert!(stderr.contains("127.0.0.1:9") && stderr.contains("NOWHERE"), "{stderr}");
    // A file that is named is the only one.
    let (code, stdout, stderr) = in_folder(&sandbox, &["ping", "--config", ".mcp.json"]);
    assert_eq!(code, 0, "{stderr}");
    let pinged: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((pinged[0]["server"].as_str(), pinged.as_array().map(Vec::len)), (Some("second"), Some(1)));
}

#[test]
fn a_file_that_does_not_parse_is_told_with_its_place() {
    let sandbox = Sandbox::new();
    for (file, text, expect) in [
        ("a.json", "{\"mcpServers\": {\n  \"a\": }}", "a.json:2:8: is not valid JSON"),
        (
            "a.toml",
            "[servers.a]\ncommand = 3",
            "a.toml:2:1: servers.a.command: expected a text in quotes, found the number 3",
        ),
        (
            "b.toml",
            "[servers.a]\ncommand = 'a'\nlimits = { call-timeout = 30 }",
            "b.toml:3:12: servers.a.limits.call-timeout: expected a length of time",
        ),
        ("b.json", "{}", "b.json:1:1: has none of the keys"),
    ] {
        fs::write(sandbox.path().join(file), text).expect("a file");
        let (code, _, stderr) = in_folder(&sandbox, &["servers", "--config", file]);
        assert!(code == 2 && stderr.contains(expect), "{file}: {code} {stderr}");
    }
    // Whoever gives a command needs no file.
    fs::write(sandbox.path().join("unhang.toml"), "[").expect("a file");
    let (code, _, stderr) = in_folder(&sandbox, &["ping"]);
    assert!(code == 2 && stderr.contains("unhang.toml:1:2: is not valid TOML"), "{code} {stderr}");
    let (code, _, stderr) = in_folder(&sandbox, &["ping", "--", lab_program(), "zoo", "well-behaved"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = in_folder(&sandbox, &["servers", "--config", "nowhere.json"]);
    assert!(code == 2 && stderr.contains("nowhere.json cannot be read"), "{code} {stderr}");
}

/// What a person sees and types.
pub(crate) struct Screen {
    pub(crate) terminal: File,
    pub(crate) shown: String,
}

/// Starts a command at a terminal of its own.
pub(crate) fn at_terminal(mut command: Command) -> (Client, Screen) {
    let (master, screen) = terminal();
    let stream = || Stdio::from(screen.try_clone().expect("a descriptor"));
    command.stdin(stream()).stdout(stream()).stderr(stream());
    (Client::start_alone(command), Screen { terminal: File::from(master), shown: String::new() })
}

impl Screen {
    /// Looks at it until this stands there.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.shown.contains(text) {
            // The end of a terminal is an error.
            let count = self.terminal.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "in vain: {text}; {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}

#[test]
fn whoever_waits_sees_for_how_long() {
    let sandbox = Sandbox::new();
    let sleep = command(&sandbox, &["call", "sleep", "ms=2500"], &["well-behaved"]);
    let (mut client, mut screen) = at_terminal(sleep);
    screen.until("\u{1b}[K2s");
    screen.until("\u{1b}[Kslept 2500 ms");
    assert_eq!(client.exit_code(), 0);
}

#[test]
fn a_server_that_asks_is_answered_at_the_terminal() {
    for (typed, expect) in [
        // The name, and yes.
        (&["Ada\n", "\n"][..], "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\"}}"),
        (&["Ada\n", "n\n"], "{\"action\":\"decline\"}"),
        // The end of input.
        (&["\u{4}"], "{\"action\":\"cancel\"}"),
    ] {
        let sandbox = Sandbox::new();
        let ask = command(&sandbox, &["call", "ask", "method=elicitation/create"], &["well-behaved"]);
        let (mut client, mut screen) = at_terminal(ask);
        for (words, prompt) in typed.iter().zip(["(string)", "send this? [Y/n]"]) {
            screen.until(prompt);
            screen.terminal.write_all(words.as_bytes()).expect("it reads");
        }
        screen.until(expect);
        assert_eq!(client.exit_code(), 0);
    }
}

#[test]
fn f_22_a_terminal_asks_once_for_consent_to_the_files_of_a_project() {
    let sandbox = Sandbox::new();
    let project = sandbox.path().join("project");
    fs::create_dir(&project).expect("a folder");
    let lab = lab_program();
    let file = format!(
        "{{\"mcpServers\": {{\"theirs\": {{\"command\": \"{lab}\", \"args\": [\"zoo\", \"well-behaved\"], \"env\": {{\"KEY\": \"hidden\"}}}}}}}}"
    );
    fs::write(project.join(".mcp.json"), file).expect("a file");
    let ping = || {
        let mut command = sandbox.unhang();
        command.args(["ping", "theirs", "--output", "json"]).current_dir(&project);
        at_terminal(command)
    };
    // A signal is heard while a person is asked.
    let (mut client, mut screen) = ping();
    screen.until("trust this file? [y/N]");
    client.signal(Signal::INT);
    assert_eq!(client.exit_code(), 130);
    for (typed, code) in [("n\n", 2), ("\u{4}", 2), ("y\n", 0)] {
        let (mut client, mut screen) = ping();
        screen.until("trust this file? [y/N]");
        assert!(
            screen.shown.contains("server theirs: ") && screen.shown.contains("[KEY]"),
            "{}",
            screen.shown
        );
        assert!(!screen.shown.contains("hidden"), "{}", screen.shown);
        screen.terminal.write_all(typed.as_bytes()).expect("it reads");
        assert_eq!(client.exit_code(), code, "{typed:?}");
    }
    let (mut client, mut screen) = ping();
    screen.until("\"server\": \"theirs\"");
    assert!(!screen.shown.contains("trust"), "{}", screen.shown);
    assert_eq!(client.exit_code(), 0);
}
