//! Tasks whose owner ends as soon as their client has the id (issue 24): the server has the call by then, and the task outlives its owner.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    callers::Calls,
    harness::Client,
    slow_outlives::{Scene, until_go},
};

/// Few rounds show it: without the hand-over before the id, a killed guard loses every third task, and a gateway nearly all.
const ROUNDS: usize = 6;

/// Has a task made, and ends the owner when its client has the id.
#[track_caller]
fn outlives(mut scene: Scene, end: impl FnOnce(&mut Client)) {
    let tool = if scene.client.is_guarded { "slow" } else { "srv__slow" };
    let mut arguments = until_go("task", 64);
    arguments["seconds"] = json!(0.1);
    let params = json!({ "name": tool, "arguments": arguments, "task": {} });
    let answer = scene.client.ask("tools/call", params);
    end(&mut scene.client);
    let task = answer["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{answer}");
    scene.client.exit_code();
    scene.go();
    scene.completed(&task, "task", 64);
}

#[test]
fn a_task_outlives_a_guard_that_is_killed_when_its_id_is_out() {
    for _ in 0..ROUNDS {
        outlives(Scene::guarded(), |guard| guard.signal(Signal::KILL));
    }
}

#[test]
fn a_task_outlives_a_gateway_that_is_killed_when_its_id_is_out() {
    for _ in 0..ROUNDS {
        outlives(Scene::window(), |gateway| gateway.signal(Signal::KILL));
    }
}

#[test]
fn a_task_outlives_a_gateway_that_ends_in_order_when_its_id_is_out() {
    outlives(Scene::window(), |gateway| gateway.signal(Signal::TERM));
    outlives(Scene::window(), Client::close_stdin);
}
