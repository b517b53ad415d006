//! Who is let in, what is whose, and how much of it one client may have.

use std::{collections::BTreeMap, num::NonZeroU32};

use unhang_net::{oauth::ResourceSettings, serve::UnprovenClient};

use super::{super::access::TokenOwner, *};
use unhang_core::fair::FairnessKey;

const ONE: &str = "Bearer one-0123456789abcdef";
const TWO: &str = "Bearer two-0123456789abcdef";

/// A front for those who have one of two tokens.
fn closed(share: usize) -> Web {
    let token = |text: &str| Token::new(text["Bearer ".len()..].to_owned()).expect("a token");
    Web::for_those(Access::new(vec![token(ONE), token(TWO)]), Limits::default(), share)
}

async fn begin(web: &Web, token: &str) -> String {
    let response = web.post(&[("authorization", token)], INITIALIZE).await;
    assert_eq!(response.status(), 200);
    response.headers()["mcp-session-id"].to_str().expect("text").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_told_to_bring_a_token_and_nothing_else() {
    let web = closed(2);
    let everything = [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("GET", "/status"),
        ("GET", "/metrics"),
        ("PUT", "/mcp"),
        ("GET", "/no"),
    ];
    for (method, path) in everything {
        for (token, challenge) in [
            ("", "Bearer"),
            ("Basic dXNlcjpwYXNz", "Bearer"),
            ("Bearer wrong-0123456789abcdef", "Bearer error=\"invalid_token\""),
        ] {
            let response = web.ask(method, path, &[("authorization", token)], Body::new(Endless)).await;
            assert_eq!(response.status(), 401, "{method} {path} {token}");
            assert!(response.extensions().get::<UnprovenClient>().is_some(), "{method} {path} {token}");
            assert_eq!(response.headers()["www-authenticate"], challenge);
            let answer = json_of(response).await;
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
            assert!(!answer.to_string().contains("wrong-0123"), "{answer}");
        }
    }
    for path in ["/health", "/ready"] {
        let response = web.ask("GET", path, &[], Body::empty()).await;
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.extensions().get::<UnprovenClient>().is_some(), "{path}");
    }
    for token in [ONE, TWO] {
        let response = web.ask("GET", "/status", &[("authorization", token)], Body::empty()).await;
        assert_eq!(response.status(), 200);
        assert!(response.extensions().get::<UnprovenClient>().is_none());
        begin(&web, token).await;
    }
    // A page asks without a token what it may ask, and hears why it was refused; one from elsewhere does neither.
    let here = ("origin", "http://localhost");
    assert_eq!(web.ask("OPTIONS", "/mcp", &[here], Body::empty()).await.status(), 204);
    let response = web.post(&[here], LIST).await;
    let may_read = response.headers().contains_key("access-control-allow-origin");
    assert_eq!((response.status().as_u16(), may_read), (401, true));
    let elsewhere = [("origin", "https://evil.example.com"), ("authorization", ONE)];
    assert_eq!(web.post(&elsewhere, LIST).await.status(), 403);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_there_for_whoever_began_it_alone() {
    let web = closed(2);
    let name = begin(&web, ONE).await;
    let session = ("mcp-session-id", &*name);
    let other = [session, ("authorization", TWO)];
    let never = [("mcp-session-id", "never-there"), ("authorization", TWO)];
    for method in ["POST", "GET", "DELETE"] {
        let body = || if method == "POST" { Body::from(LIST) } else { Body::empty() };
        let (refused, unknown) =
            (web.ask(method, "/mcp", &other, body()).await, web.ask(method, "/mcp", &never, body()).await);
        assert_eq!(refused.status(), 404, "{method}");
        assert_eq!(json_of(refused).await, json_of(unknown).await, "{method}: as if it were not there");
    }
    assert_eq!(web.post(&[session, ("authorization", ONE)], LIST).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn what_a_token_began_ends_with_it() {
    let web = closed(2);
    let watching = tokio::spawn(Arc::clone(&web.http_state).watch_door());
    let (first, second) = (begin(&web, ONE).await, begin(&web, TWO).await);
    let access_policy = web.http_state.access_policy();
    let token = |text: &str| Token::new(text["Bearer ".len()..].to_owned()).expect("a token");
    let access = Access::new(vec![token(TWO)]).after(&access_policy.access);
    web.access_policy.send_replace(Arc::new(AccessPolicy { access, hosts: access_policy.hosts.clone() }));
    assert_eq!(web.post(&[("authorization", ONE)], INITIALIZE).await.status(), 401);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(web.http_state.sessions().keys().collect::<Vec<_>>(), [&second], "{first} has ended");
    let session = [("mcp-session-id", &*second), ("authorization", TWO)];
    assert_eq!(web.post(&session, LIST).await.status(), 200, "the other goes on");
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn no_client_takes_what_the_others_need() {
    let web = closed(1);
    let one = [("authorization", ONE)];
    let two = [("authorization", TWO)];
    let name = begin(&web, ONE).await;
    let session = ("mcp-session-id", &*name);
    // Sessions.
    let refused = web.post(&one, INITIALIZE).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    assert_eq!(json_of(refused).await["error"]["code"], -31005);
    begin(&web, TWO).await;
    // Requests in flight, a stream that is listened to among them.
    let listened = web.ask("GET", "/mcp", &[session, one[0]], Body::empty()).await;
    assert_eq!(listened.status(), 200);
    let refused = web.post(&[session, one[0]], LIST).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    assert_eq!(web.ask("GET", "/status", &two, Body::empty()).await.status(), 200);
    drop(listened);
    assert_eq!(web.post(&[session, one[0]], LIST).await.status(), 200);
    // What was ended can be begun anew.
    assert_eq!(web.ask("DELETE", "/mcp", &[session, one[0]], Body::empty()).await.status(), 200);
    sleep(Duration::from_secs(10)).await;
    begin(&web, ONE).await;
}

#[test]
fn a_callers_share_has_the_weight_of_its_name_in_the_configuration() {
    let weights = [("token 2", 3), ("subject ann", 5)]
        .map(|(name, weight)| (name.to_owned(), NonZeroU32::new(weight).expect("more than nothing")));
    let token = |text: &str| Token::new(text["Bearer ".len()..].to_owned()).expect("a token");
    let access = Access::new(vec![token(ONE), token(TWO)]).with_weights(BTreeMap::from(weights));
    let weighed = |access: &Access, caller: &TokenOwner| {
        access.fairness_key(caller, || panic!("{caller} has an identity"))
    };
    let subject = |name: &str| TokenOwner::Subject(name.into());
    for (caller, name, weight) in [
        (TokenOwner::Token(1), "token 1", 1),
        (TokenOwner::Token(2), "token 2", 3),
        (subject("ann"), "subject ann", 5),
        (subject("bob"), "subject bob", 1),
        // A name that a subject gives itself is not the name of a token.
        (subject("token 2"), "subject token 2", 1),
    ] {
        let weight = NonZeroU32::new(weight).expect("more than nothing");
        assert_eq!(weighed(&access, &caller), FairnessKey::new(name).weighing(weight), "{caller}");
    }
    let anybody = access.fairness_key(&TokenOwner::Anybody, || FairnessKey::new("a peer"));
    assert_eq!(anybody, FairnessKey::new("a peer"));
    // The configuration counts tokens from the first, and callers keep their identity when it changes.
    let weights = BTreeMap::from([("token 1".to_owned(), NonZeroU32::new(7).expect("more than nothing"))]);
    let later = Access::new(vec![token(TWO)]).with_weights(weights).after(&access);
    let seven = NonZeroU32::new(7).expect("more than nothing");
    assert_eq!(weighed(&later, &TokenOwner::Token(2)), FairnessKey::new("token 2").weighing(seven));
}

#[tokio::test]
async fn an_authorization_server_closes_the_door_and_its_callers_stay_known_while_it_is_the_same() {
    let of = |issuer: &str| {
        let resource = "https://mcp.example.org/mcp".to_owned();
        let settings = ResourceSettings { issuer: issuer.to_owned(), resource, scopes: Vec::new() };
        Access::default().with_oauth(settings).expect("a server")
    };
    let before = of("https://auth.example.org");
    assert!(!before.is_open() && before.resource().is_some());
    let ann = TokenOwner::Subject("ann".into());
    for (now, is_known) in [
        (of("https://auth.example.org"), true),
        (of("https://other.example.org"), false),
        (Access::default(), false),
    ] {
        let is_open = now.is_open();
        let now = now.after(&before);
        assert_eq!((now.still_knows(&ann, &before), now.is_open()), (is_known, is_open));
        assert!(!now.is_operator(&ann), "nobody is an operator by the word of another server");
    }
}
