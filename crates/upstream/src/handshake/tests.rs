//! What a server answers, and the next step.

use serde_json::json;

use super::*;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn refusal(code: i64, data: &str) -> Result<Box<RawValue>, Error> {
    let error = format!(r#"{{"code":{code},"message":"no","data":{data}}}"#);
    Err(Error::Server(Box::new(ServerError::read("srv", "server/discover", &error))))
}

const MODERN: &str = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m"}}}"#;
const LEGACY: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"l"},"instructions":"be kind"}"#;

fn short(step: &HandshakeStep) -> String {
    match step {
        HandshakeStep::Wait => "wait".to_owned(),
        HandshakeStep::Ask(ask) => ask.method().to_owned(),
        HandshakeStep::Ready(session) => {
            format!(
                "{} {}",
                session.revision.name(),
                session.server_info.as_ref().map_or("", |info| info["name"].as_str().unwrap())
            )
        }
        HandshakeStep::Failed(kind, happened, _) => format!("{}: {happened}", kind.word()),
        HandshakeStep::FailedWith(failure) => failure.kind.word().to_owned(),
    }
}

#[test]
fn the_first_answer_decides() {
    let failure = |kind| Err(Failure { kind, ..Failure::ended() }.into());
    for (answer, expect) in [
        (Ok(raw(MODERN)), "2026-07-28 m"),
        (Ok(raw(r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#)), "2026-07-28 "),
        (Ok(raw(r#"{"supportedVersions":["2025-11-25"]}"#)), "initialize"),
        (Ok(raw(r#"{"supportedVersions":["2027-01-01"]}"#)), "initialize"),
        (Ok(raw("{}")), "initialize"),
        (Ok(raw("[]")), "initialize"),
        (refusal(-32601, "null"), "initialize"),
        (refusal(-32602, "null"), "initialize"),
        (refusal(-32000, "null"), "initialize"),
        (refusal(-32022, r#"{"supported":["2025-06-18"]}"#), "initialize"),
        (refusal(-32022, r#"{"supported":["2026-07-28"]}"#), "server/discover"),
        (refusal(-32022, r#"{"supported":["2027-01-01"]}"#), "initialize"),
        (refusal(-32022, "null"), "initialize"),
        (refusal(-32021, "null"), "start_failed: `srv` refused `server/discover`: no (error -32021)"),
        (failure(FaultKind::BadResponse), "initialize"),
        (failure(FaultKind::Deadline), "deadline"),
        (failure(FaultKind::ServerExited), "server_exited"),
    ] {
        let told = format!("{answer:?}");
        let step = Handshake::new("srv", at(0), HandshakeRequest::Discover)
            .answered(HandshakeRequest::Discover, answer);
        assert_eq!(short(&step), expect, "{told}");
    }
}

#[test]
fn the_handshake_of_old_is_checked() {
    for (answer, expect) in [
        (Ok(raw(LEGACY)), "2025-06-18 l"),
        (
            Ok(raw(r#"{"protocolVersion":"1999-01-01"}"#)),
            "bad_response: `srv` answered `initialize` with revision `1999-01-01`, which MCP does \
             not have",
        ),
        (
            Ok(raw(r#"{"protocolVersion":"2026-07-28"}"#)),
            "bad_response: `srv` answered `initialize` with revision `2026-07-28`, which MCP does \
             not have",
        ),
        (Ok(raw("{}")), "bad_response: `srv` answered `initialize` without a protocolVersion"),
        (refusal(-32603, "null"), "start_failed: `srv` refused `initialize`: no (error -32603)"),
    ] {
        let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
        assert_eq!(
            short(&handshake.answered(HandshakeRequest::Discover, refusal(-32601, "null"))),
            "initialize"
        );
        let told = short(&handshake.answered(HandshakeRequest::Initialize, answer));
        let before = "; before that, `srv` refused `server/discover`: no (error -32601)";
        assert_eq!(told.strip_suffix(before).unwrap_or(&told), expect);
        assert_eq!(told.ends_with(before), told.contains('`'), "{told}");
    }
    let HandshakeStep::Ready(session) = Handshake::new("srv", at(0), HandshakeRequest::Discover)
        .answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))
    else {
        panic!()
    };
    assert_eq!((session.instructions.as_deref(), session.answer.get()), (Some("be kind"), LEGACY));
}

/// A cold start and a server that keeps silent look alike (protocol.md 1.4).
#[test]
fn silence_means_initialize_but_counts_from_the_first_sign_of_life() {
    let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
    assert_eq!(handshake.next_tick(), Some(PROBE_SILENCE));
    assert_eq!(short(&handshake.tick(at(5_000))), "wait");
    handshake.alive(at(6_000));
    handshake.alive(at(7_000));
    assert_eq!(handshake.next_tick(), Some(at(9_000)));
    assert_eq!(short(&handshake.tick(at(8_999))), "wait");
    assert_eq!(short(&handshake.tick(at(9_000))), "initialize");
    assert_eq!(
        (handshake.next_tick(), short(&handshake.tick(at(99_000)))),
        (None, "wait".to_owned()),
        "once"
    );
    // The late answer to the first question is as good as any.
    assert_eq!(short(&handshake.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");

    let mut silent = Handshake::new("srv", at(0), HandshakeRequest::Discover);
    assert_eq!(short(&silent.tick(PROBE_SILENCE)), "initialize");
    assert_eq!(
        short(&silent.answered(HandshakeRequest::Initialize, refusal(-32022, "null"))),
        "wait",
        "it has taken to the other era"
    );
    assert_eq!(
        short(&silent.answered(HandshakeRequest::Discover, refusal(-32601, "null"))),
        "wait",
        "initialize is out already"
    );
}

#[test]
fn what_was_known_of_a_server_is_a_guess() {
    let failure = |kind| Err(Failure { kind, ..Failure::ended() }.into());
    let begin = || Handshake::guessing("srv", at(0));
    assert_eq!(short(&begin().answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))), "2025-06-18 l");
    assert_eq!(
        short(&begin().answered(HandshakeRequest::Initialize, failure(FaultKind::ServerExited))),
        "server_exited"
    );
    // It knows the other one alone by now, and says so.
    for refused in [refusal(-32022, "null"), refusal(-32601, "null"), failure(FaultKind::BadResponse)] {
        let mut changed = begin();
        assert_eq!(short(&changed.answered(HandshakeRequest::Initialize, refused)), "server/discover");
        assert_eq!(short(&changed.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");
    }
    // It refuses whatever comes first.
    let mut odd = begin();
    assert_eq!(
        short(&odd.answered(HandshakeRequest::Initialize, refusal(-32000, "null"))),
        "server/discover"
    );
    assert_eq!(short(&odd.answered(HandshakeRequest::Discover, refusal(-32601, "null"))), "initialize");
    assert_eq!(
        short(&odd.answered(HandshakeRequest::Initialize, refusal(-32000, "null"))),
        "start_failed: `srv` refused `initialize`: no (error -32000); before that, `srv` refused \
         `server/discover`: no (error -32601)"
    );
    // It says nothing to the first; both may be answered late.
    let mut mute = begin();
    mute.alive(at(1_000));
    assert_eq!(short(&mute.tick(at(3_999))), "wait");
    assert_eq!(short(&mute.tick(at(4_000))), "server/discover");
    assert_eq!((mute.next_tick(), short(&mute.tick(at(99_000)))), (None, "wait".to_owned()));
    assert_eq!(short(&mute.answered(HandshakeRequest::Initialize, refusal(-32601, "null"))), "wait");
    assert_eq!(short(&mute.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");
    let mut slow = begin();
    assert_eq!(short(&slow.tick(PROBE_SILENCE)), "server/discover");
    assert_eq!(short(&slow.answered(HandshakeRequest::Discover, refusal(-32601, "null"))), "wait");
    assert_eq!(short(&slow.answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))), "2025-06-18 l");
}

#[test]
fn what_every_stateless_request_says_is_added_and_keeps_the_rest() {
    let introduction = Introduction::new(&json!({ "name": "unhang" }), &json!({ "elicitation": {} }));
    let params = introduction.signed(r#"{"_meta":{"progressToken":1},"name":"x"}"#);
    let params: Value = serde_json::from_str(&params).unwrap();
    let meta = &params["_meta"];
    assert_eq!((&meta["progressToken"], &params["name"]), (&json!(1), &json!("x")));
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({ "elicitation": {} }));
    let asked: Value = serde_json::from_str(&introduction.params(HandshakeRequest::Initialize)).unwrap();
    assert_eq!(
        (&asked["protocolVersion"], &asked["clientInfo"]["name"]),
        (&json!("2025-11-25"), &json!("unhang"))
    );
}

/// Both refusals are told, with the setting that may help.
#[test]
fn a_server_that_refuses_both_requests_is_told_of_both() {
    let forbidden =
        Failure { kind: FaultKind::BadResponse, happened: "HTTP 403".to_owned(), ..Failure::ended() };
    for (first, before) in [
        (
            Ok(raw(r#"{"supportedVersions":["2027-01-01"]}"#)),
            "`srv` answered `server/discover` with no revision that unhang supports, only 2027-01-01",
        ),
        (Ok(raw("{}")), "`srv` answered `server/discover` without supportedVersions"),
        (
            refusal(-32022, r#"{"supported":["2027-01-01"]}"#),
            "`srv` refused `server/discover`: no (error -32022); it supports only 2027-01-01",
        ),
        (Err(forbidden.clone().into()), "HTTP 403"),
    ] {
        let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
        assert_eq!(short(&handshake.answered(HandshakeRequest::Discover, first)), "initialize");
        let second = handshake.answered(HandshakeRequest::Initialize, refusal(-32000, "null"));
        let HandshakeStep::Failed(_, happened, hint) = second else { panic!("{second:?}") };
        let after = "`srv` refused `initialize`: no (error -32000)";
        assert_eq!(happened, format!("{after}; before that, {before}"));
        assert!(hint.contains("era = \"legacy\""), "{hint}");
    }
    // The refusal of the login needs another remedy.
    for (kind, may_help) in [(FaultKind::StartFailed, false), (FaultKind::Deadline, true)] {
        let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
        handshake.answered(HandshakeRequest::Discover, Err(forbidden.clone().into()));
        let second = Failure { kind, happened: "again".to_owned(), ..Failure::ended() };
        let step = handshake.answered(HandshakeRequest::Initialize, Err(second.into()));
        let HandshakeStep::FailedWith(failure) = step else { panic!("{step:?}") };
        assert_eq!(failure.happened, "again; before that, HTTP 403");
        assert_eq!(failure.hint.contains("era = \"legacy\""), may_help, "{}", failure.hint);
    }
}

#[test]
fn another_process_is_greeted_by_initialize_if_the_first_has_seen_nothing_else() {
    let first = Handshake::new("srv", at(5), HandshakeRequest::Discover);
    assert!(first.has_only_discovered());
    let mut second = first.with_another_process("`srv` ended (exit code 1)");
    assert_eq!((second.since(), second.next_tick(), second.has_only_discovered()), (at(5), None, false));
    assert_eq!(
        short(&second.answered(HandshakeRequest::Initialize, refusal(-32000, "null"))),
        "start_failed: `srv` refused `initialize`: no (error -32000); before that, `srv` ended (exit code 1) at \
         `server/discover`"
    );
    let mut silent = Handshake::new("srv", at(0), HandshakeRequest::Discover);
    assert_eq!(short(&silent.tick(PROBE_SILENCE)), "initialize");
    assert!(!silent.has_only_discovered() && !Handshake::guessing("srv", at(0)).has_only_discovered());
}
