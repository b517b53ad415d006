//! What servers ask about calls, as far as the machine knows of it.

use serde_json::value::RawValue;

use super::{
    servers::{TOOL, known, raw},
    *,
};

/// A call of a server's tool in flight, of a client that can be asked for input.
fn calling() -> (Fronted, CallKey) {
    let mut front = Fronted::shaken(Limits::default(), "2025-11-25");
    front.machine = front.machine.with_servers(known(&[TOOL], true));
    front.offers(r#"{"elicitation":{}}"#);
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"srv__now"}}"#);
    let key = match &front.actions()[..] {
        [Action::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    (front, key)
}

fn asks(front: &mut Fronted, key: CallKey, question: u64, method: &str, params: Option<&RawValue>) {
    front.machine.asked(front.now, key, question, (method, params), &mut front.world);
}

/// What became of the one question that has an answer now.
#[track_caller]
fn reply(front: &mut Fronted) -> (u64, Result<String, (i32, String)>) {
    let replies: Vec<_> = front
        .actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Reply { question, replied } => Some((question, replied)),
            _ => None,
        })
        .collect();
    match &replies[..] {
        [reply] => reply.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_is_asked_in_the_servers_words_and_answers_in_its_own() {
    let (mut front, key) = calling();
    let params = raw(r#"{ "message":"?", "x":1.0e0 }"#);
    asks(&mut front, key, 5, "elicitation/create", Some(&params));
    let line = front.world.heard.pop().expect("a question");
    assert_eq!(
        line,
        r#"{"jsonrpc":"2.0","id":"unhang-5","method":"elicitation/create","params":{ "message":"?", "x":1.0e0 }}"#
    );
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{ "action":"accept","y":2.0e0 }}"#);
    assert_eq!(reply(&mut front), (5, Ok(r#"{ "action":"accept","y":2.0e0 }"#.to_owned())));
    // Once is enough, and what nobody has asked is heard by nobody.
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-6","result":{}}"#);
    assert_eq!((front.actions(), front.heard().len()), (vec![], 0));
    asks(&mut front, key, 6, "elicitation/create", None);
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-6","error":{"code":-1,"message":"no"}}"#);
    assert_eq!(reply(&mut front), (6, Err((-1, "no".to_owned()))));
}

#[test]
fn a_client_is_asked_nothing_that_it_has_not_offered() {
    let (mut front, key) = calling();
    for (number, method) in ["sampling/createMessage", "roots/list", "ping", "no/such"].iter().enumerate() {
        asks(&mut front, key, number as u64, method, None);
        let (question, replied) = reply(&mut front);
        let (code, why) = replied.expect_err("nobody can answer");
        assert_eq!((question, code), (number as u64, -32601), "{why}");
        assert!(why.contains(method), "{why}");
    }
    asks(&mut front, key + 1, 9, "elicitation/create", None);
    let (_, replied) = reply(&mut front);
    assert!(replied.expect_err("no such call").1.contains("nobody waits"));
    assert!(front.heard().is_empty());
}

#[test]
fn a_question_ends_with_its_call() {
    // Withdrawn by the client, too late, answered by the server all the same, and at the end.
    for way in 0..4 {
        let (mut front, key) = calling();
        asks(&mut front, key, 5, "elicitation/create", None);
        front.heard();
        match way {
            0 => {
                front
                    .says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
            }
            1 => front.wait(seconds(61)),
            2 => front.machine.forgotten(front.now, key, &mut front.world),
            _ => front.machine.stop(front.now, 0, "of a test", &mut front.world),
        }
        let (question, replied) = reply(&mut front);
        assert_eq!((question, replied.expect_err("it is over").0), (5, -31009), "{way}");
        let told = front.heard().remove(0);
        assert_eq!(
            (&told["method"], &told["params"]["requestId"]),
            (&json!("notifications/cancelled"), &json!("unhang-5")),
            "{way}"
        );
        front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
        assert!(front.actions().iter().all(|action| !matches!(action, Action::Reply { .. })), "{way}");
    }
}
