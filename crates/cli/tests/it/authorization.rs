//! `unhang::oauth` against a real authorization server: one flow for many, tokens that stay fresh, and an end to asking.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};
use unhang::oauth::{
    Agent, Authorization, AuthorizationError, AuthorizationSpec, ClientSettings, Follower, NoAgent,
    RequestLimits, TokenStore,
};

use crate::{
    harness::{PATIENCE, Sandbox, wait_until},
    login::{Answer, AuthServer, get, http},
};

const REDIRECT: &str = "http://127.0.0.1:1/callback";

/// Whoever consents to everything.
fn follower() -> Arc<dyn Agent> {
    Arc::new(Follower::new(REDIRECT.to_owned(), RequestLimits::default()).expect("an agent"))
}

fn nobody() -> Arc<dyn Agent> {
    Arc::new(NoAgent { server: "search".to_owned() })
}

fn with(
    sandbox: &Sandbox,
    server: &AuthServer,
    agent: Arc<dyn Agent>,
    settings: ClientSettings,
) -> Authorization {
    let spec = AuthorizationSpec {
        name: "search".to_owned(),
        url: server.url.clone(),
        store: TokenStore::new(sandbox.path().join("state/tokens")),
        settings,
        limits: RequestLimits { answer: PATIENCE, ..RequestLimits::default() },
        agent,
    };
    Authorization::new(spec).expect("a URL")
}

fn authorization(sandbox: &Sandbox, server: &AuthServer, agent: Arc<dyn Agent>) -> Authorization {
    with(sandbox, server, agent, ClientSettings::default())
}

/// What the server says to a request with this token.
fn ask(server: &AuthServer, token: Option<&str>) -> Answer {
    let header = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    http("POST", &server.url, &header, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
}

/// Asks as a transport does: with the token that there is, and again for as long as there is another. The last status, and the tries.
async fn asked(
    server: &AuthServer,
    authorization: &Authorization,
) -> Result<(u16, usize), AuthorizationError> {
    for tries in 1..20 {
        let token = authorization.token().await?;
        let answer = ask(server, token.as_deref());
        let challenge = answer.header("WWW-Authenticate");
        let refused = authorization.refused(token.as_deref(), answer.status, challenge.as_deref());
        if answer.status == 200 || !refused.await? {
            return Ok((answer.status, tries));
        }
    }
    panic!("it asks for ever");
}

#[tokio::test]
async fn a_server_that_wants_a_token_gets_one_and_the_next_process_has_it() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--scopes", "read"]);
    let first = authorization(&sandbox, &server, follower());
    assert_eq!(first.token().await, Ok(None));
    assert_eq!(asked(&server, &first).await, Ok((200, 2)));
    let second = authorization(&sandbox, &server, nobody());
    assert_eq!(asked(&server, &second).await, Ok((200, 1)));
    assert_eq!(server.count("authorize"), 1);
    let told = format!("{first:?} {:?}", first.logged_in().await);
    assert!(!told.contains("secret-"), "{told}");
}

#[tokio::test]
async fn many_refusals_lead_to_one_flow() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let authorization = authorization(&sandbox, &server, follower());
    let mut callers = JoinSet::new();
    let refuse_all = |callers: &mut JoinSet<_>, used: Option<String>| {
        let challenge = ask(&server, used.as_deref()).header("WWW-Authenticate");
        for _ in 0..20 {
            let (authorization, used, challenge) = (authorization.clone(), used.clone(), challenge.clone());
            callers.spawn(
                async move { authorization.refused(used.as_deref(), 401, challenge.as_deref()).await },
            );
        }
    };
    refuse_all(&mut callers, None);
    while let Some(refused) = callers.join_next().await {
        assert_eq!(refused.expect("no panic"), Ok(true));
    }
    assert_eq!(server.count("register") + server.count("authorize"), 2);
    get(&server.at("/forget"));
    refuse_all(&mut callers, authorization.token().await.expect("read"));
    while let Some(refused) = callers.join_next().await {
        assert_eq!(refused.expect("no panic"), Ok(true));
    }
    assert_eq!((server.count("authorize"), server.count("token grant=refresh_token")), (1, 1));
    assert_eq!(asked(&server, &authorization).await, Ok((200, 1)));
}

