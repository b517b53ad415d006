//! `unhang doctor`: it finds what is wrong with every server of the zoo, by name, and nothing with one that behaves; it comes home
//! and leaves nothing, whatever the server does.

use std::{collections::BTreeSet, fmt::Write, fs, io::Read, process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use unhang::doctor::{CHECKS, ExaminedTarget, UncheckedReason, examine_as_client};
use unhang_zoo::ProgramKind;

use crate::{
    client_library::faulty_server,
    harness::{Client, Remote, Sandbox, lab_program, run_to_end, signal, timed, wait_until},
};

const PAGE: &str = include_str!("../../../../docs/guide/doctor.md");

/// The findings that a faulty server has to cause. `{marker}` and `{folder}` in its arguments are the sandbox's, `{lab}` is the lab.
struct Expected {
    faulty_server: &'static str,
    arguments: &'static [&'static str],
    ids: &'static [&'static str],
}

const fn expect(
    faulty_server: &'static str,
    arguments: &'static [&'static str],
    ids: &'static [&'static str],
) -> Expected {
    Expected { faulty_server, arguments, ids }
}

const MARKED: &[&str] = &["--marker", "{marker}"];

const EXPECTED: &[Expected] = &[
    expect("announces-lists", &[], &[]),
    expect("answers-after-cancel", &[], &["no-answer", "answers-after-cancel"]),
    expect("answers-twice", &[], &["answers-twice"]),
    // Not seen: it asks only about a call that another client has given up.
    expect("asks-late", &[], &["no-answer", "asks-undeclared"]),
    expect("batch-answers", &[], &["batch-answer"]),
    expect("both-outcomes", &[], &["invalid-message"]),
    expect("busy-not-hung", &[], &["blocks-while-busy"]),
    expect("changes-lists", &[], &["era-ambiguous", "no-safe-tool"]),
    expect("closes-stdin", &[], &["closes-stdin", "ignores-stdin-end"]),
    expect("closes-stdout", &[], &["closes-stdout"]),
    expect("conformance-fixture", &[], &["call-refused"]),
    expect("crlf", &[], &["byte-order-mark", "crlf-lines"]),
    expect("dies-at-start", &[], &["dies-at-start"]),
    expect("dies-every-call", &[], &["dies-in-use"]),
    expect("dies-idle", &["1500"], &["dies-idle"]),
    expect("dies-on-garbage", &[], &["dies-on-garbage"]),
    expect("era-ambiguous", &[], &["era-ambiguous"]),
    expect("era-locked", &[], &["era-locked"]),
    expect("exits-on-first-request", &[], &["dies-in-use"]),
    expect("exits-zero-after-each-answer", &[], &["dies-in-use"]),
    expect("faulty-tools", &[], &["invalid-tool-schema", "duplicate-tool", "odd-tool-name", "no-safe-tool"]),
    expect("floods-requests-to-client", &[], &["request-flood"]),
    expect("forks-forever", MARKED, &["leaves-processes"]),
    expect("giant-answer", &["9000000"], &["huge-line"]),
    expect("giant-line-no-newline", &["10000000"], &["stdout-junk", "huge-line"]),
    expect("glued-text", &[], &["glued-text"]),
    expect("half-line", &[], &["no-answer", "invalid-message"]),
    expect("hangs-idle", &["1500"], &["hangs-idle", "ignores-stdin-end"]),
    expect("ignores-everything", &[], &["ignores-stdin-end", "ignores-sigterm"]),
    expect("ignores-stdin-close", &[], &["ignores-stdin-end"]),
    expect("invalid-utf8", &[], &["invalid-message"]),
    expect("json-logs", &[], &["stdout-junk"]),
    expect("late-discover", &[], &["late-discover"]),
    expect("leaves-daemon", MARKED, &["leaves-processes"]),
    expect("leaves-daemon-empty-env", MARKED, &["leaves-processes"]),
    expect("leaves-grandchild", MARKED, &["leaves-processes"]),
    expect("leaves-setsid-child", MARKED, &["leaves-processes"]),
    expect("leaves-three-sessions", MARKED, &["leaves-processes"]),
    // Its tool `held` is answered only with the next call.
    expect("many-on-a-line", &[], &["no-answer", "many-on-a-line"]),
    expect("modern-only", &[], &["modern-only"]),
    expect("nan-result", &[], &["invalid-message"]),
    expect("nested-deep", &[], &["deep-nesting"]),
    expect("never-answers", &["stuck"], &["no-answer"]),
    expect("never-reads-stdin", &[], &["silent-at-start"]),
    expect("no-jsonrpc", &[], &["invalid-message"]),
    expect("no-outcome", &[], &["invalid-message"]),
    expect("notification-before-each-answer", &[], &["notifies-before-answers"]),
    expect("notification-flood", &[], &["notification-flood"]),
    expect("null-id", &[], &["wrong-id"]),
    expect("offers-extensions", &[], &["no-safe-tool"]),
    // Not seen: without an argument, its calls take no time.
    expect("one-at-a-time", &[], &["asks-undeclared"]),
    expect("progress-after-cancel", &[], &["goes-on-after-cancel"]),
    expect("progress-flood", &[], &["notification-flood"]),
    // Not seen: a client alone sees nothing of what it shares with nobody.
    expect("remembers", &[], &[]),
    expect("requests-to-client", &[], &["asks-undeclared"]),
    expect("restarts-broken", &["--count-file", "{folder}/starts"], &["dies-at-second-start"]),
    expect("server-error", &[], &["call-refused"]),
    // Not seen: no client sends SIGINT to a server that has a session of its own, and neither does the doctor.
    expect("sigint-deaf", &[], &[]),
    expect("silent-at-start", &[], &["silent-at-start"]),
    expect("slow-answers", &[], &[]),
    expect("slow-start", &[], &["slow-start"]),
    expect("slow-writer", &[], &["answers-in-pieces"]),
    expect("steers-terminal", &[], &["call-refused"]),
    expect("stderr-flood", &[], &["stderr-flood"]),
    expect("stderr-giant-line", &[], &["stderr-flood", "stderr-long-line"]),
    expect("stdin-thief", &[], &["no-answer", "shares-stdin"]),
    expect("stdout-noise", &[], &["stdout-junk"]),
    expect("stopped", &[], &["no-answer", "ignores-stdin-end", "ignores-sigterm"]),
    expect("stops-reading-after", &[], &["no-answer", "ignores-stdin-end"]),
    expect("string-id", &[], &["id-type-changed"]),
    expect("tasks-legacy", &[], &[]),
    expect("tasks-modern", &[], &["modern-only"]),
    expect(
        "tee",
        &["{folder}/from-client", "{folder}/from-server", "--", "{lab}", "zoo", "well-behaved"],
        &[],
    ),
    expect("well-behaved", &[], &[]),
    expect("wrong-id", &[], &["wrong-id"]),
    expect("wrong-version", &[], &["invalid-message"]),
];

