//! Servers and requests for tests of the gateway, those of other crates too.

use std::net::TcpListener;

use unhang_core::limits::Limits;
use unhang_upstream::client::{Address, DecliningListener, Endpoint, HttpServer};

use super::*;

/// Makes a server that takes connections and never answers, as long as the listener is kept.
pub fn mute() -> (TcpListener, ServerEntry) {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", mute.local_addr().expect("bound"));
    let address = Address { url, headers: Vec::new(), uses_proxies: false, socket: None };
    let spec = ClientSpec {
        name: "srv".to_owned(),
        endpoint: Endpoint::Http(HttpServer { address, dialect: None, authorization: None }),
        limits: Limits::default(),
        listener: Arc::new(DecliningListener),
    };
    let tool_rules = ToolRules::default();
    (
        mute,
        ServerEntry {
            spec,
            era: EraPolicy::default(),
            scope: Scope::Everybody,
            prefix: "srv".to_owned(),
            tool_rules,
            idle_timeout: None,
            instances: 1,
            secrets: Secrets::default(),
            made_from: String::new(),
            memory: None,
            behind: None,
        },
    )
}

/// Makes a call of this tool of the only server.
pub fn call(tool: &str, limit: Duration) -> ServerRequest {
    ServerRequest {
        server: 0,
        method: "tools/call",
        params: "{}".into(),
        client: Era::Legacy,
        signature: None,
        wants_progress: false,
        tool: Some(tool.to_owned()),
        may_wait: false,
        wants_a_task: false,
        limit,
        waited: Duration::ZERO,
        asked_for: None,
        fairness_key: FairnessKey::new("one"),
        session: None,
        window_call: None,
        job_order: None,
        trace: None,
    }
}
