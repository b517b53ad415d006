//! Whom a server's questions and logs come to.

use std::{
    future::ready,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Map, json};
use tokio::sync::mpsc;
use unhang_core::revision::Revision;
use unhang_wire::Lines;

use super::*;
use crate::{
    listener::ListenerAnswer,
    question::{self, SessionKey},
    resumed_request::ResumedRequest,
};

mod beside_calls;
mod progress_tokens;

/// Counts what comes to it.
#[derive(Default)]
struct Counting {
    asks: AtomicUsize,
    asked: AtomicUsize,
}

impl ServerListener for Counting {
    fn capabilities(&self) -> Map<String, Value> {
        Map::from_iter([("roots".to_owned(), json!({}))])
    }

    fn asks(
        &self,
        _method: &str,
        _session: Option<SessionKey>,
    ) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }

    fn asks_in_a_crowd(&self, _method: &str) {
        self.asks.fetch_add(1, Ordering::Relaxed);
    }

    fn asked(
        &self,
        _method: String,
        _params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(Ok(json!({ "by": "the listener" }))))
    }
}

/// A dialogue with a server of old, in which so many calls are in flight, and what is heard beside them.
fn talking(
    calls: usize,
) -> (UpstreamSession, Arc<Counting>, mpsc::Receiver<SideMessage>, crate::UpstreamHandle) {
    let listener = Arc::new(Counting::default());
    let introduction = Introduction::new(&json!({}), &listener.capabilities().into());
    let name = "srv".to_owned();
    let config = UpstreamConfig {
        name,
        limits: Limits::default(),
        introduction,
        listener: listener.clone(),
        is_legacy: false,
    };
    let (link, mailbox) = crate::link();
    let mut upstream_session = UpstreamSession::new(config, mailbox, Tail::new(100));
    upstream_session.begin(HandshakeRequest::Initialize);
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "id": 1, "result": { "protocolVersion": "2025-11-25", "capabilities": {} } }),
    );
    let (asides, received) = mpsc::channel(8);
    for _ in 0..calls {
        calls_with(&mut upstream_session, "{}", Some(asides.clone()));
    }
    while upstream_session.next_out().is_some() {}
    (upstream_session, listener, received, link)
}

/// Makes a call with these params, and drops the receiver of its answer.
fn calls_with(
    upstream_session: &mut UpstreamSession,
    params: &str,
    asides: Option<mpsc::Sender<SideMessage>>,
) {
    let request = ActorRequest {
        method: "tools/call".into(),
        params: params.to_owned(),
        since: Instant::now(),
        limit: Duration::from_secs(60),
        progress: None,
        asides,
        session: None,
        signed: RequestSignature::ByUs,
        mirrored: Vec::new(),
        sent: None,
        stream: None,
    };
    let (reply, _) = oneshot::channel();
    upstream_session.command(Some(ActorCommand::Request(Box::new(request), reply)), 0);
}

fn says(upstream_session: &mut UpstreamSession, message: &Value) {
    let mut lines = Lines::new(1 << 20);
    lines.push(format!("{message}\n").as_bytes());
    while let Some(line) = lines.next_line() {
        upstream_session.line(line);
    }
}

/// What the server hears to its one question.
async fn answer(upstream_session: &mut UpstreamSession) -> Value {
    loop {
        let event = upstream_session.next(None).await;
        upstream_session.attend(event, 0);
        if let Some(Outgoing::Reply(line, _)) = upstream_session.next_out() {
            return serde_json::from_slice(&line).expect("JSON");
        }
    }
}

const QUESTION: &str = "roots/list";

#[tokio::test]
async fn what_is_asked_outside_every_call_is_for_the_listener() {
    let (mut upstream_session, listener, _heard, _link) = talking(0);
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    assert_eq!(answer(&mut upstream_session).await["result"]["by"], "the listener");
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [0, 1], "it says nothing of its calls");
}

