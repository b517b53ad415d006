//! Whom a server's questions and logs come to.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, json};
use tokio::sync::mpsc;
use unhang_wire::Lines;

use super::*;
use crate::{client::Answer, upstream};

/// Counts what comes to it.
#[derive(Default)]
struct Counting {
    asks: AtomicUsize,
    asked: AtomicUsize,
}

impl Listener for Counting {
    fn capabilities(&self) -> Map<String, Value> {
        Map::from_iter([("roots".to_owned(), json!({}))])
    }

    fn asks(&self, _method: &str) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
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
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(Ok(json!({ "by": "the listener" }))))
    }
}

/// A dialogue with a server of old, in which so many calls are in flight, and what is heard beside them.
fn talking(calls: usize) -> (Dialogue, Arc<Counting>, mpsc::Receiver<Aside>, upstream::Link) {
    let listener = Arc::new(Counting::default());
    let introduction = Introduction::new(&json!({}), &listener.capabilities().into());
    let name = "srv".to_owned();
    let spoken = Spoken {
        name,
        limits: Limits::default(),
        introduction,
        listener: listener.clone(),
        is_legacy: false,
    };
    let (link, mailbox) = upstream::link();
    let mut dialogue = Dialogue::new(spoken, mailbox, Tail::new(100));
    dialogue.begin(Ask::Initialize);
    says(
        &mut dialogue,
        &json!({ "jsonrpc": "2.0", "id": 1, "result": { "protocolVersion": "2025-11-25", "capabilities": {} } }),
    );
    let (asides, heard) = mpsc::channel(8);
    for _ in 0..calls {
        let request = Request {
            method: "tools/call".into(),
            params: "{}".to_owned(),
            since: Instant::now(),
            limit: Duration::from_secs(60),
            progress: None,
            asides: Some(asides.clone()),
            signed: Signed::ByUs,
            mirrored: Vec::new(),
        };
        // Nobody looks at the answers.
        let (reply, _) = oneshot::channel();
        dialogue.command(Some(Command::Request(Box::new(request), reply)), 0);
    }
    while dialogue.next_out().is_some() {}
    (dialogue, listener, heard, link)
}

fn says(dialogue: &mut Dialogue, message: &Value) {
    let mut lines = Lines::new(1 << 20);
    lines.push(format!("{message}\n").as_bytes());
    while let Some(line) = lines.next_line() {
        dialogue.line(line);
    }
}

/// What the server hears to its one question.
async fn answer(dialogue: &mut Dialogue) -> Value {
    loop {
        let heard = dialogue.next(None).await;
        dialogue.attend(heard, 0);
        if let Some(Out::Word(line)) = dialogue.next_out() {
            return serde_json::from_slice(&line).expect("JSON");
        }
    }
}

const QUESTION: &str = "roots/list";

#[tokio::test]
async fn what_is_asked_outside_every_call_is_for_the_listener() {
    let (mut dialogue, listener, _heard, _link) = talking(0);
    says(&mut dialogue, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    assert_eq!(answer(&mut dialogue).await["result"]["by"], "the listener");
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [0, 1], "it says nothing of its calls");
}

#[tokio::test]
async fn what_is_asked_in_a_call_is_for_whoever_made_it() {
    let (mut dialogue, listener, mut heard, _link) = talking(1);
    says(
        &mut dialogue,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    says(&mut dialogue, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    let replies = async {
        assert!(matches!(heard.recv().await, Some(Aside::Logged(_))));
        match heard.recv().await {
            Some(Aside::Asked(question)) => {
                question.reply.send(Ok("{\"by\":\"the caller\"}".to_owned())).expect("it waits");
            }
            other => panic!("{other:?}"),
        }
    };
    let (answer, ()) = tokio::join!(answer(&mut dialogue), replies);
    assert_eq!(answer["result"]["by"], "the caller");
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 0]);
}

#[tokio::test]
async fn what_may_be_about_any_of_several_calls_is_for_nobody() {
    let (mut dialogue, listener, mut heard, _link) = talking(2);
    says(
        &mut dialogue,
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } }),
    );
    says(&mut dialogue, &json!({ "jsonrpc": "2.0", "id": 9, "method": QUESTION }));
    let answer = answer(&mut dialogue).await;
    assert!(
        answer["error"]["message"].as_str().is_some_and(|why| why.contains("which of several")),
        "{answer}"
    );
    let counted = [&listener.asks, &listener.asked].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 0]);
    assert!(heard.try_recv().is_err());
}
