//! The comparison of two runs of the suite, with checks that are written here.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

const SERVER: ComparedServer = ALL[0];

/// What a run wrote down: the id and the status of each check of one scenario.
fn checks(scenario: &str, list: &[(&str, &str)]) -> SuiteChecks {
    let check =
        |(id, status): &(&str, &str)| json!({"id": id, "status": status, "errorMessage": format!("{id}!")});
    numbered(scenario, list.iter().map(check).collect())
}

fn name(scenario: &str, id: &str, occurrence: usize) -> CheckName {
    CheckName { scenario: scenario.to_owned(), id: id.to_owned(), occurrence }
}

fn reason(check: CheckName) -> ListedDifference {
    ListedDifference { check, reason: "it is so".to_owned() }
}

#[test]
fn a_folder_of_results_tells_its_scenario() {
    assert_eq!(scenario("server-tools-list-2026-11-26T11-14-11-614Z"), Some("tools-list"));
    assert_eq!(scenario("server-server-initialize-2026-11-26T11-14-11-614Z"), Some("server-initialize"));
    for other in ["tools-list-2026-11-26T11-14-11-614Z", "server-2026-11-26T11-14-11-614Z", ""] {
        assert_eq!(scenario(other), None, "{other}");
    }
}

#[test]
fn what_passes_in_both_runs_is_no_difference() {
    let direct = checks("ping", &[("answered", "SUCCESS"), ("noted", "INFO"), ("strict", "FAILURE")]);
    let through = checks("ping", &[("answered", "SUCCESS")]);
    judge(1, &direct, &through, &[]).expect("what does not pass directly is not compared");
}

#[test]
fn a_check_that_fails_or_is_missing_through_the_gateway_is_named() {
    let direct = checks("ping", &[("answered", "SUCCESS"), ("timely", "SUCCESS"), ("noted", "SUCCESS")]);
    let through = checks("ping", &[("answered", "WARNING"), ("noted", "INFO")]);
    let failure = judge(3, &direct, &through, &[]).expect_err("three checks differ");
    for text in [
        "ping: answered passes directly",
        "WARNING: answered!",
        "ping: timely",
        "missing",
        "INFO",
        "3 of 3",
        "0 of 1",
    ] {
        assert!(failure.contains(text), "{text}: {failure}");
    }
}

#[test]
fn checks_with_one_id_are_told_apart_by_their_order() {
    let direct = checks("headers", &[("rejected", "SUCCESS"), ("rejected", "SUCCESS")]);
    let through = checks("headers", &[("rejected", "SUCCESS"), ("rejected", "FAILURE")]);
    assert_eq!(differences(&direct, &through), [name("headers", "rejected", 2)]);
    let failure = judge(2, &direct, &through, &[]).expect_err("the second one differs");
    assert!(failure.contains("headers: rejected (2)"), "{failure}");
}

#[test]
fn the_same_id_in_two_scenarios_is_two_checks() {
    let both = |status: &str| {
        let mut all = checks("first", &[("valid", "SUCCESS")]);
        all.extend(checks("second", &[("valid", status)]));
        all
    };
    assert_eq!(differences(&both("SUCCESS"), &both("FAILURE")), [name("second", "valid", 1)]);
}

#[test]
fn a_listed_difference_is_forgiven_and_must_occur() {
    let direct = checks("ping", &[("answered", "SUCCESS"), ("timely", "SUCCESS")]);
    let through = checks("ping", &[("answered", "SUCCESS"), ("timely", "WARNING")]);
    judge(2, &direct, &through, &[reason(name("ping", "timely", 1))]).expect("it is listed");
    let list = [reason(name("ping", "timely", 1)), reason(name("ping", "answered", 1))];
    let failure = judge(2, &direct, &through, &list).expect_err("one of them does not occur");
    assert!(failure.contains("ping: answered is listed") && failure.contains("it is so"), "{failure}");
    assert!(!failure.contains("timely"), "{failure}");
    judge(2, &direct, &through, &[reason(name("ping", "timely", 2))]).expect_err("another occurrence");
}

#[test]
fn a_server_that_does_too_little_fails() {
    let few = checks("ping", &[("answered", "SUCCESS"), ("timely", "FAILURE")]);
    let failure = judge(2, &few, &few, &[]).expect_err("one check is too few");
    assert!(failure.contains("only 1 of 2") && failure.contains("ping: timely"), "{failure}");
    judge(1, &SuiteChecks::new(), &SuiteChecks::new(), &[]).expect_err("nothing was examined");
}

#[test]
fn the_list_is_read_for_each_server_alone() {
    let entry = json!({"servers": ["python"], "revision": HANDSHAKE, "scenario": "ping", "check": "timely",
        "occurrence": 2, "reason": "it is so"});
    let other = json!({"servers": ["typescript"], "revision": HANDSHAKE});
    let text = json!([entry, other]).to_string();
    assert_eq!(listed(&text, SERVER), Ok(vec![reason(name("ping", "timely", 2))]));
    listed(&text, ALL[2]).expect_err("the entry names no check");
    let mut silent = entry;
    silent["reason"] = "".into();
    listed(&json!([silent]).to_string(), SERVER).expect_err("a difference needs a reason");
    listed("{", SERVER).expect_err("this is no list");
}

#[test]
fn every_entry_of_the_list_belongs_to_a_case() {
    let text = include_str!("../../../../../real/conformance_differences.json");
    let entries: Vec<Value> = serde_json::from_str(text).expect("it is a list");
    let mut names = BTreeSet::new();
    let mut found = 0;
    for compared in ALL {
        for difference in listed(text, compared).expect("each entry is whole") {
            found += 1;
            assert!(names.insert((compared.name(), difference.check.clone())), "twice: {}", difference.check);
        }
    }
    let servers = |entry: &Value| entry["servers"].as_array().map_or(0, Vec::len);
    assert_eq!(found, entries.iter().map(servers).sum::<usize>(), "an entry is of no case: {text}");
    assert!(entries.iter().all(|entry| servers(entry) > 0), "an entry has no server: {text}");
}
