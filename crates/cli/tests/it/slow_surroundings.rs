//! Slow calls and what else there is around a gateway: windows, servers for one session, configurations that change, questions.

use std::{fs, io::Write, net::TcpStream};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, handed_over, lasting, slow_server, text},
    gateway::{gateway, server, window},
    gateway_access::ONE,
    gateway_http::finish,
    harness::{PATIENCE, Sandbox, Web, memory, run_to_end, signal, wait_until},
    processes::children,
    slow_outlives::{HOLDER, LARGE, Scene, until_go},
};

/// When calls of a server become jobs here, but for the one that counts.
const SOON: &str = "limits.promote-after = \"300ms\"\ntools.seen.promote-after = \"off\"";

#[test]
fn a_window_that_follows_has_jobs_of_its_own() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let mut leader = window(&sandbox, &[]);
    assert_eq!(leader.counted(), [0, 0, 0]);
    let mut follower = window(&sandbox, &[]);
    let job = follower.becomes_a_job(json!({ "seconds": 2, "size": 200_000 }));
    assert_eq!(follower.whole(&job), [json!({ "type": "text", "text": text(200_000) })]);
    assert_eq!(leader.counted(), [1, 1, 0]);
    // One that is cancelled is told to the server, through the leader.
    let job = follower.becomes_a_job(lasting(60.0, "cancelled"));
    follower.result("terminate_job", json!({ "job_id": job }));
    wait_until("the server was told", PATIENCE, || leader.counted() == [2, 1, 1]);
    // That of its server is told by the leader.
    let job = follower.becomes_a_job(lasting(60.0, "killed"));
    let pid = leader.of_server()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
    signal(pid, Signal::KILL);
    let told = follower.at_its_end(&job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("server_exited")), "{told}");
    // The server goes on for the job when the leader has ended.
    let job = follower.becomes_a_job(lasting(60.0, "left"));
    leader.finish();
    let told = follower.result("get_job_status", json!({ "job_id": job }))["structuredContent"].clone();
    assert_eq!(told["status"], "running", "{told}");
    follower.result("terminate_job", json!({ "job_id": job }));
    assert_eq!(follower.at_its_end(&job)["status"], "cancelled");
    follower.finish();
    sandbox.assert_nothing_left();
}

/// The finding: in a window that follows it had members of a revision that its client does not speak.
#[test]
fn an_answer_reads_alike_in_the_window_that_leads_and_in_one_that_follows() {
    let sandbox = Sandbox::with_jobs();
    let mut leader = gateway(&sandbox, &[server("srv", &["slow-answers", "--era", "legacy"], SOON)]);
    assert_eq!(leader.counted(), [0, 0, 0]);
    let mut follower = window(&sandbox, &[]);
    for client in [&mut leader, &mut follower] {
        let job = client.becomes_a_job(json!({ "seconds": 1.5, "size": 10 }));
        client.at_its_end(&job);
        let by_tool = client.result("get_job_results", json!({ "job_id": job }));
        let uri = format!("job://{}", job.as_str().expect("an id"));
        let read = client.ask("resources/read", json!({ "uri": uri }))["result"]["contents"][0].clone();
        let by_resource: Value = serde_json::from_str(read["text"].as_str().expect("text")).expect("JSON");
        let mut command = sandbox.unhang();
        command.args(["job", "result", job.as_str().expect("an id")]);
        let (_, by_command, stderr) = run_to_end(command);
        let by_command: Value = serde_json::from_str(&by_command).unwrap_or_else(|_| panic!("{stderr}"));
        let answer = json!({ "content": [{ "type": "text", "text": text(10) }], "isError": false });
        for found in [&by_tool["structuredContent"]["results"], &by_resource["results"], &by_command] {
            assert_eq!(*found, answer);
        }
    }
    follower.finish();
    leader.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn an_instance_of_a_session_lives_until_its_last_job_has_ended() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("per-session = true")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let mut gone = Session::begin(&web, "same");
    let job = gone.becomes_a_job(json!({ "seconds": 3, "size": 5000 }));
    gone.end();
    let mut next = Session::begin(&web, "same");
    assert_eq!(next.whole(&job), [json!({ "type": "text", "text": text(5000) })]);
    let instances = || web.ask("GET", "/status", &[], "").last()["servers"][0]["instances"].clone();
    wait_until("it has ended", PATIENCE, || instances() == 0);
    finish(process, &sandbox);
}