#[tokio::test]
async fn many_refusals_that_come_to_nothing_ask_once() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--vice", "refuses-registration"]);
    let authorization = authorization(&sandbox, &server, follower());
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let authorization = authorization.clone();
        callers.spawn(async move { authorization.refused(None, 401, None).await });
    }
    while let Some(refused) = callers.join_next().await {
        let error = refused.expect("no panic").expect_err("it takes nobody");
        assert_eq!(error.kind(), "no_client", "{error}");
    }
    assert_eq!(server.count("register"), 1);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--expires", "10"]);
    authorization(&sandbox, &server, follower()).log_in().await.expect("logged in");
    let later = authorization(&sandbox, &server, nobody());
    assert_eq!(asked(&server, &later).await, Ok((200, 1)));
    assert_eq!((server.count("authorize"), server.count("token grant=refresh_token")), (1, 1));
}

#[tokio::test]
async fn a_refresh_token_for_which_no_other_is_given_is_kept() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--keeps-refresh", "yes"]);
    authorization(&sandbox, &server, follower()).log_in().await.expect("logged in");
    for round in 1..3 {
        get(&server.at("/forget"));
        let later = authorization(&sandbox, &server, nobody());
        assert_eq!(asked(&server, &later).await, Ok((200, 2)));
        assert_eq!(server.count("token grant=refresh_token"), round, "{:?}", server.log());
    }
}

#[tokio::test]
async fn a_client_that_registered_itself_keeps_its_secret() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--methods", "client_secret_basic"]);
    authorization(&sandbox, &server, follower()).log_in().await.expect("logged in");
    get(&server.at("/forget"));
    let later = authorization(&sandbox, &server, nobody());
    assert_eq!(asked(&server, &later).await, Ok((200, 2)));
    assert_eq!(server.count("token grant=refresh_token auth=basic"), 1, "{:?}", server.log());
}

#[tokio::test]
async fn who_leaves_in_the_middle_leaves_no_used_up_refresh_token() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let authorization = authorization(&sandbox, &server, follower());
    authorization.log_in().await.expect("logged in");
    get(&server.at("/forget"));
    let used = authorization.token().await.expect("read").expect("it is there");
    let left = timeout(Duration::from_millis(1), authorization.refused(Some(&used), 401, None)).await;
    assert!(left.is_err(), "a flow of many requests takes longer");
    // The next who asks waits for that flow, and needs no other.
    assert_eq!(authorization.refused(Some(&used), 401, None).await, Ok(true));
    assert_eq!(server.count("token grant=refresh_token"), 1);
    assert_eq!(asked(&server, &authorization).await, Ok((200, 1)));
}

#[tokio::test]
async fn a_refresh_token_that_is_of_no_use_is_tried_once_and_then_a_person_is_needed() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--vice", "refuses-refresh"]);
    authorization(&sandbox, &server, follower()).log_in().await.expect("logged in");
    get(&server.at("/forget"));
    let nobody = authorization(&sandbox, &server, nobody());
    for _ in 0..3 {
        let error = asked(&server, &nobody).await.expect_err("nobody is there");
        assert_eq!(error.to_string(), "search requires a login: run `unhang login search`");
    }
    assert_eq!(server.count("token grant=refresh_token"), 1);
    // With a person it goes on, and the client is still known.
    let follower = authorization(&sandbox, &server, follower());
    assert_eq!(asked(&server, &follower).await, Ok((200, 2)));
    assert_eq!((server.count("register"), server.count("authorize")), (1, 2));
}

#[tokio::test]
async fn more_is_asked_for_where_more_is_needed_and_never_twice() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--supported", "read", "--needs", "write"]);
    let authorization = authorization(&sandbox, &server, follower());
    assert_eq!(asked(&server, &authorization).await, Ok((200, 3)));
    let asked_for: Vec<_> = server.log().into_iter().filter(|line| line.starts_with("authorize")).collect();
    assert_eq!(
        asked_for,
        ["authorize client=client-1 scope=read", "authorize client=client-1 scope=read write"]
    );
    // The server says that it lacks what was asked for already.
    let used = authorization.token().await.expect("read");
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    assert_eq!(authorization.refused(used.as_deref(), 403, Some(challenge)).await, Ok(false));
    // And what is no lack of scopes is the server's last word.
    for (status, challenge) in [(403, None), (403, Some("Bearer error=\"invalid_token\"")), (500, None)] {
        assert_eq!(authorization.refused(used.as_deref(), status, challenge).await, Ok(false));
    }
    assert_eq!(server.count("authorize"), 2);
}

#[tokio::test]
async fn a_server_that_refuses_every_token_has_the_last_word() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--vice", "refuses-every-token"]);
    let authorization = authorization(&sandbox, &server, follower());
    assert_eq!(asked(&server, &authorization).await, Ok((401, 4)));
    assert_eq!(server.count("token"), 3);
}

