//! Servers behind the gateway that cannot start, die or say nothing: who waits for them, how long, and what is told.

use std::{fs, os::unix::fs::PermissionsExt, os::unix::process::CommandExt, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    apart::beside,
    gateway::{finish, gateway, listed, server},
    harness::{Client, PATIENCE, Sandbox, is_alive, lab_program, signal, timed, wait_until},
    processes::lifeline,
};

/// What a refusal may take on a busy machine, which waits for nothing.
const AT_ONCE: Duration = Duration::from_millis(1500);

fn error(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let id = client.call(tool, arguments);
    client.answer(id)["error"].clone()
}

/// How often the log says that this server has come up.
fn times_ready(sandbox: &Sandbox, name: &str) -> usize {
    sandbox.log().matches(&format!("`{name}` is ready after")).count()
}

#[test]
fn f_51_a_refusal_comes_at_once_and_a_death_counts_when_it_happens() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-failures = 1, breaker-cooldown = \"60s\", restart-delay = \"20s\" }";
    let mut client = gateway(&sandbox, &[server("fatal", &["dies-every-call"], limits)]);
    listed(&mut client, "tools/list", "tools", "name");
    assert_eq!(error(&mut client, "fatal__echo", json!({ "text": "x" }))["code"], -31002);
    wait_until("its death is counted, though nobody asks", PATIENCE, || {
        sandbox.log().contains("`fatal` failed 1 times in a row, and unhang does not use it for a while")
    });
    let (refused, took) = timed(|| error(&mut client, "fatal__echo", json!({ "text": "x" })));
    assert_eq!(refused["code"], -31004, "{refused}");
    let rest = refused["data"]["retryAfterMs"].as_u64().expect("when to ask again");
    assert!((1..=60_000).contains(&rest) && took < AT_ONCE, "{rest} {took:?}");
    finish(client, &sandbox);
}

#[test]
fn f_51_a_server_that_never_starts_is_fenced_off_and_no_call_hangs() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-cooldown = \"2s\", breaker-failures = 3, restart-delay = \"10s\", call-timeout = \"60s\" }";
    let mut client = gateway(&sandbox, &[server("late", &["well-behaved"], limits)]);
    listed(&mut client, "tools/list", "tools", "name");
    let mut codes = Vec::new();
    for _ in 0..4 {
        let (failed, took) = timed(|| error(&mut client, "late__die", json!({ "code": 1 })));
        codes.push(failed["code"].as_i64());
        assert!(took < Duration::from_secs(8), "no pause is longer than the cool-down: {took:?}");
    }
    assert_eq!(codes, [Some(-31002), Some(-31002), Some(-31002), Some(-31004)]);
    finish(client, &sandbox);
}

#[test]
fn f_53_a_server_that_is_watched_comes_back_by_itself_and_misses_no_change() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let id = client.request("resources/subscribe", json!({ "uri": "zoo://numbers/1" }));
    assert_eq!(client.answer(id)["result"], json!({}));
    let pid =
        |client: &mut Client| -> i32 { client.tool_text("one__pid", json!({})).parse().expect("a number") };
    let first = pid(&mut client);
    signal(first, Signal::KILL);
    wait_until("it is back, though nobody asks it anything", PATIENCE, || times_ready(&sandbox, "one") == 2);
    let second = pid(&mut client);
    assert_ne!(first, second);
    // The very first request to the next one finds it told of the subscription.
    signal(second, Signal::KILL);
    // A request that is sent before that is lost with the server, and its error says so.
    let ends = |sandbox: &Sandbox| sandbox.log().matches("INFO `one` ended (signal 9").count();
    wait_until("unhang has seen both ends", PATIENCE, || ends(&sandbox) == 2);
    let id = client.call("one__notify-resource-updated", json!({ "uri": "zoo://numbers/1" }));
    assert!(client.answer(id)["result"].is_object());
    // Either may come first.
    let is_told = |message: &Value| message["method"] == "notifications/resources/updated";
    let told = client.seen().iter().find(|message| is_told(message)).cloned();
    let told = told.unwrap_or_else(|| client.find("an update", is_told));
    assert_eq!(told["params"]["uri"], "zoo://numbers/1", "{told}");
    finish(client, &sandbox);
}

