//! `unhang job` and `unhang state`: what they print, how they end, and what they say when something is wrong.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStrExt,
    process::Stdio,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until},
    jobs::{Jobs, UNTIL_GO},
    terminal::terminal,
};

/// No job has it.
const UNKNOWN: &str = "aaaaaaaaaaaa";

/// The names of an object's members.
fn names(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn a_job_is_run_waited_for_read_and_removed() {
    let jobs = Jobs::new();
    let id = jobs.submit(&["--name", "greeting"], "echo hello; echo aside >&2");
    assert!(
        id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
        "{id}"
    );
    let waited = jobs.json(&["job", "wait", &id]);
    assert_eq!((&waited[0]["job_id"], &waited[0]["status"]), (&json!(id), &json!("completed")));
    let shown = jobs.json(&["job", "show", &id]);
    let expect = [
        "command",
        "completed_at",
        "created_at",
        "elapsed_time_seconds",
        "exit_code",
        "folder",
        "job_folder",
        "job_id",
        "name",
        "next_steps",
        "started_at",
        "status",
        "work_folder",
    ];
    assert_eq!(names(&shown), expect);
    assert_eq!((&shown["name"], &shown["exit_code"]), (&json!("greeting"), &json!(0)));
    assert_eq!(jobs.json(&["job", "list", "--status", "completed"])[0]["job_id"], json!(id));
    assert_eq!(jobs.json(&["job", "list", "--status", "failed"]), json!([]));
    assert_eq!(jobs.demand(0, &["job", "logs", &id]).0, "hello\n");
    assert_eq!(jobs.demand(0, &["job", "logs", "--stderr", &id]).0, "aside\n");
    let page = jobs.json(&["job", "logs", "--output", "json", "--offset", "1", "--max-bytes", "4", &id]);
    let expect = json!({"text": "ello", "offset": 1, "next_offset": 5, "eof": false, "dropped_before": 0});
    assert_eq!(page, expect);
    assert_eq!(jobs.json(&["job", "remove", &id]), json!([{"job_id": id, "removed": true}]));
    assert!(!jobs.folder(&id).exists());
    jobs.demand(6, &["job", "show", &id]);
}

#[test]
fn f_13_an_input_has_any_name_that_a_file_can_have() {
    let jobs = Jobs::new();
    let names = ["with space.txt", "ü.txt", ".hidden", "-dash", "input.json"];
    let mut flags = Vec::new();
    let paths = names.map(|name| jobs.sandbox.path().join(name));
    for (name, path) in names.iter().zip(&paths) {
        fs::write(path, format!("<{name}>")).expect("a file");
        flags.extend(["--input", path.to_str().expect("text")]);
    }
    let script = "cd \"$UNHANG_JOB_DIR\" && cat 'with space.txt' ü.txt .hidden ./-dash input.json";
    let id = jobs.submit(&flags, script);
    jobs.demand(0, &["job", "wait", &id]);
    assert_eq!(
        jobs.demand(0, &["job", "logs", &id]).0,
        "<with space.txt><ü.txt><.hidden><-dash><input.json>"
    );
    jobs.demand(0, &["job", "remove", &id]);
    // One that is no text, and a result where other jobs have their arguments.
    let path = jobs.sandbox.path().join(OsStr::from_bytes(b"bad\xffname"));
    fs::write(&path, "3").expect("a file");
    let mut command = jobs.sandbox.unhang();
    command.args(["job", "run", "--wait", "--result", "input.json", "--input"]).arg(&path);
    command.args(["--", "sh", "-c", "cd \"$UNHANG_JOB_DIR\" && cp bad*name input.json"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(jobs.demand(0, &["job", "result", stdout.trim_end()]).0.trim_end(), "3");
    jobs.demand(0, &["job", "remove", stdout.trim_end()]);
    // What lies there says why the job has failed.
    let path = jobs.sandbox.path().join("error.json");
    fs::write(&path, "{}").expect("a file");
    let words = ["job", "run", "--input", path.to_str().expect("text"), "--", "true"];
    let (_, stderr) = jobs.demand(2, &words);
    assert!(stderr.contains("`error.json` cannot be a file of a job"), "{stderr}");
}

#[test]
fn run_wait_ends_with_the_jobs_own_exit_code() {
    let jobs = Jobs::new();
    for (flags, script, code, said) in [
        (&[][..], "exit 0", 0, ""),
        (&[], "exit 3", 3, "failed: exit code 3"),
        (&[], "exit 255", 255, "failed: exit code 255"),
        (&[], "kill -9 $$", 137, "failed: signal 9"),
        (&["--timeout", "100ms"], "exec sleep 3600", 143, "failed: "),
        (&["--result", "results.json"], "exit 0", 1, "results.json"),
        (&["--result", "results.json"], "echo NaN > $UNHANG_JOB_DIR/results.json", 1, "results.json"),
    ] {
        let words = [&["job", "run", "--wait"], flags, &["--", "sh", "-c", script]].concat();
        let (stdout, stderr) = jobs.demand(code, &words);
        assert_eq!(stdout.trim_end().len(), 12, "the id alone: {stdout}");
        assert!(stderr.contains(said) && stderr.is_empty() == (code == 0), "{script}: {stderr}");
    }
    let (stdout, _) =
        jobs.demand(3, &["job", "run", "--wait", "--output", "json", "--", "sh", "-c", "exit 3"]);
    let told: Vec<Value> = serde_json::Deserializer::from_str(&stdout).into_iter().flatten().collect();
    assert_eq!(names(&told[0]), ["job_id", "message", "next_steps", "status"]);
    assert_eq!((&told[1]["status"], &told[1]["exit_code"]), (&json!("failed"), &json!(3)));
}

#[test]
fn wait_tells_whether_all_completed() {
    let jobs = Jobs::new();
    let (well, badly) = (jobs.submit(&[], "true"), jobs.submit(&[], "exit 4"));
    jobs.demand(0, &["job", "wait", &well, &well]);
    let (stdout, _) = jobs.demand(1, &["job", "wait", "--output", "text", &well, &badly]);
    assert!(stdout.contains(&format!("{well} completed after ")), "{stdout}");
    assert!(stdout.contains(&format!("{badly} failed after ")), "{stdout}");
    assert!(stdout.ends_with("(sh): exit code 4\n"), "{stdout}");
    let long = jobs.submit(&[], UNTIL_GO);
    let (stdout, stderr) = jobs.demand(4, &["job", "wait", "--timeout", "100ms", &long, &well]);
    assert!(stderr.contains("not ended within 100ms") && stderr.contains(&long), "{stderr}");
    let reports: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(reports[1]["status"], "completed");
    // Nothing is waited for where one of them is unknown.
    jobs.demand(6, &["job", "wait", &long, UNKNOWN]);
    jobs.go();
    jobs.demand(0, &["job", "wait", &long]);
}

#[test]
fn what_cannot_be_done_is_refused_with_its_exit_code() {
    let jobs = Jobs::new();
    let (running, ended) = (jobs.submit(&[], UNTIL_GO), jobs.submit(&[], "echo because >&2; exit 4"));
    jobs.end(&ended);
    jobs.processes(&running);
    for (code, words, said) in [
        (1, ["job", "cancel", &ended], "has ended already: failed"),
        (1, ["job", "remove", &running], "has not ended yet, it is running"),
        (1, ["job", "result", &ended], "failed: exit code 4); last on its stderr: because"),
        (1, ["job", "result", &running], "has no result (running)"),
        (6, ["job", "cancel", UNKNOWN], "no job aaaaaaaaaaaa"),
        (6, ["job", "remove", UNKNOWN], "no job aaaaaaaaaaaa"),
        (6, ["job", "result", UNKNOWN], "no job aaaaaaaaaaaa"),
        (6, ["job", "logs", UNKNOWN], "no job aaaaaaaaaaaa"),
        (6, ["state", "get", "nothing"], "`nothing` was never set"),
    ] {
        let (_, stderr) = jobs.demand(code, &words);
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    let (stdout, _) = jobs.demand(1, &["job", "cancel", "--output", "text", &ended, &running]);
    assert_eq!(stdout, format!("{running} cancelled (sh)\n"), "the other one is cancelled all the same");
    let (_, stderr) = jobs.demand(6, &["job", "show", "--output", "json", UNKNOWN]);
    let error: Value = serde_json::from_str(&stderr).expect("JSON on stderr");
    assert_eq!(error["error"]["kind"], "no_such_job");
}

#[test]
fn x_10_what_is_no_id_is_wrong_usage_and_reaches_no_path() {
    let sandbox = Sandbox::new();
    for verb in ["show", "logs", "result", "wait", "cancel", "remove"] {
        for id in
            ["../../../etc", "/etc/passwd", "..", "", "a1c", "ABCDEFGHIJKL", "abcdefgh234/", "aaaaaaaaaaaaa"]
        {
            let mut command = sandbox.unhang();
            command.args(["job", verb, "--", id]);
            let (code, _, stderr) = run_to_end(command);
            assert_eq!(code, 2, "{verb} {id}: {stderr}");
            assert!(
                stderr.contains("12 characters from a-z and 2-7") || id.is_empty(),
                "{verb} {id}: {stderr}"
            );
        }
    }
    for words in [
        &["job", "run", "--id", "../x", "--", "true"][..],
        &["job", "run", "--result", "../results.json", "--", "true"],
        &["job", "run", "--state", "plant", "--", "true"],
        &["job", "run", "--result", "r.json", "--state", "../plant", "--", "true"],
        &["job", "run", "--result", "r.json", "--state", "plant=digester", "--", "true"],
        &["job", "run", "--input", "no-such-file", "--", "true"],
        &["job", "run", "--input", "/", "--", "true"],
        &["job", "run", "--timeout", "30", "--", "true"],
        &["job", "run", "--max-concurrent", "0", "--", "true"],
        &["job", "run"],
        &["job", "list", "--limit", "0"],
        &["job", "list", "--limit", "1001"],
        &["job", "list", "--status", "dead"],
        &["state", "get", "../x"],
        &["state", "set", "x", "{\"a\": NaN}"],
        &["state", "set", "x", "hello"],
        &["state", "set", "x", "@no-such-file"],
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, _, stderr) = run_to_end(command);
        assert_eq!(code, 2, "{words:?}: {stderr}");
    }
    assert!(!sandbox.path().join("state").exists(), "nothing was made");
}

#[test]
fn a_given_id_is_used_once() {
    let jobs = Jobs::new();
    let id = jobs.submit(&["--id", "abcdefgh2345"], "true");
    assert_eq!(id, "abcdefgh2345");
    let (stdout, stderr) = jobs.demand(1, &["job", "run", "--id", &id, "--", "true"]);
    assert!(stdout.is_empty() && stderr.contains("taken by another job"), "{stderr}");
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn j_36_a_command_that_cannot_be_started_leaves_no_job() {
    let jobs = Jobs::new();
    let (stdout, stderr) = jobs.demand(1, &["job", "run", "--", "no-such-program"]);
    assert!(stdout.is_empty() && stderr.contains("no-such-program"), "{stderr}");
    assert_eq!(jobs.json(&["job", "list"]), json!([]));
    assert_eq!(fs::read_dir(jobs.sandbox.path().join("state/jobs")).expect("it is there").count(), 0);
}

#[test]
fn inputs_results_and_the_state_flow_from_job_to_job() {
    let jobs = Jobs::new();
    let file =
        |name: &str, text: &str| fs::write(jobs.sandbox.path().join(name), text).expect("it can be written");
    file("basis.json", "{\"cod\": 5}");
    std::os::unix::fs::symlink("basis.json", jobs.sandbox.path().join("link.json")).expect("a link");
    jobs.demand(0, &["state", "set", "basis", "@basis.json"]);
    assert_eq!(jobs.json(&["state", "get", "basis"]), json!({"cod": 5}));
    let script = "cd \"$UNHANG_JOB_DIR\" && cat basis.json link.json >&2 && echo '{\"a/b\": [1, {\"c\": 7}]}' > out.json";
    let flags =
        ["--input", "basis.json", "--input", "link.json", "--result", "out.json", "--state", "plant=/a~1b/1"];
    let id = jobs.submit(&flags, script);
    let waited = jobs.json(&["job", "wait", &id]);
    assert_eq!(waited[0]["state_applied"], true, "{waited}");
    assert_eq!(jobs.json(&["state", "get", "plant"]), json!({"c": 7}));
    assert_eq!(jobs.json(&["job", "result", &id]), json!({"a/b": [1, {"c": 7}]}));
    let report = jobs.json(&["job", "result", "--output", "json", &id]);
    assert_eq!(report["stderr_tail"], "{\"cod\": 5}{\"cod\": 5}");
    // A pointer that finds nothing changes nothing, and says so.
    let id = jobs
        .submit(&["--result", "out.json", "--state", "plant=/x"], "echo 1 > \"$UNHANG_JOB_DIR/out.json\"");
    let waited = jobs.json(&["job", "wait", &id]);
    assert_eq!((&waited[0]["status"], &waited[0]["state_applied"]), (&json!("completed"), &json!(false)));
    assert!(
        waited[0]["state_reason"].as_str().is_some_and(|why| why.contains("matches nothing")),
        "{waited}"
    );
    assert_eq!(jobs.json(&["state", "get", "plant"]), json!({"c": 7}));
}

#[test]
fn the_state_is_set_from_text_and_stdin_and_listed() {
    let jobs = Jobs::new();
    jobs.demand(0, &["state", "set", "number", "-1.5"]);
    let mut client = Client::start(jobs.command(&["state", "set", "list", "-"]));
    client.write(b"[1, \"two\"]").expect("it reads");
    client.finish();
    assert_eq!(jobs.json(&["state", "get", "number"]), json!(-1.5));
    assert_eq!(
        names(&jobs.json(&["state", "get", "--output", "json", "list"])),
        ["field", "updated_at", "value"]
    );
    let listed = jobs.json(&["state", "list"]);
    assert_eq!((&listed[0]["field"], &listed[1]["field"]), (&json!("list"), &json!("number")));
    let (_, stderr) = jobs.demand(2, &["state", "set", "number", "hello"]);
    assert!(stderr.contains("is not JSON") && stderr.contains("hint: "), "{stderr}");
    assert_eq!(jobs.json(&["state", "get", "number"]), json!(-1.5), "it keeps its value");
}

#[test]
fn promise_4_a_job_has_the_environment_of_its_caller_and_an_empty_stdin() {
    let jobs = Jobs::new();
    let mut command = jobs.command(&["job", "run", "--wait", "--", "sh", "-c", "cat; env"]);
    command.env("LC_ALL", "C").env("API_TOKEN", "secret");
    let mut client = Client::start(command);
    let id = client_line(&mut client);
    // Its own stdin stays open all the time.
    assert_eq!(client.exit_code(), 0);
    let (environment, _) = jobs.demand(0, &["job", "logs", &id]);
    let names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    for name in ["API_TOKEN", "HOME", "LC_ALL", "PATH", "PYTHONUNBUFFERED", "UNHANG_JOB_DIR", "UNHANG_JOB_ID"]
    {
        assert!(names.contains(&name), "{name} in {environment}");
    }
}

/// Files of the sandbox in which this text stands.
fn files_with(jobs: &Jobs, text: &str) -> Vec<String> {
    let has = |file: &std::path::PathBuf| {
        let bytes = fs::read(jobs.sandbox.path().join(file)).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    let files = jobs.sandbox.files().into_iter().filter(has);
    files.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect()
}

#[test]
fn f_15_values_of_the_environment_lie_in_the_orders_of_a_job_alone() {
    use std::os::unix::fs::PermissionsExt;
    let jobs = Jobs::new();
    let run = |script: &str| {
        let mut command = jobs.command(&["job", "run", "--max-concurrent", "1", "--", "sh", "-c", script]);
        command.env("API_TOKEN", "value-of-f-15");
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{stderr}");
        stdout.trim().to_owned()
    };
    let first = run(&format!("{UNTIL_GO} test \"$API_TOKEN\" = value-of-f''-15"));
    wait_until("it runs", PATIENCE, || jobs.json(&["job", "show", &first])["status"] == "running");
    wait_until("its orders are gone", PATIENCE, || files_with(&jobs, "value-of-f-15").is_empty());
    let second = run("true");
    assert_eq!(files_with(&jobs, "value-of-f-15"), ["launch.json"], "while it waits");
    let launch =
        jobs.sandbox.files().into_iter().find(|file| file.ends_with("launch.json")).expect("its orders");
    let mode = fs::metadata(jobs.sandbox.path().join(launch)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A rebuilt database has no copy either.
    jobs.demand(0, &["job", "rebuild"]);
    assert_eq!(files_with(&jobs, "value-of-f-15"), ["launch.json"]);
    jobs.demand(0, &["job", "cancel", &second]);
    assert_eq!(files_with(&jobs, "value-of-f-15"), [""; 0]);
    let record = fs::read_to_string(jobs.folder(&second).join("job.json")).expect("its record");
    assert!(record.contains("API_TOKEN"), "names are told: {record}");
    jobs.go();
    jobs.demand(0, &["job", "wait", &first]);
}

#[test]
fn f_15_a_tool_gets_variables_of_its_own_and_all_of_ours_where_its_author_says_so() {
    let jobs = Jobs::new();
    let tool = |name: &str, more: &str| {
        let command = format!("['sh', '-c', 'echo \"$API_TOKEN,$OWN\" > {name}.tmp; mv {name}.tmp {name}']");
        format!("[tools.{name}]\ncommand = {command}\nmode = 'job'\n{more}\n")
    };
    let file = tool("all", "inherit-env = true\nenv = { OWN = 'own' }")
        + &tool("few", "env = { OWN = '${API_TOKEN}' }")
        + &tool("none", "");
    fs::write(jobs.sandbox.path().join("unhang.toml"), file).expect("a file");
    let mut command = jobs.command(&["serve", "--config", "unhang.toml"]);
    command.env("API_TOKEN", "value-of-f-15");
    let mut server = Client::start(command);
    server.initialize();
    for (name, expect) in [("all", "value-of-f-15,own\n"), ("few", ",value-of-f-15\n"), ("none", ",\n")] {
        let id = server.call(name, json!({}));
        server.answer(id);
        let path = jobs.sandbox.path().join(name);
        wait_until("it has run", PATIENCE, || path.exists());
        assert_eq!(fs::read_to_string(path).expect("text"), expect, "{name}");
    }
    let stored = ["unhang.db", "unhang.db-wal", "job.json", "launch.json"];
    let found = || {
        files_with(&jobs, "value-of-f-15").into_iter().filter(|file| stored.contains(&file.as_str())).count()
    };
    wait_until("values are nowhere", PATIENCE, || found() == 0);
    server.close_stdin();
    assert_eq!(server.exit_code(), 0);
}

/// The line that a program has printed, which is an id.
#[track_caller]
fn client_line(client: &mut Client) -> String {
    client.next_line(PATIENCE).expect("a line").trim_end().to_owned()
}

#[test]
fn logs_follow_a_slow_job_and_end_with_it() {
    let jobs = Jobs::new();
    let script =
        format!("for n in 1 2 3; do echo line $n; done; {UNTIL_GO} sleep 0.3; printf 'no end of line'");
    let id = jobs.submit(&[], &script);
    let mut client = jobs.waiting(&["job", "logs", "-f", &id]);
    for number in 1..=3 {
        assert_eq!(client_line(&mut client), format!("line {number}"));
    }
    assert!(client.is_running());
    jobs.go();
    assert_eq!(client_line(&mut client), "no end of line");
    assert_eq!((client.exit_code(), client.stderr_at_the_end()), (0, String::new()));
    // What has ended is read to its end, with -f too.
    let (stdout, _) = jobs.demand(0, &["job", "logs", "-f", "--offset", "7", &id]);
    assert_eq!(stdout, "line 2\nline 3\nno end of line");
    let (stdout, _) = jobs.demand(0, &["job", "logs", "-f", "--output", "json", &id]);
    let pages: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(pages.last().map(|page| &page["eof"]), Some(&json!(true)));
}

#[test]
fn a_log_is_piped_as_it_was_written_and_cleaned_for_a_terminal() {
    let jobs = Jobs::new();
    let script = r"printf '\033[31mred\033[0m\007 \377\376 \033]0;title\007end\r\n'";
    let id = jobs.submit(&["--name", "bad\u{1b}[2Jname"], script);
    jobs.demand(0, &["job", "wait", &id]);
    let raw = jobs.command(&["job", "logs", &id]);
    let (mut client, mut stdout) = Client::start_unread(raw);
    let mut bytes = Vec::new();
    stdout.read_to_end(&mut bytes).expect("bytes");
    assert_eq!(client.exit_code(), 0);
    assert_eq!(bytes, b"\x1b[31mred\x1b[0m\x07 \xff\xfe \x1b]0;title\x07end\r\n");
    assert_eq!(on_a_terminal(&jobs, &["job", "logs", &id]), "red \u{fffd}\u{fffd} end\r\n");
    for words in [&["job", "list"][..], &["job", "show", &id], &["job", "wait", &id]] {
        let text = on_a_terminal(&jobs, words);
        assert!(!text.contains('\u{1b}') && text.contains("bad\\u{1b}"), "{words:?}: {text:?}");
        assert!(text.lines().all(|line| line.chars().count() <= 80 || words[1] == "show"), "{text}");
    }
}

/// What a person sees on stdout, if that is a terminal.
#[track_caller]
fn on_a_terminal(jobs: &Jobs, words: &[&str]) -> String {
    let (mut client, mut seen) = at_a_terminal(jobs, words);
    let mut bytes = Vec::new();
    // The terminal reports the end of its last holder as an error.
    let _ended = seen.read_to_end(&mut bytes);
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    String::from_utf8(bytes).expect("text")
}

/// A program whose stdout is a terminal, and what is seen there.
fn at_a_terminal(jobs: &Jobs, words: &[&str]) -> (Client, File) {
    let (master, terminal) = terminal();
    let client = Client::start_on(jobs.command(words), Stdio::null(), Stdio::from(terminal), std::io::sink());
    (client, File::from(master))
}

#[test]
fn whoever_stops_waiting_leaves_the_job_running() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], UNTIL_GO);
    let (shim, work) = jobs.processes(&id);
    for (words, signal, code) in [
        (&["job", "wait", &id][..], Signal::INT, 130),
        (&["job", "logs", "-f", &id], Signal::INT, 130),
        (&["job", "wait", &id], Signal::TERM, 143),
    ] {
        let mut client = jobs.waiting(words);
        client.signal(signal);
        assert_eq!(client.exit_code(), code, "{words:?}");
        let stderr = client.stderr_at_the_end();
        assert!(stderr.contains("1 job continues"), "{words:?}: {stderr}");
        assert!(stderr.contains(&format!("unhang job cancel {id}")), "{words:?}: {stderr}");
    }
    assert_eq!(jobs.processes(&id), (shim, work));
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "running");
    jobs.go();
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn r_18_nobody_reading_is_a_quiet_success() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], &format!("echo first; {UNTIL_GO}"));
    let (mut client, mut stdout) = Client::start_unread(jobs.command(&["job", "logs", "-f", &id]));
    let mut line = [0; 6];
    stdout.read_exact(&mut line).expect("the first line");
    drop(stdout);
    // The job writes no more, and still it is noticed.
    assert_eq!((client.exit_code(), client.stderr_at_the_end()), (0, String::new()));
    jobs.go();
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn a_data_folder_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    let in_the_way = sandbox.path().join("in-the-way");
    fs::write(&in_the_way, "").expect("the sandbox can be written");
    for words in
        [&["job", "list"][..], &["job", "run", "--", "true"], &["job", "rebuild"], &["state", "list"]]
    {
        let mut command = sandbox.unhang();
        command.args(words).env("UNHANG_HOME", &in_the_way);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, stdout.as_str()), (1, ""), "{words:?}: {stderr}");
        assert!(stderr.contains("in-the-way") && stderr.contains("UNHANG_HOME"), "{words:?}: {stderr}");
    }
    let mut command = sandbox.unhang();
    command.args(["job", "list"]).env_remove("UNHANG_HOME").env_remove("HOME");
    let (code, _, stderr) = run_to_end(command);
    assert!(code == 2 && stderr.contains("neither UNHANG_HOME nor HOME is set"), "{code}: {stderr}");
}

