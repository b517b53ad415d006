//! `unhang login` and `unhang logout`: what is kept, what is said, and what is refused.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{ChildStdout, Command},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until};

/// `unhang-lab zoo auth-server` on a port of its own. It ends with the test.
pub(crate) struct AuthServer {
    process: Client,
    /// Its MCP server.
    pub(crate) url: String,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name));
        line.map(|(_, value)| value.to_owned())
    }
}

/// Sends one request, and takes all of the answer.
pub(crate) fn http(method: &str, url: &str, headers: &str, body: &str) -> Answer {
    let (host, target) = url.strip_prefix("http://").expect("http").split_once('/').expect("a path");
    let mut stream = TcpStream::connect(host).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let length = body.len();
    let request = format!(
        "{method} /{target} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) fn get(url: &str) -> Answer {
    http("GET", url, "", "")
}

impl AuthServer {
    pub(crate) fn start(sandbox: &Sandbox, habits: &[&str]) -> Self {
        let mut process = sandbox.bare(&[&["auth-server"], habits].concat());
        let url = process.next_line(PATIENCE).expect("it says where it is").trim().to_owned();
        Self { process, url }
    }

    /// A page of it.
    pub(crate) fn at(&self, path: &str) -> String {
        self.url.replace("/mcp", path)
    }

    /// What came to its authorization server.
    pub(crate) fn log(&self) -> Vec<String> {
        serde_json::from_str(&get(&self.at("/log")).body).expect("a list")
    }

    /// How many lines of that begin so.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.log().iter().filter(|line| line.starts_with(beginning)).count()
    }
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.process.close_stdin();
        if !std::thread::panicking() {
            assert_eq!(self.process.exit_code(), 0);
        }
    }
}

/// `unhang login` at work.
struct Login {
    process: Client,
    stdout: ChildStdout,
}

impl Login {
    fn start(mut command: Command, words: &[&str]) -> Self {
        command.arg("login").args(words);
        let (process, stdout) = Client::start_unread(command);
        Self { process, stdout }
    }

    /// The page that it wants to be opened.
    fn page(&self) -> String {
        let page = || {
            let stderr = self.process.stderr();
            let whole = stderr.rsplit_once('\n').map(|(whole, _)| whole.to_owned()).unwrap_or_default();
            whole.lines().find(|line| line.starts_with("http")).map(str::to_owned)
        };
        wait_until("the page to log in on", PATIENCE, || page().is_some());
        page().expect("it is there")
    }

    /// Opens the page as a browser does, and comes back. What the page at the end says.
    fn consent(&self) -> String {
        let back = get(&self.page()).header("Location").expect("it consents at once");
        let end = get(&back);
        assert_eq!(end.status, 200, "{}", end.body);
        end.body
    }

    fn end(mut self) -> (i32, String, String) {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        let code = self.process.exit_code();
        (code, text, self.process.stderr_at_the_end())
    }
}

fn token_files(sandbox: &Sandbox) -> Vec<PathBuf> {
    let files = fs::read_dir(sandbox.path().join("state/tokens")).into_iter().flatten();
    files.map(|file| file.expect("an entry").path()).collect()
}

/// Logs in to a server by its URL, and demands that nothing goes wrong.
fn log_in(sandbox: &Sandbox, server: &AuthServer) -> (String, String) {
    let login = Login::start(sandbox.unhang(), &["-v", &server.url]);
    login.consent();
    let (code, stdout, stderr) = login.end();
    assert_eq!(code, 0, "{stderr}");
    (stdout, stderr)
}