/// Another scope each time: each is asked for, up to the limit.
#[tokio::test]
async fn a_server_that_always_wants_more_has_the_last_word() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let authorization = authorization(&sandbox, &server, follower());
    authorization.log_in().await.expect("logged in");
    let mut outcomes = Vec::new();
    for scope in ["a", "b", "c", "d"] {
        let used = authorization.token().await.expect("read");
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        outcomes.push(authorization.refused(used.as_deref(), 403, Some(&challenge)).await);
    }
    assert_eq!(outcomes, [Ok(true), Ok(true), Ok(true), Ok(false)]);
    assert_eq!(server.log().last().map(String::as_str), Some("token grant=authorization_code auth=none"));
    assert_eq!(server.count("authorize client=client-1 scope=a b c"), 1);
}

#[tokio::test]
async fn scopes_are_what_the_server_says_and_nothing_where_it_says_nothing() {
    for (habits, scope) in [
        (&["--scopes", "a b", "--supported", "c"][..], "a b"),
        (&["--supported", "c d"], "c d"),
        (&[], "none"),
        (&["--offline", "yes"], "none"),
        (&["--offline", "yes", "--scopes", "read"], "read offline_access"),
    ] {
        let sandbox = Sandbox::with_logins();
        let server = AuthServer::start(&sandbox, habits);
        authorization(&sandbox, &server, follower()).log_in().await.expect("logged in");
        assert_eq!(
            server.count(&format!("authorize client=client-1 scope={scope}")),
            1,
            "{:?}",
            server.log()
        );
    }
}

#[tokio::test]
async fn what_one_authorization_server_gave_is_shown_to_no_other() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let authorization = authorization(&sandbox, &server, follower());
    authorization.log_in().await.expect("logged in");
    get(&server.at("/move"));
    assert_eq!(asked(&server, &authorization).await, Ok((200, 2)));
    assert_eq!((server.count("register"), server.count("token grant=refresh_token")), (2, 0));
    let issuer = authorization.logged_in().await.expect("read").map(|login| login.issuer);
    assert_eq!(issuer, Some(server.at("/moved")));
}

#[tokio::test]
async fn a_configured_client_does_not_move_with_the_server() {
    let sandbox = Sandbox::with_logins();
    let server =
        AuthServer::start(&sandbox, &["--client", "known:secret-known", "--methods", "client_secret_basic"]);
    let settings = ClientSettings {
        client_id: Some("known".to_owned()),
        client_secret: Some("secret-known".to_owned()),
        ..ClientSettings::default()
    };
    assert!(!format!("{settings:?}").contains("secret-known"));
    let authorization = with(&sandbox, &server, follower(), settings);
    authorization.log_in().await.expect("logged in");
    get(&server.at("/move"));
    let error = asked(&server, &authorization).await.expect_err("it has moved").to_string();
    let expect = format!(
        "search has moved from the authorization server {} to {}, and unhang does not show the \
         configured client id there: if the move is right, run `unhang logout search` and log in again",
        server.at("/as"),
        server.at("/moved")
    );
    assert_eq!(error, expect);
    assert_eq!(server.count("authorize"), 1);
}

#[tokio::test]
async fn a_token_goes_to_its_server_alone() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let authorization = authorization(&sandbox, &server, nobody());
    assert!(authorization.covers(&server.url) && authorization.covers(&server.at("/messages?session=1")));
    let there = server.url.replace("127.0.0.1", "localhost");
    for other in
        [&*there, "http://127.0.0.1:1/mcp", "https://127.0.0.1/mcp", "https://example.org/mcp", "mcp"]
    {
        assert!(!authorization.covers(other), "{other}");
    }
}

/// Two processes renew the same login: one of them does, and the other takes it.
#[tokio::test]
async fn two_who_share_a_login_use_a_refresh_token_once() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let first = authorization(&sandbox, &server, follower());
    first.log_in().await.expect("logged in");
    let second = authorization(&sandbox, &server, nobody());
    let used = second.token().await.expect("read");
    get(&server.at("/forget"));
    let (one, other) =
        tokio::join!(first.refused(used.as_deref(), 401, None), second.refused(used.as_deref(), 401, None));
    assert_eq!((one, other), (Ok(true), Ok(true)));
    assert_eq!(server.count("token grant=refresh_token"), 1);
    assert_eq!(first.token().await, second.token().await);
    let file = std::fs::read_dir(sandbox.path().join("state/tokens")).expect("it is there").next();
    let file = file.expect("one file").expect("an entry").path();
    wait_until("a whole file", PATIENCE, || {
        std::fs::read_to_string(&file).is_ok_and(|text| serde_json::from_str::<Value>(&text).is_ok())
    });
}
