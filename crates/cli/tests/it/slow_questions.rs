//! Questions of servers about jobs whose guard or gateway has gone: they wait as `input_required` for a client of any process on the data
//! folder, the tool goes on with its answer, and nothing of them is left.

use std::{fs, os::unix::process::CommandExt, path::PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, slow_server},
    harness::{Client, PATIENCE, Sandbox, run_to_end, signal, wait_until},
    processes::{children, lifeline},
    slow_outlives::{Scene, guard_of, recorded, until_go},
    slow_tasks::{EXTENSION, Modern},
};

/// The method of a question to a person.
pub(crate) const ASKED: &str = "elicitation/create";

/// The words of a server of the handshake.
pub(crate) const LEGACY: [&str; 4] = ["zoo", "slow-answers", "--era", "legacy"];

/// A gateway in front of a server of this kind, with a recorder between.
pub(crate) fn configure(sandbox: &Sandbox, server: &[&str], more: &str) {
    let words = [&recorded()[1..], server].concat();
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let plain = "args = [\"zoo\", \"slow-answers\"]\n";
    let config = slow_server("limits.stop-grace = \"500ms\"\n");
    assert!(config.contains(plain), "{config}");
    let config = config.replace(plain, &format!("args = [{}]\n{more}", words.join(", ")));
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
}

pub(crate) fn gateway(sandbox: &Sandbox) -> StdioCaller {
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]).process_group(0);
    StdioCaller::at(Client::start(command))
}

pub(crate) fn asking(method: &str) -> Value {
    let mut arguments = until_go("asks", 64);
    (arguments["ask"], arguments["question"]) = (json!(true), json!(method));
    arguments
}

/// The files of the job's questions.
pub(crate) fn files(scene: &Scene, task: &Value) -> Vec<PathBuf> {
    let folder = scene.sandbox.path().join("state/jobs").join(task.as_str().expect("an id"));
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.contains("questions") || name.contains("answer-")
    };
    entries.filter(is_one).collect()
}

/// Demands that the tool has run once, and that nothing is left.
#[track_caller]
pub(crate) fn over(scene: &Scene, task: &Value) {
    assert_eq!(scene.ended(task)["status"], "completed");
    assert_eq!(scene.asked(&["\"tools/call\"", "\"label\":\"asks\""]), 1);
    assert!(files(scene, task).is_empty(), "{:?}", files(scene, task));
    scene.sandbox.assert_nothing_left();
}

/// A scene with a client of 2026-07-28 in front of this server, and the task of its call.
#[track_caller]
fn modern_task(server: &[&str]) -> (Scene, Value) {
    modern_task_that_asks((server, ""), ASKED)
}

#[track_caller]
fn modern_task_that_asks((server, more): (&[&str], &str), method: &str) -> (Scene, Value) {
    let sandbox = Sandbox::with_jobs();
    configure(&sandbox, server, more);
    let client = gateway(&sandbox);
    modern_task_of(sandbox, client, method)
}

#[track_caller]
fn modern_task_of(sandbox: Sandbox, client: StdioCaller, method: &str) -> (Scene, Value) {
    let call = json!({ "name": client.named("srv__slow"), "arguments": asking(method) });
    let scene = Scene { lifeline: 0, client, sandbox };
    let (mut scene, created) = as_modern(scene, |modern| modern.ask_as("tools/call", call, able()));
    // A gateway has started its server by now.
    scene.lifeline = lifeline(&scene.client);
    let task = created["result"]["taskId"].clone();
    assert!(task.is_string(), "{created}");
    (scene, task)
}

/// Does something as a client of 2026-07-28.
fn as_modern<T>(scene: Scene, work: impl FnOnce(&mut Modern) -> T) -> (Scene, T) {
    let mut modern = Modern::Pipes(scene.client);
    let made = work(&mut modern);
    let Modern::Pipes(client) = modern else { unreachable!("it has pipes") };
    (Scene { client, ..scene }, made)
}

/// The capabilities of a client that answers questions.
fn able() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "extensions": { EXTENSION: {} } })
}

/// The task as a client of 2026-07-28 sees it, once it waits for input.
#[track_caller]
pub(crate) fn modern_question(client: &mut Modern, task: &Value) -> String {
    let mut told = Value::Null;
    wait_until("the question", PATIENCE, || {
        told = client.ask_as("tasks/get", json!({ "taskId": task }), able())["result"].clone();
        told["status"] == "input_required"
    });
    let key = told["inputRequests"].as_object().and_then(|asked| asked.keys().next().cloned());
    key.unwrap_or_else(|| panic!("a question: {told}"))
}

