use super::*;

const LIMIT: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(1);

fn asked(ids: &[u32]) -> Ledger {
    let mut ledger = Ledger::default();
    ids.iter().for_each(|id| ask(&mut ledger, *id));
    ledger
}

fn ask(ledger: &mut Ledger, id: u32) {
    let id = id.to_string();
    let request = LedgerRequest { id: &id, method: "tools/call", limit: Some(LIMIT), proof: None };
    ledger.request(Duration::ZERO, request);
}

fn answer(ledger: &mut Ledger, id: u32) -> Result<(), String> {
    ledger.hear(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes()).map(drop)
}

fn complaint(outcome: Result<(), String>) -> String {
    outcome.expect_err("a violation")
}

#[test]
fn one_answer_each_is_complete() {
    let mut ledger = asked(&[1, 2]);
    assert_eq!(ledger.waiting(), 2);
    answer(&mut ledger, 2).expect("asked");
    assert!(complaint(ledger.demand_complete()).contains("the first is 1"));
    answer(&mut ledger, 1).expect("asked");
    ledger.demand_complete().expect("both are answered");
    assert_eq!((ledger.waiting(), ledger.into_tally().answered()), (0, 2));
}

#[test]
fn a_second_answer_and_one_to_nothing_are_violations() {
    let mut ledger = asked(&[1]);
    answer(&mut ledger, 1).expect("asked");
    assert!(complaint(answer(&mut ledger, 1)).contains("a second answer"));
    assert!(complaint(answer(&mut ledger, 9)).contains("never asked"));
    assert!(ledger.hear(br#"{"jsonrpc":"2.0","id":"1","result":{}}"#).is_err(), "an id of another type");
}

#[test]
fn an_answer_may_cross_its_cancellation_but_not_follow_it() {
    let mut ledger = asked(&[1, 2]);
    ledger.cancel("1");
    ledger.cancel("2");
    answer(&mut ledger, 1).expect("it may have been on its way");
    ask(&mut ledger, 3);
    answer(&mut ledger, 3).expect("asked");
    assert!(complaint(answer(&mut ledger, 2)).contains("after it was cancelled"));
    let tally = ledger.into_tally();
    assert_eq!((tally.sent, tally.answered(), tally.withdrawn, tally.forsaken), (3, 2, 1, 0));
}

#[test]
fn progress_for_what_was_cancelled_is_a_violation_once_the_guard_knows() {
    let progress =
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let mut ledger = asked(&[1]);
    ledger.cancel("1");
    ledger.hear(progress).expect("it may have been on its way");
    ask(&mut ledger, 2);
    answer(&mut ledger, 2).expect("asked");
    assert!(ledger.hear(progress).expect_err("a violation").contains("cancelled"));
}

#[test]
fn an_id_that_is_free_again_may_be_asked_again() {
    let mut ledger = asked(&[1, 2]);
    ledger.cancel("1");
    assert_eq!(ledger.free_id(), None);
    ask(&mut ledger, 3);
    answer(&mut ledger, 3).expect("asked");
    assert_eq!(ledger.free_id().as_deref(), Some("1"));
    ask(&mut ledger, 1);
    answer(&mut ledger, 1).expect("asked again");
    assert!(answer(&mut ledger, 1).is_err());
}

#[test]
fn what_is_late_is_told() {
    let ledger = asked(&[1]);
    ledger.demand_in_time(LIMIT + SLACK, SLACK).expect("just in time");
    assert!(complaint(ledger.demand_in_time(LIMIT + SLACK * 2, SLACK)).contains("2.0 s"), "and by how much");
}

#[test]
fn an_answer_must_be_to_its_own_request() {
    let mut ledger = Ledger::default();
    let proof = Some("call-1".to_owned());
    ledger
        .request(Duration::ZERO, LedgerRequest { id: "1", method: "tools/call", limit: Some(LIMIT), proof });
    assert!(complaint(answer(&mut ledger, 1)).contains("belongs to another"));
}

#[test]
fn garbage_gets_one_error_each() {
    let nameless = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":{"origin":"unhang","kind":"parse_error"}}}"#;
    let mut ledger = Ledger::default();
    ledger.garbage();
    assert!(complaint(ledger.demand_complete()).contains("garbage"));
    ledger.hear(nameless).expect("one was due");
    ledger.demand_complete().expect("and came");
    assert!(ledger.hear(nameless).is_err());
}
