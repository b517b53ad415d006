//! The load generator: what it measures with, what it says about ways that fail, and that it clears up.

use std::time::Duration;

use serde_json::json;
use unhang_zoo::load::{LoadPlan, LoadRoute, measure};

use crate::zoo_client::{ZooClient, marked, marker, program};

const SMALLEST: LoadPlan = LoadPlan {
    rounds: 1,
    warm_up: 2,
    round_trips: 20,
    calls: 100,
    in_flight: 64,
    large_results: 1,
    large_bytes: 1_000_000,
    starts: 1,
    limit: Duration::from_secs(5),
};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn server() -> Vec<String> {
    words(&[program(), "zoo", "echoes"])
}

/// Why a way through this command cannot be measured.
#[track_caller]
fn failure(command: &[&str]) -> String {
    let mut outcomes = measure(&server(), &[LoadRoute::Through(words(command))], &SMALLEST, |_| {});
    outcomes.remove(0).expect_err("it is no wrapper").to_string()
}

#[test]
fn every_way_is_measured_in_each_round() {
    // `env` becomes the server, so it adds nothing.
    let ways = [LoadRoute::Direct, LoadRoute::Cats, LoadRoute::Through(words(&["env"]))];
    let mut told = Vec::new();
    let plan = LoadPlan { rounds: 2, ..SMALLEST };
    let outcomes = measure(&server(), &ways, &plan, |round| told.push(round));
    assert_eq!(told, [1, 2]);
    for (way, outcome) in ways.iter().zip(outcomes) {
        let rounds = outcome.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(rounds.len(), 2, "{way:?}");
        for round in rounds {
            assert!(round.round_trip_p50 > Duration::ZERO && round.round_trip_p99 >= round.round_trip_p50);
            assert!(round.calls_per_second > 0.0 && round.bytes_per_second > 0.0, "{round:?}");
            assert!(round.start > Duration::ZERO && round.stop > Duration::ZERO, "{round:?}");
            assert_eq!(
                round.memory > 0,
                *way == LoadRoute::Cats,
                "only the cats are more than the server: {round:?}"
            );
        }
    }
}

#[test]
fn a_way_that_fails_is_left_out_and_the_others_go_on() {
    let ways = [LoadRoute::Through(words(&["no-such-program"])), LoadRoute::Direct];
    let outcomes = measure(&server(), &ways, &SMALLEST, |_| {});
    let error = outcomes[0].as_ref().expect_err("there is no such program").to_string();
    assert!(error.starts_with("the start: "), "{error}");
    assert_eq!(outcomes[1].as_ref().map(Vec::len).ok(), Some(1));
}

#[test]
fn a_failure_says_what_was_done_and_what_came() {
    let ended = failure(&["sh", "-c", "exit 7"]);
    assert!(ended.starts_with("the start: ") && ended.ends_with("(exit status: 7)"), "{ended}");
    let wrong = failure(&[program(), "zoo", "wrong-id"]);
    assert!(wrong.starts_with("the first calls: ") && wrong.contains("987654321"), "{wrong}");
    let refused = failure(&[program(), "zoo", "server-error", "32603"]);
    assert!(refused.starts_with("the first calls: ") && refused.contains("\"error\""), "{refused}");
    let short = failure(&[program(), "zoo", "crlf"]);
    assert!(short.starts_with("results of 1 MiB: ") && short.contains("instead of 1048576"), "{short}");
}

#[test]
fn what_a_way_leaves_behind_is_ended() {
    let marker = marker("load");
    failure(&[program(), "zoo", "leaves-grandchild", "--marker", &marker]);
    assert_eq!(marked("lingers", &marker), [] as [u32; 0]);
}

#[test]
fn the_fast_server_answers_what_it_is_asked() {
    let mut client = ZooClient::meet("echoes");
    client.shake_hands();
    // The sizes come back, however often and in whatever order they are asked for.
    for (id, bytes) in [(1, 10), (2, 300_000), (3, 10), (4, 0)] {
        assert_eq!(client.call_text(id, "echo", &json!({"bytes": bytes})).len(), bytes);
    }
    client.request(5, "no/such", &json!({}));
    assert_eq!(client.answer(5)["error"]["code"], -32601);
    client.close_stdin();
    assert!(client.end().success());
}