#[track_caller]
pub(crate) fn modern_answer(client: &mut Modern, task: &Value, key: &str, name: &str) {
    let answer = json!({ key: { "action": "accept", "content": { "name": name } } });
    let answer = client.ask_as("tasks/update", json!({ "taskId": task, "inputResponses": answer }), able());
    assert!(answer["result"].is_object(), "{answer}");
}

#[test]
fn a_question_after_the_death_of_the_gateway_is_answered_by_tasks_update() {
    // A server without a handshake asks by its answer, and is called again with what it asked for.
    for (server, calls) in [(&LEGACY[..], 1), (&LEGACY[..2], 2)] {
        let (mut scene, task) = modern_task(server);
        scene.kill();
        let mut client = Modern::Pipes(gateway(&scene.sandbox));
        scene.go();
        let key = modern_question(&mut client, &task);
        modern_answer(&mut client, &task, "question-0", "nobody");
        modern_answer(&mut client, &task, &key, "Ada");
        // The first answer counts.
        modern_answer(&mut client, &task, &key, "Bob");
        let ended = scene.ended(&task);
        assert_eq!(ended["status"], "completed", "{ended}; {:.3000}", scene.sandbox.log());
        let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
        assert!(result.contains("Ada"), "{result}");
        assert_eq!(scene.asked(&["\"tools/call\"", "\"label\":\"asks\""]), calls);
        assert!(files(&scene, &task).is_empty(), "{:?}", files(&scene, &task));
        let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
        client.finish();
        scene.sandbox.assert_nothing_left();
    }
}

/// Demands that the status of the job names its open question, for agents and for people.
#[track_caller]
fn says_that_it_waits(scene: &Scene, client: &mut Modern, task: &Value) {
    let words = "waits for an answer: 1 open question; a client that follows the task can answer";
    let asked = json!({ "name": "unhang_get_job_status", "arguments": { "job_id": task } });
    let told = client.ask_as("tools/call", asked, able())["result"].clone();
    let fields = &told["structuredContent"];
    assert_eq!((&fields["status"], &fields["open_questions"]), (&json!("running"), &json!(1)), "{told}");
    assert!(told["content"][0]["text"].as_str().is_some_and(|text| text.contains(words)), "{told}");
    let shown = scene.shown(task);
    assert_eq!(
        (&shown["open_questions"], &shown["server"], &shown["tool"]),
        (&json!(1), &json!("srv"), &json!("slow"))
    );
    let mut show = scene.sandbox.unhang();
    show.args(["job", "show", task.as_str().expect("an id"), "--output", "text"]);
    let (_, text, _) = run_to_end(show);
    assert!(text.contains(words) && text.contains("tool slow of server srv"), "{text}");
}

/// The owner lives, and the client of another process answers.
#[test]
fn a_question_of_a_living_gateway_is_answered_from_another_process() {
    let (mut scene, task) = modern_task(&LEGACY);
    scene.go();
    let mut client = Modern::Pipes(StdioCaller::new(&scene.sandbox, true, &[]));
    let key = modern_question(&mut client, &task);
    says_that_it_waits(&scene, &mut client, &task);
    modern_answer(&mut client, &task, &key, "Ada");
    let ended = scene.ended(&task);
    assert_eq!((&ended["status"], &ended["open_questions"]), (&json!("completed"), &Value::Null));
    let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
    assert!(result.contains("Ada"), "{result}");
    let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
    client.finish();
    scene.client.finish();
    over(&scene, &task);
}

#[test]
fn a_server_that_asks_the_model_after_the_death_of_the_gateway_is_declined() {
    let (mut scene, task) = modern_task_that_asks((&LEGACY, ""), "sampling/createMessage");
    scene.kill();
    scene.go();
    assert_eq!(scene.ended(&task)["status"], "completed");
    let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
    assert!(result.contains("is declined"), "{result}");
    clear_away(&scene);
    over(&scene, &task);
}

#[test]
fn a_question_ends_with_its_job() {
    let (mut scene, task) = modern_task(&LEGACY);
    scene.kill();
    scene.go();
    wait_until("the question", PATIENCE, || files(&scene, &task).len() == 1);
    scene.unhang_job(&["cancel", task.as_str().expect("an id")]);
    assert_eq!(scene.ended(&task)["status"], "cancelled");
    wait_until("the files are gone", PATIENCE, || files(&scene, &task).is_empty());
    clear_away(&scene);
    scene.sandbox.assert_nothing_left();
}