#[test]
fn a_damaged_database_is_put_aside_and_made_anew() {
    let jobs = Jobs::new();
    let id = jobs.submit(&["--name", "survivor"], "echo still here");
    jobs.demand(0, &["job", "wait", &id]);
    let database = jobs.sandbox.path().join("state/unhang.db");
    let remove = |suffixes: &[&str]| {
        for suffix in suffixes {
            let _may_be_missing =
                fs::remove_file(jobs.sandbox.path().join(format!("state/unhang.db{suffix}")));
        }
    };
    wait_until("the shim has gone", PATIENCE, || jobs.sandbox.survivors().is_empty());
    // What is in the log beside it would heal it.
    remove(&["-wal", "-shm"]);
    fs::write(&database, "this is no database".repeat(500)).expect("it can be written");
    let (_, stderr) = jobs.demand(1, &["job", "list"]);
    assert!(stderr.contains("damaged") && stderr.contains("unhang job rebuild"), "{stderr}");
    let broken = jobs.folder("bbbbbbbbbbbb");
    fs::create_dir(&broken).expect("a folder");
    fs::write(broken.join("job.json"), "{\"format\": 1").expect("half a file");
    let rebuilt = jobs.json(&["job", "rebuild"]);
    assert_eq!(rebuilt["jobs"], 1);
    assert_eq!(rebuilt["damaged"][0]["folder"], json!(broken));
    let old = rebuilt["old_database"].as_str().expect("where it lies");
    assert!(fs::read_to_string(old).expect("it is kept").starts_with("this is no database"));
    assert_eq!(jobs.json(&["job", "list"])[0]["name"], "survivor");
    assert_eq!(jobs.demand(0, &["job", "logs", &id]).0, "still here\n");
    // One that is well is made anew too, and one that is missing by any command, which says so.
    assert_eq!(jobs.json(&["job", "rebuild"])["old_database"], Value::Null);
    fs::remove_file(old).expect("it can be removed");
    remove(&["", "-wal", "-shm"]);
    let (stdout, stderr) = jobs.demand(0, &["job", "list"]);
    assert!(
        stdout.contains("survivor") && stderr.contains("created it again from the folders of 1 job"),
        "{stderr}"
    );
}

