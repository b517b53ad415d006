//! The command line as people type it: arguments that are checked, one tool that is shown, servers that are in no file, jobs by a few
//! letters (F-75 to F-78).

use std::{
    fs::{self, File},
    io::Read,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    harness::{Client, Remote, Sandbox, lab_program, run_to_end},
    jobs::Jobs,
    terminal::terminal,
};

/// Runs `unhang WORDS -- unhang-lab zoo PROGRAM…` to its end.
#[track_caller]
fn ask(words: &[&str], faulty_server: &[&str]) -> (i32, String, String) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(words).args(["--", lab_program(), "zoo"]).args(faulty_server);
    run_to_end(command)
}

/// What a command prints on a terminal.
#[track_caller]
fn on_a_terminal(mut command: Command) -> String {
    let (master, screen) = terminal();
    command.env("TERM", "xterm");
    let mut client = Client::start_on(command, Stdio::null(), Stdio::from(screen), std::io::sink());
    let mut shown = Vec::new();
    // The terminal reports the end of its last holder as an error.
    let _ended = File::from(master).read_to_end(&mut shown);
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    String::from_utf8(shown).expect("text")
}

#[test]
fn f_76_arguments_are_checked_before_the_tool_is_called() {
    for (words, expect) in [
        (&["call", "echo"][..], "the argument `text` is missing"),
        (&["call", "echo", "txt=x"], "`echo` has no argument `txt` (did you mean `text`?)"),
        (&["call", "echo", "text=x", "volume=7"], "`echo` has no argument `volume` (it has text)"),
        (&["call", "slow", "--json", r#"{"seconds": "soon"}"#], "`seconds`"),
        (&["prompt", "greeting", "nam=x"], "`greeting` has no argument `nam`"),
    ] {
        let (code, stdout, stderr) = ask(words, &["slow-answers"]);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(expect), "{words:?}: {stderr}");
    }
    let (code, stdout, stderr) =
        ask(&["call", "--no-check", "echo", "text=x", "volume=7"], &["well-behaved"]);
    assert!(code == 0 && stdout.contains("\"x\""), "{code} {stdout} {stderr}");
}

#[test]
fn f_77_one_tool_is_shown_with_its_types() {
    let (code, stdout, stderr) = ask(&["tools", "slow"], &["slow-answers"]);
    let tool: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &tool["name"]), (0, &json!("slow")), "{stderr}");
    let (code, page, _) = ask(&["tools", "--output", "text", "slow"], &["slow-answers"]);
    for expect in
        ["seconds   number, required", "How long it takes", "fail      boolean", "unhang call slow seconds=1"]
    {
        assert!(code == 0 && page.contains(expect), "{expect}: {page}");
    }
    let (code, _, stderr) = ask(&["tools", "slo"], &["slow-answers"]);
    assert!(code == 6 && stderr.contains("did you mean `slow`?"), "{code} {stderr}");
}

#[test]
fn f_77_a_server_in_no_file_gets_a_variable_a_folder_and_headers() {
    let (code, stdout, stderr) =
        ask(&["call", "--env", "COLOUR=red", "environment", "name=COLOUR"], &["well-behaved"]);
    assert!(code == 0 && stdout.contains("\"red\""), "{code} {stdout} {stderr}");
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        run_to_end(command)
    };
    fs::create_dir(sandbox.path().join("inside")).expect("a folder");
    let (code, _, stderr) = run(&[
        "tools",
        "--cwd",
        "inside",
        "--",
        "sh",
        "-c",
        "pwd > here; exec \"$@\"",
        "sh",
        lab_program(),
        "zoo",
        "well-behaved",
    ]);
    let here = fs::read_to_string(sandbox.path().join("inside/here")).expect("it worked there");
    assert!(code == 0 && here.trim_end().ends_with("/inside"), "{code} {here} {stderr}");
    for (words, expect) in [
        (&["tools", "--cwd", "nowhere", "--", "true"][..], "the folder"),
        (&["tools", "--header", "A: b", "--", "true"], "--header is for a URL"),
        (&["tools", "--env", "A=b", "http://127.0.0.1:9/mcp"], "--env and --cwd are for a command"),
        (&["tools", "--env", "A", "--", "true"], "write NAME=VALUE"),
        (&["tools", "--header", "A\nB: c", "http://127.0.0.1:9/mcp"], ""),
    ] {
        let (code, stdout, stderr) = run(words);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(expect), "{words:?}: {stderr}");
    }
    for (header, expect) in
        [("Authorization: Bearer one", "Bearer one"), ("authorization=Bearer two", "Bearer two")]
    {
        let remote = Remote::start(&sandbox, &["http-well-behaved"]);
        let (code, _, stderr) = run(&["call", "--header", header, &remote.url, "echo", "text=x"]);
        assert_eq!(code, 0, "{stderr}");
        let call = remote.wait_for("the call", |seen| seen["rpc"] == "tools/call");
        assert_eq!(call["headers"]["authorization"], expect, "{call}");
    }
}