/// What a busy machine makes of servers that are quick elsewhere; and what nearly every faulty server does, as two of the five real servers.
const BESIDE_THE_POINT: &[&str] =
    &["slow-start", "slow-answer", "blocks-while-busy", "goes-on-after-cancel", "era-ambiguous"];

/// Short waits for those that never answer; the doctor's own are for real servers.
const IMPATIENT: &[&str] = &["--start-timeout", "5s", "--request-timeout", "3s", "--call-timeout", "8s"];

/// A file with these servers, each the command of a faulty server.
fn configure<'a>(
    sandbox: &Sandbox,
    name: &str,
    servers: impl IntoIterator<Item = (&'a str, Vec<String>)>,
) -> String {
    let mut file = String::new();
    for (name, arguments) in servers {
        let words: Vec<String> = arguments.iter().map(|word| format!("{word:?}")).collect();
        let _infallible = writeln!(
            file,
            "[servers.{name}]\ncommand = {:?}\nargs = [\"zoo\", {}]",
            lab_program(),
            words.join(", ")
        );
    }
    let path = sandbox.path().join(format!("{name}.toml"));
    fs::write(&path, file).expect("a file");
    path.display().to_string()
}

fn doctor(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.arg("doctor").args(words);
    command
}

/// `unhang doctor WORDS -- unhang-lab zoo PROGRAM…`, to its end.
fn examine(sandbox: &Sandbox, words: &[&str], faulty_server: &[&str]) -> (i32, String, String) {
    let mut command = doctor(sandbox, words);
    command.args(["--", lab_program(), "zoo"]).args(faulty_server);
    run_to_end(command)
}

