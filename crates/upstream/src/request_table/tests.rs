//! What a server may say, and what becomes of who waits.

use unhang_proc::drain::Tail;
use unhang_wire::Lines;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A conversation in which so many requests wait, from 1 on.
fn waiting(count: i64) -> RequestTable<i64> {
    let mut request_table = RequestTable::new("srv", 1 << 20);
    for number in 1..=count {
        let id = request_table.begin(at(0), "tools/call", LIMIT, number);
        assert_eq!(id, Id::Integer(number), "l_28: ids count up from 1");
    }
    request_table
}

/// What came of these bytes, told in short.
fn hear(request_table: &mut RequestTable<i64>, bytes: &[u8]) -> Vec<String> {
    let mut lines = Lines::new(1 << 20);
    let mut told = Vec::new();
    for part in bytes.chunks(4096) {
        lines.spare()[..part.len()].copy_from_slice(part);
        lines.filled(part.len());
        while let Some(line) = lines.next_line() {
            request_table.line(at(1), line, &mut |event| told.push(short(event)));
        }
    }
    told
}

fn short(event: TableEvent<i64>) -> String {
    match event {
        TableEvent::Done(call, Ok(result)) => format!("{} is {}", call.whose, result.get()),
        TableEvent::Done(call, Err(Error::Server(error))) => format!("{} refused: {error}", call.whose),
        TableEvent::Done(call, Err(error)) => format!("{} {}: {error}", call.whose, error.kind()),
        TableEvent::Progress(id, params) => format!("progress {id}: {}", params.get()),
        TableEvent::Notification(method, params) => {
            format!("{method} {}", params.map_or(0, |params| params.get().len()))
        }
        TableEvent::Question(id, method, _) => format!("question {id}: {method}"),
        TableEvent::QuestionWithdrawn(id) => format!("withdrawn {id}"),
        TableEvent::Late(id) => format!("late {id}"),
        TableEvent::Withdrawn(id, why) => format!("withdraw {id}: {why}"),
        TableEvent::Say(line) => format!("say {}", String::from_utf8_lossy(&line)),
    }
}

#[test]
fn l_44_an_answer_is_matched_by_its_id_alone() {
    let mut request_table = waiting(3);
    let told = hear(
        &mut request_table,
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"n\":3}}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\
          {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n",
    );
    assert_eq!(told, ["3 is {\"n\":3}", "1 is {}"]);
    assert_eq!(request_table.in_flight(), 1, "what nobody asked for is handed to nobody (X-13)");
    assert_eq!(request_table.evidence(&Tail::new(0)).junk.len(), 2);
}

#[test]
fn l_42_an_error_keeps_its_code_message_and_data() {
    let mut request_table = waiting(1);
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no such tool\",\"data\":{\"a\":1}}}\n";
    let mut outcome = None;
    let mut lines = Lines::new(1 << 20);
    lines.spare()[..line.len()].copy_from_slice(line);
    lines.filled(line.len());
    while let Some(line) = lines.next_line() {
        request_table.line(at(1), line, &mut |event| outcome = Some(event));
    }
    let Some(TableEvent::Done(_, Err(error))) = outcome else { panic!("an error: {outcome:?}") };
    assert_eq!(error.to_string(), "`srv` refused `tools/call`: no such tool (error -32602)");
    assert_eq!(error.data()["data"]["a"], 1);
    assert_eq!((error.kind(), error.exit_code()), ("server_error", unhang_core::exit::FAILED));
}