#[tokio::test]
async fn what_is_asked_in_a_call_is_for_whoever_made_it() {
    let (mut upstream_session, listener, mut received, _link) = talking(1);
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    let replies = async {
        assert!(matches!(received.recv().await, Some(SideMessage::Logged(_))));
        match received.recv().await {
            Some(SideMessage::Asked(question)) => {
                question.reply.send(Ok("{\"by\":\"the caller\"}".to_owned())).expect("it waits");
            }
            other => panic!("{other:?}"),
        }
    };
    let (answer, ()) = tokio::join!(answer(&mut upstream_session), replies);
    assert_eq!(answer["result"]["by"], "the caller");
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 0]);
}

#[tokio::test]
async fn what_may_be_about_any_of_several_calls_is_for_nobody() {
    let (mut upstream_session, listener, mut received, _link) = talking(2);
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    let answer = answer(&mut upstream_session).await;
    assert!(
        answer["error"]["message"].as_str().is_some_and(|why| why.contains("which of several")),
        "{answer}"
    );
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 0]);
    assert!(received.try_recv().is_err());
}

/// That of a client that is asked by requests.
impl From<SessionKey> for OfSession {
    fn from(key: SessionKey) -> Self {
        Self { key, is_asked_beside: true, is_one_client: true }
    }
}

/// A request for a session, and what it hears beside its answer.
fn ask_for(
    upstream_session: &mut UpstreamSession,
    session: impl Into<OfSession>,
    limit: Duration,
) -> (oneshot::Receiver<RequestOutcome>, mpsc::Receiver<SideMessage>) {
    let ((asides, received), (reply, answer)) = (mpsc::channel(8), oneshot::channel());
    let request = ActorRequest {
        method: "tools/call".into(),
        params: "{}".to_owned(),
        since: Instant::now(),
        limit,
        progress: None,
        asides: Some(asides),
        session: Some(session.into()),
        signed: RequestSignature::ByUs,
        mirrored: Vec::new(),
        sent: None,
        stream: None,
    };
    upstream_session.command(Some(ActorCommand::Request(Box::new(request), reply)), 0);
    while upstream_session.next_out().is_some() {}
    (answer, received)
}

/// The server logs something and asks something. What it hears to its question, where nobody is asked.
async fn logs_and_asks(upstream_session: &mut UpstreamSession, id: i64) -> Value {
    says(
        upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    says(upstream_session, &json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION }));
    answer(upstream_session).await
}

#[tokio::test(start_paused = true)]
async fn f_90_what_may_be_about_a_call_that_was_given_up_is_for_no_other_session() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let [alice, bob] = [SessionKey::drawn(), SessionKey::drawn()];
    // The ids of these are 2, 3 and 4. One is withdrawn, one is not answered in time.
    let (withdrawn, _) = ask_for(&mut upstream_session, alice, Duration::from_secs(60));
    drop(withdrawn);
    upstream_session.attend(UpstreamEvent::Withdrawn, 0);
    let (_late, _) = ask_for(&mut upstream_session, alice, Duration::from_secs(1));
    tokio::time::advance(Duration::from_secs(2)).await;
    upstream_session.attend(UpstreamEvent::Time, 0);
    while upstream_session.next_out().is_some() {}
    let declined = logs_and_asks(&mut upstream_session, 90).await;
    assert_eq!(declined["error"]["code"], FaultKind::MethodNotFound.code(), "nobody is there: {declined}");
    let (_waits, mut hers) = ask_for(&mut upstream_session, bob, Duration::from_secs(60));
    for (id, answered) in [(91, json!(2)), (92, json!("3"))] {
        let declined = logs_and_asks(&mut upstream_session, id).await;
        let why = declined["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains("a cancelled call"), "{declined}");
        assert!(hers.try_recv().is_err(), "it may be about one of the others");
        says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": answered, "result": {} }));
    }
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    assert!(matches!(hers.try_recv(), Ok(SideMessage::Logged(_))), "the others have been answered");
}

