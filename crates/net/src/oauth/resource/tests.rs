//! Tokens, right and wrong, and the keys that prove them. `vectors/` was made with OpenSSL, and what signed was thrown away.

use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};

use super::*;
use data_encoding::BASE64URL_NOPAD;

const KEYS: &[u8] = include_bytes!("vectors/keys.json");
const TOKENS: &str = include_str!("vectors/tokens.txt");

const NOW: Duration = Duration::from_secs(1_000_000);
const LEEWAY: Duration = Duration::from_secs(60);

/// An authorization server.
struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("it is one");
        Signer { pair, random }
    }

    fn keys(&self) -> Keys {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let key = json!({
            "kty": "EC", "crv": "P-256", "kid": "one",
            "x": BASE64URL_NOPAD.encode(x), "y": BASE64URL_NOPAD.encode(y),
        });
        Keys::read(json!({ "keys": [key] }).to_string().as_bytes()).expect("a key set")
    }

    fn sign(&self, message: &str) -> Vec<u8> {
        self.pair.sign(&self.random, message.as_bytes()).expect("a signature").as_ref().to_vec()
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let message = message(head, claims);
        format!("{message}.{}", BASE64URL_NOPAD.encode(&self.sign(&message)))
    }
}

fn message(head: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    format!("{}.{}", part(head), part(claims))
}

fn settings() -> ResourceSettings {
    ResourceSettings {
        issuer: "https://login.example.org".to_owned(),
        resource: "https://mcp.example.org/mcp".to_owned(),
        scopes: vec!["mcp".to_owned()],
    }
}

fn head() -> Value {
    json!({ "alg": "ES256", "kid": "one", "typ": "at+jwt" })
}

fn claims() -> Value {
    json!({
        "iss": "https://login.example.org", "aud": "https://mcp.example.org/mcp", "sub": "somebody",
        "exp": NOW.as_secs() + 300, "nbf": NOW.as_secs() - 300, "scope": "read mcp",
    })
}

/// What is said of a token; none of the key that it names is there.
fn judged(keys: &Keys, token: &str) -> Option<Result<String, &'static str>> {
    let signed = match ParsedToken::read(token) {
        Ok(signed) => signed,
        Err(why) => return Some(Err(why)),
    };
    let claims = match signed.claims(keys)? {
        Ok(claims) => claims,
        Err(why) => return Some(Err(why)),
    };
    let settings = settings();
    let subject = claims.subject(&settings, NOW, LEEWAY).map(str::to_owned);
    Some(subject.and_then(|subject| claims.lacks(&settings.scopes).map_or(Ok(subject), |_| Err("a scope"))))
}