#[test]
fn l_43_an_answer_that_is_no_message_fails_the_one_that_it_is_for() {
    for (line, expect) in [
        ("{\"jsonrpc\":\"2.0\",\"id\":1}", "has neither a `result` nor an `error`"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{\"code\":1,\"message\":\"\"}}", "has both"),
        ("{\"id\":1,\"result\":{}}", "has no `jsonrpc` member"),
        ("{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}", "neither a string nor an integer"),
        ("{\"jsonrpc\":\"2.0\",\"result\":{}}", "without an `id`"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":", "is not valid JSON"),
    ] {
        let mut request_table = waiting(1);
        let told = hear(&mut request_table, format!("{line}\n").as_bytes());
        let [told] = &told[..] else { panic!("{line}: {told:?}") };
        assert!(told.starts_with("1 bad_response: ") && told.contains(expect), "l_45: {line}: {told}");
        assert_eq!(request_table.in_flight(), 0);
    }
    // With two in flight nobody can tell whose it is: both wait on.
    let mut request_table = waiting(2);
    assert_eq!(hear(&mut request_table, b"{\"jsonrpc\":\"2.0\",\"result\":{}}\n"), [""; 0]);
    assert_eq!(request_table.in_flight(), 2);
}

#[test]
fn what_is_no_message_is_kept_and_harms_nobody() {
    let mut request_table = waiting(1);
    let told = hear(
        &mut request_table,
        b"loading...\n{\"level\":\"info\"}\nready {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}]\n",
    );
    assert_eq!(told, ["1 is {}", "notifications/x 0"]);
    assert_eq!(request_table.evidence(&Tail::new(0)).junk[..2], ["loading...", "{\"level\":\"info\"}"]);
}

#[test]
fn a_line_over_the_limit_fails_the_one_that_it_is_for() {
    let mut request_table = waiting(2);
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"{}\"}}\n", "x".repeat(2 << 20));
    let told = hear(&mut request_table, long.as_bytes());
    assert!(
        told.len() == 1 && told[0].starts_with("2 too_large: `srv` answered `tools/call` with 2097"),
        "{told:?}"
    );
    assert_eq!(
        hear(&mut request_table, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\n"),
        ["1 is 1"],
        "the stream goes on"
    );
}

#[test]
fn l_41_what_is_overdue_is_told_and_its_late_answer_dropped() {
    let mut request_table = waiting(1);
    request_table.begin(at(5), "initialize", LIMIT, 2);
    assert_eq!(request_table.next_deadline(), Some(at(30)));
    let mut told = Vec::new();
    request_table.expire(at(29), |event| told.push(short(event)));
    assert_eq!(told, [""; 0]);
    request_table.expire(at(40), |event| told.push(short(event)));
    assert_eq!(
        told,
        [
            "withdraw 1: no answer in time",
            "1 deadline: `srv` did not answer `tools/call` within 30s; unhang cancelled the call; raise \
             --call-timeout if it needs longer",
            "2 deadline: `srv` did not answer `initialize` within 30s; raise --start-timeout if it needs longer",
        ]
    );
    let late = hear(&mut request_table, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
    assert_eq!(late, ["late 1"], "nobody has the result");
    assert_eq!(request_table.evidence(&Tail::new(0)).junk, [""; 0], "it is known to be late, and no junk");
}

#[test]
fn progress_is_heard_for_what_waits_and_not_afterwards() {
    let mut request_table = waiting(1);
    let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":5}}\n";
    assert_eq!(hear(&mut request_table, line), ["progress 1: {\"progressToken\":1,\"progress\":5}"]);
    assert!(request_table.withdraw(&Id::Integer(1)).is_some());
    assert_eq!(hear(&mut request_table, line), [""; 0]);
    assert!(request_table.withdraw(&Id::Integer(1)).is_none());
}

#[test]
fn questions_come_through_and_what_is_none_is_refused() {
    let mut request_table = waiting(0);
    let told = hear(
        &mut request_table,
        b"{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"x\"}\n\
          {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"q\"}}\n",
    );
    assert_eq!((&*told[0], &*told[2]), ("question \"q\": roots/list", "withdrawn \"q\""));
    assert!(told[1].starts_with("say {\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32600,"), "{told:?}");
}

#[test]
fn whoever_waits_for_a_server_that_has_gone_is_told_once() {
    let mut request_table = waiting(2);
    let verdict = Failure {
        kind: FaultKind::ServerExited,
        happened: "`srv` ended (exit code 1)".to_owned(),
        ..Failure::ended()
    };
    let mut told = Vec::new();
    request_table.lose_all(at(2), &verdict, |event| told.push(event));
    assert_eq!(told.len(), 2);
    let TableEvent::Done(call, Err(Error::Failure(failure))) = &told[0] else { panic!("{told:?}") };
    assert_eq!((call.whose, failure.method.as_deref(), failure.elapsed), (1, Some("tools/call"), at(2)));
    assert_eq!(failure.exit_code(), unhang_core::exit::UNREACHABLE);
    assert_eq!((request_table.in_flight(), request_table.next_deadline()), (0, None));
}

#[test]
fn a_request_of_another_process_is_answered_under_its_own_id_and_token() {
    let mut request_table = RequestTable::new("srv", 1 << 20);
    let text = |text: &str| Id::Text(text.into());
    let resume = |table: &mut RequestTable<i64>, id: Id, token: Option<Id>, number| {
        table.resume((id, token), (at(0), at(20)), "tools/call", LIMIT, number)
    };
    assert!(resume(&mut request_table, text("a"), Some(Id::Integer(40)), 1));
    assert!(resume(&mut request_table, Id::Integer(7), None, 2));
    assert!(!resume(&mut request_table, Id::Integer(7), None, 3), "the id is in flight");
    // The other process has sent 41, 42 and so on to others, and the server may still answer these.
    let ours = request_table.begin(at(0), "ping", LIMIT, 4);
    assert_eq!(ours, Id::Integer(41 + OTHERS_LATER_IDS), "neither an id nor a token");
    let told = hear(
        &mut request_table,
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":40,\"progress\":1}}\n\
          {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"n\":1}}\n\
          {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":40,\"progress\":2}}\n",
    );
    assert_eq!(told, ["progress \"a\": {\"progressToken\":40,\"progress\":1}", "1 is {\"n\":1}"]);
    assert_eq!(request_table.next_deadline(), Some(at(10)), "the other process has waited for 20 s");
    let mut late = Vec::new();
    request_table.expire(at(10), |event| late.push(short(event)));
    assert_eq!(late.len(), 2, "{late:?}");
    assert!(late[1].contains("within 30s"), "{late:?}");
    assert!(late[1].contains("raise --job-timeout"), "{late:?}");
}
