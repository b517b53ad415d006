//! `unhang serve --http` and who may ask: tokens, sessions that are one client's, addresses of other machines, TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown, lchown, symlink},
    path::Path,
    process::Command,
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use serde_json::{Value, json};

use crate::{
    gateway::server,
    gateway_http::{finish, modern_call},
    harness::{Client, PATIENCE, Sandbox, Web, run_to_end, wait_until},
};

pub(crate) const ONE: &str = "one-0123456789abcdef";
pub(crate) const TWO: &str = "two-0123456789abcdef";

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("../certificates/server.pem");
const KEY: &[u8] = include_bytes!("../certificates/server.key");

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>, mode: u32) {
    let path = folder.join(name);
    fs::write(&path, content).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its rights");
}

/// `unhang serve --http ADDRESS` with this configuration and these flags; the first token comes from the environment.
fn serve(sandbox: &Sandbox, address: &str, text: &str, flags: &[&str]) -> Command {
    write(sandbox.path(), "unhang.toml", text, 0o644);
    let mut command = sandbox.unhang();
    command.args(["-v", "serve", "--http", address]).args(flags).env("TEAM_TOKEN", ONE);
    command
}

/// A gateway for those who have one of two tokens, in front of this server.
pub(crate) fn closed(sandbox: &Sandbox, address: &str, server: &str, more: &str) -> (Client, Web) {
    write(sandbox.path(), "tokens", format!("\n{TWO}\n"), 0o600);
    let text = format!("{server}\n[http]\ntokens = [\"${{TEAM_TOKEN}}\"]\n{more}");
    Web::start_as(serve(sandbox, address, &text, &["--token-file", "tokens"]))
}

fn wait_for_servers(web: &Web) {
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
}

fn list() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })
}

#[test]
fn whoever_has_no_token_gets_no_answer() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &server("one", &["well-behaved"], ""), "");
    wait_for_servers(&web);
    for unauthorized in [web.clone(), web.with_token("wrong-0123456789abcdef"), web.with_token(&ONE[1..])] {
        let answer = unauthorized.post(&[], &list());
        assert_eq!(answer.status, 401);
        assert!(answer.header("www-authenticate").is_some_and(|asked| asked.starts_with("Bearer")));
        let told = answer.last();
        assert!(told["error"]["message"].as_str().is_some_and(|text| text.contains("token")), "{told}");
        assert_eq!(unauthorized.ask("GET", "/status", &[], "").status, 401);
        assert_eq!(unauthorized.ask("GET", "/health", &[], "").status, 200);
    }
    for token in [ONE, TWO] {
        let web = web.with_token(token);
        let session = web.begin();
        let answer = web.call(&session, 1, "one__echo", json!({ "text": "hello" })).last();
        assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
        let status = web.ask("GET", "/status", &[], "").last().to_string();
        assert!(!status.contains(ONE) && !status.contains(TWO), "{status}");
    }
    wait_until("the log says who was refused", PATIENCE, || {
        let told = process.stderr();
        told.lines().any(|line| line.contains("127.0.0.1:") && line.contains("with 401"))
    });
    let told = process.stderr();
    finish(process, &sandbox);
    let told = told + &sandbox.log();
    assert!([ONE, TWO, &ONE[1..], "wrong-0123"].iter().all(|token| !told.contains(token)), "{told}");
}