/// A call holder that is killed leaves its files to whoever settles the job.
#[test]
fn a_question_ends_with_its_call_holder() {
    let (mut scene, task) = modern_task(&LEGACY);
    let holder = scene.kill();
    scene.go();
    wait_until("the question", PATIENCE, || files(&scene, &task).len() == 1);
    signal(holder, Signal::KILL);
    assert_eq!(scene.ended(&task)["reason"], "unhang_ended");
    assert!(files(&scene, &task).is_empty(), "{:?}", files(&scene, &task));
    clear_away(&scene);
    scene.sandbox.assert_nothing_left();
}

#[test]
fn a_damaged_file_stops_no_question() {
    let (mut scene, task) = modern_task(&LEGACY);
    scene.kill();
    scene.go();
    let mut client = Modern::Pipes(gateway(&scene.sandbox));
    let key = modern_question(&mut client, &task);
    let questions = files(&scene, &task).remove(0);
    // A foreign answer, and one to nothing.
    for name in [key.as_str(), "x"] {
        fs::write(questions.with_file_name(format!("answer-{name}")), "{").expect("a file");
    }
    wait_until("they are taken away", PATIENCE, || files(&scene, &task).len() == 1);
    for damage in ["", "{", "[1]"] {
        fs::write(&questions, damage).expect("a file");
        assert_eq!(modern_question(&mut client, &task), key);
    }
    modern_answer(&mut client, &task, &key, "Ada");
    assert_eq!(scene.ended(&task)["status"], "completed");
    let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
    client.finish();
    over(&scene, &task);
}

/// The next gateway clears away what a killed one left.
fn clear_away(scene: &Scene) {
    let mut next = gateway(&scene.sandbox);
    next.initialize();
    next.finish();
}

/// The server does not ask again: its line is still in the journal. A gateway that ends in order does not decline the question.
#[test]
fn a_question_that_is_open_when_the_gateway_ends_is_asked_again() {
    let ends: [fn(&mut Client); 3] =
        [|gateway| gateway.signal(Signal::KILL), |gateway| gateway.signal(Signal::TERM), Client::close_stdin];
    ends.into_iter().for_each(asked_again);
}

#[track_caller]
fn asked_again(end: fn(&mut Client)) {
    let (mut scene, task) = modern_task(&LEGACY);
    scene.go();
    wait_until("the question", PATIENCE, || files(&scene, &task).len() == 1);
    end(&mut scene.client);
    scene.client.exit_code();
    let mut client = Modern::Pipes(gateway(&scene.sandbox));
    let key = modern_question(&mut client, &task);
    modern_answer(&mut client, &task, &key, "Ada");
    assert_eq!(scene.ended(&task)["status"], "completed", "{:.3000}", scene.sandbox.log());
    let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
    assert!(result.contains("Ada"), "{result}");
    let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
    client.finish();
    over(&scene, &task);
}

/// Such a server has answered, and nobody may wait for that answer again.
#[test]
fn a_question_of_a_server_without_a_handshake_is_asked_again_when_unhang_ends_in_order() {
    let ends: [fn(&mut Client); 2] = [|unhang| unhang.signal(Signal::TERM), Client::close_stdin];
    for (is_guarded, end) in
        [true, false].into_iter().flat_map(|is_guarded| ends.map(|end| (is_guarded, end)))
    {
        let (mut scene, task, _) = asked_task(is_guarded);
        end(&mut scene.client);
        scene.client.exit_code();
        let told = scene.client.stderr();
        assert!(!told.contains("panicked"), "{told}");
        let mut client = Modern::Pipes(StdioCaller::new(&scene.sandbox, true, &[]));
        let key = modern_question(&mut client, &task);
        modern_answer(&mut client, &task, &key, "Ada");
        assert_eq!(scene.ended(&task)["status"], "completed", "{:.3000}", scene.sandbox.log());
        assert_eq!(scene.asked(&CALLS), 2);
        let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
        client.finish();
        scene.sandbox.assert_nothing_left();
    }
}

