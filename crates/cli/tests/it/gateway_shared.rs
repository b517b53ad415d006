//! Windows that share the servers of one gateway, and what becomes of them when it goes.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{server, window},
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, timed, wait_until},
    talk::modern_meta,
};

fn configured(servers: &[String]) -> Sandbox {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    sandbox
}

/// The process that answers calls of a tool, once there is one.
fn process(client: &mut Client) -> i32 {
    client.tool_text("one__pid", json!({})).parse().expect("a number")
}

fn leave(mut client: Client) -> Duration {
    let ((), took) = timed(|| {
        client.close_stdin();
        assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    });
    took
}

#[test]
fn windows_share_one_process_a_server_and_whoever_wants_has_their_own() {
    let sandbox = configured(&[server("one", &["well-behaved"], "")]);
    let mut first = window(&sandbox, &[]);
    let shared = process(&mut first);
    let mut others: Vec<Client> = (0..3).map(|_| window(&sandbox, &[])).collect();
    for other in &mut others {
        assert_eq!(process(other), shared);
        assert_eq!(other.tool_text("one__echo", json!({ "text": "ä\u{2028}" })), "ä\u{2028}");
    }
    let mut own = window(&sandbox, &["--own"]);
    assert_ne!(process(&mut own), shared);
    // What is not the same is not shared.
    let mut other_limits = window(&sandbox, &["--call-timeout", "20s"]);
    assert_ne!(process(&mut other_limits), shared);
    others.extend([own, other_limits]);
    for other in others {
        leave(other);
    }
    assert_eq!(process(&mut first), shared, "those who follow take nothing with them");
    leave(first);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
    let left = sandbox.files().into_iter().filter(|path| path.to_string_lossy().contains("/gateway-"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_window_that_follows_has_all_that_the_leader_has() {
    let sandbox = configured(&[
        server("one", &["well-behaved"], ""),
        server("two", &["well-behaved"], ""),
        server("flood", &["progress-flood", "3"], ""),
    ]);
    let mut leader = window(&sandbox, &[]);
    process(&mut leader);
    let mut follower = window(&sandbox, &[]);
    for (method, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let mut lists = || {
            [&mut leader, &mut follower].map(|client| {
                let id = client.request(method, json!({}));
                client.answer(id)["result"][member].clone()
            })
        };
        // Both are told of what comes up after the first two seconds.
        wait_until(method, PATIENCE, || {
            let [ours, theirs] = lists();
            ours == theirs && ours.as_array().is_some_and(|items| items.len() >= 2)
        });
    }
    let read = [&mut leader, &mut follower].map(|client| {
        let id = client.request("resources/read", json!({ "uri": "two+zoo://numbers/1" }));
        client.answer(id)["result"].clone()
    });
    assert!(read[0]["contents"].is_array() && read[0] == read[1], "{read:?}");
    let raw = [&mut leader, &mut follower].map(|client| {
        let id = client.call("one__echo", json!({ "text": "x" }));
        client.answer(id)["result"].to_string()
    });
    assert_eq!(raw[0], raw[1], "nothing shows that somebody was between");
    // An error says whose it is, and what a caller is told comes while the call runs.
    let id = follower.call("one__die", json!({ "code": 3 }));
    let error = follower.answer(id)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["server"]), (&json!(-31002), &json!("one")), "{error}");
    let token = json!({ "progressToken": "p" });
    let params = json!({ "name": "flood__echo", "arguments": { "text": "x" }, "_meta": token });
    let id = follower.request("tools/call", params);
    let told = follower.find("progress", |message| message["method"] == "notifications/progress");
    assert_eq!(told["params"]["progressToken"], "p");
    assert!(follower.answer(id)["result"].is_object());
    // What is withdrawn is withdrawn from the server.
    let id = follower.call("one__sleep", json!({ "ms": 60_000 }));
    follower.notify("notifications/cancelled", json!({ "requestId": id }));
    assert!(leave(follower) < Duration::from_secs(4), "nothing is in flight");
    leave(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn who_is_asked_by_an_answer_comes_back_through_a_window_that_follows() {
    let sandbox = configured(&[server("asks", &["requests-to-client"], "")]);
    let leader = window(&sandbox, &[]);
    let mut follower = window(&sandbox, &[]);
    let mut meta = modern_meta();
    meta["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "sampling": {}, "elicitation": {}, "roots": {} });
    let mut params = json!({ "name": "asks__echo", "arguments": { "text": "x" }, "_meta": meta });
    let mut asked = 0;
    let answer = loop {
        let id = follower.request("tools/call", params.clone());
        let answer = follower.answer(id);
        let result = &answer["result"];
        if result["resultType"] != "input_required" {
            break answer;
        }
        let questions = result["inputRequests"].as_object().expect("questions");
        asked += questions.len();
        params["inputResponses"] = questions.keys().map(|name| (name.clone(), json!({}))).collect();
        params["requestState"] = result["requestState"].clone();
    };
    assert_eq!(answer["result"]["content"][0]["text"], "the client answered 4 questions", "{answer}");
    assert_eq!(asked, 3, "one is nothing that clients know");
    leave(follower);
    leave(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn promise_6_a_leader_that_is_killed_costs_the_others_what_was_in_flight_and_nothing_else() {
    let sandbox = configured(&[server("one", &["well-behaved"], "")]);
    let mut leader = window(&sandbox, &[]);
    let before = process(&mut leader);
    let mut followers: Vec<Client> = (0..3).map(|_| window(&sandbox, &[])).collect();
    followers.iter_mut().for_each(|one| assert_eq!(process(one), before));
    let in_flight = followers[0].call("one__sleep", json!({ "ms": 60_000 }));
    // What this window asks later does not come sooner.
    wait_until("the server has the call", PATIENCE, || process(&mut followers[0]) == before);
    leader.signal(Signal::KILL);
    let error = followers[0].answer(in_flight)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["server"]), (&json!(-31002), &json!("one")), "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("`one`") && message.contains("the window that ran the servers has ended"),
        "{error}"
    );
    assert!(!error.to_string().contains("gateway"), "{error}");
    let after: Vec<i32> = followers.iter_mut().map(process).collect();
    assert!(after.iter().all(|pid| *pid == after[0] && *pid != before), "{before} {after:?}");
    wait_until("the server has gone with its gateway", PATIENCE, || !is_alive(before));
    let took = followers.into_iter().map(leave).max();
    assert!(took < Some(Duration::from_secs(8)), "{took:?}");
    drop(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn promise_8_a_leader_whose_client_leaves_lets_calls_end_and_gives_its_place_away_at_once() {
    let sandbox = configured(&[server("one", &["well-behaved"], "")]);
    let mut leader = window(&sandbox, &[]);
    let before = process(&mut leader);
    let mut follower = window(&sandbox, &[]);
    assert_eq!(process(&mut follower), before);
    let in_flight = follower.call("one__sleep", json!({ "ms": 3000 }));
    wait_until("the server has the call", PATIENCE, || process(&mut follower) == before);
    leader.close_stdin();
    wait_until("another leads", PATIENCE, || process(&mut follower) != before);
    assert!(leader.is_running(), "what is in flight gets its time");
    assert_eq!(follower.answer(in_flight)["result"]["content"][0]["text"], "slept 3000 ms");
    assert_eq!(leader.exit_code(), 0, "{}", leader.stderr());
    leave(follower);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn windows_share_the_servers_of_a_gateway_over_http() {
    let sandbox = configured(&[server("one", &["well-behaved"], "")]);
    let (mut gateway, web) = Web::start(&sandbox);
    let mut windows: Vec<Client> = (0..2).map(|_| window(&sandbox, &[])).collect();
    let processes: Vec<i32> = windows.iter_mut().map(process).collect();
    let session = web.begin();
    let answer: Value = web.call(&session, 1, "one__pid", json!({})).last();
    let own: i32 =
        answer["result"]["content"][0]["text"].as_str().and_then(|text| text.parse().ok()).expect("a pid");
    assert_eq!(processes, [own, own]);
    windows.into_iter().for_each(|one| assert!(leave(one) < Duration::from_secs(4)));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit_code(), 143);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

/// A window whose environment has this variable.
fn window_with(sandbox: &Sandbox, name: &str, value: &str) -> Client {
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]).env(name, value);
    let mut client = Client::start(command);
    client.initialize();
    client
}

/// The environment of a process has this in it.
fn is_given(pid: i32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

#[test]
fn f_21_windows_share_a_server_only_where_both_would_give_it_the_same_environment() {
    for (more, name) in [("inherit-env = true", "AWS_PROFILE"), ("", "TZ")] {
        let sandbox = configured(&[server("one", &["well-behaved"], more)]);
        let [mut first, mut same, mut other] =
            ["dev", "dev", "production"].map(|value| window_with(&sandbox, name, value));
        let shared = process(&mut first);
        assert_eq!(process(&mut same), shared, "{name}: what is the same is shared");
        let own = process(&mut other);
        assert!(own != shared && is_given(own, &format!("{name}=production")), "{name}");
        assert!(is_given(shared, &format!("{name}=dev")), "{name}");
        for window in [first, same, other] {
            leave(window);
        }
        sandbox.assert_nothing_left_within(Duration::from_secs(3));
    }
    // What no server is given tells no windows apart.
    let sandbox = configured(&[server("one", &["well-behaved"], "")]);
    let [mut first, mut other] =
        ["dev", "production"].map(|value| window_with(&sandbox, "AWS_PROFILE", value));
    assert_eq!(process(&mut first), process(&mut other));
    leave(other);
    leave(first);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn f_21_what_a_new_configuration_gives_from_the_environment_is_not_the_other_windows() {
    let sandbox = configured(&[server("one", &["well-behaved"], ""), server("two", &["well-behaved"], "")]);
    let [mut first, mut other] =
        ["dev", "production"].map(|value| window_with(&sandbox, "AWS_PROFILE", value));
    let shared = process(&mut first);
    assert_eq!(process(&mut other), shared);
    let [one, two] = ["inherit-env = true", ""].map(str::to_owned);
    let text = server("one", &["well-behaved"], &one) + &server("two", &["well-behaved"], &two);
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    first.signal(Signal::HUP);
    other.signal(Signal::HUP);
    for (window, profile) in [(&mut first, "dev"), (&mut other, "production")] {
        wait_until("it has its own", PATIENCE, || {
            let id = window.call("one__pid", json!({}));
            let answer = window.answer(id);
            let pid = answer["result"]["content"][0]["text"].as_str().and_then(|text| text.parse().ok());
            pid.is_some_and(|pid| pid != shared && is_given(pid, &format!("AWS_PROFILE={profile}")))
        });
    }
    let [ours, theirs] = [&mut first, &mut other].map(|window| window.tool_text("two__pid", json!({})));
    assert_eq!(ours, theirs, "what is given the same is shared still");
    leave(other);
    leave(first);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn f_91_limits_of_the_file_and_of_flags_hold_in_every_window() {
    let tools = "[servers.one.tools.sleep]\ncall-timeout = \"1s\"\n";
    let named = "prefix = \"o\"\n[servers.two.limits]\ncall-timeout = \"2s\"\n";
    let off = "limits = { promote-after = \"off\", call-timeout = \"20s\" }\n";
    let sandbox = configured(&[
        server("one", &["well-behaved"], &format!("{off}{tools}")),
        server("two", &["well-behaved"], named),
        server("three", &["well-behaved"], off),
    ]);
    let mut leader = window(&sandbox, &[]);
    process(&mut leader);
    let mut follower = window(&sandbox, &[]);
    for client in [&mut leader, &mut follower] {
        for (tool, least, most) in [("one__sleep", 1, 2), ("o__sleep", 2, 4)] {
            let (error, took) = timed(|| {
                let id = client.call(tool, json!({ "ms": 60_000 }));
                client.answer(id)["error"].clone()
            });
            assert_eq!(error["code"], -31001, "{tool}: {error}");
            assert_eq!(error["data"]["limitMs"], least * 1000, "{tool}: {error}");
            assert!((Duration::from_secs(least)..Duration::from_secs(most + 5)).contains(&took), "{took:?}");
        }
        assert_eq!(client.tool_text("three__sleep", json!({ "ms": 3000 })), "slept 3000 ms");
    }
    leave(follower);
    leave(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
    // A flag is above all that the file says.
    let flags = ["--call-timeout", "2500ms", "--promote-after", "off"];
    let mut leader = window(&sandbox, &flags);
    process(&mut leader);
    let mut follower = window(&sandbox, &flags);
    for tool in ["one__sleep", "three__sleep"] {
        let id = follower.call(tool, json!({ "ms": 60_000 }));
        let error = follower.answer(id)["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["limitMs"]),
            (&json!(-31001), &json!(2500)),
            "{tool}: {error}"
        );
    }
    leave(follower);
    leave(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_window_that_follows_names_the_configured_server_in_errors_and_in_reasons_of_jobs() {
    let short = "limits = { promote-after = \"off\", call-timeout = \"1s\" }";
    let long = "limits = { promote-after = \"500ms\" }";
    let sandbox =
        configured(&[server("one", &["well-behaved"], short), server("two", &["well-behaved"], long)]);
    let mut leader = window(&sandbox, &[]);
    process(&mut leader);
    let mut follower = window(&sandbox, &[]);
    let id = follower.call("one__sleep", json!({ "ms": 60_000 }));
    let error = follower.answer(id)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["server"]), (&json!(-31001), &json!("one")), "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("`one` did not answer `tools/call`"), "{error}");
    assert!(!error.to_string().contains("gateway"), "{error}");
    // The job of a call whose client has asked for a task outlives the leader.
    let call = json!({ "name": "two__sleep", "arguments": { "ms": 60_000 }, "task": {} });
    let id = follower.request("tools/call", call);
    let job = follower.answer(id)["result"]["task"]["taskId"].clone();
    // The server has the call before a later one.
    let later = follower.call("two__sleep", json!({ "ms": 100 }));
    follower.answer(later);
    leader.signal(Signal::KILL);
    let id = follower.call("terminate_job", json!({ "job_id": job }));
    let ended = follower.answer_within(id, PATIENCE)["result"].clone();
    assert!(ended.to_string().contains("cancelled") && !ended.to_string().contains("gateway"), "{ended}");
    leave(follower);
    drop(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}