#[test]
fn what_one_client_has_begun_is_not_there_for_another() {
    let sandbox = Sandbox::with_jobs();
    let asks = server("asks", &["requests-to-client"], "");
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &asks, "");
    wait_for_servers(&web);
    let (one, two) = (web.with_token(ONE), web.with_token(TWO));
    let session = one.begin();
    let headers = [("mcp-session-id", &*session)];
    assert_eq!(two.post(&headers, &list()).status, 404);
    assert_eq!(two.ask("GET", "/mcp", &headers, "").status, 404);
    assert_eq!(two.ask("DELETE", "/mcp", &headers, "").status, 404);
    assert_eq!(one.post(&headers, &list()).status, 200);
    // A call that waits for its client.
    let asked = modern_call(&one, 1, "asks__echo", &json!({}));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let answers = |asked: &Value| {
        let requests = asked["result"]["inputRequests"].as_object().expect("questions");
        let responses: Value = requests.keys().map(|name| (name.clone(), json!({}))).collect();
        json!({ "requestState": asked["result"]["requestState"], "inputResponses": responses })
    };
    let stolen = modern_call(&two, 2, "asks__echo", &answers(&asked));
    let unknown =
        modern_call(&two, 2, "asks__echo", &json!({ "requestState": "unhang.x.1", "inputResponses": {} }));
    assert_eq!((&stolen["error"]["code"], &stolen["error"]), (&json!(-32602), &unknown["error"]), "{stolen}");
    let mut answer = asked;
    for round in 3..6 {
        if answer["result"]["resultType"] == "input_required" {
            answer = modern_call(&one, round, "asks__echo", &answers(&answer));
        }
    }
    assert_eq!(answer["result"]["content"][0]["text"], "the client answered 4 questions", "{answer}");
    finish(process, &sandbox);
}

#[test]
fn f_24_what_servers_have_written_is_shown_to_operators_alone() {
    let sandbox = Sandbox::with_jobs();
    let words = "echo 'the account of alice' >&2; exit 3";
    let script = format!("[servers.frail]\ncommand = \"sh\"\nargs = [\"-c\", {words:?}]\n");
    let tokens = format!("tokens = [{{ token = {ONE:?}, operator = true }}, {TWO:?}]\n");
    let text = format!("{script}[http]\n{tokens}");
    write(sandbox.path(), "tokens", "three-0123456789abcdef\n", 0o600);
    let (process, web) = Web::start_as(serve(&sandbox, "127.0.0.1:0", &text, &["--token-file", "tokens"]));
    let status =
        |token: &str| web.with_token(token).ask("GET", "/status", &[], "").last()["servers"][0].clone();
    wait_until("it has failed", PATIENCE, || {
        let shown = status(ONE);
        shown["lastError"].is_string()
            && shown["lastExit"] == "exit code 3"
            && shown["stderrTail"] == json!(["the account of alice"])
    });
    for token in [TWO, "three-0123456789abcdef"] {
        let shown = status(token);
        assert!(shown["failures"].is_u64() && shown["name"] == "frail", "{shown}");
        for member in ["lastError", "lastErrorAt", "lastExit", "stderrTail"] {
            assert_eq!(shown[member], Value::Null, "{member}: {shown}");
        }
    }
    finish(process, &sandbox);
}

#[test]
fn other_machines_are_asked_who_they_are() {
    let sandbox = Sandbox::with_jobs();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, stdout, stderr) = run_to_end(serve(&sandbox, address, "", &[]));
        assert_eq!((code, &*stdout), (2, ""), "{stderr}");
        assert!(stderr.contains("other machines") && stderr.contains("--token-file"), "{stderr}");
    }
    let names = "allowed-hosts = [\"mcp.example.org\"]\nallowed-origins = [\"https://app.example.org\"]";
    let (process, web) = closed(&sandbox, "0.0.0.0:0", "", names);
    wait_until("it warns of what others can read", PATIENCE, || {
        process.stderr().contains("can read the tokens")
    });
    let one = web.with_token(ONE);
    let status = |host: &str, origin: &str| {
        let headers = [("host", host), ("origin", origin)];
        one.ask("GET", "/status", if origin.is_empty() { &headers[..1] } else { &headers }, "").status
    };
    for (host, origin, expect) in [
        ("mcp.example.org", "", 200),
        ("MCP.example.org:443", "https://app.example.org", 200),
        ("127.0.0.1:8808", "", 200),
        ("localhost:8808", "http://localhost:8808", 200),
        ("mcp.example.org", "https://mcp.example.org", 200),
        ("localhost:8808", "http://localhost:3000", 403),
        ("evil.example.com", "", 403),
        ("0.0.0.0", "", 403),
        ("192.0.2.1", "", 403),
        ("mcp.example.org", "https://evil.example.com", 403),
        ("mcp.example.org", "http://app.example.org", 403),
    ] {
        assert_eq!(status(host, origin), expect, "{host} {origin}");
    }
    assert_eq!(web.post(&[], &list()).status, 401);
    finish(process, &sandbox);
}