#[test]
fn a_login_brings_tokens_that_are_kept_for_their_owner_alone() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--scopes", "read write", "--expires", "3600"]);
    let (stdout, stderr) = log_in(&sandbox, &server);
    let told: Value = serde_json::from_str(&stdout).expect("JSON");
    let expires = told["expires"].as_str().expect("it says until when");
    assert!(expires.starts_with("20") && expires.ends_with('Z'), "{told}");
    let expect = json!({
        "server": server.url, "issuer": server.at("/as"), "scopes": ["read", "write"], "expires": expires, "is_renewed": true,
    });
    assert_eq!(told, expect);
    let said =
        format!("unhang: to log in to {}, open this page in a browser:\nhttp://127.0.0.1:", server.url);
    assert!(stderr.contains(&said), "{stderr}");
    // `-v` is on: not even what is said then has a token, a code or a secret in it.
    assert!(!stdout.contains("secret-") && !stderr.contains("secret-"), "{stdout}{stderr}");
    let [file] = &token_files(&sandbox)[..] else { panic!("one file") };
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().expect("a folder"))), (0o600, 0o700));
    let kept: Value = serde_json::from_str(&fs::read_to_string(file).expect("text")).expect("JSON");
    let token = kept["access_token"].as_str().expect("it is there");
    assert!(token.starts_with("secret-access") && kept["server"] == *server.url, "{kept}");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(http("POST", &server.url, &format!("Authorization: Bearer {token}\r\n"), ping).status, 200);
    // The same in text.
    let login = Login::start(sandbox.unhang(), &["--output", "text", &server.url]);
    assert_eq!(login.consent(), "You can close this page and go back to unhang.");
    let (code, stdout, _) = login.end();
    let begin = format!("logged in to {} at {} until 20", server.url, server.at("/as"));
    assert!(
        code == 0 && stdout.starts_with(&begin) && stdout.ends_with("Z, renewed when it ends\n"),
        "{stdout}"
    );
}

#[test]
fn a_logout_is_told_to_who_gave_the_tokens() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    log_in(&sandbox, &server);
    let logout = |format: &str| {
        let mut command = sandbox.unhang();
        command.args(["logout", "--output", format, &server.url]);
        run_to_end(command)
    };
    let (code, stdout, stderr) = logout("json");
    let told: Value = serde_json::from_str(&stdout).expect("JSON");
    let expect = json!({ "server": server.url, "was_logged_in": true, "is_revoked": true });
    assert_eq!((code, told, &*stderr), (0, expect, ""));
    assert_eq!(
        (server.count("revoke refresh_token known=true"), server.count("revoke access_token known=true")),
        (1, 1)
    );
    assert!(token_files(&sandbox).is_empty());
    let again = (0, format!("there was no login to {}\n", server.url), String::new());
    assert_eq!(logout("text"), again);
    // Who gave the tokens has gone.
    log_in(&sandbox, &server);
    let url = server.url.clone();
    let issuer = url.replace("/mcp", "/as");
    drop(server);
    let mut command = sandbox.unhang();
    command.args(["logout", "--output", "text", &url]);
    let (code, stdout, stderr) = run_to_end(command);
    let note = format!(
        "unhang: the tokens were removed here, but they may still be valid at the authorization \
         server: {issuer}/revoke cannot be reached: Connection refused"
    );
    assert_eq!((code, stdout), (0, format!("logged out of {url}\n")));
    assert!(stderr.starts_with(&note), "{stderr}");
    assert!(token_files(&sandbox).is_empty());
}