#[test]
fn a_server_does_not_rest_while_a_job_of_its_runs() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[slow_server("idle-timeout = \"1s\"")]);
    let job = client.becomes_a_job(json!({ "seconds": 4, "size": 5000 }));
    assert_eq!(client.whole(&job), [json!({ "type": "text", "text": text(5000) })]);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_client_whose_connection_breaks_finds_its_job() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "same");
    assert_eq!(session.counted(), [0, 0, 0]);
    let params = json!({ "name": "srv__slow", "arguments": { "seconds": 3, "size": 5000 } });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let mut connection = TcpStream::connect(web.address()).expect("a connection");
    write!(
        connection,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        session.name,
        body.len()
    )
    .expect("it is read");
    wait_until("it has come", PATIENCE, || session.counted()[0] == 1);
    drop(connection);
    let mut job = Value::Null;
    wait_until("it is a job", PATIENCE, || {
        job = session.result("list_jobs", json!({}))["structuredContent"]["jobs"][0]["job_id"].clone();
        job.is_string()
    });
    assert_eq!(session.whole(&job), [json!({ "type": "text", "text": text(5000) })]);
    assert_eq!(session.counted(), [1, 1, 0]);
    finish(process, &sandbox);
}

#[test]
fn a_call_stays_one_while_its_client_is_asked_about_it() {
    let sandbox = Sandbox::with_jobs();
    let era = server(
        "srv",
        &["slow-answers", "--era", "legacy"],
        "limits.promote-after = \"1s\"\ntools.seen.promote-after = \"off\"",
    );
    let mut client = gateway(&sandbox, &[era]);
    // Asked before it would be a job.
    let id = client.call("srv__slow", json!({ "seconds": 1.5, "ask": true, "label": "asked" }));
    let question = client.find("a question", |message| message["method"] == "elicitation/create");
    // Somebody takes longer than that: other calls become jobs meanwhile.
    let job = client.becomes_a_job(lasting(2.0, "other"));
    client.whole(&job);
    assert_eq!(client.answers_to(id), 0, "it waits for its client");
    client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let answer = client.outcome(id);
    let result = &answer["result"];
    let content = match result["structuredContent"]["job_id"].is_string() {
        true => client.whole(&handed_over(result)),
        false => result["content"].as_array().expect("blocks").clone(),
    };
    assert!(content[1]["text"].as_str().is_some_and(|heard| heard.contains("Ada")), "{content:?}");
    // Where it is a job when it asks, nobody is there to answer, and it is told so.
    let job = client.becomes_a_job(json!({ "seconds": 4, "ask": true, "label": "late" }));
    let content = client.whole(&job);
    assert!(content[1]["text"].as_str().is_some_and(|heard| heard.contains("declined")), "{content:?}");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn the_command_line_tells_of_calls_as_of_any_job() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[slow_server("")]);
    let job = client.becomes_a_job(json!({ "seconds": 3, "size": 5000, "progress": true }));
    let id = job.as_str().expect("an id");
    let unhang = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        run_to_end(command)
    };
    let (code, _, stderr) = unhang(&["job", "remove", id]);
    assert_eq!(code, 1, "{stderr}");
    let (code, _, stderr) = unhang(&["job", "wait", id]);
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = unhang(&["job", "result", id]);
    assert_eq!(code, 0, "{stderr}");
    let result: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(result["content"][0]["text"], text(5000), "{result:.500}");
    let (code, _, stderr) = unhang(&["job", "remove", id]);
    assert_eq!(code, 0, "{stderr}");
    wait_until("it is gone for everybody", PATIENCE, || {
        let answer = client.ask("tasks/get", json!({ "taskId": job }));
        answer["error"]["code"] == -32602
    });
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn modern_clients_are_told_apart_by_the_name_that_they_say() {
    let sandbox = Sandbox::with_jobs();
    // Without a token nothing says that two requests are of one session.
    let config = slow_server("tools.slow.join-same-call = true\n");
    let config = format!("{config}[http]\ntokens = [{ONE:?}]\n");
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let web = web.with_token(ONE);
    let call = |client: &str| {
        let params = json!({ "name": "srv__slow", "arguments": lasting(3.0, "same"), "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": client, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        } });
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "srv__slow")];
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        handed_over(&web.post(&headers, &message).last()["result"])
    };
    let one = call("one");
    assert_eq!(call("one"), one);
    assert_ne!(call("other"), one);
    finish(process, &sandbox);
}