#[test]
fn f_52_a_silent_server_costs_one_list_two_seconds_and_no_name_of_another_anything() {
    let sandbox = Sandbox::with_jobs();
    let slow = "limits = { start-timeout = \"40s\", call-timeout = \"40s\" }";
    let servers = [server("mute", &["silent-at-start"], slow), server("good", &["well-behaved"], "")];
    let mut client = gateway(&sandbox, &servers);
    let has_good = |client: &mut Client| {
        listed(client, "tools/list", "tools", "name").contains(&"good__echo".to_owned())
    };
    wait_until("the good one has come up", PATIENCE, || has_good(&mut client));
    // By now they have waited together for as long as they may.
    wait_until("lists wait no more", PATIENCE, || timed(|| has_good(&mut client)).1 < AT_ONCE);
    let (_, took) = timed(|| (0..5).for_each(|_| assert!(has_good(&mut client))));
    assert!(took < AT_ONCE, "no list waits again: {took:?}");
    let (refused, took) = timed(|| error(&mut client, "good__nothing", json!({})));
    assert!(refused["code"] == -32602 && took < AT_ONCE, "{took:?} {refused}");
    let waits = client.call("mute__tool", json!({}));
    client.notify("notifications/cancelled", json!({ "requestId": waits }));
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left_within(PATIENCE);
}

#[test]
fn f_56_a_server_that_cannot_start_is_told_of_once_and_by_the_names_that_are_missing() {
    let sandbox = Sandbox::with_jobs();
    let servers = [
        "[servers.missing]\ncommand = \"/nowhere/at/all\"\nlimits = { breaker-cooldown = \"200ms\" }\n"
            .to_owned(),
        server("good", &["well-behaved"], ""),
    ];
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Client::start(command);
    client.initialize();
    let told = "unhang: `missing` is not available, and its lists are missing: ";
    wait_until("it is told", PATIENCE, || client.stderr().contains(told));
    let refused = error(&mut client, "missing__tool", json!({}));
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(refused["code"] == -31003 && message.contains("could not be started"), "{refused}");
    wait_until("it was tried again", PATIENCE, || sandbox.log().matches("starting `missing`").count() > 2);
    assert_eq!(client.stderr().matches(told).count(), 1, "{}", client.stderr());
    finish(client, &sandbox);
}