/// What cannot be trusted is refused before anybody is sent anywhere.
#[test]
fn what_cannot_be_trusted_is_refused_before_a_person_is_asked() {
    let sandbox = Sandbox::with_logins();
    for (vice, code, sentence) in [
        ("endless", 5, "the answer of METADATA has more than 1048576 bytes: unhang refuses it"),
        ("insecure", 5, "http://as.invalid/authorize is not https: unhang sends nothing there"),
        (
            "no-metadata",
            3,
            "URL does not name an authorization server, because it has no OAuth metadata; give it a \
             token as `headers` in the file, or with `--header` on the command line",
        ),
        (
            "no-pkce",
            5,
            "the authorization server ISSUER does not declare that it checks PKCE with S256, which MCP \
             requires: unhang refuses the login",
        ),
        (
            "refuses-registration",
            1,
            "the authorization server ISSUER accepts no unknown client (HTTP 403 Forbidden: \
             {\"error\":\"access_denied\"}): register a client there, and give it as `oauth = { \
             client-id = \"...\" }`",
        ),
        (
            "silent",
            4,
            "METADATA did not answer within 1s\nhint: check whether it runs, and raise --request-timeout if it needs longer",
        ),
        (
            "wrong-issuer",
            5,
            "an answer from the authorization server ISSUER names http://127.0.0.1:1/as as its issuer: \
             unhang refuses it",
        ),
        (
            "wrong-resource",
            5,
            "URL claims to be http://127.0.0.1:1/mcp, which is another server: unhang refuses that",
        ),
    ] {
        let server = AuthServer::start(&sandbox, &["--vice", vice]);
        let mut command = sandbox.unhang();
        command.args(["login", "--request-timeout", "1s", &server.url]);
        let (ended, stdout, stderr) = run_to_end(command);
        let sentence = sentence
            .replace("METADATA", &server.at("/.well-known/oauth-authorization-server/as"))
            .replace("ISSUER", &server.at("/as"))
            .replace("URL", &server.url);
        assert_eq!((ended, &*stdout, stderr), (code, "", format!("unhang: {sentence}\n")), "{vice}");
        assert_eq!(server.count("authorize") + server.count("token"), 0, "{vice}");
    }
    let server = AuthServer::start(&sandbox, &["--vice", "redirects"]);
    let mut command = sandbox.unhang();
    command.args(["login", &server.url]);
    let (code, _, stderr) = run_to_end(command);
    assert!(code == 5 && stderr.contains("redirect to non-same-origin URL rejected"), "{stderr}");
    assert!(stderr.contains("/elsewhere?key=…") && !stderr.contains("HUSH"), "{stderr}");
    assert!(token_files(&sandbox).is_empty());
}

/// So is an answer that is none to what was asked; nothing is asked for with it.
#[test]
fn an_answer_to_something_else_is_refused() {
    let sandbox = Sandbox::with_logins();
    for (vice, code, sentence) in [
        (
            "denies",
            1,
            "the authorization server ISSUER refused: access_denied: The person said no\nhint: run \
             `unhang login` again and consent; if you did, check at the authorization server the rights \
             of this account",
        ),
        (
            "missing-iss",
            5,
            "an answer from the authorization server ISSUER names no issuer: unhang refuses it",
        ),
        (
            "wrong-iss",
            5,
            "an answer from the authorization server ISSUER names http://127.0.0.1:1/as as its issuer: \
             unhang refuses it",
        ),
    ] {
        let server = AuthServer::start(&sandbox, &["--vice", vice]);
        let login = Login::start(sandbox.unhang(), &[&server.url]);
        login.consent();
        let (ended, stdout, stderr) = login.end();
        let sentence = sentence.replace("ISSUER", &server.at("/as"));
        assert!(ended == code && stdout.is_empty(), "{vice}: {ended} {stdout}");
        assert!(stderr.ends_with(&format!("\nunhang: {sentence}\n")), "{vice}: {stderr}");
        assert_eq!(server.count("token"), 0, "{vice}");
    }
    assert!(token_files(&sandbox).is_empty());
}

#[test]
fn f_35_what_comes_with_another_state_is_no_answer() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--vice", "wrong-state"]);
    let login = Login::start(sandbox.unhang(), &["--login-timeout", "5s", &server.url]);
    let back = get(&login.page()).header("Location").expect("it consents at once");
    assert_eq!(get(&back).status, 400);
    let (code, stdout, stderr) = login.end();
    assert!(code == 4 && stdout.is_empty() && stderr.contains("within 5s"), "{code} {stderr}");
    assert_eq!(server.count("token"), 0);
    assert!(token_files(&sandbox).is_empty());
}

#[test]
fn what_was_sent_is_not_told_though_it_comes_back() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &["--vice", "repeats"]);
    let login = Login::start(sandbox.unhang(), &["-v", &server.url]);
    login.consent();
    let (code, _, stderr) = login.end();
    let said = format!(
        "unhang: the authorization server {} refused: invalid_grant: this is of no use",
        server.at("/as")
    );
    assert!(code == 1 && stderr.contains(&said) && stderr.contains("\"code\":\"[...]\""), "{stderr}");
    assert!(!stderr.contains("secret-"), "{stderr}");
}