#[test]
fn f_03_prune_puts_aside_what_it_does_not_understand_and_every_list_names_it() {
    let jobs = Jobs::new();
    jobs.demand(0, &["job", "list"]);
    let broken = jobs.folder("bbbbbbbbbbbb");
    fs::create_dir(&broken).expect("a folder");
    fs::write(broken.join("job.json"), "{\"format\": 1").expect("half a file");
    let hours_ago = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    File::open(&broken).expect("a folder").set_modified(hours_ago).expect("a time");
    let aside = jobs.sandbox.path().join("state/quarantine/bbbbbbbbbbbb");
    let pruned = jobs.json(&["job", "prune"]);
    assert_eq!((&pruned["quarantined"], &pruned["orphans"]), (&json!([aside]), &json!(0)), "{pruned}");
    assert!(!broken.exists() && aside.join("job.json").exists());
    for words in [["job", "list"], ["job", "prune"], ["job", "rebuild"]] {
        let (_, stderr) = jobs.demand(0, &words);
        assert!(stderr.contains("in quarantine") && stderr.contains("job.json is damaged"), "{stderr}");
    }
    // Nothing else removes it.
    fs::remove_dir_all(aside).expect("it can be removed");
}

#[test]
fn prune_removes_what_ended_long_enough_ago() {
    let jobs = Jobs::new();
    let (ended, running) = (jobs.submit(&[], "true"), jobs.submit(&[], UNTIL_GO));
    jobs.demand(0, &["job", "wait", &ended]);
    assert_eq!(jobs.json(&["job", "prune"])["jobs"], json!([]), "it is young");
    assert_eq!(jobs.json(&["job", "prune", "--older-than", "1ms"])["jobs"], json!([ended]));
    assert!(!jobs.folder(&ended).exists() && jobs.folder(&running).exists());
    jobs.go();
    jobs.demand(0, &["job", "wait", &running]);
}

#[test]
fn an_input_that_is_no_plain_file_is_the_users_error() {
    let jobs = Jobs::new();
    fs::create_dir(jobs.sandbox.path().join("folder")).expect("a folder");
    assert_eq!(run_to_end(jobs.sandbox.shell("mkfifo pipe")).0, 0);
    for what in ["folder", "pipe"] {
        let (_, stderr) = jobs.demand(2, &["job", "run", "--input", what, "--", "true"]);
        assert!(
            stderr.contains(&format!("--input {what} cannot be read: it is not a regular file")),
            "{stderr}"
        );
    }
}
