//! Calls that take longer than their clients wait (issue 7): each goes on as a job, nothing is cut off, nothing runs twice, and what comes
//! of it arrives whole.
//!
//! Times are scaled: clocks of clients are seconds here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
    time::Duration,
};

use serde_json::{Value, json};
use unhang::{clients::CLOCKS, config::PROMOTE_AFTER};

use crate::{
    callers::{Calls, Session, StdioCaller, both, handed_over, id_in_words, lasting, slow_server, text},
    gateway::{gateway, server},
    gateway_access::{ONE, TWO, closed},
    gateway_http::finish,
    harness::{PATIENCE, Sandbox, Web, lab_program, timed, wait_until},
    jobs::called,
};

#[test]
fn no_client_is_cut_off_by_its_clock_and_nothing_runs_twice() {
    /// A second stands for so many. The shortest clock then leaves a busy machine more than a second.
    const SCALE: u32 = 5;
    /// The moment at which a call becomes a job whose client has no known clock.
    const LATE: Duration = PROMOTE_AFTER.checked_div(SCALE).expect("not zero");
    let mut clocks: BTreeMap<&str, Option<Duration>> = BTreeMap::new();
    for clock in CLOCKS {
        let shortest = clocks.entry(clock.name).or_insert(clock.call);
        *shortest = clock.call.into_iter().chain(*shortest).min();
    }
    let sandbox = Sandbox::with_jobs();
    let mut config = server("srv", &["slow-answers"], "")
        + &server("late", &["slow-answers"], &format!("limits.promote-after = \"{}ms\"", LATE.as_millis()));
    for (name, clock) in &clocks {
        if let Some(clock) = clock {
            config += &format!("[clients.\"{name}\"]\ncall-clock = \"{}ms\"\n", (*clock / SCALE).as_millis());
        }
    }
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let (process, web) = Web::start(&sandbox);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    let lengths = [2.0, 30.0, 90.0];
    let calls = clocks.iter().flat_map(|(name, clock)| {
        lengths.map(|length| {
            [true, false].map(|reports| (*name, clock.map(|clock| clock / SCALE), length, reports))
        })
    });
    thread::scope(|scope| {
        for (name, clock, length, reports) in calls.flatten() {
            let web = &web;
            scope.spawn(move || {
                let mut session = Session::begin(web, name);
                let server = if clock.is_some() { "srv" } else { "late" };
                let seconds = length / f64::from(SCALE);
                let arguments =
                    json!({ "seconds": seconds, "progress": reports, "label": name, "size": 2000 });
                let (result, took) = timed(|| {
                    let answer = web.call(&session.name, 1, &format!("{server}__slow"), arguments).last();
                    answer["result"].clone()
                });
                let about = format!("{name}, {length} s, {reports}: {result:.300}");
                assert!(clock.is_none_or(|clock| took < clock), "it has given up after {took:?}: {about}");
                let moment = clock.map_or(LATE.as_secs_f64(), |clock| clock.as_secs_f64() * 0.8);
                let is_job = result["structuredContent"]["job_id"].is_string();
                // Between the two it is up to the machine.
                assert!(is_job || seconds < moment * 1.2, "it was to be a job: {about}");
                assert!(!is_job || seconds > moment * 0.5, "it was to be answered: {about}");
                let content = if is_job {
                    session.whole(&handed_over(&result))
                } else {
                    result["content"].as_array().expect("blocks").clone()
                };
                assert_eq!(content, [json!({ "type": "text", "text": text(2000) })], "{about}");
            });
        }
    });
    // One whose clock is long.
    let mut session = Session::begin(&web, "gemini-cli");
    for (server, known) in [("srv", true), ("late", false)] {
        let result = session.result(&format!("{server}__seen"), json!({}));
        let seen: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().expect("text")).expect("JSON");
        let count = clocks.values().filter(|clock| clock.is_some() == known).count() * lengths.len() * 2;
        assert_eq!(
            (&seen["begun"], &seen["answered"], &seen["cancelled"]),
            (&json!(count), &json!(count), &json!(0))
        );
        let calls = seen["calls"].as_array().expect("a list");
        assert!(calls.len() == count && calls.iter().all(|call| call["begun"] == 1), "{seen}");
    }
    finish(process, &sandbox);
}