#[test]
fn a_browser_that_wants_something_else_holds_nothing_up() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let login = Login::start(sandbox.unhang(), &[&server.url]);
    let back = get(&login.page()).header("Location").expect("it consents at once");
    let (callback, _) = back.split_once('?').expect("a query");
    let address = callback.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("a host");
    // Browsers open more connections than they use, and ask for an icon.
    let idle: Vec<_> = (0..4).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for other in [&format!("http://{address}/favicon.ico"), callback, &format!("{callback}?state=guessed")] {
        assert_eq!(get(other).status, 404, "{other}");
    }
    // Any page can send a browser here.
    for other in ["error=access_denied", "error=access_denied&state=guessed", "code=a&state=guessed"] {
        assert_eq!(get(&format!("{callback}?{other}")).status, 400, "{other}");
    }
    assert_eq!(get(&back).status, 200);
    let (code, _, stderr) = login.end();
    assert_eq!(code, 0, "{stderr}");
    drop(idle);
}

#[test]
fn nobody_is_waited_for_without_end() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let mut command = sandbox.unhang();
    command.args(["login", "--login-timeout", "300ms", "--output", "json", &server.url]);
    let (code, _, stderr) = run_to_end(command);
    let last: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
    let said = "no login came within 300ms: the browser did not return";
    assert_eq!(
        (code, &last["error"]["message"], &last["error"]["kind"]),
        (4, &json!(said), &json!("deadline"))
    );
    let hint = last["error"]["data"]["hint"].as_str().expect("a next step");
    assert!(hint.contains("raise --login-timeout"), "{hint}");
    let login = Login::start(sandbox.unhang(), &[&server.url]);
    login.page();
    login.process.signal(Signal::TERM);
    assert_eq!(login.end().0, 143);
    assert!(token_files(&sandbox).is_empty());
}

#[test]
fn the_file_says_who_we_are_and_what_to_ask_for() {
    let sandbox = Sandbox::with_logins();
    let known = ["--client", "known:secret-known", "--supported", "read"];
    for (method, way) in [("client_secret_basic", "basic"), ("client_secret_post", "post")] {
        let server = AuthServer::start(&sandbox, &[&known[..], &["--methods", method]].concat());
        let file = format!(
            "[servers.search]\nurl = \"{}\"\noauth = {{ client-id = \"known\", client-secret = \"${{SECRET}}\", scopes = [\"write\"] }}\n",
            server.url
        );
        fs::write(sandbox.path().join("unhang.toml"), file).expect("written");
        let mut command = sandbox.unhang();
        command.env("SECRET", "secret-known");
        let login = Login::start(command, &["search"]);
        login.consent();
        let (code, stdout, stderr) = login.end();
        assert!(code == 0 && stdout.contains("\"server\": \"search\""), "{stdout}{stderr}");
        let expect =
            ["authorize client=known scope=write", &format!("token grant=authorization_code auth={way}")];
        assert_eq!(server.log(), expect);
    }
    // A document in the place of a registration, where it is read.
    let server = AuthServer::start(&sandbox, &["--documents", "yes", "--supported", "read"]);
    let document = "https://example.org/unhang.json";
    let file = format!(
        "[servers.search]\nurl = \"{}\"\noauth = {{ client-metadata-url = \"{document}\" }}\n",
        server.url
    );
    fs::write(sandbox.path().join("unhang.toml"), file).expect("written");
    let login = Login::start(sandbox.unhang(), &["search"]);
    login.consent();
    assert_eq!(login.end().0, 0);
    assert_eq!(server.log()[0], format!("authorize client={document} scope=read"));
}

