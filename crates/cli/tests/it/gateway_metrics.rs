//! What operators see of `unhang serve --http`: counters, the state of servers, and logs without secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::server,
    harness::{Client, PATIENCE, Sandbox, Web, run_to_end, wait_until},
};

const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

fn write(sandbox: &Sandbox, parts: &[String]) {
    fs::write(sandbox.path().join("unhang.toml"), parts.concat()).expect("a file");
}

/// Once all have come up, or have failed to.
fn settled(web: &Web) {
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
}

fn finish(mut process: Client, sandbox: &Sandbox) {
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

fn status(web: &Web) -> Value {
    web.ask("GET", "/status", &[], "").last()
}

/// What was counted: each sample with its labels, as it stands there.
fn scraped(web: &Web) -> BTreeMap<String, f64> {
    let open = "application/openmetrics-text; version=1.0.0";
    let answer = web.ask("GET", "/metrics", &[("accept", open)], "");
    let kind = answer.header("content-type").expect("a type").to_owned();
    assert_eq!((answer.status, kind.starts_with(open)), (200, true));
    let page = answer.text();
    assert!(page.ends_with("# EOF\n"), "{page}");
    let answer = web.ask("GET", "/metrics", &[], "");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let classic = answer.text();
    assert!(classic.contains("\n# TYPE unhang_server_starts_total counter\n"), "{classic}");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a sample: {line}"));
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("a number: {line}")))
    };
    samples.map(sample).collect()
}

/// How much more a sample is than it was.
fn moved(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, sample: &str) -> f64 {
    let value = |page: &BTreeMap<String, f64>| page.get(sample).copied().unwrap_or_default();
    value(after) - value(before)
}

