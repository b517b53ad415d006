//! `unhang serve --http` as an OAuth resource server: tokens of a real authorization server, and every kind of forged one.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]

use std::{
    fs,
    net::TcpListener,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use unhang::oauth::{
    Agent, Authorization, AuthorizationSpec, ClientSettings, Follower, RequestLimits, TokenStore,
};

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, timed, wait_until},
    login::{AuthServer, get, http},
};

const RESOURCE: &str = "https://mcp.example.org/mcp";

/// A gateway for whoever has a token of this authorization server, for this resource.
fn gateway(sandbox: &Sandbox, issuer: &str, address: &str, resource: &str) -> (Client, Web) {
    let oauth =
        format!("[http.oauth]\nissuer = \"{issuer}\"\nresource = \"{resource}\"\nscopes = [\"mcp\"]\n");
    let text = server("one", &["well-behaved"], "") + "\n" + &oauth;
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve", "--http", address]);
    let (process, web) = Web::start_as(command);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Right claims but for these; what is null is left out.
fn claims(issuer: &str, changes: Value) -> Value {
    let mut claims = json!({
        "iss": issuer, "aud": RESOURCE, "sub": "somebody", "scope": "read mcp", "exp": now() + 600,
    });
    for (name, value) in changes.as_object().expect("members") {
        claims[name] = value.clone();
    }
    claims.as_object_mut().expect("members").retain(|_, value| !value.is_null());
    claims
}

fn sign(authority: &AuthServer, head: Value, claims: Value, by: &str) -> String {
    let asked = json!({ "head": head, "claims": claims, "by": by });
    let answer = http("POST", &authority.at("/sign"), "", &asked.to_string());
    serde_json::from_str(&answer.body).expect("a token")
}

/// The status of a request with this token, and what the challenge says.
fn asks(web: &Web, token: &str) -> (u16, String) {
    let answer = web.with_token(token).ask("GET", "/status", &[], "");
    (answer.status, answer.header("www-authenticate").unwrap_or_default().to_owned())
}

#[test]
fn only_tokens_that_were_given_for_us_let_in() {
    let sandbox = Sandbox::with_jobs();
    let authority = AuthServer::start(&sandbox, &[]);
    let issuer = authority.at("/as");
    let (process, web) = gateway(&sandbox, &issuer, "127.0.0.1:0", RESOURCE);
    let metadata = "resource_metadata=\"https://mcp.example.org/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\"";
    let silent = web.ask("GET", "/status", &[], "");
    assert_eq!(
        (silent.status, silent.header("www-authenticate")),
        (401, Some(&*format!("Bearer {metadata}")))
    );
    for path in ["", "/mcp"] {
        let told = web.ask("GET", &format!("/.well-known/oauth-protected-resource{path}"), &[], "");
        assert_eq!(told.status, 200);
        let told = told.last();
        assert_eq!(
            (&told["resource"], &told["authorization_servers"], &told["scopes_supported"]),
            (&json!(RESOURCE), &json!([issuer]), &json!(["mcp"]))
        );
    }
    assert_eq!(authority.count("keys"), 0, "nobody is asked before a token comes");

    let token = |head: Value, changes: Value, by: &str| sign(&authority, head, claims(&issuer, changes), by);
    let good = token(json!({}), json!({}), "own");
    assert_eq!(asks(&web, &good).0, 200);
    let bare = |name: &str| json!({ name: null });
    for (head, changes, by, status, error) in [
        (json!({}), json!({ "exp": now() - 120 }), "own", 401, "invalid_token"),
        (json!({}), bare("exp"), "own", 401, "invalid_token"),
        (json!({}), json!({ "nbf": now() + 120 }), "own", 401, "invalid_token"),
        (json!({}), json!({ "aud": "https://other.example.org/mcp" }), "own", 401, "invalid_token"),
        (json!({}), bare("aud"), "own", 401, "invalid_token"),
        (json!({}), json!({ "iss": "https://evil.example.com" }), "own", 401, "invalid_token"),
        (json!({}), bare("sub"), "own", 401, "invalid_token"),
        (json!({}), json!({ "scope": "read" }), "own", 403, "insufficient_scope"),
        (json!({}), bare("scope"), "own", 403, "insufficient_scope"),
        (json!({}), json!({}), "stranger", 401, "invalid_token"),
        (json!({ "kid": "nobody-has-it" }), json!({}), "stranger", 401, "invalid_token"),
        (json!({ "alg": "none" }), json!({}), "nobody", 401, "invalid_token"),
        (json!({ "alg": "HS256" }), json!({}), "published", 401, "invalid_token"),
    ] {
        let told = asks(&web, &token(head.clone(), changes.clone(), by));
        assert_eq!(told.0, status, "{head} {changes} {by}");
        assert!(told.1.contains(&format!("error=\"{error}\"")) && told.1.contains(metadata), "{}", told.1);
    }
    // One within the difference that clocks may have.
    assert_eq!(asks(&web, &token(json!({}), json!({ "exp": now() - 30 }), "own")).0, 200);
    // However many names of keys are made up, nobody asks for keys again at once.
    for number in 0..20 {
        let head = json!({ "kid": format!("made-up-{number}") });
        assert_eq!(asks(&web, &token(head, json!({}), "stranger")).0, 401);
    }
    assert_eq!(authority.count("keys"), 1);

    // Somebody else has another session.
    let one = web.with_token(&good);
    let session = one.begin();
    let other = web.with_token(&token(json!({}), json!({ "sub": "another resource" }), "own"));
    let again = web.with_token(&token(json!({}), json!({ "jti": "another token of the same" }), "own"));
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let headers = [("mcp-session-id", &*session)];
    assert_eq!((other.post(&headers, &list).status, again.post(&headers, &list).status), (404, 200));
    wait_until("the log says whose it is", PATIENCE, || process.stderr().contains("subject somebody"));
    let told = process.stderr();
    drop(authority);
    finish(process, &sandbox);
    let signature = good.rsplit_once('.').expect("a signature").1;
    assert!(!told.contains(signature), "{told}");
}

#[test]
fn whoever_answers_in_the_place_of_the_authorization_server_is_not_believed() {
    let sandbox = Sandbox::with_jobs();
    let authority = AuthServer::start(&sandbox, &["--vice", "wrong-issuer"]);
    let issuer = authority.at("/as");
    let (process, web) = gateway(&sandbox, &issuer, "127.0.0.1:0", RESOURCE);
    let token = sign(&authority, json!({}), claims(&issuer, json!({})), "own");
    let answer = web.with_token(&token).ask("GET", "/status", &[], "");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    wait_until("it says why", PATIENCE, || process.stderr().contains("as its issuer: unhang refuses it"));
    drop(authority);
    finish(process, &sandbox);
}

#[test]
fn an_authorization_server_that_hangs_or_never_ends_is_given_up() {
    for vice in ["silent", "endless"] {
        let sandbox = Sandbox::with_jobs();
        let authority = AuthServer::start(&sandbox, &["--vice", vice]);
        let issuer = authority.at("/as");
        let (process, web) = gateway(&sandbox, &issuer, "127.0.0.1:0", RESOURCE);
        let token = sign(&authority, json!({}), claims(&issuer, json!({})), "own");
        let (asked, took) = timed(|| asks(&web, &token).0);
        assert_eq!(asked, 503, "{vice}");
        assert!(took < Duration::from_secs(20), "{vice}: {took:?}");
        drop(authority);
        finish(process, &sandbox);
    }
}

#[test]
fn keys_that_have_changed_are_those_that_count() {
    let sandbox = Sandbox::with_jobs();
    let authority = AuthServer::start(&sandbox, &[]);
    let issuer = authority.at("/as");
    let (process, web) = gateway(&sandbox, &issuer, "127.0.0.1:0", RESOURCE);
    let old = sign(&authority, json!({}), claims(&issuer, json!({})), "own");
    get(&authority.at("/keys/change"));
    let new = sign(&authority, json!({}), claims(&issuer, json!({})), "own");
    assert_eq!((asks(&web, &new).0, asks(&web, &old).0), (200, 401));
    drop(authority);
    // Keys that are known stay good while nobody can be asked.
    assert_eq!(asks(&web, &new).0, 200);
    finish(process, &sandbox);
}

#[tokio::test]
async fn whoever_logs_in_there_gets_in_here() {
    let sandbox = Sandbox::with_jobs_and_logins();
    // Clients demand that the resource is the very URL that they ask, so that its port has to be known before.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let authority = AuthServer::start(&sandbox, &["--resource", &url]);
    let (process, web) = gateway(&sandbox, &authority.at("/as"), &format!("127.0.0.1:{port}"), &url);
    assert_eq!(web.url(), url);
    let agent = Follower::new("http://127.0.0.1:1/callback".to_owned(), RequestLimits::default());
    let agent: Arc<dyn Agent> = Arc::new(agent.expect("an agent"));
    let spec = AuthorizationSpec {
        name: "gateway".to_owned(),
        url: url.clone(),
        store: TokenStore::new(sandbox.path().join("state/tokens")),
        settings: ClientSettings::default(),
        limits: RequestLimits { answer: PATIENCE, ..RequestLimits::default() },
        agent,
    };
    let authorization = Authorization::new(spec).expect("a URL");
    let refused = web.ask("GET", "/status", &[], "");
    let challenge = refused.header("www-authenticate").map(str::to_owned);
    let is_worth_it = authorization.refused(None, refused.status, challenge.as_deref()).await;
    assert_eq!(is_worth_it, Ok(true));
    let token = authorization.token().await.expect("it was kept").expect("there is one");
    let web = web.with_token(&token);
    let session = web.begin();
    let answer = web.call(&session, 1, "one__echo", json!({ "text": "hello" })).last();
    assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
    drop(authority);
    finish(process, &sandbox);
}
