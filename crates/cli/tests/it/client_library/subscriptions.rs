//! Subscriptions of `unhang::client`: changes are reported from the acknowledgement to the end, in both eras.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json, value::RawValue};
use tokio::time::timeout;
use unhang::client::{
    Client, ClientSpec, DecliningListener, ListenerAnswer, RequestOptions, ServerListener, Topics,
};

use super::{arguments, faulty_server, scripted, stateless, text, until};
use crate::harness::{PATIENCE, Sandbox};

/// Hears what a server says unasked.
#[derive(Default)]
struct RecordingListener(Mutex<Vec<String>>);

impl RecordingListener {
    fn count(&self, method: &str) -> usize {
        self.0.lock().expect("not poisoned").iter().filter(|heard| *heard == method).count()
    }
}

impl ServerListener for RecordingListener {
    fn notified(&self, method: &str, _params: Option<&RawValue>) {
        self.0.lock().expect("not poisoned").push(method.to_owned());
    }

    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        DecliningListener.asked(method, params)
    }
}

#[tokio::test]
async fn changes_are_told_from_the_subscription_to_its_end() {
    const UPDATED: &str = "notifications/resources/updated";
    let sandbox = Sandbox::new();
    let listener = Arc::new(RecordingListener::default());
    let client = Client::start(ClientSpec {
        listener: listener.clone(),
        ..faulty_server(&sandbox, "srv", &["well-behaved"])
    });
    let call = async |tool: &str, given: Value| {
        let result = client.call_tool(tool, arguments(given), &RequestOptions::default()).await;
        text(&result.expect("it answers"))
    };
    let uri = json!({ "uri": "zoo://numbers/1" });
    call("notify-resource-updated", uri.clone()).await;
    assert_eq!(listener.count(UPDATED), 0, "nobody has subscribed yet");

    let topics = Topics { resources: vec!["zoo://numbers/1".to_owned()], lists: true };
    let subscription =
        client.subscribe(topics, &RequestOptions::default()).await.expect("it is acknowledged");
    call("notify-resource-updated", uri).await;
    call("notify-list-changed", json!({})).await;
    until("the changes are told", || {
        listener.count(UPDATED) == 1 && listener.count("notifications/tools/list_changed") == 1
    })
    .await;
    assert_eq!(listener.count("notifications/subscriptions/acknowledged"), 0, "that was for the subscriber");

    drop(subscription);
    let is_over = async {
        while !call("state", json!({})).await.contains("\"listens\":0") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, is_over).await.expect("the server is told");
    client.dispose().await;
}

#[tokio::test]
async fn a_server_of_old_is_told_of_each_resource_and_of_its_end() {
    let sandbox = Sandbox::new();
    let here = sandbox.path().join("subscribed");
    let cases = format!(
        r#"*resources/subscribe*zoo:1*) : > {0}; say '"result":{{}}';;
           *resources/subscribe*) say '"error":{{"code":-32002,"message":"no such resource"}}';;
           *resources/unsubscribe*) rm {0}; say '"result":{{}}';;"#,
        here.display()
    );
    let client = Client::start(scripted(&sandbox, &cases));
    let to = |uri: &str| Topics { resources: vec![uri.to_owned()], lists: true };
    let subscription = client.subscribe(to("zoo:1"), &RequestOptions::default()).await.expect("it is there");
    assert!(here.exists());
    drop(subscription);
    until("the end is told", || !here.exists()).await;
    let error = client.subscribe(to("zoo:2"), &RequestOptions::default()).await.expect_err("there is none");
    assert!(error.to_string().contains("no such resource"), "{error}");
    client.dispose().await;
}

#[tokio::test]
async fn a_subscription_that_is_never_acknowledged_fails_in_time() {
    let sandbox = Sandbox::new();
    let client = Client::start(stateless(&sandbox, "*subscriptions/listen*) ;;"));
    let soon = RequestOptions { timeout: Some(Duration::from_secs(1)), ..RequestOptions::default() };
    let outcome =
        timeout(PATIENCE, client.subscribe(Topics::default(), &soon)).await.expect("it has a limit");
    let error = outcome.expect_err("nobody answers");
    let expect = "did not acknowledge `subscriptions/listen` within 1s";
    assert!(error.exit_code() == unhang::exit::DEADLINE && error.to_string().contains(expect), "{error}");
    client.dispose().await;
}

#[tokio::test]
async fn a_subscription_that_is_refused_fails_each_time() {
    let sandbox = Sandbox::new();
    let refusal = r#"*subscriptions/listen*) say '"error":{"code":-32601,"message":"nothing to hear"}';;"#;
    let client = Client::start(stateless(&sandbox, refusal));
    let options = RequestOptions::default();
    for _ in 0..20 {
        let outcome = client.subscribe(Topics::default(), &options);
        let error = timeout(PATIENCE, outcome).await.expect("it has a limit").expect_err("it is refused");
        assert!(error.to_string().contains("nothing to hear"), "{error}");
    }
    client.dispose().await;
}