#[tokio::test(start_paused = true)]
async fn f_90_who_gave_a_call_up_hears_what_their_next_one_says() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let alice = SessionKey::drawn();
    let (withdrawn, _) = ask_for(&mut upstream_session, alice, Duration::from_secs(60));
    drop(withdrawn);
    upstream_session.attend(UpstreamEvent::Withdrawn, 0);
    while upstream_session.next_out().is_some() {}
    let (_waits, mut received) = ask_for(&mut upstream_session, alice, Duration::from_secs(60));
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    assert!(matches!(received.try_recv(), Ok(SideMessage::Logged(_))));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "method": TASK_BEGUN }));
    assert!(matches!(received.try_recv(), Ok(SideMessage::TaskBegun)));
}

const LONG: Duration = Duration::from_secs(60);

/// What one call has heard: how often it was logged, and the questions.
fn received_by(received: &mut mpsc::Receiver<SideMessage>) -> (usize, Vec<question::OpenServerQuestion>) {
    let (mut logged, mut questions) = (0, Vec::new());
    while let Ok(aside) = received.try_recv() {
        match aside {
            SideMessage::Logged(_) => logged += 1,
            SideMessage::Asked(question) => questions.push(*question),
            SideMessage::TaskBegun | SideMessage::ElicitationOver(_) => unreachable!("neither happens here"),
        }
    }
    (logged, questions)
}

#[tokio::test]
async fn f_54_what_may_be_about_several_calls_of_one_session_is_for_that_session() {
    let (mut upstream_session, listener, _heard, _link) = talking(0);
    let alice = SessionKey::drawn();
    let mut calls = [(); 3].map(|()| ask_for(&mut upstream_session, alice, LONG));
    for id in 90..92 {
        says(
            &mut upstream_session,
            &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
        );
        says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION }));
    }
    let replies = async {
        tokio::task::yield_now().await;
        let received = calls.each_mut().map(|(_, received)| received_by(received));
        let counts = received.each_ref().map(|(logged, questions)| (*logged, questions.len()));
        assert_eq!(counts, [(0, 0), (0, 0), (2, 2)], "the newest call stands for all of them");
        for question in received.into_iter().flat_map(|(_, questions)| questions) {
            assert!(question.is_of_several);
            question.reply.send(Ok("{\"by\":\"alice\"}".to_owned())).expect("it waits");
        }
    };
    let (answer, ()) = tokio::join!(answer(&mut upstream_session), replies);
    assert_eq!(answer["result"]["by"], "alice");
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [2, 0]);
}

/// Ends the calls beside which a question was put, from this one on, until the server has an answer.
async fn left_by(
    upstream_session: &mut UpstreamSession,
    calls: &mut [(oneshot::Receiver<RequestOutcome>, mpsc::Receiver<SideMessage>)],
) -> (Vec<u64>, Value) {
    let mut keys = Vec::new();
    let hearing = async {
        for (answer, received) in calls.iter_mut().rev() {
            match received.recv().await {
                // The call ends, and with it the session of the window that carries the question.
                Some(SideMessage::Asked(question)) => keys.push(question.key),
                other => panic!("{other:?}"),
            }
            answer.close();
        }
    };
    let (answer, ()) = tokio::join!(answer(upstream_session), hearing);
    (keys, answer)
}

#[tokio::test]
async fn f_54_a_question_that_is_left_with_its_call_moves_to_every_older_call_of_its_session() {
    let (mut upstream_session, listener, _heard, _link) = talking(0);
    let alice = SessionKey::drawn();
    let mut calls = [(); 3].map(|()| ask_for(&mut upstream_session, alice, LONG));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 90, "method": QUESTION }));
    // The server had none of these when it asked.
    let [mut newer, mut his] =
        [alice, SessionKey::drawn()].map(|session| ask_for(&mut upstream_session, session, LONG));
    let (keys, declined) = left_by(&mut upstream_session, &mut calls).await;
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "it is the same question: {keys:?}");
    let why = declined["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("no longer waits"), "{declined}");
    assert!([&mut newer, &mut his].into_iter().all(|(_, received)| received.try_recv().is_err()));
    assert_eq!(listener.asks.load(Ordering::Relaxed), 1, "its time does not begin anew");
}