#[test]
fn f_55_an_error_names_the_limit_that_was_set_and_what_a_start_took_of_it() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"3s\", promote-after = \"off\", restart-delay = \"1s\" }";
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], limits)]);
    listed(&mut client, "tools/list", "tools", "name");
    let late = error(&mut client, "one__sleep", json!({ "ms": 20_000 }));
    assert_eq!((&late["code"], &late["data"]["limitMs"]), (&json!(-31001), &json!(3000)), "{late}");
    assert!(late["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed >= 3000), "{late}");
    error(&mut client, "one__die", json!({ "code": 3 }));
    let late = error(&mut client, "one__sleep", json!({ "ms": 20_000 }));
    assert_eq!((&late["code"], &late["data"]["limitMs"]), (&json!(-31001), &json!(3000)), "{late}");
    assert!(late["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed >= 3000), "{late}");
    assert!(
        late["message"].as_str().is_some_and(|text| text.contains("of which it took to start")),
        "{late}"
    );
    finish(client, &sandbox);
}

#[test]
fn f_74_the_end_of_a_server_is_told_in_the_same_words_by_both() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let served = error(&mut client, "one__die", json!({ "code": 3 }));
    finish(client, &sandbox);
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--name", "one"], &["well-behaved"]);
    client.initialize();
    let wrapped = error(&mut client, "die", json!({ "code": 3 }));
    client.close_stdin();
    client.exit_code();
    for told in [&served, &wrapped] {
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("`one` ended (exit code 3) "), "{told}");
        assert!(message.contains(" after `tools/call` was sent"), "{told}");
        assert!(
            message.ends_with(
                "unhang starts it again when it is needed, or after a pause if it fails often; send the request \
                 again if it is safe to repeat"
            ),
            "{told}"
        );
    }
}

#[test]
fn f_80_what_jobs_end_with_is_said_once_and_not_before_there_is_one() {
    let sandbox = Sandbox::with_jobs();
    fs::write(
        sandbox.path().join("unhang.toml"),
        "[tools.greet]\ndescription = \"Greets\"\ncommand = [\"echo\", \"hello\"]\nmode = \"job\"\n",
    )
    .expect("a file");
    let mut client = Client::start(sandbox.below_a_job("unhang serve"));
    client.initialize();
    let said = "jobs here do not survive everything";
    let id = client.request("tools/list", json!({}));
    client.answer(id);
    assert!(!client.stderr().contains(said), "{}", client.stderr());
    for _ in 0..2 {
        client.tool_text("greet", json!({}));
    }
    wait_until("it is said", PATIENCE, || client.stderr().contains(said));
    assert!(
        client.stderr().contains("every process below `mcp-job-of-test` ends with it"),
        "{}",
        client.stderr()
    );
    assert_eq!(client.stderr().matches(said).count(), 1, "{}", client.stderr());
    client.close_stdin();
    client.exit_code();
    sandbox.assert_nothing_left_within(PATIENCE);
    sandbox.settle_jobs();
}

/// Without a writable control group the watcher of a lifeline holds what a killed lifeline left.
#[test]
fn f_50_a_killed_lifeline_leaves_nothing_behind_the_gateway_either() {
    if !rustix::process::geteuid().is_root() {
        // Then the machine has no group that an ordinary user may write, or the other tests were about this already.
        return;
    }
    let sandbox = Sandbox::with_jobs();
    // The build's own folder may be closed to others.
    let program = sandbox.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_unhang"), &program).expect("a copy");
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).expect("the sandbox is ours");
    let text = server("one", &["leaves-daemon", "--marker", sandbox.marker()], "");
    let lab = sandbox.path().join("lab");
    fs::copy(lab_program(), &lab).expect("a copy");
    let text = text.replace(lab_program(), lab.to_str().expect("text"));
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    let mut command = beside(&sandbox.unhang(), &program);
    command.args(["-v", "serve"]).uid(65534).gid(65534);
    let mut client = Client::start(command);
    client.initialize();
    let left = || {
        let mut left = sandbox.survivors();
        left.retain(|(_, command)| command.contains("zoo lingers"));
        left
    };
    wait_until("what it leaves", PATIENCE, || !left().is_empty());
    let daemons = left();
    signal(lifeline(&client), Signal::KILL);
    for (pid, command) in daemons {
        wait_until(&format!("the end of {pid} {command}"), PATIENCE, || !is_alive(pid));
    }
    fs::remove_file(&program).ok();
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left_within(PATIENCE);
}

#[test]
fn f_81_counters_survive_a_new_configuration() {
    let sandbox = Sandbox::with_jobs();
    let write = |more: &str| {
        fs::write(sandbox.path().join("unhang.toml"), server("one", &["well-behaved"], more))
            .expect("a file");
    };
    write("");
    let (mut process, web) = crate::harness::Web::start(&sandbox);
    let status = || web.ask("GET", "/status", &[], "").last()["servers"][0].clone();
    wait_until("it is listed", PATIENCE, || status()["tools"].as_u64() > Some(0));
    let session = web.begin();
    web.call(&session, 1, "one__die", json!({ "code": 3 })).last();
    wait_until("its death is counted", PATIENCE, || status()["failuresTotal"] == 1);
    write("limits = { call-timeout = \"77s\" }");
    process.signal(Signal::HUP);
    wait_until("it is read again", PATIENCE, || process.stderr().contains("started anew: `one`"));
    let after = status();
    assert!(after["failuresTotal"] == 1 && after["starts"].as_u64() >= Some(1), "{after}");
    process.signal(Signal::TERM);
    process.exit_code();
    sandbox.assert_nothing_left_within(PATIENCE);
}
