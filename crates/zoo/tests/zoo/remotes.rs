//! The servers on the network, met with nothing but a socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::zoo_client::{PATIENCE, ZooClient};

/// An authorization server and its URL without the path.
struct Remote {
    client: ZooClient,
    base: String,
}

impl Remote {
    fn meet(habits: &str) -> Self {
        let client = ZooClient::meet(&format!("auth-server {habits}"));
        let line = String::from_utf8(client.line().expect("its URL")).expect("text");
        let base = line.trim_end().strip_suffix("/mcp").expect("its MCP server").to_owned();
        Self { client, base }
    }

    /// Sends a request and returns head and body, as far as they come until the limit.
    fn ask(&self, request: &str, headers: &str, body: &str, limit: u64) -> (String, String) {
        let address = self.base.strip_prefix("http://").expect("http");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let length = body.len();
        let request = format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        stream.take(limit).read_to_end(&mut bytes).expect("an answer");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.split_once("\r\n\r\n").map(|(head, body)| (head.to_owned(), body.to_owned())).expect("a head")
    }

    fn get(&self, path: &str) -> (String, String) {
        self.ask(&format!("GET {path}"), "", "", 1 << 20)
    }

    fn document(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).expect("JSON")
    }

    fn end(mut self) {
        self.client.close_stdin();
        assert!(self.client.end().success());
    }
}

const OF_RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const OF_AUTHORITY: &str = "/.well-known/oauth-authorization-server/as";

/// The verifier and the challenge of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

impl Remote {
    /// Registers, and returns where the browser is sent.
    fn redirect(&self) -> String {
        let registration = r#"{"redirect_uris": ["http://127.0.0.1:1/back"]}"#;
        let (_, client) = self.ask("POST /as/register", "", registration, 1 << 20);
        let client: Value = serde_json::from_str(&client).expect("JSON");
        let client = client["client_id"].as_str().expect("an id");
        let (head, body) = self.get(&format!(
            "/as/authorize?response_type=code&client_id={client}&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fback&scope=read\
             &state=0123456789abcdef&code_challenge={CHALLENGE}&code_challenge_method=S256&resource={}/mcp",
            self.base
        ));
        let location = head.lines().find_map(|line| line.strip_prefix("Location: "));
        location.unwrap_or_else(|| panic!("{head}\n{body}")).to_owned()
    }

    /// Exchanges the code of a redirect with this verifier.
    fn token(&self, redirect: &str, verifier: &str) -> Value {
        let code = redirect.split(['?', '&']).find_map(|pair| pair.strip_prefix("code=")).expect("a code");
        let form = format!(
            "grant_type=authorization_code&code={code}&client_id=client-1&code_verifier={verifier}\
             &redirect_uri=http://127.0.0.1:1/back&resource={}/mcp",
            self.base
        );
        serde_json::from_str(&self.ask("POST /as/token", "", &form, 1 << 20).1).expect("JSON")
    }
}

#[test]
fn without_a_vice_it_gives_a_token_to_who_asks_in_the_right_way() {
    let remote = Remote::meet("--scopes read");
    let (head, _) = remote.ask("POST /mcp", "", "{}", 1 << 20);
    let challenge = format!("Bearer resource_metadata=\"{}{OF_RESOURCE}\", scope=\"read\"", remote.base);
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains(&challenge), "{head}");
    assert_eq!(remote.document(OF_RESOURCE)["authorization_servers"], json!([format!("{}/as", remote.base)]));
    let redirect = remote.redirect();
    assert!(redirect.contains("state=0123456789abcdef") && redirect.contains("%2Fas"), "{redirect}");
    let token = remote.token(&redirect, VERIFIER);
    let token = token["access_token"].as_str().unwrap_or_else(|| panic!("{token}"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (head, body) = remote.ask("POST /mcp", &format!("Authorization: Bearer {token}\r\n"), ping, 1 << 20);
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("\"result\""), "{head} {body}");
    // A code is good once, and for who has the verifier.
    assert_eq!(remote.token(&redirect, VERIFIER)["error"], "invalid_grant");
    let (_, body) =
        remote.ask("POST /as/token", "", "grant_type=authorization_code&client_id=nobody", 1 << 20);
    assert!(body.contains("invalid_client"), "{body}");
    remote.end();
    let remote = Remote::meet("");
    let redirect = remote.redirect();
    assert_eq!(remote.token(&redirect, &VERIFIER.replace('d', "e"))["error"], "invalid_grant");
    remote.end();
}

#[test]
fn vices_show_where_they_are_to_show() {
    let with = |vice: &str| Remote::meet(&format!("--vice {vice}"));
    for (vice, path, shows) in [
        ("wrong-resource", OF_RESOURCE, "\"resource\":\"http://127.0.0.1:1/mcp\""),
        ("wrong-issuer", OF_AUTHORITY, "\"issuer\":\"http://127.0.0.1:1/as\""),
        ("no-pkce", OF_AUTHORITY, "\"code_challenge_methods_supported\":null"),
        ("insecure", OF_AUTHORITY, "\"token_endpoint\":\"http://as.invalid/token\""),
    ] {
        let remote = with(vice);
        let (_, body) = remote.get(path);
        assert!(body.contains(shows), "{vice}: {body}");
        remote.end();
    }
    for (vice, shows, lacks) in [
        ("denies", "error=access_denied", "code="),
        ("missing-iss", "code=", "iss="),
        ("wrong-iss", "iss=http%3A%2F%2F127.0.0.1%3A1%2Fas", "%2Fas%2F"),
        ("wrong-state", "state=somebody-elses-state", "0123456789abcdef"),
    ] {
        let remote = with(vice);
        let redirect = remote.redirect();
        assert!(redirect.contains(shows) && !redirect.contains(lacks), "{vice}: {redirect}");
        remote.end();
    }
    let remote = with("redirects");
    assert!(remote.get(OF_RESOURCE).0.contains("Location: http://localhost:"));
    remote.end();
    let remote = with("no-metadata");
    assert!(remote.get(OF_RESOURCE).0.starts_with("HTTP/1.1 404 "));
    remote.end();
    let remote = with("endless");
    let (_, body) = remote.ask(&format!("GET {OF_AUTHORITY}"), "", "", 4 << 20);
    assert!(body.len() > 3 << 20);
    remote.end();
}