#[test]
fn a_slow_call_is_a_job_in_every_revision_and_a_fast_one_is_answered() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        for is_guarded in [false, true] {
            let sandbox = Sandbox::with_jobs();
            let mut client = StdioCaller::new(&sandbox, is_guarded, &[]);
            client.initialize_as(revision, "unhang-test");
            let fast = client.result("srv__echo", json!({ "text": "at once" }));
            assert_eq!(fast["content"], json!([{ "type": "text", "text": "at once" }]), "{fast}");
            let result =
                client.result("srv__slow", json!({ "seconds": 2, "size": 200_000, "progress": true }));
            let has_fields = ["2025-06-18", "2025-11-25"].contains(&revision);
            assert_eq!(result["structuredContent"].is_object(), has_fields, "{revision}: {result}");
            let job = json!(id_in_words(&result));
            wait_until("it ends", PATIENCE, || {
                let told = client.result("get_job_status", json!({ "job_id": job, "wait_seconds": 2 }));
                told["content"][0]["text"].as_str().expect("text").contains(" completed after ")
            });
            let results = client.result("get_job_results", json!({ "job_id": job }));
            assert_eq!(client.in_parts(&job, results), text(200_000));
            assert_eq!(client.counted(), [1, 1, 0]);
            client.finish();
            sandbox.assert_nothing_left();
        }
    }
}

#[test]
fn what_the_server_tells_on_the_way_is_told_of_the_job() {
    both(&[], |_, mut client| {
        client.ask("logging/setLevel", json!({ "level": "info" }));
        let params = json!({ "name": client.named("srv__slow"), "arguments": { "seconds": 4, "progress": true, "log": true },
        "_meta": { "progressToken": "p" } });
        let id = client.request("tools/call", params);
        let answer = client.answer(id);
        let job = handed_over(&answer["result"]);
        let mut told = Value::Null;
        wait_until("it says how far it is", PATIENCE, || {
            told = client.result("get_job_status", json!({ "job_id": job }))["structuredContent"].clone();
            told["progress"].as_f64().is_some_and(|progress| progress >= 0.2)
        });
        assert!(told["progress_message"].as_str().is_some_and(|said| said.starts_with("part ")), "{told}");
        client.whole(&job);
        let log =
            client.result("get_job_logs", json!({ "job_id": job }))["structuredContent"]["text"].clone();
        let log = log.as_str().expect("text");
        assert!(log.contains("part 9 of 10") && log.contains("info"), "{log}");
        let late = client
            .seen()
            .iter()
            .skip_while(|message| message["id"] != id)
            .any(|message| message["method"] == "notifications/progress");
        assert!(!late, "progress of a call that was answered");
        client.finish();
    });
}

#[test]
fn what_is_no_text_arrives_as_it_was() {
    let sandbox = Sandbox::with_jobs();
    let tools = ["test_image_content", "test_audio_content", "test_multiple_content_types"];
    // A server that is slow wherever the answer has an image or a sound in it.
    let script = format!(
        "{} zoo conformance-fixture | while IFS= read -r line; do case $line in *'\"data\":'*) sleep 1;; esac; printf '%s\\n' \"$line\"; done",
        lab_program()
    );
    let config = format!(
        "[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\nlimits.promote-after = \"300ms\"\n"
    );
    let mut client = gateway(&sandbox, &[config]);
    let mut bare = sandbox.bare(&["conformance-fixture"]);
    bare.initialize();
    for tool in tools {
        let expect = called(&mut bare, tool, json!({}))["content"].clone();
        assert!(expect.to_string().contains("\"data\":"), "{expect}");
        let job = handed_over(&client.result(&format!("srv__{tool}"), json!({})));
        assert_eq!(Value::from(client.whole(&job)), expect);
    }
    bare.finish();
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_result_that_is_an_error_stays_one() {
    both(&[], |_, mut client| {
        let job = client.becomes_a_job(json!({ "seconds": 2, "fail": true, "size": 100 }));
        let told = client.at_its_end(&job);
        assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("tool_error")), "{told}");
        let results = client.result("get_job_results", json!({ "job_id": job }));
        assert_eq!(results["isError"], true, "{results}");
        assert_eq!(results["content"][1]["text"], text(100), "{results}");
        client.finish();
    });
}

/// That the same call joins the job that it has become.
const JOINS: (&str, &str) = ("join-same-call", "true");