#[test]
fn f_77_content_goes_into_a_file_as_the_server_has_it() {
    let (_, listed, _) = ask(&["resources"], &["well-behaved"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let uri = listed[0]["uri"].as_str().expect("there is one");
    let (_, read, _) = ask(&["read", uri], &["well-behaved"]);
    let read: Value = serde_json::from_str(&read).expect("JSON");
    let (code, raw, stderr) = ask(&["read", "--raw", uri], &["well-behaved"]);
    assert_eq!((code, raw.as_str()), (0, read["contents"][0]["text"].as_str().expect("text")), "{stderr}");
    let (code, raw, stderr) = ask(&["call", "--raw", "echo", "text=one"], &["well-behaved"]);
    assert_eq!((code, &*raw), (0, "one"), "nothing is added: {stderr}");
    let (code, raw, stderr) = ask(&["call", "--raw", "fail", "text=no"], &["well-behaved"]);
    assert!(code == 1 && raw.is_empty() && stderr.contains("`fail` failed: no"), "{code} {raw} {stderr}");
    let (code, table, _) = ask(&["resources", "--output", "text"], &["well-behaved"]);
    assert!(code == 0 && table.lines().any(|line| line.starts_with(uri)), "{table}");
}

#[test]
fn f_75_jobs_are_one_line_each_and_a_few_letters_name_one() {
    let jobs = Jobs::new();
    let first = jobs.submit(&["--id", "abcdefgh2345", "--name", "a-rather-long-name-for-a-job"], "exit 3");
    let second = jobs.submit(&["--id", "abzzzzzz2345"], "echo hi");
    jobs.demand(1, &["job", "wait", &first, &second]);
    let (table, _) = jobs.demand(0, &["job", "list", "--output", "text"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert_eq!(jobs.json(&["job", "show", "abc"])["job_id"], json!(first));
    assert_eq!(jobs.json(&["job", "show", "last"])["job_id"], json!(second));
    assert_eq!(jobs.demand(0, &["job", "logs", "abz"]).0, "hi\n");
    let (_, stderr) = jobs.demand(2, &["job", "show", "ab"]);
    assert!(stderr.contains("2 jobs") && stderr.contains("abcdefgh2345, abzzzzzz2345"), "{stderr}");
    let (_, stderr) = jobs.demand(6, &["job", "show", "q"]);
    assert!(stderr.contains("begins with `q`"), "{stderr}");
    assert_eq!(jobs.json(&["job", "remove", "abz"])[0]["job_id"], json!(second));
    // What is not there spoils nothing else.
    let (stdout, _) = jobs.demand(6, &["job", "remove", "q", "abc"]);
    assert!(stdout.contains(&first), "{stdout}");
}

#[test]
fn f_75_states_have_colours_on_a_terminal_unless_they_are_not_wanted() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], "exit 3");
    jobs.demand(1, &["job", "wait", &id]);
    let coloured = on_a_terminal(jobs.command(&["job", "list"]));
    assert!(coloured.contains("\u{1b}[31mfailed"), "{coloured:?}");
    let mut plain = jobs.command(&["job", "list"]);
    plain.env("NO_COLOR", "1");
    let plain = on_a_terminal(plain);
    assert!(plain.contains("failed") && !plain.contains('\u{1b}'), "{plain:?}");
}

#[test]
fn a_time_has_one_of_the_units_that_are_documented() {
    for (words, expect) in [
        (&["call", "--call-timeout", "5M", "echo", "text=a"][..], "`M`"),
        (&["batch", "--timeout", "1M", "-"], "`M`"),
        (&["call", "--call-timeout", "3months", "echo", "text=a"], "`months`"),
        (&["call", "--call-timeout", "1m 5x", "echo", "text=a"], "`x`"),
    ] {
        let (code, _, stderr) = ask(words, &["well-behaved"]);
        assert!(code == 2 && stderr.contains(expect), "{words:?}: {code} {stderr}");
        assert!(stderr.contains("the units are ms, s, m, h, d and w"), "{words:?}: {stderr}");
    }
}

#[test]
fn f_76_the_hint_about_a_prompt_names_what_prompts_have() {
    let (code, _, stderr) = ask(&["prompt", "greeting", "nme=a"], &["well-behaved"]);
    assert!(
        code == 2
            && stderr
                .contains("hint: `unhang prompts` with the same server shows the arguments of its prompts\n"),
        "{code} {stderr}"
    );
    assert!(!stderr.contains("--no-check") && stderr.contains("`greeting` was not requested"), "{stderr}");
}

#[test]
fn f_79_messages_name_what_is_missing_and_where_it_belongs() {
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        run_to_end(command)
    };
    fs::write(sandbox.path().join("unhang.toml"), "[servers.demo]\ncommand = \"unhang zoo well-behaved\"\n")
        .expect("a file");
    for (words, expect) in [
        (&["call"][..], "no server is named, and the tool is missing"),
        (&["call", "demo"], "the tool is missing"),
        (&["read", "demo"], "the resource is missing"),
        (&["call", "--", "true"], "the tool is missing"),
    ] {
        let (code, _, stderr) = run(words);
        assert!(
            code == 2 && stderr.starts_with(&format!("unhang: {expect}\n")),
            "{words:?}: {code} {stderr}"
        );
    }
    let (code, _, stderr) = run(&["call", "demo", "echo", "text=a"]);
    assert!(code == 3 && stderr.contains("put the arguments into `args`"), "{code} {stderr}");
}

#[test]
fn f_76_without_the_check_a_value_goes_out_whatever_its_type() {
    let (code, _, stderr) = ask(&["call", "sleep", "ms=abc"], &["well-behaved"]);
    assert!(code == 2 && stderr.contains("`ms` must be"), "{code} {stderr}");
    let (code, _, stderr) = ask(&["call", "--no-check", "sleep", "ms=abc"], &["well-behaved"]);
    assert!(code != 2 && !stderr.contains("the argument `ms`"), "the server was asked: {code} {stderr}");
}