/// A server without a handshake that asks by its answer has no request under way while it waits for the input.
#[test]
fn a_task_that_waits_for_input_ends_with_its_time() {
    for is_killed in [false, true] {
        let more = "limits.job-timeout = \"4s\"\n";
        let (mut scene, task) = modern_task_that_asks((&LEGACY[..2], more), ASKED);
        scene.go();
        wait_until("the question", PATIENCE, || files(&scene, &task).len() == 1);
        if is_killed {
            scene.kill();
        }
        let ended = scene.ended(&task);
        assert_eq!((&ended["status"], &ended["reason"]), (&json!("failed"), &json!("timeout")), "{ended}");
        let detail = ended["detail"].as_str().expect("a sentence");
        assert!(detail.contains("no client that follows the task answered"), "{detail}");
        match is_killed {
            true => clear_away(&scene),
            false => scene.client.finish(),
        }
        scene.sandbox.assert_nothing_left();
    }
}

#[test]
fn a_task_that_waits_for_input_ends_with_its_server_once_the_gateway_has_gone() {
    let (mut scene, task) = modern_task(&LEGACY[..2]);
    scene.go();
    wait_until("the question", PATIENCE, || files(&scene, &task).len() == 1);
    scene.kill();
    children(scene.lifeline).iter().for_each(|server| signal(server.pid, Signal::KILL));
    let ended = scene.ended(&task);
    assert_eq!((&ended["status"], &ended["reason"]), (&json!("failed"), &json!("server_exited")), "{ended}");
    clear_away(&scene);
    scene.sandbox.assert_nothing_left();
}

/// A guard or a gateway in front of a server of 2026-07-28, the task whose tool has asked, and the server's name for the question.
#[track_caller]
fn asked_task(is_guarded: bool) -> (Scene, Value, String) {
    let (scene, task) = match is_guarded {
        true => {
            let sandbox = Sandbox::with_jobs();
            let client = Client::start(guard_of(&sandbox, &[&recorded()[..], &LEGACY[..2]].concat()));
            modern_task_of(sandbox, StdioCaller { client, is_guarded }, ASKED)
        }
        false => modern_task(&LEGACY[..2]),
    };
    scene.go();
    let (scene, key) = as_modern(scene, |modern| modern_question(modern, &task));
    (scene, task, key)
}

/// The calls of the tool that its server was sent.
const CALLS: [&str; 2] = ["\"tools/call\"", "\"label\":\"asks\""];

#[test]
fn a_task_whose_second_request_is_on_its_way_outlives_its_owner() {
    for is_guarded in [true, false] {
        let (scene, task, key) = asked_task(is_guarded);
        let server = children(children(scene.lifeline)[0].pid)[0].pid;
        signal(server, Signal::STOP);
        let (mut scene, ()) = as_modern(scene, |modern| modern_answer(modern, &task, &key, "Ada"));
        wait_until("the second request is on its way", PATIENCE, || scene.asked(&CALLS) == 2);
        scene.kill_guard();
        signal(server, Signal::CONT);
        let ended = scene.ended(&task);
        assert_eq!(ended["status"], "completed", "{ended}");
        let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
        assert!(result.contains("Ada"), "{result}");
        assert_eq!(scene.asked(&CALLS), 2, "nothing was sent again");
        if !is_guarded {
            // The next gateway clears away the socket of one that was killed.
            gateway(&scene.sandbox).finish();
        }
        scene.sandbox.assert_nothing_left();
    }
}

/// The client has answered, and the guard is killed before its server, which does not read, has got the second request.
#[test]
fn a_task_whose_second_request_was_not_sent_asks_again() {
    let (mut scene, task, key) = asked_task(true);
    let recorder = children(scene.lifeline)[0].pid;
    signal(recorder, Signal::STOP);
    // More than the pipe and its journal take.
    let long = "x".repeat(1 << 20);
    for _ in 0..18 {
        scene.client.notify("notifications/long", json!({ "text": long }));
    }
    let (mut scene, ()) = as_modern(scene, |modern| modern_answer(modern, &task, &key, "Ada"));
    scene.kill_guard();
    signal(recorder, Signal::CONT);
    let mut client = Modern::Pipes(StdioCaller::new(&scene.sandbox, true, &[]));
    let key = modern_question(&mut client, &task);
    modern_answer(&mut client, &task, &key, "Bob");
    let ended = scene.ended(&task);
    assert_eq!(ended["status"], "completed", "{ended}");
    let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
    assert!(result.contains("Bob"), "{result}");
    assert_eq!(scene.asked(&CALLS), 2);
    let Modern::Pipes(mut client) = client else { unreachable!("it has pipes") };
    client.finish();
    scene.sandbox.assert_nothing_left();
}
