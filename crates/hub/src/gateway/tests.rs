//! The gateway without processes, and what tests of other modules need of it.

use std::net::TcpListener;

use super::*;
use crate::{
    client::{Address, Endpoint, HttpServer, Silent},
    config::Limits,
};

/// A server that takes connections and never answers, for as long as the first of the two is kept.
pub(crate) fn mute() -> (TcpListener, ServerEntry) {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", mute.local_addr().expect("bound"));
    let address = Address { url, headers: Vec::new(), uses_proxies: false, socket: None };
    let spec = ClientSpec {
        name: "srv".to_owned(),
        endpoint: Endpoint::Http(HttpServer { address, dialect: None, authorization: None }),
        limits: Limits::default(),
        listener: Arc::new(Silent),
    };
    let tool_rules = ToolRules::default();
    (
        mute,
        ServerEntry {
            spec,
            scope: Scope::Everybody,
            prefix: "srv".to_owned(),
            tool_rules,
            idle_timeout: None,
            secrets: Secrets::default(),
            made_from: String::new(),
            memory: None,
            behind: None,
        },
    )
}

/// A call of this tool of the only server.
pub(crate) fn call(tool: &str, limit: Duration) -> Asked {
    Asked {
        server: 0,
        method: "tools/call",
        params: "{}".into(),
        client: Era::Legacy,
        signature: None,
        wants_progress: false,
        tool: Some(tool.to_owned()),
        may_wait: false,
        limit,
        waited: Duration::ZERO,
        asked_for: None,
        asker: Asker::new("one"),
        session: None,
        trace: None,
    }
}

#[tokio::test]
async fn clocks_that_have_changed_are_told() {
    let servers = Servers::start(Lineup::default());
    let mut known = servers.known();
    assert_eq!(known.borrow_and_update().clocks, Clocks::default());
    let clocks = Clocks::with([("a".to_owned(), Some(Duration::from_secs(1)))]);
    servers.replace(Lineup { clocks: clocks.clone(), ..Lineup::default() });
    assert!(known.has_changed().expect("it is there"));
    assert_eq!(known.borrow().clocks, clocks);
}

#[tokio::test]
async fn what_has_not_changed_wakes_nobody() {
    let servers = Servers::start(Lineup::default());
    let mut known = servers.known();
    assert!(known.borrow_and_update().is_settled, "there is nothing to wait for");
    servers.shared.publish();
    assert!(!known.has_changed().expect("it is there"));
}