#[tokio::test]
async fn f_54_a_question_about_one_call_ends_with_it_when_it_is_left() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let mut calls = [ask_for(&mut upstream_session, SessionKey::drawn(), LONG)];
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 90, "method": QUESTION }));
    let (keys, declined) = left_by(&mut upstream_session, &mut calls).await;
    assert!(keys.len() == 1 && declined["error"].is_object(), "{declined}");
}

#[tokio::test]
async fn f_54_one_call_of_another_session_is_enough_for_nobody_to_be_asked() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let [alice, bob] = [SessionKey::drawn(), SessionKey::drawn()];
    // The ids of these are 2, 3 and 4.
    let mut calls = [alice, bob, alice].map(|session| ask_for(&mut upstream_session, session, LONG));
    let declined = logs_and_asks(&mut upstream_session, 90).await;
    let why = declined["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("which of several"), "{declined}");
    assert!(calls.iter_mut().all(|(_, received)| received.try_recv().is_err()));
    // One that was given up is enough as well.
    let [_, (his, _), _] = calls;
    drop(his);
    upstream_session.attend(UpstreamEvent::Withdrawn, 0);
    while upstream_session.next_out().is_some() {}
    let declined = logs_and_asks(&mut upstream_session, 91).await;
    assert!(declined["error"].is_object(), "{declined}");
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 3, "result": {} }));
    assert!(
        matches!(upstream_session.audience(None), Audience::One { is_of_several: true, .. }),
        "the server has answered it"
    );
}

#[tokio::test]
async fn f_54_who_is_asked_by_an_answer_and_may_be_several_clients_is_not_asked_while_there_are_several() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let alice = OfSession { key: SessionKey::drawn(), is_asked_beside: false, is_one_client: false };
    // The ids of these are 2 and 3.
    let mut calls = [(); 2].map(|()| ask_for(&mut upstream_session, alice, LONG));
    let declined = logs_and_asks(&mut upstream_session, 90).await;
    assert!(declined["error"].is_object(), "{declined}");
    assert!(calls.iter_mut().all(|(_, received)| received.try_recv().is_err()));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 2, "result": {} }));
    assert!(
        matches!(upstream_session.audience(None), Audience::One { is_of_several: false, .. }),
        "there is one only"
    );
}

/// A call, and what it hears beside its answer.
type ListenedCall = (oneshot::Receiver<RequestOutcome>, mpsc::Receiver<SideMessage>);

/// The questions that have come to each call.
async fn carried_by(calls: &mut [ListenedCall; 3]) -> [Vec<question::OpenServerQuestion>; 3] {
    tokio::task::yield_now().await;
    calls.each_mut().map(|(_, received)| received_by(received).1)
}

#[tokio::test]
async fn f_54_each_call_of_who_is_asked_by_answers_carries_a_question_before_one_carries_two() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let alice = OfSession { key: SessionKey::drawn(), is_asked_beside: false, is_one_client: true };
    let mut calls = [(); 3].map(|()| ask_for(&mut upstream_session, alice, LONG));
    let asks = |id| json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION });
    (90..94).for_each(|id| says(&mut upstream_session, &asks(id)));
    let (answered, mut open) = tokio::join!(answer(&mut upstream_session), async {
        let mut open = carried_by(&mut calls).await;
        assert_eq!(open.each_ref().map(Vec::len), [1, 1, 2], "the newest one carries the last one too");
        assert!(open.iter().flatten().all(|question| question.is_of_several));
        open[1].remove(0).reply.send(Ok("{}".to_owned())).expect("it waits");
        open
    });
    assert_eq!(answered["id"], 91);
    // The call in the middle is free again.
    says(&mut upstream_session, &asks(94));
    assert_eq!(carried_by(&mut calls).await.each_ref().map(Vec::len), [0, 1, 0]);
    // The newest one ends, so its questions move.
    calls[2].0.close();
    open[2].clear();
    let moves = async {
        while calls[0].1.is_empty() && calls[1].1.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        told = answer(&mut upstream_session) => panic!("{told}"),
        () = moves => {}
    }
}

