//! Files of clients as they are found on machines.

use super::*;

fn lookup(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("secret".to_owned()),
        "HOME" => Some("/home/me".to_owned()),
        "UNHANG_INPUT_API_KEY" => Some("typed".to_owned()),
        _ => None,
    }
}

fn env_file(path: &Path) -> Result<String, String> {
    match path.to_str() {
        Some("/project/.env") => {
            Ok("# ours\nexport A=1\nB = \"two\\nlines\"\nTOKEN='${TOKEN}' # as it is\n\nC=\n".to_owned())
        }
        _ => Err("it is not there".to_owned()),
    }
}

fn read_in(file: &str, text: &str) -> Result<Vec<ForeignServer>, Complaint> {
    read_foreign(text, ForeignFile { file, project: Path::new("/project"), env_file: &env_file }, &lookup)
}

/// The only server of a file.
fn one(file: &str, text: &str) -> ServerSettings {
    let servers = read_in(file, text).expect("it is right");
    let [server] = &servers[..] else { panic!("one server: {servers:?}") };
    server.settings.clone().expect("it is understood")
}

/// The command line, the environment and the folder.
fn stdio(settings: &ServerSettings) -> (String, String, String) {
    let Transport::Stdio { command, arguments, environment, folder, .. } = &settings.transport else {
        panic!("a command: {settings:?}")
    };
    let environment: Vec<String> =
        environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (
        [std::slice::from_ref(command), arguments].concat().join(" "),
        environment.join(" "),
        folder.display().to_string(),
    )
}

fn http(settings: &ServerSettings) -> (&str, String, Option<HttpDialect>) {
    let Transport::Http { url, headers, dialect, .. } = &settings.transport else {
        panic!("a URL: {settings:?}")
    };
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    (url, headers.join(", "), *dialect)
}

fn told(line: &str, environment: &str, folder: &str) -> (String, String, String) {
    (line.to_owned(), environment.to_owned(), folder.to_owned())
}

#[test]
fn mcp_servers_with_comments_and_variables_are_read() {
    let text = r#"{
        // Cursor, Claude Desktop, Claude Code, Windsurf, Gemini
        "theme": null, "size": 1e400,
        "mcpServers": { "time": {
            "type": "stdio", "command": "uvx", "args": ["mcp-server-time", "--local=${TZ:-UTC}"],
            "env": { "TOKEN": "${env:TOKEN}", "PORT": "1" }, "cwd": "${workspaceFolder}/x", "timeout": 5, "trust": true,
        } }
    }"#;
    let expect = told("uvx mcp-server-time --local=UTC", "PORT=1 TOKEN=secret", "/project/x");
    assert_eq!(stdio(&one("mcp.json", text)), expect);
}