#[test]
fn a_job_goes_on_while_its_server_is_configured_anew() {
    let sandbox = Sandbox::with_jobs();
    // In one piece, whoever reads it meanwhile.
    let write = |text: &str| {
        let new = sandbox.path().join("unhang.toml.new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, sandbox.path().join("unhang.toml")).expect("it is there");
    };
    write(&slow_server(""));
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    let [changed, removed] = ["changed", "removed"]
        .map(|label| session.becomes_a_job(json!({ "seconds": 5, "size": 5000, "label": label })));
    // Once with other settings, and then not at all.
    write(&slow_server("env = { OTHER = \"1\" }"));
    process.signal(Signal::HUP);
    wait_until("it is another process", PATIENCE, || session.counted() == [0, 0, 0]);
    assert_eq!(session.whole(&changed), [json!({ "type": "text", "text": text(5000) })]);
    assert_eq!(session.whole(&removed), [json!({ "type": "text", "text": text(5000) })]);
    let job = session.becomes_a_job(json!({ "seconds": 5, "size": 5000, "label": "again" }));
    write("");
    process.signal(Signal::HUP);
    wait_until("it is gone", PATIENCE, || {
        let list = session.ask("tools/list", json!({}));
        !list["result"]["tools"].to_string().contains("srv__slow")
    });
    assert_eq!(session.whole(&job), [json!({ "type": "text", "text": text(5000) })]);
    finish(process, &sandbox);
}

#[test]
fn jobs_of_two_windows_go_on_when_their_leader_is_killed() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let mut leader = window(&sandbox, &[]);
    assert_eq!(leader.counted(), [0, 0, 0]);
    let ours = leader.becomes_a_job(lasting(60.0, "leader"));
    let mut follower = window(&sandbox, &[]);
    let job = follower.becomes_a_job(lasting(60.0, "follower"));
    leader.signal(Signal::KILL);
    leader.exit_code();
    for job in [ours, job] {
        let told = follower.result("get_job_status", json!({ "job_id": job }))["structuredContent"].clone();
        assert_eq!(told["status"], "running", "{told}");
        follower.result("terminate_job", json!({ "job_id": job }));
        assert_eq!(follower.at_its_end(&job)["status"], "cancelled");
    }
    assert_eq!(follower.counted(), [0, 0, 0], "nothing was run again");
    follower.finish();
    sandbox.assert_nothing_left();
}

/// The issue: a long answer goes to the disk as it comes.
#[test]
fn a_call_holder_takes_an_answer_for_which_it_has_no_memory() {
    const SIZE: usize = 24 << 20;
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("large", SIZE));
    let other = scene.job(json!({ "seconds": 0.2, "until": "never", "label": "other" }));
    let holder = scene.kill();
    let limit = Some(memory(holder, "VmData:").expect("it lives") + (SIZE as u64) / 3);
    let pid = Pid::from_raw(holder);
    prlimit(pid, Resource::Data, Rlimit { current: limit, maximum: limit }).expect("it is ours");
    scene.go();
    let ended = scene.ended(&job);
    assert_eq!(ended["status"], "completed", "{ended}; {:.3000}", scene.sandbox.log());
    let result = scene.unhang_job(&["result", job.as_str().expect("an id")]);
    assert!(result["results"]["content"][0]["text"] == text(SIZE), "{:.1000}", result.to_string());
    let kept = memory(holder, "RssAnon:").expect("it works on the other call");
    assert!(kept < (SIZE as u64) / 3, "it keeps nothing of the answer: {kept}");
    scene.unhang_job(&["cancel", other.as_str().expect("an id")]);
    assert_eq!(scene.ended(&other)["status"], "cancelled");
    scene.sandbox.assert_nothing_left();
}

/// The finding: the half answer was told as a fault of the server.
#[test]
fn a_server_that_dies_in_the_middle_of_its_answer_is_the_reason_of_its_job() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", LARGE));
    let server = children(scene.lifeline)[0].pid;
    let holder = scene.kill();
    signal(holder, Signal::STOP);
    let written = || fs::metadata(scene.sandbox.path().join("said")).expect("a file").len();
    let before = written();
    scene.go();
    wait_until("a part is in the pipe", PATIENCE, || written() > before + (32 << 10));
    signal(server, Signal::KILL);
    signal(holder, Signal::CONT);
    scene.failed(&job, "server_exited", "signal 9");
}

/// The finding: a call holder whose data folder failed at its start gave the job up, and ended the server.
#[test]
fn a_call_holder_waits_for_the_folder_of_its_job() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 5000));
    let folder = scene.sandbox.path().join("state/jobs").join(job.as_str().expect("an id"));
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).expect("it is there");
    fs::write(&folder, "no folder").expect("a file");
    scene.kill_guard();
    wait_until("it tries", PATIENCE, || scene.sandbox.log().contains("tries every second to go on"));
    fs::remove_file(&folder).expect("it is there");
    fs::rename(&aside, &folder).expect("it is there");
    scene.go();
    scene.completed(&job, "one", 5000);
}

/// The finding: it made an empty data folder at the old place, where nobody looked for its jobs.
#[test]
fn a_call_holder_waits_for_a_data_folder_that_is_being_moved() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 5000));
    let home = scene.sandbox.path().join("state");
    let aside = home.with_extension("aside");
    fs::rename(&home, &aside).expect("it is there");
    scene.kill_guard();
    // It has its name only once it has taken the server over.
    let is_started = || scene.sandbox.survivors().iter().any(|(_, line)| line.contains(HOLDER));
    wait_until("a call holder", PATIENCE, is_started);
    fs::rename(&aside, &home).expect("nothing was made in its place");
    scene.go();
    scene.completed(&job, "one", 5000);
}