#[test]
fn signatures_of_every_kind_are_proven() {
    let keys = Keys::read(KEYS).expect("a key set");
    assert_eq!(keys.len(), 4);
    for token in TOKENS.lines() {
        let signed = ParsedToken::read(token).expect("a token");
        assert!(matches!(signed.claims(&keys), Some(Ok(_))), "{token}");
        // Something else was signed, or something else with it.
        let (message, signature) = token.rsplit_once('.').expect("three parts");
        let (head, _) = message.split_once('.').expect("three parts");
        let other = format!("{head}.{}.{signature}", BASE64URL_NOPAD.encode(br#"{"sub":"y"}"#));
        assert!(matches!(ParsedToken::read(&other).expect("a token").claims(&keys), Some(Err(_))), "{other}");
        for wrong in ["", "AAAA", &signature[4..]] {
            let other = format!("{message}.{wrong}");
            assert!(
                matches!(ParsedToken::read(&other).expect("a token").claims(&keys), Some(Err(_))),
                "{other}"
            );
        }
    }
}

#[test]
fn what_is_no_signature_of_theirs_lets_nobody_in() {
    let (signer, other) = (Signer::new(), Signer::new());
    let keys = signer.keys();
    let good = signer.token(&head(), &claims());
    assert_eq!(judged(&keys, &good), Some(Ok("somebody".to_owned())));
    assert_eq!(judged(&keys, &other.token(&head(), &claims())).map(|judged| judged.is_ok()), Some(false));
    let with = |name: &str, value: Value| {
        let mut head = head();
        head[name] = value;
        head
    };
    for (head, expect) in [
        (with("alg", json!("none")), "unsafe or unknown"),
        (with("alg", json!("None")), "unsafe or unknown"),
        (with("alg", json!("HS256")), "unsafe or unknown"),
        (with("alg", json!(null)), "unsafe or unknown"),
        (with("crit", json!(["exp"])), "an extension (`crit`) that unhang does not know"),
        (with("typ", json!("dpop+jwt")), "not an access token"),
    ] {
        let told =
            judged(&keys, &signer.token(&head, &claims())).expect("a verdict").expect_err("it is wrong");
        assert!(told.contains(expect), "{head}: {told}");
    }
    // Nothing is signed, and what everybody knows is taken for a secret.
    let unsigned = message(&with("alg", json!("none")), &claims());
    assert!(matches!(judged(&keys, &format!("{unsigned}.")), Some(Err(_))));
    let forged = message(&with("alg", json!("HS256")), &claims());
    let secret = hmac::Key::new(hmac::HMAC_SHA256, signer.pair.public_key().as_ref());
    let signature = BASE64URL_NOPAD.encode(hmac::sign(&secret, forged.as_bytes()).as_ref());
    assert!(matches!(judged(&keys, &format!("{forged}.{signature}")), Some(Err(_))));
    // A key of another kind, and one that is not there.
    assert_eq!(judged(&keys, &signer.token(&with("alg", json!("RS256")), &claims())), None);
    assert_eq!(judged(&keys, &signer.token(&with("kid", json!("two")), &claims())), None);
    // Without a name it is the only one.
    let nameless = signer.token(&json!({ "alg": "ES256" }), &claims());
    assert_eq!(judged(&keys, &nameless), Some(Ok("somebody".to_owned())));
    for text in ["", ".", "..", "a.b.c", "one-0123456789abcdef", &format!("{good}.x"), &"x".repeat(20_000)] {
        assert!(matches!(judged(&keys, text), Some(Err(_))), "{text}");
    }
}

#[test]
fn a_token_is_good_for_us_and_for_its_time() {
    let signer = Signer::new();
    let keys = signer.keys();
    let now = NOW.as_secs();
    for (name, value, expect) in [
        ("iss", json!("https://login.example.org/"), Some("another authorization server")),
        ("iss", json!(null), Some("another authorization server")),
        ("aud", json!("https://mcp.example.org/"), Some("another resource")),
        ("aud", json!(["https://a", "https://b"]), Some("another resource")),
        ("aud", json!(null), Some("another resource")),
        ("aud", json!(["https://a", "https://mcp.example.org/mcp"]), None),
        ("exp", json!(now - 61), Some("expired")),
        ("exp", json!(now - 60), Some("expired")),
        ("exp", json!(now - 59), None),
        ("exp", json!(null), Some("when it expires")),
        ("exp", json!("9999999999"), Some("when it expires")),
        ("nbf", json!(now + 61), Some("not valid yet")),
        ("nbf", json!(now + 59), None),
        ("nbf", json!("0"), Some("when it becomes valid")),
        ("sub", json!(null), Some("its subject")),
        ("sub", json!(""), Some("its subject")),
        ("scope", json!("mcp"), None),
        ("scope", json!("mcpx read"), Some("a scope")),
        ("scope", json!(null), Some("a scope")),
        ("scope", json!(["read", "mcp"]), None),
    ] {
        let mut claims = claims();
        claims[name] = value;
        let told = judged(&keys, &signer.token(&head(), &claims)).expect("a key");
        match expect {
            None => assert_eq!(told, Ok("somebody".to_owned()), "{claims}"),
            Some(expect) => {
                assert!(told.as_ref().is_err_and(|why| why.contains(expect)), "{claims}: {told:?}");
            }
        }
    }
    let mut claims = claims();
    claims.as_object_mut().expect("claims").remove("nbf");
    assert!(judged(&keys, &signer.token(&head(), &claims)).expect("a key").is_ok());
}

#[test]
fn a_key_is_for_what_it_says() {
    let all: Value = serde_json::from_slice(KEYS).expect("JSON");
    let rsa =
        &all["keys"].as_array().expect("keys").iter().find(|key| key["kty"] == "RSA").expect("one")["n"];
    let set = |key: Value| Keys::read(json!({ "keys": [key, 7, { "kty": "EC" }] }).to_string().as_bytes());
    for (key, rs256, ps256) in [
        (json!({ "kty": "RSA", "n": rsa, "e": "AQAB" }), true, true),
        (json!({ "kty": "RSA", "n": rsa, "e": "AQAB", "alg": "RS256" }), true, false),
        (json!({ "kty": "RSA", "n": rsa, "e": "AQAB", "alg": "HS256" }), false, false),
        (json!({ "kty": "RSA", "n": rsa, "e": "AQAB", "use": "enc" }), false, false),
        (json!({ "kty": "oct", "k": rsa }), false, false),
    ] {
        let keys = set(key.clone()).expect("a key set");
        let has = |algorithm| keys.key(None, algorithm).is_some();
        assert_eq!((has(Algorithm::Rs256), has(Algorithm::Ps256)), (rs256, ps256), "{key}");
    }
    for none in ["", "[]", "{}", r#"{"keys":{}}"#] {
        assert_eq!(Keys::read(none.as_bytes()), None, "{none}");
    }
}

#[test]
fn where_things_are_is_told_by_their_urls() {
    let limits = ResourceLimits {
        requests: RequestLimits::default(),
        kept: LEEWAY,
        pause: LEEWAY,
        first_pause: LEEWAY,
        leeway: LEEWAY,
    };
    let resource = ResourceServer::new(settings(), limits).expect("it is right");
    assert_eq!(resource.metadata_url(), "https://mcp.example.org/.well-known/oauth-protected-resource/mcp");
    assert_eq!(resource.metadata()["authorization_servers"], json!(["https://login.example.org"]));
    let bare = ResourceSettings { resource: "https://mcp.example.org".to_owned(), ..settings() };
    let bare = ResourceServer::new(bare, limits).expect("it is right");
    assert_eq!(bare.metadata_url(), "https://mcp.example.org/.well-known/oauth-protected-resource");
    let insecure = ResourceSettings { issuer: "http://login.example.org".to_owned(), ..settings() };
    assert!(ResourceServer::new(insecure, limits).is_err());
    let metadata_urls = metadata_urls(&Url::parse("https://login.example.org/realms/a").expect("a URL"));
    let expect = [
        "https://login.example.org/.well-known/oauth-authorization-server/realms/a",
        "https://login.example.org/.well-known/openid-configuration/realms/a",
        "https://login.example.org/realms/a/.well-known/openid-configuration",
    ];
    assert_eq!(metadata_urls.map(String::from), expect);
}