#[test]
fn tls_is_spoken_to_whoever_speaks_it() {
    let sandbox = Sandbox::with_jobs();
    write(sandbox.path(), "cert.pem", CERTIFICATE, 0o644);
    write(sandbox.path(), "key.pem", KEY, 0o600);
    let tls = "tls = { certificate = \"cert.pem\", key = \"key.pem\" }";
    let (process, web) = closed(&sandbox, "0.0.0.0:0", &server("one", &["well-behaved"], ""), tls);
    let told = process.stderr();
    assert!(told.contains("MCP is at https://0.0.0.0:") && !told.contains("can read the tokens"), "{told}");
    // Those who say nothing, who stop in the middle and who say something else cost nobody anything.
    let connect = || TcpStream::connect(web.address()).expect("a connection");
    let _silent: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    let mut half = connect();
    half.write_all(b"\x16\x03\x01").expect("it is taken");
    let mut plain = connect();
    plain.set_read_timeout(Some(PATIENCE)).expect("a limit");
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it is taken");
    let mut answer = Vec::new();
    let _closed_or_reset = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "nothing is told to who does not speak TLS");

    let port = web.address().rsplit_once(':').expect("a port").1;
    let client = |token: &str| {
        let url = format!("https://localhost:{port}/mcp");
        let text =
            format!("[servers.far]\nurl = \"{url}\"\nheaders = {{ Authorization = \"Bearer {token}\" }}\n");
        write(sandbox.path(), "client.toml", text, 0o600);
        let mut command = sandbox.unhang();
        command.args(["call", "--config", "client.toml", "far", "one__echo", "text=hello"]);
        command.env("SSL_CERT_FILE", AUTHORITY);
        run_to_end(command)
    };
    let (code, stdout, stderr) = client(ONE);
    assert!(code == 0 && stdout.contains("hello"), "{code} {stdout} {stderr}");
    let (code, _, stderr) = client("wrong-0123456789abcdef");
    assert!(code == 3 && stderr.contains("401"), "{code} {stderr}");
    finish(process, &sandbox);
}

#[test]
fn secrets_that_another_user_could_have_put_there_are_refused() {
    let sandbox = Sandbox::with_jobs();
    let folder = sandbox.path();
    let mine = rustix::process::geteuid().as_raw();
    for name in ["theirs", "open/tokens", "shared/tokens"] {
        fs::create_dir_all(folder.join(name).parent().expect("a folder")).expect("a folder");
        write(folder, name, format!("{ONE}\n"), 0o600);
    }
    fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o777)).expect("its rights");
    // As /tmp is: nobody takes a file of ours away from there.
    fs::set_permissions(folder.join("shared"), fs::Permissions::from_mode(0o1777)).expect("its rights");
    let is_root = chown(folder.join("theirs"), Some(65534), None).is_ok();
    symlink("shared/tokens", folder.join("link")).expect("a link");
    symlink("open/tokens", folder.join("to-open")).expect("a link");
    symlink("shared/tokens", folder.join("of-another")).expect("a link");
    let _only_root_can = lchown(folder.join("of-another"), Some(65534), None);
    let told = |file: &str| {
        let flags = ["--token-file", file];
        let (code, stdout, stderr) = run_to_end(serve(&sandbox, "127.0.0.1:0", "", &flags));
        assert_eq!((code, &*stdout), (2, ""), "{file}: {stderr}");
        stderr
    };
    for file in ["open/tokens", "to-open"] {
        let stderr = told(file);
        let hint = format!("run `chmod go-w {}`", folder.join("open").display());
        assert!(
            stderr.contains("others can write to its folder") && stderr.contains(&hint),
            "{file}: {stderr}"
        );
    }
    if is_root {
        for (file, expect) in [
            ("theirs", format!("it belongs to the user with the number 65534, and unhang runs as {mine}")),
            ("of-another", "a link that belongs to the user with the number 65534".to_owned()),
        ] {
            let stderr = told(file);
            assert!(stderr.contains(&expect), "{file}: {stderr}");
        }
        chown(folder.join("theirs"), Some(mine), None).expect("we are root");
    }
    for file in ["theirs", "shared/tokens", "link"] {
        let (mut process, web) = Web::start_as(serve(&sandbox, "127.0.0.1:0", "", &["--token-file", file]));
        assert_eq!(web.with_token(ONE).ask("GET", "/status", &[], "").status, 200, "{file}");
        process.signal(Signal::TERM);
        assert_eq!(process.exit_code(), 143);
    }
}

