//! Questions of the leading window, and notifications beside calls.

use super::*;

/// A dialogue with the leading window, in which the calls 3 and 4 are in flight.
fn led() -> (UpstreamSession, [mpsc::Receiver<SideMessage>; 2], impl Sized) {
    let (mut upstream_session, _listener, _heard, link) = talking(0);
    let discovered = json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} });
    upstream_session.is_remote = true;
    upstream_session.asks_for_windows();
    upstream_session.begin(HandshakeRequest::Discover);
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "id": 2, "result": discovered }));
    let [(one, asked), (other, others)] =
        [(); 2].map(|()| ask_for(&mut upstream_session, SessionKey::drawn(), LONG));
    (upstream_session, [asked, others], (link, one, other))
}

#[tokio::test]
async fn what_the_leading_window_asks_in_a_call_is_asked_once_though_it_moves_to_another_call() {
    let (mut upstream_session, [mut asked, mut others], _kept) = led();
    let id = question::window_question_id(7, true);
    let asks = json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION, "params": {} });
    says_beside(&mut upstream_session, 3, &asks);
    let replies = async {
        match asked.recv().await {
            Some(SideMessage::Asked(question)) => {
                assert!(question.is_of_several && question.key == 7);
                question.reply.send(Ok("{}".to_owned())).expect("it waits");
            }
            other => panic!("{other:?}"),
        }
    };
    // It moves while it is open, and once more before its answer has come there.
    says_beside(&mut upstream_session, 4, &asks);
    let (answer, ()) = tokio::join!(answer(&mut upstream_session), replies);
    assert_eq!((&answer["id"], &answer["result"]), (&json!(id), &json!({})));
    says_beside(&mut upstream_session, 4, &asks);
    tokio::task::yield_now().await;
    assert!(others.try_recv().is_err() && asked.try_recv().is_err(), "its client is asked once");
    assert!(upstream_session.questions.is_empty());
}

#[tokio::test]
async fn what_the_leading_window_withdraws_is_over_for_its_caller() {
    let (mut upstream_session, [mut asked, _], _kept) = led();
    let id = question::window_question_id(7, false);
    says_beside(&mut upstream_session, 3, &json!({ "jsonrpc": "2.0", "id": id, "method": QUESTION }));
    let Some(SideMessage::Asked(mut question)) = asked.recv().await else { panic!("it is asked") };
    assert!(!question.is_of_several);
    let withdrawn = json!({ "requestId": id });
    let withdrawn = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": withdrawn });
    says_beside(&mut upstream_session, 3, &withdrawn);
    question.over.wait().await;
    assert!(question.reply.is_closed());
}

#[tokio::test]
async fn a_completed_elicitation_is_told_beside_its_call_however_much_is_logged() {
    let (mut upstream_session, _listener, mut received, _link) = talking(1);
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } });
    (0..100).for_each(|_| says(&mut upstream_session, &log));
    says(&mut upstream_session, &json!({ "jsonrpc": "2.0", "method": ELICITATION_COMPLETE, "params": {} }));
    let heard = std::iter::from_fn(|| received.try_recv().ok());
    assert!(heard.into_iter().any(|heard| matches!(heard, SideMessage::ElicitationOver(_))));
}

#[tokio::test]
async fn changed_roots_are_told_once_to_a_server_with_a_handshake_and_to_no_other() {
    let (mut upstream_session, _listener, _heard, link) = talking(0);
    link.roots_changed();
    link.roots_changed();
    let event = upstream_session.next(None).await;
    upstream_session.attend(event, 0);
    assert!(matches!(upstream_session.next_out(), Some(Outgoing::RootsChanged(_))));
    assert!(upstream_session.next_out().is_none());
    let info = upstream_session.session.clone().expect("it is ready");
    let modern = ServerInfo { revision: Revision::V2026July, ..ServerInfo::clone(&info) };
    upstream_session.session = Some(Arc::new(modern));
    upstream_session.attend(UpstreamEvent::RootsChanged, 0);
    assert!(upstream_session.next_out().is_none());
}