#[test]
fn l_57_counters_move_by_what_was_done() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"1s\" }";
    let servers = [
        server("one", &["well-behaved"], limits),
        server("frail", &["well-behaved"], ""),
        server("noisy", &["json-logs", "1"], ""),
    ];
    write(&sandbox, &servers);
    let (process, web) = Web::start(&sandbox);
    settled(&web);
    let session = web.begin();
    let before = scraped(&web);
    let call = |tool: &str, arguments: Value| web.call(&session, 1, tool, arguments).last();
    assert!(call("one__echo", json!({ "text": "x" }))["result"].is_object());
    assert_eq!(call("one__sleep", json!({ "ms": 60_000 }))["error"]["code"], -31001);
    assert_eq!(call("frail__die", json!({ "code": 3 }))["error"]["code"], -31002);
    assert!(call("frail__echo", json!({ "text": "x" }))["result"].is_object(), "it has come back");
    assert!(call("noisy__echo", json!({ "text": "x" }))["result"].is_object());
    assert!(call("get_system_status", json!({}))["result"].is_object());
    assert_eq!(call("one__nothing", json!({}))["error"]["code"], -32602);
    let after = scraped(&web);
    for (sample, by) in [
        (r#"unhang_requests_total{server="one",method="tools/call",outcome="ok"}"#, 1.0),
        (r#"unhang_requests_total{server="one",method="tools/call",outcome="deadline"}"#, 1.0),
        (r#"unhang_requests_total{server="frail",method="tools/call",outcome="server_exited"}"#, 1.0),
        (r#"unhang_requests_total{server="frail",method="tools/call",outcome="ok"}"#, 1.0),
        (r#"unhang_requests_total{server="noisy",method="tools/call",outcome="ok"}"#, 1.0),
        // The server decides about a tool that it does not list.
        (r#"unhang_request_duration_seconds_count{server="one"}"#, 3.0),
        (r#"unhang_request_duration_seconds_bucket{le="0.5",server="one"}"#, 2.0),
        (r#"unhang_request_duration_seconds_bucket{le="2.5",server="one"}"#, 3.0),
        (r#"unhang_server_starts_total{server="one"}"#, 0.0),
        (r#"unhang_server_starts_total{server="frail"}"#, 1.0),
        (r#"unhang_server_failures_total{server="frail"}"#, 1.0),
        (r#"unhang_junk_lines_total{server="noisy"}"#, 1.0),
        (r#"unhang_junk_lines_total{server="one"}"#, 0.0),
        (r#"unhang_client_requests_total{method="tools/call"}"#, 7.0),
        (r#"unhang_client_answers_total{outcome="result"}"#, 4.0),
        (r#"unhang_client_answers_total{outcome="error"}"#, 3.0),
        (r#"unhang_tool_calls_total{tool="get_system_status",outcome="ok"}"#, 1.0),
    ] {
        assert_eq!(moved(&before, &after, sample), by, "{sample}: {after:#?}");
    }
    for (sample, value) in [
        (r#"unhang_server_state{server="frail",state="running"}"#, 1.0),
        (r#"unhang_server_state{server="frail",state="fenced_off"}"#, 0.0),
        (r#"unhang_server_in_flight{server="one"}"#, 0.0),
        (r#"unhang_jobs{state="running"}"#, 0.0),
        ("unhang_sessions", 1.0),
    ] {
        assert_eq!(after.get(sample), Some(&value), "{sample}: {after:#?}");
    }
    let frail = &status(&web)["servers"][1];
    assert_eq!((&frail["restarts"], &frail["lastExit"]), (&json!(1), &json!("exit code 3")), "{frail}");
    finish(process, &sandbox);
}

/// Name, type and labels.
type Metric = (String, String, BTreeSet<String>);

/// The beginning of the names that only a gateway with a shared database tells.
const OF_WORKERS: &str = "unhang_worker_";

/// What the page promises.
fn documented() -> BTreeSet<Metric> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `unhang_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = format!("unhang_{}", cells[0].trim_end_matches('`'));
        let labels = cells[2].split(',').map(|label| label.trim().to_owned());
        (name, cells[1].to_owned(), labels.filter(|label| !label.is_empty()).collect())
    })
    .collect()
}

/// What is there, by the names of its samples.
fn told(web: &Web) -> BTreeSet<Metric> {
    let page = web.ask("GET", "/metrics", &[], "").text();
    let mut kinds = BTreeMap::new();
    let mut told = BTreeSet::new();
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
        } else if !line.starts_with('#') {
            let (sample, labels) = line.split_once(['{', ' ']).expect("a sample");
            let ends = ["_bucket", "_count", "_sum"];
            let whole = ends.iter().find_map(|end| sample.strip_suffix(end));
            let name = whole.filter(|name| kinds.contains_key(*name)).unwrap_or(sample);
            let kind = kinds.get(name).unwrap_or_else(|| panic!("no type: {line}")).clone();
            let labels = labels.split("=\"").map(|part| part.rsplit(['"', ',', '{']).next().unwrap_or(part));
            let mut labels: BTreeSet<String> = labels.map(str::to_owned).collect();
            // Behind the last label stands its value, and a bucket has one of its own.
            labels.retain(|label| label.chars().all(|letter| letter.is_ascii_lowercase()) && label != "le");
            told.insert((name.to_owned(), kind, labels));
        }
    }
    told
}

/// Demands that what a gateway with workers tells of them is what the page promises.
pub(crate) fn demand_documented_workers(web: &Web) {
    let [told, documented] = [told(web), documented()].map(|all| {
        all.into_iter().filter(|(name, ..)| name.starts_with(OF_WORKERS)).collect::<BTreeSet<_>>()
    });
    assert!(!told.is_empty());
    assert_eq!(told, documented, "left: what is told; right: docs/reference/metrics.md");
}

#[test]
fn the_page_names_what_is_told_and_nothing_else() {
    let sandbox = Sandbox::with_jobs();
    write(&sandbox, &[server("one", &["well-behaved"], "")]);
    let (process, web) = Web::start(&sandbox);
    settled(&web);
    let session = web.begin();
    for tool in ["one__echo", "list_jobs"] {
        web.call(&session, 1, tool, json!({ "text": "x" })).last();
    }
    let (mut told, mut documented) = (told(&web), documented());
    for all in [&mut told, &mut documented] {
        // `workers.rs` has a gateway with a database.
        all.retain(|(name, ..)| !name.starts_with(OF_WORKERS));
    }
    assert_eq!(told, documented, "left: what is told; right: docs/reference/metrics.md");
    finish(process, &sandbox);
}

const SECRET: &str = "correct-horse-battery";

/// A server that tells its own secret and dies of it.
fn indiscreet(name: &str) -> String {
    let script = "echo \"cannot log in with $API_KEY\" >&2; echo 'Authorization: Basic dXNlcg' >&2; exit 3";
    let limits = "limits = { breaker-failures = 1, breaker-cooldown = \"1h\" }";
    let environment = format!("env = {{ API_KEY = \"{SECRET}\" }}");
    format!("[servers.{name}]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n{environment}\n{limits}\n")
}

#[test]
fn what_is_secret_is_in_no_log_and_no_status() {
    for format in ["text", "json"] {
        let sandbox = Sandbox::with_jobs();
        write(&sandbox, &[indiscreet("spy"), server("one", &["well-behaved"], "")]);
        let (process, web) = Web::start_with(&sandbox, &["-v"], &["--log-format", format]);
        settled(&web);
        // It is wanted again, and then left alone.
        let session = web.begin();
        let code = web.call(&session, 1, "spy__anything", json!({})).last()["error"]["code"].clone();
        assert!(code == -31003 || code == -31004, "it cannot be started, and is left alone: {code}");
        let page = status(&web);
        let spy = &page["servers"][0];
        let tail = json!(["cannot log in with [redacted]", "Authorization: [redacted]"]);
        assert_eq!(spy["stderrTail"], tail, "{spy}");
        let error = spy["lastError"].as_str().expect("an error");
        assert!(error.contains("[redacted]") && error.contains("exit code 3"), "{error}");
        assert!(spy["lastErrorAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{spy}");
        let log = sandbox.log();
        assert!(log.contains("cannot log in with [redacted]"), "{log}");
        assert!(log.contains("cannot be listed"), "{log}");
        for text in [&log, &process.stderr(), &page.to_string()] {
            assert!(!text.contains(SECRET) && !text.contains("dXNlcg"), "{format}: {text}");
        }
        finish(process, &sandbox);
    }
}

#[test]
fn a_server_that_is_left_alone_is_said_to_be_and_until_when() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-failures = 1, breaker-cooldown = \"1h\", restart-delay = \"1ms\" }";
    write(&sandbox, &[server("frail", &["well-behaved"], limits)]);
    let (process, web) = Web::start(&sandbox);
    settled(&web);
    let session = web.begin();
    let fresh = status(&web)["servers"][0].clone();
    assert_eq!(fresh["breaker"], json!({ "state": "closed" }), "{fresh}");
    assert!(fresh.get("lastError").is_none() && fresh.get("stderrTail").is_none(), "{fresh}");
    let call = |tool| web.call(&session, 1, tool, json!({ "code": 3 })).last()["error"]["code"].clone();
    assert_eq!(call("frail__die"), -31002);
    wait_until("it is left alone", PATIENCE, || call("frail__echo") == -31004);
    let page = status(&web);
    let frail = &page["servers"][0];
    assert_eq!(
        (&frail["state"], &frail["breaker"]["state"]),
        (&json!("fenced_off"), &json!("open")),
        "{frail}"
    );
    assert!(frail["breaker"]["until"].as_str().is_some_and(|until| until.starts_with("20")), "{frail}");
    // That it is left alone is no news of it.
    let error = frail["lastError"].as_str().expect("an error");
    assert!(error.contains("exit code 3"), "{error}");
    assert_eq!(page["jobs"]["completed"], 0, "{page}");
    let open = r#"unhang_server_state{server="frail",state="fenced_off"}"#;
    assert_eq!(scraped(&web).get(open), Some(&1.0));
    finish(process, &sandbox);
}

/// The lines of a log, each of which is one object.
fn objects(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}"))).collect()
}

#[test]
fn a_log_for_programs_says_whom_it_is_about() {
    let sandbox = Sandbox::with_jobs();
    write(&sandbox, &[server("one", &["well-behaved"], "limits = { call-timeout = \"1s\" }")]);
    for log_file in ["events.log", "-"] {
        let (mut process, web) =
            Web::start_with(&sandbox, &[], &["--log-format", "json", "--log-file", log_file]);
        settled(&web);
        let session = web.begin();
        web.call(&session, 1, "one__sleep", json!({ "ms": 60_000 })).last();
        web.ask("GET", "/nowhere", &[], "");
        process.signal(Signal::TERM);
        assert_eq!(process.exit_code(), 143, "{}", process.stderr());
        let stderr = process.stderr_at_the_end();
        let log = match log_file {
            "-" => stderr.clone(),
            file => {
                let path = sandbox.path().join(file);
                let mode = fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
                assert_eq!(mode, 0o600);
                fs::read_to_string(path).expect("text")
            }
        };
        objects(&stderr);
        let events = objects(&log);
        for event in &events {
            let members = ["time", "level", "target", "message"];
            assert!(members.iter().all(|member| event[member].is_string()), "{event}");
        }
        let about = |text: &str| {
            let is_it = |event: &&Value| event["message"].as_str().is_some_and(|said| said.contains(text));
            events.iter().find(is_it).unwrap_or_else(|| panic!("{text}: {log}"))["fields"].clone()
        };
        let failed = about("answered with an error");
        assert_eq!((&failed["server"], &failed["method"]), (&json!("one"), &json!("tools/call")), "{failed}");
        assert_eq!((&failed["client"], &failed["kind"]), (&json!("test"), &json!("deadline")), "{failed}");
        assert!(failed["session"].as_str().is_some_and(|name| session.starts_with(name)), "{failed}");
        let refused = about("with 404");
        assert_eq!((&refused["status"], &refused["kind"]), (&json!(404), &json!("invalid_request")));
        assert!(refused["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{refused}");
    }
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_log_that_cannot_be_where_it_is_wanted_is_told_at_the_start() {
    let sandbox = Sandbox::with_jobs();
    write(&sandbox, &[]);
    fs::create_dir(sandbox.path().join("folder")).expect("a folder");
    let wrap = ["wrap", "--log-file", "-", "--", "true"];
    for (words, why) in [
        (&["serve", "--log-file", "folder"][..], "opening the log `folder`"),
        (&["serve", "--log-file", "/dev/null"], "it is not a file"),
        (&["serve", "--log-file", "nowhere/log"], "No such file"),
        (&["serve", "--log-format", "xml"], "possible values: text, json"),
        (&wrap, "the log cannot be on stderr"),
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(why) && stderr.contains("hint: "), "{words:?}: {stderr}");
    }
}