#[test]
fn what_has_no_logins_is_told() {
    let sandbox = Sandbox::with_logins();
    fs::write(sandbox.path().join("unhang.toml"), "[servers.time]\ncommand = \"uvx\"\n").expect("written");
    let said = |words: &[&str], has_home: bool| {
        let mut command = sandbox.unhang();
        command.args(words);
        if !has_home {
            command.env_remove("HOME").env_remove("UNHANG_HOME");
        }
        let (code, _, stderr) = run_to_end(command);
        (code, stderr)
    };
    for (words, code, sentence) in [
        (
            ["login", "time"],
            2,
            "unhang: `time` is a command on this machine, and only a server behind a URL has \
             logins\nhint: give it the variables that it needs as `env` in the file that `unhang \
             servers` names\n",
        ),
        (["logout", "tme"], 6, "unhang: there is no server `tme`\nhint: did you mean `time`?\n"),
        (
            ["login", "http://example.org/mcp"],
            5,
            "unhang: http://example.org/mcp is not https: unhang sends nothing there\n",
        ),
        (
            ["login", "ftp://example.org/mcp"],
            2,
            "unhang: `ftp://example.org/mcp` is not the URL of a server: it must begin with https:// or \
             http://\n",
        ),
    ] {
        assert_eq!(said(&words, true), (code, sentence.to_owned()), "{words:?}");
    }
    let (code, stderr) = said(&["login", "http://127.0.0.1:1/mcp"], true);
    assert!(
        code == 3 && stderr.starts_with("unhang: http://127.0.0.1:1/mcp cannot be reached: "),
        "{stderr}"
    );
    assert!(stderr.contains("hint: check whether it runs, and whether the URL"), "{stderr}");
    let nowhere = "unhang: there is no folder for tokens: neither UNHANG_HOME nor HOME is set\nhint: set \
        UNHANG_HOME to a folder for them\n";
    assert_eq!(said(&["login", "http://127.0.0.1:1/mcp"], false), (2, nowhere.to_owned()));
}

#[test]
fn what_may_be_secret_in_a_url_is_in_no_word_about_a_login() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let url = format!("{}?api_key=QSECRET#FSECRET", server.url.replace("://", "://bob:PWPWPWPW@"));
    let told = format!("{}?api_key=…#…", server.url.replace("://", "://…@"));
    let to_log_in = format!("{told} requires a login: run `unhang login {told}`");
    let to_open = format!("to log in to {told}, open this page");
    let nobody = format!("there was no login to {told}");
    for (words, expect) in [
        (&["-v", "tools", "URL"][..], &to_log_in),
        (&["-v", "call", "URL", "echo", "text=x"], &to_log_in),
        (&["-v", "ping", "URL"], &to_log_in),
        (&["-v", "doctor", "URL", "--output", "json"], &to_log_in),
        (&["-v", "login", "URL", "--login-timeout", "1s"], &to_open),
        (&["-v", "logout", "URL", "--output", "text"], &nobody),
    ] {
        let mut command = sandbox.unhang();
        command.args(words.iter().map(|word| word.replace("URL", &url)));
        command.env("UNHANG_LOG", "trace").env("RUST_LOG", "trace");
        let (code, stdout, stderr) = run_to_end(command);
        let all = format!("{stdout}{stderr}");
        assert!(all.contains(expect.as_str()), "{words:?}: {code} {all}");
        for secret in ["bob", "PWPW", "QSECRET", "FSECRET"] {
            assert!(!all.contains(secret), "{words:?}: {all}");
        }
    }
}

#[test]
fn whatever_asks_a_server_has_the_login_to_it_and_nobody_is_asked_to_log_in() {
    let sandbox = Sandbox::with_logins();
    let server = AuthServer::start(&sandbox, &[]);
    let call = || {
        let mut command = sandbox.unhang();
        command.args(["-v", "call", &server.url, "echo", "text=hi"]);
        run_to_end(command)
    };
    let (code, out, err) = call();
    let expect = format!("requires a login: run `unhang login {}`", server.url);
    assert!(code == 3 && out.is_empty() && err.contains(&expect), "{code} {err}");

    log_in(&sandbox, &server);
    let (code, out, err) = call();
    let result: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code} {out} {err}"));
    assert_eq!(result["content"][0]["text"], "hi");
    assert!(!format!("{out}{err}").contains("secret-"), "no token is told: {err}");

    // The server forgets what it gave out; the login is renewed on the way, and nobody sees it.
    get(&server.at("/forget"));
    let (code, _, err) = call();
    assert_eq!(code, 0, "{err}");
    drop(server);
    sandbox.assert_nothing_left();
}