#[test]
fn the_same_call_joins_the_job_that_it_has_become() {
    both(&[JOINS], |_, mut client| {
        // What is said of tools is known behind a guard when they have been listed.
        client.ask("tools/list", json!({}));
        let arguments = json!({ "seconds": 4, "size": 5000, "label": "one" });
        let job = client.reads_as_a_job(arguments.clone());
        // While it runs, however it is written.
        assert_eq!(client.reads_as_a_job(json!({ "label": "one", "size": 5000, "seconds": 4 })), job);
        assert_eq!(client.reads_as_a_job(arguments.clone()), job);
        // After it has ended and nobody has had what came of it.
        assert_eq!(client.at_its_end(&job)["status"], "completed");
        let result = client.result("srv__slow_read", arguments.clone());
        assert_eq!(result["content"], json!([{ "type": "text", "text": text(5000) }]), "{result:.500}");
        assert_eq!(client.counted(), [1, 1, 0]);
        // Somebody has had it, so that it is meant anew.
        let anew = client.reads_as_a_job(arguments.clone());
        assert_ne!(anew, job);
        client.whole(&anew);
        assert_eq!(client.counted(), [2, 2, 0]);
        assert_ne!(client.reads_as_a_job(arguments), anew);
        // Other arguments are another call.
        let other = client.reads_as_a_job(lasting(2.0, "two"));
        assert_ne!(other, client.reads_as_a_job(lasting(2.0, "three")));
        client.finish();
    });
}

#[test]
fn the_same_call_that_ends_while_it_is_joined_gets_the_answer() {
    // Later than what is left of the job.
    both(&[("promote-after", "3s"), JOINS], |_, mut client| {
        client.ask("tools/list", json!({}));
        let arguments = json!({ "seconds": 4.5, "size": 5000 });
        let job = client.reads_as_a_job(arguments.clone());
        let result = client.result("srv__slow_read", arguments);
        assert_eq!(result["content"], json!([{ "type": "text", "text": text(5000) }]), "{result:.500}");
        assert_eq!(client.at_its_end(&job)["status"], "completed");
        assert_eq!(client.counted(), [1, 1, 0]);
        client.finish();
    });
}

#[test]
fn f_20_a_call_joins_none_of_another_session_or_instance_of_its_server() {
    let same = lasting(2.0, "same");
    for more in ["", "per-session = true\n"] {
        for joining in ["", "[jobs]\njoin-same-call = true\n"] {
            let sandbox = Sandbox::with_jobs();
            let config = slow_server(more) + joining;
            fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
            let (process, web) = Web::start(&sandbox);
            let [mut one, mut other] = ["one", "one"].map(|client| Session::begin(&web, client));
            let job = one.reads_as_a_job(same.clone());
            assert_ne!(other.reads_as_a_job(same.clone()), job, "{more:?} {joining:?}");
            // The same in its own session, which is what a client does whose clock has run out.
            assert_eq!(one.reads_as_a_job(same.clone()) == job, !joining.is_empty());
            let begun = if joining.is_empty() { 3 } else { 2 };
            wait_until("all have ended", PATIENCE, || {
                let [ours, theirs] = [one.counted(), other.counted()];
                match more.is_empty() {
                    true => ours == [begun, begun, 0],
                    false => ours == [begun - 1, begun - 1, 0] && theirs == [1, 1, 0],
                }
            });
            finish(process, &sandbox);
        }
    }
}

#[test]
fn f_20_whose_tokens_tell_them_apart_join_their_own_calls_alone() {
    let sandbox = Sandbox::with_jobs();
    let joining = "[jobs]\njoin-same-call = true\n";
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &(slow_server("") + joining), "");
    let [mut one, mut again, mut other] =
        [ONE, ONE, TWO].map(|token| Session::begin(&web.with_token(token), "client"));
    let job = one.reads_as_a_job(lasting(2.0, "same"));
    assert_eq!(again.reads_as_a_job(lasting(2.0, "same")), job, "a client that has come back");
    assert_ne!(other.reads_as_a_job(lasting(2.0, "same")), job);
    wait_until("both have ended", PATIENCE, || one.counted() == [2, 2, 0]);
    finish(process, &sandbox);
}