#[test]
fn remote_servers_are_read_in_every_spelling() {
    for (entry, expect) in [
        (
            r#"{"url": "https://a/mcp", "headers": {"X": "${TOKEN}"}}"#,
            ("https://a/mcp", "X: secret".to_owned(), None),
        ),
        (r#"{"type": "sse", "url": "http://a"}"#, ("http://a", String::new(), Some(HttpDialect::Sse))),
        (
            r#"{"type": "streamable-http", "url": "http://a"}"#,
            ("http://a", String::new(), Some(HttpDialect::Streamable)),
        ),
        (r#"{"httpUrl": "http://a"}"#, ("http://a", String::new(), Some(HttpDialect::Streamable))),
        (r#"{"serverUrl": "http://a"}"#, ("http://a", String::new(), None)),
    ] {
        let settings = one("mcp.json", &format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#));
        assert_eq!(http(&settings), expect, "{entry}");
    }
}

#[test]
fn the_files_of_vs_code_opencode_claude_code_and_codex_are_read() {
    let code = r#"{
        "inputs": [{"type": "promptString", "id": "api-key"}, {"id": "region", "default": "eu"}],
        "servers": {"a": {"type": "stdio", "command": "x", "env": {"K": "${input:api-key}", "R": "${input:region}"}}},
    }"#;
    assert_eq!(stdio(&one("mcp.json", code)), told("x", "K=typed R=eu", "/project"));
    let listed = r#"{"servers": [{"name": "a", "command": "x"}, {"command": "nameless"}]}"#;
    assert_eq!(stdio(&one("mcp.json", listed)), told("x", "", "/project"));
    let open = r#"{"mcp": {"a": {"type": "local", "command": ["bun", "x"], "environment": {"A": "b"}, "enabled": false}}}"#;
    assert_eq!(stdio(&one("opencode.jsonc", open)), told("bun x", "A=b", "/project"));
    assert!(read_in("opencode.jsonc", open).expect("it is right")[0].is_disabled);
    let claude = r#"{"projects": {"/project": {"mcpServers": {"a": {"command": "x"}}}, "/other": {"mcpServers": {"b": {}}}}}"#;
    assert_eq!(stdio(&one(".claude.json", claude)), told("x", "", "/project"));
    let codex = "[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"TOKEN\", \"NONE\"]\nstartup_timeout_sec = 20\ntool_timeout_sec = 1.5";
    let settings = one("config.toml", codex);
    assert_eq!(stdio(&settings), told("x", "TOKEN=secret", "/project"));
    let limits = (settings.limits.start_timeout, settings.limits.call_timeout);
    assert_eq!(limits, (Some(Duration::from_secs(20)), Some(Duration::from_millis(1500))));
    let codex = "[mcp_servers.a]\nurl = \"https://a\"\nbearer_token_env_var = \"TOKEN\"\nenv_http_headers = { X = \"TOKEN\" }";
    let headers = "Authorization: Bearer secret, X: secret".to_owned();
    assert_eq!(http(&one("config.toml", codex)), ("https://a", headers, None));
}

#[test]
fn what_is_wrong_with_one_server_spoils_no_other() {
    let text = "{\"mcpServers\": {\n\"good\": {\"command\": \"x\"},\n\"unset\": {\"command\": \"${NONE}\"},\n\
        \"asked\": {\"command\": \"${input:x}\"},\n\"empty\": {},\n\"odd\": {\"type\": \"http\", \"command\": \"x\"}}}";
    let servers = read_in("mcp.json", text).expect("the file is right");
    let told: Vec<String> = servers
        .iter()
        .map(|server| match &server.settings {
            Ok(_) => format!("{} is right", server.name),
            Err(complaint) => complaint.to_string(),
        })
        .collect();
    assert_eq!(
        told,
        [
            "good is right",
            "mcp.json:3:11: mcpServers.unset.command: the variable NONE is not set; set it, or write `${NONE:-default}`",
            "mcp.json:4:11: mcpServers.asked.command: the input x is not known; set UNHANG_INPUT_X",
            "mcp.json:5:1: mcpServers.empty: has neither a command nor a URL",
            "mcp.json:6:25: mcpServers.odd.command: a server of type `http` has a URL and not a command",
        ]
    );
}

#[test]
fn what_is_no_clients_file_is_told_with_its_place() {
    for (file, text, expect) in [
        ("a.json", "{\"mcpServers\": {\n  \"a\": }", "a.json:2:8: is not valid JSON: "),
        ("a.json", "[]", "a.json:1:1: is JSON, but not an object"),
        ("a.json", "", "a.json:1:1: is empty"),
        ("a.json", "{\"a\": 1}", "has none of the keys under which MCP clients keep their servers"),
        ("a.json", "{\"mcpServers\": 3}", "mcpServers: expected a table, found the number 3"),
        ("a.toml", "[mcp_servers", "a.toml:1:13: is not valid TOML: "),
    ] {
        let told = read_in(file, text).expect_err(text).to_string();
        assert!(told.contains(expect), "{told}\n{expect}");
    }
    let deep = format!("{{\"mcpServers\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read_in("a.json", &deep).is_err(), "and no stack overflows");
}

#[test]
fn f_22_a_file_of_variables_is_read_and_those_of_the_server_go_above_it() {
    let server = |path: &str| {
        format!(
            "{{\"servers\": {{\"a\": {{\"command\": \"x\", \"envFile\": \"{path}\", \"env\": {{\"A\": \"own\"}}}}}}}}"
        )
    };
    let (_, environment, _) = stdio(&one("mcp.json", &server("${workspaceFolder}/.env")));
    assert_eq!(environment, "A=own B=two\nlines C= TOKEN=${TOKEN}");
    let servers = read_in("mcp.json", &server("nowhere")).expect("the file is right");
    let told = servers[0].settings.as_ref().expect_err("there is no such file").to_string();
    assert!(told.contains("servers.a.envFile: /project/nowhere cannot be read: it is not there"), "{told}");
}

#[test]
fn a_server_behind_our_guard_is_the_server_itself() {
    let text = r#"{"mcpServers": {
        "adopted": {"command": "/opt/unhang", "args": ["wrap", "--name", "adopted", "--", "npx", "-y", "x"], "env": {"A": "b"}},
        "by hand": {"command": "unhang", "args": ["wrap", "npx", "-y", "x"]}
    }}"#;
    let servers = read_in("mcp.json", text).expect("it is right");
    let stdio = |index: usize| stdio(servers[index].settings.as_ref().expect("it is understood"));
    assert_eq!(stdio(0), told("npx -y x", "A=b", "/project"));
    // Where the guard's own words end is not known.
    assert_eq!(stdio(1), told("unhang wrap npx -y x", "", "/project"));
}