#[test]
fn what_is_wrong_with_secrets_is_told_before_anything_listens() {
    let sandbox = Sandbox::with_jobs();
    let folder = sandbox.path();
    for (name, content, mode) in [
        ("open", format!("{ONE}\n"), 0o644),
        ("group", format!("{ONE}\n"), 0o640),
        ("short", format!("{ONE}\nshort-secret\n"), 0o600),
        ("empty", "\n\n".to_owned(), 0o600),
    ] {
        write(folder, name, content, mode);
    }
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, folder.join("pipe"), FileType::Fifo, mode, 0).expect("a pipe");
    write(folder, "cert.pem", CERTIFICATE, 0o644);
    write(folder, "key.pem", KEY, 0o600);
    write(folder, "open.pem", KEY, 0o644);
    let tls = |certificate: &str, key: &str| {
        format!("[http]\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}")
    };
    for (text, flags, expect) in [
        (
            String::new(),
            vec!["--token-file", "open"],
            "others can read or write it (mode 0644); run `chmod 600 open`",
        ),
        (String::new(), vec!["--token-file", "group"], "mode 0640"),
        (String::new(), vec!["--token-file", "short"], "--token-file short: line 2: has only 12 characters"),
        (String::new(), vec!["--token-file", "empty"], "has no token"),
        (String::new(), vec!["--token-file", "pipe"], "is not a regular file"),
        (String::new(), vec!["--token-file", "none"], "cannot be read"),
        (
            "[http]\ntokens = [\"short-secret\"]".to_owned(),
            vec![],
            "unhang.toml:2:11: http.tokens[0]: has only 12 characters",
        ),
        (tls("cert.pem", "open.pem"), vec![], "open.pem: others can read or write it (mode 0644)"),
        (tls("none.pem", "key.pem"), vec![], "none.pem: cannot be read"),
        (tls("key.pem", "key.pem"), vec![], "the certificate is not a certificate in PEM form"),
        (tls("cert.pem", "short"), vec![], "the key is not a private key in PEM form"),
    ] {
        let (code, stdout, stderr) = run_to_end(serve(&sandbox, "127.0.0.1:0", &text, &flags));
        assert_eq!((code, &*stdout), (2, ""), "{text} {flags:?}: {stderr}");
        assert!(stderr.contains(expect) && !stderr.contains("short-secret"), "{text} {flags:?}: {stderr}");
        assert!(!stderr.contains("MCP is at"), "{stderr}");
    }
    // As systemd hands credentials to a service: the group's right stands for a list of those who may read it.
    let command = serve(&sandbox, "127.0.0.1:0", "", &["--token-file"]);
    let mut command = command;
    command.arg(folder.join("group")).env("CREDENTIALS_DIRECTORY", folder);
    let (mut process, web) = Web::start_as(command);
    assert_eq!(web.with_token(ONE).ask("GET", "/status", &[], "").status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143);
}
