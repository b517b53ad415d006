//! Requests about which servers decide whether unhang refuses them, before anything is sent to the client.

use tokio::sync::oneshot;
use unhang_gateway::testing::mute;
use unhang_tools::toolbox::NoTools;
use unhang_upstream::http::param_headers::ReceivedParamHeaders;

use super::{
    super::{
        reply_streams::{HttpEffects, PostReply, ReplyForm},
        session::{SessionCommand, mailbox},
    },
    *,
};

/// Posts a call of a tool that a starting server may have. Returns the reply, and how long it took.
async fn called(form: ReplyForm, param_headers: Option<ReceivedParamHeaders>) -> (PostReply, Duration) {
    let (_, body) = alone("tools/call", &json!({ "name": "srv__query", "arguments": { "region": "x" } }));
    posted(body, form, param_headers).await
}

/// Posts a request while the only server starts. Returns the reply, and how long it took.
async fn posted(
    body: String,
    form: ReplyForm,
    param_headers: Option<ReceivedParamHeaders>,
) -> (PostReply, Duration) {
    let (_mute, entry) = mute();
    let context = SessionContext::new(Arc::new(NoTools), Some(Servers::start(vec![entry].into())), None);
    let limits = Limits::default();
    let work = SessionRuntime::new(limits.clone(), &context, FairnessKey::new("one"), None).alone();
    let (commands, received) = mailbox();
    let session = HttpSession::new(String::new(), work, &limits, received, ReplyMode::Alone);
    let (_end, ending) = watch::channel(false);
    let running = tokio::spawn(session.run(ending));
    let (reply, replied) = oneshot::channel();
    let (body, room, trace) = (body.into(), None, None);
    let command = SessionCommand::Post { body, room, form, trace, param_headers, reply };
    let begun = Instant::now();
    assert!(commands.send(command).await.is_ok(), "it runs");
    let reply = replied.await.expect("a reply");
    running.abort();
    (reply, begun.elapsed())
}

/// The status of the answer is not sent while it may turn out to be 400.
#[tokio::test(start_paused = true)]
async fn no_stream_begins_while_headers_cannot_be_compared() {
    for (form, seconds) in [(ReplyForm::WholeOrEvents, 5), (ReplyForm::EventsAtOnce, 0)] {
        let (reply, time) = called(form, None).await;
        assert!(matches!(reply, PostReply::Events(_)), "nothing has to be compared");
        assert_eq!(time.as_secs(), seconds, "{form:?}");
        let (reply, time) = called(form, Some(ReceivedParamHeaders::default())).await;
        assert!(matches!(reply, PostReply::Whole(_, Some(_))), "no server has the tool");
        assert!(time > Duration::from_secs(20), "it waited for the server: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_stream_begins_while_no_server_is_known_to_have_the_method() {
    for form in [ReplyForm::WholeOrEvents, ReplyForm::EventsAtOnce] {
        let (_, body) = alone("skills/list", &json!({}));
        let (reply, time) = posted(body, form, None).await;
        let PostReply::Whole(_, error) = reply else { panic!("the status is 404") };
        assert_eq!(error.map(|error| (error.code, error.is_ours)), Some((-32601, true)));
        assert!(time > Duration::from_secs(1), "it waited for the server: {time:?}");
    }
}

#[tokio::test]
async fn a_stream_begins_as_soon_as_headers_were_compared() {
    let mut effects = HttpEffects::new(ReplyMode::Alone, 1000, Arc::default());
    let (reply, mut replied) = oneshot::channel();
    effects.opened(1, None, ReplyForm::EventsAtOnce, reply);
    effects.handled(1, true, None);
    for _ in 0..2 {
        effects.begin_streams(|key| key == 1);
        assert!(replied.try_recv().is_err(), "the status is not known");
    }
    effects.begin_streams(|_| false);
    assert!(matches!(replied.try_recv(), Ok(PostReply::Events(_))));
}