#[tokio::test]
async fn f_54_a_call_whose_caller_has_gone_stands_for_the_others_in_no_question() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let alice = SessionKey::drawn();
    let [(_waits, mut received), (gone, _)] = [(); 2].map(|()| ask_for(&mut upstream_session, alice, LONG));
    drop(gone);
    says(
        &mut upstream_session,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    assert_eq!(received_by(&mut received).0, 1);
}

#[tokio::test]
async fn f_79_a_server_behind_a_url_has_a_log_and_no_stderr_of_ours() {
    for (is_remote, hint) in [(true, "see its log"), (false, "see its stderr")] {
        let (mut upstream_session, _, _heard, _link) = talking(0);
        upstream_session.is_remote = is_remote;
        upstream_session.begin(HandshakeRequest::Initialize);
        let refusal = json!({ "code": -32603, "message": "no" });
        says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 2, "error": refusal }));
        let state = upstream_session.mailbox.state.borrow();
        let ServerPhase::Over(failure) = &state.phase else { panic!("{:?}", state.phase) };
        assert!(failure.hint.starts_with(hint), "{}", failure.hint);
    }
}

#[tokio::test]
async fn what_waits_of_one_message_full_of_requests_is_bounded() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    upstream_session.bound_replies(3);
    let pings = ["ping"; 5].map(|method| json!({ "jsonrpc": "2.0", "id": "q", "method": method }));
    let invalid = [(); 5].map(|()| json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": 1 }));
    for asked in [pings, invalid] {
        says(&mut upstream_session, &json!(asked));
        let mut replies: Vec<Outgoing> = std::iter::from_fn(|| upstream_session.next_out()).collect();
        assert_eq!(replies.len(), 3, "{replies:?}");
        // One has left.
        replies.pop();
        says(&mut upstream_session, &asked[0]);
        says(&mut upstream_session, &asked[0]);
        assert_eq!(std::iter::from_fn(|| upstream_session.next_out()).count(), 1);
    }
}

#[tokio::test]
async fn questions_that_are_too_long_beside_others_are_refused() {
    let (mut upstream_session, _listener, _heard, _link) = talking(1);
    let long = "x".repeat(600 << 10);
    upstream_session.questions.budget.most_of_questions = 1 << 20;
    for id in 1..3 {
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION, "params": { "text": long } });
        says(&mut upstream_session, &question);
    }
    match upstream_session.next_out() {
        Some(Outgoing::Reply(line, _)) => {
            let refusal: Value = serde_json::from_slice(&line).expect("JSON");
            assert_eq!(
                (&refusal["id"], &refusal["error"]["code"]),
                (&json!(2), &json!(FaultKind::Overloaded.code()))
            );
        }
        other => panic!("{other:?}"),
    }
}

/// The server says a message on the stream of this request.
fn says_beside(upstream_session: &mut UpstreamSession, request: i64, message: &Value) {
    let line = message.to_string();
    upstream_session.line_beside(Some(&Id::Integer(request)), Line::Whole(line.as_bytes()));
}

#[tokio::test]
async fn what_is_asked_on_the_stream_of_a_call_is_for_its_caller_among_many() {
    let (mut upstream_session, listener, _heard, _link) = talking(0);
    let sessions = [SessionKey::drawn(), SessionKey::drawn()];
    // The ids of these are 2 and 3.
    let mut calls = sessions.map(|session| ask_for(&mut upstream_session, session, LONG));
    for (number, (_, received)) in calls.iter_mut().enumerate() {
        let request = i64::try_from(number).expect("small") + 2;
        let question = json!({ "jsonrpc": "2.0", "id": "q", "method": QUESTION, "params": {} });
        says_beside(&mut upstream_session, request, &question);
        let replies = async {
            match received.recv().await {
                Some(SideMessage::Asked(question)) => {
                    assert!(!question.is_of_several, "it is about this call");
                    let _gone = question.reply.send(Ok(json!({ "by": request }).to_string()));
                }
                other => panic!("{other:?}"),
            }
        };
        let (answer, ()) = tokio::join!(answer(&mut upstream_session), replies);
        assert_eq!(answer["result"]["by"], request);
    }
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [0, 0], "nobody takes turns for that");
}

