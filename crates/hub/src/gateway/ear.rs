//! What a server says that belongs to no call: lists that have changed, resources that have, and questions that nobody can be asked.
//!
//! Invariants
//!
//! - What nobody can be asked is declined, and says why.
//! - Whoever is asked something while others wait for the server has a while for the answer, however often it asks.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::Notify, time::sleep};
use unhang_switches::stands;
use unhang_wire::{Json, text_member};

use super::{
    status::Record,
    watched::{Updated, Updates},
};
use crate::{
    client::{Answer, Listener},
    fault::Kind,
};

/// Hears a server, and declines what cannot be asked of anybody.
pub(super) struct Ear {
    server: String,
    /// Rung when its lists may have changed.
    pub(super) changed: Notify,
    /// It asks things about calls, over a stream on which nothing says which call that is.
    asks: AtomicBool,
    alarm: Arc<Alarm>,
    /// How long whoever is asked may take for the answer while others wait.
    patience: Duration,
    place: usize,
    updates: Updates,
    /// What is counted of it.
    record: Arc<Record>,
}

/// Ends what is being asked, for the sake of those who wait.
#[derive(Default)]
struct Alarm {
    crowded: Arc<Notify>,
    /// It is going to be rung, however often the server asks until then.
    is_set: AtomicBool,
}

impl Ear {
    pub(super) fn new(
        server: String,
        patience: Duration,
        place: usize,
        updates: Updates,
        record: Arc<Record>,
    ) -> Self {
        let (changed, asks, alarm) = (Notify::new(), AtomicBool::default(), Arc::default());
        Self { server, changed, asks, alarm, patience, place, updates, record }
    }

    /// Whether the server was seen to ask things about calls.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// Others have waited long enough for whoever is being asked.
    pub(super) fn ring(&self) {
        self.alarm.crowded.notify_waiters();
    }

    fn is_seen_to_ask(&self, method: &str) {
        if !self.asks.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "`{}` asks for {method} in a call; from now on it has calls of one session at a time",
                self.server
            );
        }
    }
}

impl Listener for Ear {
    /// What clients offer. Which one it is that calls is not known yet; one that does not offer it declines for itself.
    fn capabilities(&self) -> Map<String, Value> {
        let elicitation = json!({ "form": {}, "url": {} });
        let offered = [("elicitation", elicitation), ("sampling", json!({})), ("roots", json!({}))];
        offered.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn asks(&self, method: &str) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
        self.is_seen_to_ask(method);
        let crowded = Arc::clone(&self.alarm.crowded).notified_owned();
        Box::pin(async move {
            crowded.await;
            "others have waited for the server, and nobody has answered".to_owned()
        })
    }

    fn asks_in_a_crowd(&self, method: &str) {
        self.is_seen_to_ask(method);
        // Who is being asked has a while to answer; then it is the turn of the others.
        if self.alarm.is_set.swap(true, Ordering::Relaxed) && stands("one-alarm-for-a-crowd") {
            return;
        }
        let (alarm, patience) = (Arc::clone(&self.alarm), self.patience);
        tokio::spawn(async move {
            sleep(patience).await;
            alarm.is_set.store(false, Ordering::Relaxed);
            alarm.crowded.notify_waiters();
        });
    }

    fn wrote_junk(&self, lines: u64) {
        self.record.wrote_junk(lines);
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        if method.ends_with("/list_changed") {
            self.changed.notify_one();
        } else if method == "notifications/resources/updated" {
            let params = params.and_then(|params| Json::new(params.get().as_bytes()));
            if let Some(uri) = params.and_then(|params| text_member(params, "uri")) {
                // Where nobody listens it is for nobody.
                let _heard = self.updates.send(Updated { server: self.place, uri: uri.into() });
            }
        } else {
            tracing::debug!("`{}` says {method}: {}", self.server, params.map_or("", RawValue::get));
        }
    }

    fn asked(
        &self,
        method: String,
        _params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>> {
        let why = "no call is in flight that it could be about";
        Box::pin(async move { Err((Kind::MethodNotFound.code(), format!("`{method}` is declined: {why}"))) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{runtime::Handle, sync::broadcast, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_often_a_server_asks_in_a_crowd_one_alarm_is_set() {
        let (updates, _) = broadcast::channel(1);
        let ear = Ear::new("srv".to_owned(), Duration::from_secs(30), 0, updates, Arc::default());
        for _ in 0..2 {
            let rung = Arc::clone(&ear.alarm.crowded).notified_owned();
            (0..1000).for_each(|_| ear.asks_in_a_crowd("roots/list"));
            assert!(Handle::current().metrics().num_alive_tasks() <= 1);
            timeout(Duration::from_secs(60), rung).await.expect("it rings");
        }
        assert!(ear.asks());
    }
}