#[test]
fn f_20_a_call_runs_again_where_nobody_says_that_it_may_be_joined() {
    let runs = |sandbox: &Sandbox, config: &[String], tool: &str| {
        let mut client = gateway(sandbox, config);
        let jobs: BTreeSet<String> =
            (0..2).map(|_| handed_over(&client.result(tool, lasting(1.0, "same"))).to_string()).collect();
        let begun = jobs.len() as u64;
        wait_until("all have ended", PATIENCE, || client.counted() == [begun, begun, 0]);
        client.finish();
        sandbox.assert_nothing_left();
        begun
    };
    let joining = "[jobs]\njoin-same-call = true\n".to_owned();
    let said = |joins: &str| {
        slow_server(&format!(
            "tools.slow.join-same-call = {joins}\ntools.slow_read.join-same-call = {joins}\n"
        ))
    };
    for (config, tool, expect) in [
        // By default none is; where it is wanted, one whose tool declares that it may be called again.
        (vec![slow_server("")], "srv__slow_read", 2),
        (vec![slow_server(""), joining.clone()], "srv__slow_read", 1),
        (vec![slow_server(""), joining.clone()], "srv__slow", 2),
        // What is said of a tool goes before both.
        (vec![said("true")], "srv__slow", 1),
        (vec![said("false"), joining], "srv__slow_read", 2),
    ] {
        assert_eq!(runs(&Sandbox::with_jobs(), &config, tool), expect, "{tool} with {config:?}");
    }
    for flag in [&[][..], &[JOINS]] {
        let sandbox = Sandbox::with_jobs();
        let mut client = StdioCaller::new(&sandbox, true, flag);
        client.initialize();
        client.ask("tools/list", json!({}));
        assert_ne!(client.becomes_a_job(lasting(2.0, "same")), client.becomes_a_job(lasting(2.0, "same")));
        client.finish();
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_hundred_slow_calls_at_once_are_as_many_jobs_and_each_has_its_own_result() {
    const COUNT: usize = 100;
    both(&[], |_, mut client| {
        assert_eq!(client.counted(), [0, 0, 0], "it has come up");
        let size = |number: usize| 1000 + 16 * number;
        let ids: Vec<i64> = (0..COUNT)
            .map(|number| {
                let arguments = json!({ "seconds": 4, "size": size(number), "label": number.to_string() });
                let tool = client.named("srv__slow");
                client.call(&tool, arguments)
            })
            .collect();
        let jobs: Vec<Value> = ids.iter().map(|id| handed_over(&client.outcome(*id)["result"])).collect();
        assert_eq!(jobs.iter().map(Value::to_string).collect::<BTreeSet<_>>().len(), COUNT);
        for (number, job) in jobs.iter().enumerate() {
            assert_eq!(client.whole(job), [json!({ "type": "text", "text": text(size(number)) })]);
        }
        let count = COUNT as u64;
        assert_eq!(client.counted(), [count, count, 0]);
        client.finish();
    });
}

#[test]
fn where_calls_are_not_to_become_jobs_nothing_is_different() {
    let sandbox = Sandbox::with_jobs();
    let answers = ["off", "by-clock"].map(|promotion| {
        let [asked, said] = ["asked", "said"].map(|file| format!("{file}-{promotion}"));
        let teed = ["tee", &asked, &said, "--", lab_program(), "zoo", "slow-answers"];
        let mut client =
            gateway(&sandbox, &[server("srv", &teed, &format!("limits.promote-after = \"{promotion}\""))]);
        let list = client.ask("tools/list", json!({}));
        let slow = client.ask("tools/call", json!({ "name": "srv__slow", "arguments": lasting(1.0, "x") }));
        client.finish();
        (list["result"].clone(), slow["result"].to_string())
    });
    let [(off, slow), (mut on, slow_too)] = answers;
    assert_eq!(slow, slow_too, "answers are the same");
    assert!(!off.to_string().contains("execution"), "{off}");
    for tool in on["tools"].as_array_mut().expect("tools") {
        let is_theirs = tool["name"].as_str().is_some_and(|name| name.starts_with("srv__"));
        let said = tool.as_object_mut().expect("a tool").remove("execution");
        assert_eq!(said, is_theirs.then(|| json!({ "taskSupport": "optional" })), "{tool}");
    }
    let tools = on["tools"].as_array_mut().expect("tools");
    let all = tools.len();
    tools.retain(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("srv__")));
    assert_eq!(all - tools.len(), 6, "there is a use for ours");
    assert_eq!(off, on, "and so are lists, but for ours and for what can be a task");
    let read = |file: &str| {
        let all = fs::read_to_string(sandbox.path().join(file)).expect("it was written");
        // What is withdrawn at the end may come too late.
        let lines = all.lines().filter(|line| !line.contains("\"notifications/cancelled\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for file in ["asked", "said"] {
        assert_eq!(read(&format!("{file}-off")), read(&format!("{file}-by-clock")), "{file}");
    }
    // And it is cut off where it is too slow.
    let more = "limits.promote-after = \"off\"\nlimits.call-timeout = \"1s\"";
    let mut client = gateway(&sandbox, &[server("srv", &["slow-answers"], more)]);
    let answer = client.ask("tools/call", json!({ "name": "srv__slow", "arguments": lasting(60.0, "x") }));
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    wait_until("the server was told", PATIENCE, || client.counted() == [1, 0, 1]);
    assert_eq!(called(&mut client, "list_jobs", json!({}))["structuredContent"]["jobs"], json!([]));
    client.finish();
    sandbox.assert_nothing_left();
}