#[tokio::test]
async fn a_stateless_server_over_http_that_asks_in_a_call_fails_that_call_and_hears_nothing() {
    let (mut upstream_session, _listener, _heard, _link) = talking(0);
    let discovered = json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} });
    upstream_session.is_remote = true;
    upstream_session.begin(HandshakeRequest::Discover);
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 2, "result": discovered }));
    // The ids of these are 3 and 4.
    let [(mut asks, _), (mut stays, _)] =
        [(); 2].map(|()| ask_for(&mut upstream_session, SessionKey::drawn(), LONG));
    while upstream_session.next_out().is_some() {}
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": QUESTION, "params": {} });
    says(&mut upstream_session, &question);
    assert!(upstream_session.next_out().is_none(), "no message can carry the reply");
    says_beside(&mut upstream_session, 3, &question);
    let sent: Vec<Outgoing> = std::iter::from_fn(|| upstream_session.next_out()).collect();
    assert!(matches!(&sent[..], [Outgoing::Over(Id::Integer(3))]), "{sent:?}");
    match asks.try_recv() {
        Ok(Err(Error::Failure(failure))) => {
            assert_eq!(failure.kind, FaultKind::BadResponse);
            assert!(failure.happened.contains(QUESTION), "{}", failure.happened);
        }
        other => panic!("{other:?}"),
    }
    assert!(stays.try_recv().is_err(), "the other call goes on");
}

#[tokio::test]
async fn a_resumed_session_greets_nobody_and_hears_what_its_server_still_says() {
    let listener = Arc::new(Counting::default());
    let introduction = Introduction::new(&json!({}), &listener.capabilities().into());
    let (name, limits) = ("srv".to_owned(), Limits::default());
    let config = UpstreamConfig { name, limits, introduction, listener: listener.clone(), is_legacy: false };
    let (link, mailbox) = crate::link();
    let mut upstream_session = UpstreamSession::new(config, mailbox, Tail::new(100));
    let (reply, outcome) = oneshot::channel();
    let (asides, mut said) = mpsc::channel(8);
    let request = ResumedRequest {
        id: Id::Text("c-1".into()),
        token: None,
        method: "tools/call".into(),
        elapsed: Duration::from_secs(5),
        limit: Duration::from_secs(60),
    };
    let origin =
        RequestOrigin::Caller { reply, progress: None, asides: Some(asides), session: None, stream: None };
    let info = ServerInfo::read(Revision::V2025November, RawValue::NULL);
    upstream_session.resume(info, [(request, origin)], [Id::Text("c-0".into())]);
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": "c-0", "result": { "content": [] } }));
    assert_eq!(upstream_session.request_table.junk_lines(), 0, "that answer was expected");
    assert!(link.is_usable() && upstream_session.next_out().is_none());
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    assert!(matches!(upstream_session.next_out(), Some(Outgoing::Reply(..))));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 2, "method": QUESTION }));
    let Some(SideMessage::Asked(question)) = said.recv().await else { panic!("a question") };
    assert_eq!((question.method.as_str(), listener.asked.load(Ordering::Relaxed)), (QUESTION, 0));
    question.reply.send(Ok(r#"{"roots":[]}"#.to_owned())).expect("it is awaited");
    assert_eq!(answer(&mut upstream_session).await["result"], json!({ "roots": [] }));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": "c-1", "result": { "content": [] } }));
    let result = outcome.await.expect("an outcome").expect("a result");
    assert_eq!(result.get(), r#"{"content":[]}"#);
}
