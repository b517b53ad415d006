//! A later session and the jobs of an earlier one, behind `unhang wrap` and `unhang serve`: the same call joins the job whose owner has gone,
//! and a server that cannot start beside the old one names the job.
//!
//! The server waits for the file `go`, so that no test depends on the speed of the machine.

use std::fs;

use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, text},
    harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, wait_until},
    slow_outlives::until_go,
    slow_restarts::{kill, shown},
};

/// That the same call joins the job that it has become.
const JOINS: (&str, &str) = ("join-same-call", "true");

/// A session whose client has listed the tools, so that a guard knows which of them may be repeated.
fn session(sandbox: &Sandbox, is_guarded: bool, limits: &[(&str, &str)]) -> StdioCaller {
    let mut caller = StdioCaller::new(sandbox, is_guarded, limits);
    caller.initialize();
    caller.ask("tools/list", json!({}));
    caller
}

/// Makes a job of a call that waits for `go`, and kills unhang.
fn left_job(sandbox: &Sandbox, is_guarded: bool, limits: &[(&str, &str)]) -> Value {
    let mut caller = session(sandbox, is_guarded, limits);
    let job = caller.reads_as_a_job(until_go("same", 5000));
    kill(&mut caller);
    wait_until("it goes on", PATIENCE, || sandbox.log().contains("whose owner has ended"));
    job
}

fn go(sandbox: &Sandbox) {
    fs::write(sandbox.path().join("go"), "").expect("a file");
}

/// Makes the same call, and demands the result of the job without a call of this session's server.
#[track_caller]
fn gets_result_of_job(later: &mut StdioCaller) {
    let result = later.result("srv__slow_read", until_go("same", 5000));
    assert_eq!(result["content"], json!([{ "type": "text", "text": text(5000) }]), "{result:.500}");
    assert_eq!(later.counted(), [0, 0, 0]);
}

/// Runs a test behind a guard and behind a gateway.
fn behind_both(test: impl Fn(&Sandbox, bool)) {
    for is_guarded in [true, false] {
        let sandbox = Sandbox::with_jobs();
        test(&sandbox, is_guarded);
        sandbox.assert_nothing_left();
    }
}

#[test]
fn the_same_call_joins_a_job_whose_owner_was_killed() {
    behind_both(|sandbox, is_guarded| {
        let job = left_job(sandbox, is_guarded, &[JOINS]);
        let mut later = session(sandbox, is_guarded, &[JOINS]);
        assert_eq!(later.reads_as_a_job(until_go("same", 5000)), job);
        go(sandbox);
        assert_eq!(later.at_its_end(&job)["status"], "completed");
        // No client has read the result.
        gets_result_of_job(&mut later);
        // Now a client has.
        later.result("srv__slow_read", until_go("same", 5000));
        assert_eq!(later.counted(), [1, 1, 0]);
        later.client.finish();
    });
}

#[test]
fn the_same_call_gets_the_result_of_a_job_that_ended_while_nobody_was_there() {
    behind_both(|sandbox, is_guarded| {
        let job = left_job(sandbox, is_guarded, &[JOINS]);
        go(sandbox);
        wait_until("it ends", PATIENCE, || shown(sandbox, &job)["status"] == "completed");
        let mut later = session(sandbox, is_guarded, &[JOINS]);
        gets_result_of_job(&mut later);
        later.client.finish();
        // The result was read, which the next session knows too.
        let mut last = session(sandbox, is_guarded, &[JOINS]);
        last.result("srv__slow_read", until_go("same", 5000));
        assert_eq!(last.counted(), [1, 1, 0]);
        last.client.finish();
    });
}

#[test]
fn a_call_that_waits_for_a_job_ends_when_somebody_cancels_the_job() {
    behind_both(|sandbox, is_guarded| {
        // The later call waits for so long before its client gets the job.
        let limits = [JOINS, ("promote-after", "5s")];
        let job = left_job(sandbox, is_guarded, &limits);
        let mut later = session(sandbox, is_guarded, &limits);
        let waiting = later.named("srv__slow_read");
        let waiting = later.client.call(&waiting, until_go("same", 5000));
        // The call is joined, because the server answers a later one and has not got it.
        assert_eq!(later.counted(), [0, 0, 0]);
        let mut cancel = sandbox.unhang();
        cancel.args(["job", "cancel", job.as_str().expect("an id")]);
        run_to_end(cancel);
        let result = later.client.answer_within(waiting, PATIENCE)["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        assert!(result.to_string().contains("was cancelled"), "{result}");
        assert_eq!(later.counted(), [0, 0, 0], "nothing runs again");
        later.client.finish();
    });
}

#[test]
fn f_20_a_call_in_a_later_session_runs_again_unless_it_may_be_joined() {
    behind_both(|sandbox, is_guarded| {
        let job = left_job(sandbox, is_guarded, &[JOINS]);
        // By default no call joins a job; and other arguments are another call.
        for (limits, label) in [(&[][..], "same"), (&[JOINS], "other")] {
            let mut later = session(sandbox, is_guarded, limits);
            let other = later.reads_as_a_job(until_go(label, 5000));
            assert_ne!(other, job, "{label}");
            later.result("terminate_job", json!({ "job_id": other }));
            later.client.finish();
        }
        go(sandbox);
        wait_until("it ends", PATIENCE, || shown(sandbox, &job)["status"] == "completed");
    });
}

/// A server that can run once at a time, as one that needs a port.
const ALONE: &str =
    "if mkdir taken; then exec \"$0\" zoo slow-answers; fi; echo the port is in use >&2; exit 1";

/// Starts unhang in front of that server.
fn alone(sandbox: &Sandbox, is_guarded: bool) -> StdioCaller {
    let mut command = sandbox.unhang();
    if is_guarded {
        command.args(["-v", "wrap", "--name", "srv", "--promote-after", "300ms", "--", "sh", "-c", ALONE]);
        command.arg(lab_program());
    } else {
        let config = format!(
            "[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {ALONE:?}, {:?}]\nlimits.promote-after = \"300ms\"\n",
            lab_program()
        );
        fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
        command.args(["-v", "serve"]);
    }
    StdioCaller { client: Client::start(command), is_guarded }
}

#[test]
fn a_server_that_cannot_start_beside_an_old_one_names_the_job_of_the_old_one() {
    behind_both(|sandbox, is_guarded| {
        let mut caller = alone(sandbox, is_guarded);
        caller.initialize();
        let job = caller.reads_as_a_job(until_go("one", 10));
        kill(&mut caller);
        wait_until("it goes on", PATIENCE, || sandbox.log().contains("whose owner has ended"));
        let mut later = alone(sandbox, is_guarded);
        let told = if is_guarded {
            later.ask(
                "initialize",
                json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } }),
            )
        } else {
            later.initialize();
            let tool = later.named("srv__slow");
            later.ask("tools/call", json!({ "name": tool, "arguments": {} }))
        };
        let told = told.to_string();
        let job_text = job.as_str().expect("an id");
        assert!(told.contains(&format!("job {job_text} of an earlier session")), "{told}");
        assert!(told.contains(&format!("unhang job cancel {job_text}")), "{told}");
        go(sandbox);
        wait_until("it ends", PATIENCE, || shown(sandbox, &job)["status"] == "completed");
        later.client.close_stdin();
        later.client.exit_code();
    });
}