/// The report of the only server, as JSON, since nobody looks at a terminal.
#[track_caller]
fn only(stdout: &str) -> Value {
    let reports: Vec<Value> =
        serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!(reports.len(), 1, "{stdout}");
    reports[0].clone()
}

fn ids(report: &Value) -> BTreeSet<&str> {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["id"].as_str()).collect()
}

#[test]
fn it_finds_what_is_wrong_with_every_server_of_the_zoo() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().display().to_string();
    let filled = |words: &[&str]| -> Vec<String> {
        let fill = |word: &&str| {
            word.replace("{marker}", sandbox.marker())
                .replace("{folder}", &folder)
                .replace("{lab}", lab_program())
        };
        words.iter().map(fill).collect()
    };
    // Examinations side by side take less time. Lines of megabytes, which a test build reads slowly, delay no others by that.
    let is_giant = |expected: &&Expected| expected.faulty_server.starts_with("giant");
    let (giants, others): (Vec<_>, Vec<_>) = EXPECTED.iter().partition(is_giant);
    let (one, other) = others.split_at(others.len() / 2);
    let begun = [("giants", &giants[..]), ("one", one), ("other", other)].map(|(name, part)| {
        let servers = part.iter().map(|expected| {
            (
                expected.faulty_server,
                [vec![expected.faulty_server.to_owned()], filled(expected.arguments)].concat(),
            )
        });
        let config = configure(&sandbox, name, servers);
        let mut started =
            Client::start_unread(doctor(&sandbox, &[&["--json", "--config", &config], IMPATIENT].concat()));
        started.0.close_stdin();
        started
    });
    let mut reports: Vec<Value> = Vec::new();
    for (mut client, mut stdout) in begun {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("text");
        assert_eq!(client.exit_code(), 1, "{}", client.stderr_at_the_end());
        reports.extend(serde_json::from_str::<Vec<Value>>(&text).expect("an array"));
    }
    let names: Vec<&Value> = reports.iter().map(|report| &report["server"]).collect();
    let asked: Vec<&str> =
        [&giants[..], one, other].concat().iter().map(|expected| expected.faulty_server).collect();
    assert_eq!(names, asked, "in the order of the files");
    let mut wrong = Vec::new();
    for (expected, report) in [&giants[..], one, other].concat().into_iter().zip(&reports) {
        let (wanted, found): (BTreeSet<&str>, _) = (expected.ids.iter().copied().collect(), ids(report));
        let is_more = |id: &&&str| !wanted.contains(**id) && !BESIDE_THE_POINT.contains(*id);
        if !wanted.is_subset(&found) || found.iter().any(|id| is_more(&id)) {
            wrong.push(format!(
                "{}: expected {wanted:?}, found {found:?}\n{:#}",
                expected.faulty_server, report
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sandbox.assert_nothing_left();
}

#[test]
fn no_server_of_the_zoo_is_forgotten() {
    let known: BTreeSet<&str> = EXPECTED.iter().map(|expected| expected.faulty_server).collect();
    let servers =
        unhang_zoo::faulty_servers().filter(|faulty_server| faulty_server.kind == ProgramKind::Server);
    let names: BTreeSet<&str> = servers.map(|faulty_server| faulty_server.name).collect();
    assert_eq!(known, names);
    let checks: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    let expected = EXPECTED.iter().flat_map(|expected| expected.ids).copied();
    assert!(expected.chain(BESIDE_THE_POINT.iter().copied()).all(|id| checks.contains(id)));
}

#[test]
fn a_server_that_behaves_is_clean() {
    let sandbox = Sandbox::new();
    let (code, stdout, stderr) = examine(&sandbox, &["--output", "text"], &["well-behaved"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.lines().count() == 2 && stdout.lines().all(|line| line.len() <= 80), "{stdout}");
    let (code, stdout, _) = examine(&sandbox, &[], &["well-behaved"]);
    let report = only(&stdout);
    assert!(code == 0 && report["clean"] == true && ids(&report).is_empty(), "{report:#}");
    let facts = &report["facts"];
    assert_eq!((&facts["revision"], &facts["stateless"]), (&"2025-11-25".into(), &true.into()));
    assert!(facts["coldStartMs"].is_u64() && facts["warmStartMs"].is_u64(), "{facts}");
    let called: Vec<&Value> =
        facts["calls"].as_array().expect("calls").iter().map(|call| &call["tool"]).collect();
    assert_eq!(called, ["pid", "state"], "those that only read and need nothing");
}

#[test]
fn a_person_reads_what_is_wrong_and_what_to_do() {
    let sandbox = Sandbox::new();
    let (code, stdout, _) = examine(&sandbox, &["--output", "text"], &["stdout-noise"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("1 error") && stdout.contains("stdout-junk"), "{stdout}");
    assert!(
        stdout.contains("Starting server on stdio...") && stdout.contains("Write logs to stderr"),
        "{stdout}"
    );
    assert!(!stdout.contains('\u{1b}') && stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
}

#[test]
fn several_servers_are_one_table_and_one_that_cannot_be_tried_is_a_finding() {
    let sandbox = Sandbox::new();
    let config = configure(
        &sandbox,
        "unhang",
        [("good", vec!["well-behaved".to_owned()]), ("bad", vec!["dies-at-start".to_owned()])],
    );
    let mut file = fs::read_to_string(&config).expect("a file");
    file.push_str("[servers.missing]\ncommand = \"/no/such/program\"\n");
    fs::write(&config, file).expect("a file");
    let (code, stdout, stderr) = run_to_end(doctor(&sandbox, &["--config", &config, "--output", "text"]));
    assert_eq!(code, 1, "{stderr}");
    let rows: Vec<&str> = stdout.lines().take(4).collect();
    assert!(rows[1].starts_with("good ") && rows[1].ends_with("ok"), "{stdout}");
    assert!(rows[2].starts_with("bad ") && rows[2].ends_with("1 error"), "{stdout}");
    assert!(rows[3].starts_with("missing ") && rows[3].ends_with("1 error"), "{stdout}");
    assert!(stdout.contains("dies-at-start") && stdout.contains("cannot-start"), "{stdout}");
    let (code, stdout, _) = run_to_end(doctor(&sandbox, &["good", "--config", &config, "--json"]));
    assert_eq!((code, stdout.contains("\"server\": \"good\"")), (0, true), "by its name, alone: {stdout}");
    let (code, _, stderr) = run_to_end(doctor(&sandbox, &["goood", "--config", &config]));
    assert!(code == 6 && stderr.contains("good"), "{stderr}");
}

#[test]
fn a_ci_gets_a_suite_a_server_and_a_case_a_check() {
    let sandbox = Sandbox::new();
    let config = configure(
        &sandbox,
        "unhang",
        ["well-behaved", "stdout-noise"].map(|name| (name, vec![name.to_owned()])),
    );
    let (code, xml, _) = run_to_end(doctor(&sandbox, &["--junit", "--config", &config]));
    assert_eq!(code, 1);
    assert_eq!(xml.matches("<testsuite ").count(), 2, "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), 2 * CHECKS.len());
    let [failure] = &xml.lines().filter(|line| line.contains("<failure")).collect::<Vec<_>>()[..] else {
        panic!("one failure: {xml}")
    };
    assert!(failure.contains("name=\"stdout-junk\"") && failure.contains("type=\"error\""), "{failure}");
    assert_well_formed(&xml);
}

#[test]
fn a_ci_sees_that_checks_of_a_server_that_did_not_start_were_skipped() {
    let sandbox = Sandbox::new();
    let mut missing = doctor(&sandbox, &["--junit"]);
    missing.args(["--", "/no/such/program"]);
    for command in [missing, doctor(&sandbox, &["--junit", "http://127.0.0.1:9/mcp"])] {
        let (code, xml, _) = run_to_end(command);
        assert_eq!(code, 1, "{xml}");
        // All but the finding, and that it came in time.
        assert_eq!(xml.matches("<skipped message=\"not checked").count(), CHECKS.len() - 2, "{xml}");
        assert!(xml.contains(&format!("skipped=\"{}\"", CHECKS.len() - 2)), "{xml}");
        assert!(xml.contains("name=\"no-answer\"><skipped"), "{xml}");
        assert_well_formed(&xml);
    }
}

#[test]
fn a_url_that_breaks_off_gets_advice_about_urls_and_a_list_that_stays_the_same() {
    let sandbox = Sandbox::new();
    let unchecked = ["http-half-answer", "http-well-behaved"].map(|name| {
        let remote = Remote::start(&sandbox, &[name]);
        let (_, stdout, stderr) =
            run_to_end(doctor(&sandbox, &[&["--json", &remote.url], IMPATIENT].concat()));
        let report = only(&stdout);
        if name == "http-half-answer" {
            assert!(ids(&report).contains("no-answer"), "{report:#} {stderr}");
        }
        for finding in report["findings"].as_array().expect("findings") {
            let remedy = finding["remedy"].as_str().expect("text");
            assert!(!remedy.contains("stderr") && !remedy.contains("unhang wrap"), "{finding}");
        }
        report["unchecked"].clone()
    });
    assert_eq!(unchecked[0], unchecked[1]);
}

/// Every tag is closed by its own name, in order, and no character stands where it may not.
#[track_caller]
fn assert_well_formed(xml: &str) {
    assert!(xml.starts_with("<?xml "), "{xml}");
    let mut open = Vec::new();
    for tag in xml.split('<').skip(2) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{xml}");
        } else {
            assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert_eq!(open, [""; 0]);
    assert!(!xml.chars().any(|character| character.is_control() && character != '\n'), "{xml:?}");
}

#[test]
fn it_comes_home_when_its_time_is_up() {
    let sandbox = Sandbox::new();
    let ((code, stdout, _), took) = timed(|| {
        examine(&sandbox, &["--timeout", "1s", "--start-timeout", "8s", "--json"], &["silent-at-start"])
    });
    assert_eq!(code, 1);
    let report = only(&stdout);
    assert_eq!(ids(&report), BTreeSet::from(["did-not-finish"]));
    assert!(took < Duration::from_secs(20), "{took:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn an_interrupt_ends_it_with_every_server() {
    let sandbox = Sandbox::new();
    let mut command = doctor(&sandbox, &["--output", "text"]);
    command.args(["--", lab_program(), "zoo", "silent-at-start"]);
    let (mut client, _stdout) = Client::start_unread(command);
    wait_until_it_runs(&sandbox, "silent-at-start");
    signal(client.pid(), Signal::INT);
    assert_eq!(client.exit_code(), 130);
    sandbox.assert_nothing_left();
}

fn wait_until_it_runs(sandbox: &Sandbox, faulty_server: &str) {
    wait_until("the server runs", Duration::from_secs(30), || {
        // The lifeline has the server's words too.
        let is_other = |words: &str| words.contains("doctor") || words.contains("mcp-l");
        let is_server = |words: &str| words.contains(&format!("zoo {faulty_server}")) && !is_other(words);
        sandbox.survivors().iter().any(|(_, words)| is_server(words))
    });
}

/// Its lifeline takes a while to end it, and the command waits for that.
#[test]
fn it_has_ended_a_stubborn_server_before_it_ends_itself() {
    for is_interrupted in [true, false] {
        let sandbox = Sandbox::new();
        let mut command = doctor(&sandbox, &["--timeout", if is_interrupted { "1m" } else { "1s" }]);
        command.args(["--stop-grace", "2s", "--", lab_program(), "zoo", "ignores-everything"]);
        let (mut client, _stdout) = Client::start_unread(command);
        wait_until_it_runs(&sandbox, "ignores-everything");
        if is_interrupted {
            signal(client.pid(), Signal::INT);
        }
        assert_eq!(client.exit_code(), if is_interrupted { 130 } else { 1 });
        assert_eq!(sandbox.survivors(), [], "{is_interrupted}");
    }
}

#[tokio::test]
async fn a_server_without_a_process_of_ours_is_examined_as_a_client_does() {
    let sandbox = Sandbox::new();
    for (words, expect) in [
        (&["well-behaved"][..], &[][..]),
        (&["faulty-tools"], &["invalid-tool-schema", "duplicate-tool", "odd-tool-name", "no-safe-tool"]),
        (&["never-answers", "stuck"], &["no-answer"]),
        (&["hangs-idle", "1500"], &["hangs-idle"]),
        (&["busy-not-hung"], &["blocks-while-busy"]),
        (&["silent-at-start"], &["silent-at-start"]),
        (&["dies-at-start"], &["cannot-start"]),
    ] {
        let mut spec = faulty_server(&sandbox, "srv", words);
        spec.limits.start_timeout = Duration::from_secs(4);
        spec.limits.request_timeout = Duration::from_secs(3);
        spec.limits.call_timeout = Duration::from_secs(4);
        let patient = ExaminedTarget { spec, inherited: Vec::new(), limit: Duration::from_secs(60) };
        let report = examine_as_client(&patient).await;
        let found: Vec<&str> = report.findings.iter().map(|finding| finding.check.id).collect();
        assert!(expect.iter().all(|id| found.contains(id)), "{words:?}: {report:#?}");
        assert_eq!(report.is_clean(), expect.is_empty(), "{words:?}: {found:?}");
        let over_http =
            report.unchecked.iter().filter(|unchecked| unchecked.reason == UncheckedReason::OverHttp);
        let unchecked: Vec<&str> = over_http.map(|unchecked| unchecked.check.id).collect();
        assert!(
            unchecked.contains(&"leaves-processes") && !unchecked.contains(&"no-answer"),
            "{unchecked:?}"
        );
    }
    sandbox.assert_nothing_left();
}

#[test]
fn the_guide_has_every_check_as_it_is() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = CHECKS
        .iter()
        .map(|check| {
            let without_process = if check.needs_process { "" } else { " yes" };
            format!(
                "| `{}` | {} |{without_process} | {} | {} |",
                check.id,
                check.severity.word(),
                check.means,
                check.remedy
            )
        })
        .collect();
    assert_eq!(rows, expected, "put these into docs/guide/doctor.md:\n{}", expected.join("\n"));
}

#[test]
fn f_78_several_names_are_examined_and_a_dead_url_gets_advice_about_urls() {
    let sandbox = Sandbox::new();
    let config = sandbox.path().join("two.toml");
    let entry = |name: &str| {
        format!("[servers.{name}]\ncommand = {:?}\nargs = [\"zoo\", \"well-behaved\"]\n", lab_program())
    };
    fs::write(&config, ["one", "two", "three"].map(entry).concat()).expect("a file");
    let config = config.display().to_string();
    let dead = "http://127.0.0.1:9/mcp";
    let (code, stdout, stderr) =
        run_to_end(doctor(&sandbox, &["three", "one", dead, "three", "--config", &config, "--json"]));
    assert_eq!(code, 1, "{stderr}");
    let reports: Vec<Value> = serde_json::from_str(&stdout).expect("an array");
    let servers: Vec<&str> = reports.iter().filter_map(|report| report["server"].as_str()).collect();
    assert_eq!(servers, ["three", "one", dead], "as they were named, each once");
    let finding = &reports[2]["findings"][0];
    let remedy = finding["remedy"].as_str().expect("text");
    assert_eq!(finding["id"], "cannot-reach", "{finding}");
    assert!(remedy.contains("URL") && !remedy.contains("command"), "{remedy}");
    let (code, _, stderr) = run_to_end(doctor(&sandbox, &["one", "threee", "--config", &config]));
    assert!(code == 6 && stderr.contains("did you mean `three`?"), "{code} {stderr}");
}
