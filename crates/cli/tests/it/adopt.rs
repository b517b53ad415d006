//! `unhang adopt`: the servers of all clients get the guard, each by one command, and lose it by one, byte for byte (issue 25, 2).

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use serde_json::{Value, json};

use crate::{
    asking::at_terminal,
    harness::{Client, Sandbox, lab_program, run_to_end, signal, write_program},
};

/// A home with files of clients.
pub(crate) struct Home {
    pub(crate) sandbox: Sandbox,
}

impl Home {
    /// One in which unhang is installed where it stays, as a link to the binary under test.
    pub(crate) fn new() -> Home {
        let home = Home { sandbox: Sandbox::with_adoptions() };
        let place = home.path(".local/bin/unhang");
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_unhang"), place).expect("a link");
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().canonicalize().expect("a folder").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Runs `unhang adopt WORDS`.
    #[track_caller]
    pub(crate) fn adopt(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = self.sandbox.unhang();
        command.arg("adopt").args(words).env("HOME", self.path(""));
        run_to_end(command)
    }

    /// Runs it, demands this exit code, and returns the report.
    #[track_caller]
    pub(crate) fn report(&self, words: &[&str], code: i32) -> Value {
        let (found, stdout, stderr) = self.adopt(&[words, &["--output", "json"]].concat());
        assert_eq!(found, code, "{words:?}: {stdout} {stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// The path that entries get.
    pub(crate) fn program(&self) -> String {
        // The home folder is given with a slash at its end.
        self.path(".local/bin/unhang").display().to_string()
    }
}

/// A file of Cursor with comments, and a server that works.
pub(crate) fn cursor() -> String {
    format!(
        "{{\n  // mine\n  \"mcpServers\": {{\n    \"zoo\": {{\n      \"command\": \"{}\",\n      \"args\": [\"zoo\", \"well-behaved\"],\n      \"env\": {{ \"KEY\": \"hidden-value\" }}\n    }},\n    \"remote\": {{ \"url\": \"https://example.org/mcp\" }}\n  }}\n}}",
        lab_program()
    )
}

const CODEX: &str = "# mine\n[mcp_servers.zoo]\ncommand = 'zoo'\n";

#[test]
fn the_servers_of_all_clients_are_guarded_and_given_back_byte_for_byte() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.write(".codex/config.toml", CODEX);
    fs::set_permissions(home.path(".codex/config.toml"), fs::Permissions::from_mode(0o600))
        .expect("it is ours");
    let report = home.report(&["--yes"], 0);
    let statuses: Vec<&Value> =
        report["files"].as_array().expect("files").iter().map(|file| &file["status"]).collect();
    assert_eq!(statuses, ["adopted", "adopted"], "{report}");
    assert_eq!(report["program"], home.program());
    assert!(report["not_found"].as_array().expect("clients").contains(&json!("Windsurf")), "{report}");
    let adopted = home.read(".cursor/mcp.json");
    assert!(
        adopted.contains("// mine") && adopted.contains("\"env\": { \"KEY\": \"hidden-value\" }"),
        "{adopted}"
    );
    let codex = home.read(".codex/config.toml");
    let expect = format!(
        "# mine\n[mcp_servers.zoo]\ncommand = \"{}\"\nargs = [\"wrap\", \"--name\", \"zoo\", \"--\", 'zoo']\n",
        home.program()
    );
    assert_eq!(codex, expect);
    assert_eq!(fs::metadata(home.path(".codex/config.toml")).expect("it is there").mode() & 0o777, 0o600);
    let backup = report["files"][0]["backup"].as_str().expect("a path");
    assert_eq!(fs::read_to_string(backup).expect("text"), cursor());
    assert_eq!(fs::metadata(backup).expect("it is there").mode() & 0o777, 0o600);

    // The second time there is nothing to do.
    let again = home.report(&["--yes"], 0);
    assert_eq!(again["files"][0]["status"], "unchanged", "{again}");
    assert_eq!((home.read(".cursor/mcp.json"), home.read(".codex/config.toml")), (adopted.clone(), codex));

    // The client starts what stands there.
    let start = || {
        let written = adopted.replace("  // mine\n", "");
        let entry: Value = serde_json::from_str(&written).expect("JSON");
        let entry = &entry["mcpServers"]["zoo"];
        let mut command = home.sandbox.unhang();
        assert_eq!(entry["command"], home.program());
        let words = entry["args"].as_array().expect("a list").iter();
        command.args(words.map(|word| word.as_str().expect("text")));
        Client::start(command)
    };
    let mut client = start();
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello");
    client.finish();

    let status = home.report(&["--status", "cursor"], 0);
    let servers = &status["files"][0]["servers"];
    assert_eq!(
        (&servers[0]["state"], &servers[0]["version"]),
        (&json!("guarded"), &json!(env!("CARGO_PKG_VERSION")))
    );
    assert!(servers[0]["last_ran"].as_str().is_some_and(|at| at.starts_with("20")), "{status}");
    assert_eq!(servers[1]["state"], "remote");

    // The server behind the guard is the server, also for this command line.
    let mut doctor = home.sandbox.unhang();
    doctor.args(["servers", "--output", "json"]).env("HOME", home.path(""));
    let (_, listed, _) = run_to_end(doctor);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        (&listed[0]["name"], &listed[0]["command"]),
        (&json!("zoo"), &json!(lab_program())),
        "{listed}"
    );

    let undone = home.report(&["--undo", "--yes"], 0);
    assert_eq!(
        (&undone["files"][0]["status"], &undone["files"][1]["status"]),
        (&json!("undone"), &json!("undone"))
    );
    assert_eq!(
        (home.read(".cursor/mcp.json"), home.read(".codex/config.toml")),
        (cursor(), CODEX.to_owned())
    );
    assert!(!PathBuf::from(backup).exists(), "nothing is kept that nobody needs");
    assert_eq!(home.report(&["--undo", "--yes"], 0)["files"], json!([]));
}

#[test]
fn nothing_is_written_before_somebody_has_agreed() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    let (code, stdout, stderr) = home.adopt(&[]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains("nobody can be asked") && stderr.contains("add --yes"), "{stderr}");
    let (code, stdout, stderr) = home.adopt(&["--dry-run", "--output", "text"]);
    assert_eq!(code, 0, "{stderr}");
    let old = format!("-       \"command\": \"{}\",\n", lab_program());
    for expect in [
        "Cursor: ~/.cursor/mcp.json\n",
        "  line 5\n",
        &old,
        "+       \"command\": \"",
        "remote is a URL",
        "no file of: Claude Code",
        "nothing was written",
    ] {
        assert!(stdout.contains(expect), "{expect:?}: {stdout}");
    }
    assert!(!stdout.contains("hidden-value") && !stdout.contains('\u{1b}'), "{stdout}");
    assert_eq!(home.read(".cursor/mcp.json"), cursor());

    let at = |words: &[&str]| {
        let mut command = home.sandbox.unhang();
        command.arg("adopt").args(words).env("TERM", "xterm").env("HOME", home.path(""));
        at_terminal(command)
    };
    for (typed, code) in [("n\n", 1), ("\u{4}", 1), ("y\n", 0)] {
        let (mut client, mut screen) = at(&[]);
        screen.until("put the guard in front of 1 server in 1 file? [y/N]");
        assert!(screen.shown.contains("\u{1b}[32m+ "), "it has no colours: {}", screen.shown);
        assert_eq!(home.read(".cursor/mcp.json"), cursor());
        screen.terminal.write_all(typed.as_bytes()).expect("it reads");
        assert_eq!(client.exit_code(), code, "{typed:?}");
    }
    assert_ne!(home.read(".cursor/mcp.json"), cursor());
    let (mut client, mut screen) = at(&["--undo"]);
    screen.until("take the guard away from 1 server in 1 file? [y/N]");
    screen.terminal.write_all(b"y\n").expect("it reads");
    screen.until("as it was before");
    assert_eq!(client.exit_code(), 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());
}

#[test]
fn servers_are_chosen_by_their_names() {
    let home = Home::new();
    let text = r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}"#;
    home.write(".cursor/mcp.json", text);
    let wrapped = |report: &Value| -> Vec<String> {
        let servers = report["files"][0]["servers"].as_array().expect("servers").iter();
        let chosen = servers.filter(|server| server["outcome"] == "wrap");
        chosen.map(|server| server["name"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(wrapped(&home.report(&["cursor", "--dry-run", "--except", "a"], 0)), ["b", "c"]);
    assert_eq!(wrapped(&home.report(&["cursor", "--dry-run", "--only", "a,b", "--except", "b"], 0)), ["a"]);
    let (code, _, stderr) = home.adopt(&["cursor", "--yes", "--only", "nobody"]);
    assert!(
        code == 6 && stderr.contains("`nobody`") && stderr.contains("there are a, b, c"),
        "{code} {stderr}"
    );

    // One after the other, and both are undone at once.
    home.report(&["cursor", "--yes", "--only", "a"], 0);
    home.report(&["cursor", "--yes", "--only", "b"], 0);
    let adopted = home.read(".cursor/mcp.json");
    assert!(
        adopted.matches("\"wrap\"").count() == 2 && adopted.contains(r#""c": {"command": "c"}"#),
        "{adopted}"
    );
    home.report(&["--undo", "cursor", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), text);
}

#[test]
fn an_edited_file_keeps_the_edit() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    let new = "    \"new\": { \"command\": \"new\" }, // later\n    \"zoo\": {\n";
    let edited = home.read(".cursor/mcp.json").replace("    \"zoo\": {\n", new);
    home.write(".cursor/mcp.json", &edited);
    let status = home.report(&["--status"], 0);
    assert_eq!(
        (&status["files"][0]["is_edited"], &status["files"][0]["servers"][0]["state"]),
        (&json!(true), &json!("unguarded"))
    );
    // The server that came later is adopted as well.
    home.report(&["--yes"], 0);
    let undone = home.report(&["--undo", "--yes"], 0);
    assert_eq!(undone["files"][0]["status"], "undone");
    assert_eq!(home.read(".cursor/mcp.json"), cursor().replace("    \"zoo\": {\n", new));

    // Edited, and not adopted again.
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    home.write(".cursor/mcp.json", &format!("{}\n// mine too\n", home.read(".cursor/mcp.json")));
    let undone = home.report(&["--undo", "--yes"], 0);
    assert_eq!(undone["files"][0]["is_edited"], true);
    assert_eq!(home.read(".cursor/mcp.json"), format!("{}\n// mine too\n", cursor()));
    let backup = undone["files"][0]["backup"].as_str().expect("it stays");
    assert_eq!(fs::read_to_string(backup).expect("text"), cursor());
}

#[test]
fn a_file_of_a_project_changes_only_if_it_is_named_and_gets_no_path_of_this_machine() {
    let home = Home::new();
    home.write("project/.mcp.json", &cursor());
    home.write(".cursor/mcp.json", &cursor());
    let mut command = home.sandbox.unhang();
    command.args(["adopt", "--yes"]).env("HOME", home.path("")).current_dir(home.path("project"));
    assert_eq!(run_to_end(command).0, 0);
    assert_eq!(home.read("project/.mcp.json"), cursor());
    let report = home.report(&["project/.mcp.json", "--yes"], 0);
    let adopted = home.read("project/.mcp.json");
    assert!(adopted.contains("\"command\": \"unhang\"") && !adopted.contains(".local"), "{adopted}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("no folder of PATH has it"), "{report}");
    home.report(&["--undo", "project/.mcp.json", "--yes"], 0);
    assert_eq!(home.read("project/.mcp.json"), cursor());
    assert_ne!(home.read(".cursor/mcp.json"), cursor(), "it was not named");
    home.report(&["--undo", "--yes"], 0);
}

#[test]
fn a_client_that_runs_is_named() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.write(".codex/config.toml", CODEX);
    // A client whose binary is called cursor, and that waits for the end of its input.
    fs::copy("/bin/cat", home.path("cursor")).expect("a program");
    let mut command = home.sandbox.shell("exec ./cursor");
    command.current_dir(home.path(""));
    let mut running = Client::start(command);
    let (code, stdout, stderr) = home.adopt(&["--yes", "--output", "text"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Cursor runs: restart Cursor") && !stdout.contains("restart Codex"), "{stdout}");
    signal(running.pid(), rustix::process::Signal::KILL);
    running.exit_code();
    let report = home.report(&["--undo", "--yes"], 0);
    assert_eq!(report["restart"], Value::Null, "{report}");
}

#[test]
fn a_binary_that_does_not_stay_is_copied_to_a_place_where_it_does() {
    let home = Home { sandbox: Sandbox::with_adoptions() };
    home.write(".cursor/mcp.json", &cursor());
    let (code, stdout, stderr) = home.adopt(&["--dry-run", "--output", "text"]);
    assert!(
        code == 0 && stdout.contains("unhang copies it to ~/.local/bin/unhang first"),
        "{stdout} {stderr}"
    );
    assert!(!home.path(".local").exists(), "it was only shown");
    let report = home.report(&["--yes"], 0);
    assert_eq!(
        (&report["program"], &report["copied_from"]),
        (&json!(home.program()), &json!(env!("CARGO_BIN_EXE_unhang")))
    );
    let place = fs::metadata(home.program()).expect("it was copied");
    assert_eq!(place.mode() & 0o777, 0o755);
    // It is there now, and is used.
    let again = home.report(&["--yes"], 0);
    assert_eq!((&again["program"], &again["copied_from"]), (&json!(home.program()), &Value::Null));
    home.report(&["--undo", "--yes"], 0);

    for (there, code, expect) in [
        ("echo unhang 999.0.0", 0, "is another unhang, 999.0.0"),
        ("echo unhang 0.0.1", 0, "is unhang 0.0.1, which"),
        ("echo something else", 2, "something else lies there"),
    ] {
        let script = format!("#!/bin/sh\n{there}\n");
        write_program(&home.path(".local/bin/new"), &script);
        fs::rename(home.path(".local/bin/new"), home.program()).expect("it is ours");
        let (found, stdout, stderr) = home.adopt(&["--yes", "--output", "text"]);
        assert!(found == code && format!("{stdout}{stderr}").contains(expect), "{there}: {stdout} {stderr}");
        let is_kept = fs::read(home.program()).expect("it is there") == script.as_bytes();
        assert_eq!(is_kept, !expect.contains("which"), "{there}");
        home.report(&["--undo", "--yes"], 0);
    }
}

#[test]
fn the_status_names_guards_that_are_gone_and_asks_no_program_of_a_project() {
    let home = Home::new();
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"gone": {"command": "/nowhere/unhang", "args": ["wrap", "--", "x"]}, "none": {"command": "x"}}}"#,
    );
    let mark = home.path("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\necho unhang 1.0.0\n", mark.display());
    home.write("project/unhang", &script);
    fs::set_permissions(home.path("project/unhang"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let entry = format!(
        "{{\"mcpServers\": {{\"theirs\": {{\"command\": \"{}\", \"args\": [\"wrap\", \"--\", \"x\"]}}}}}}",
        home.path("project/unhang").display()
    );
    home.write("project/.mcp.json", &entry);
    let (code, stdout, stderr) = home.adopt(&["--status", "--output", "text", "cursor", "project/.mcp.json"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("/nowhere/unhang is gone") && stdout.contains("puts the guard in front"),
        "{stdout}"
    );
    assert!(stdout.contains("theirs") && !mark.exists(), "{stdout}");
    // The same program in a file of the user is asked.
    home.write(".cursor/mcp.json", &entry);
    let status = home.report(&["--status", "cursor"], 0);
    assert_eq!((&status["files"][0]["servers"][0]["version"], mark.exists()), (&json!("1.0.0"), true));
}

/// A file in which the guard is a binary that was removed since, and the path of that.
fn gone_guard() -> (Home, String) {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    // Another installation with the same files.
    let old = home.path("old/.local/bin/unhang");
    fs::create_dir_all(old.parent().expect("a folder")).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_unhang"), &old).expect("a link");
    symlink(home.path(".cursor"), home.path("old/.cursor")).expect("a link");
    let mut command = home.sandbox.unhang();
    command.args(["adopt", "--yes"]).env("HOME", home.path("old"));
    assert_eq!(run_to_end(command).0, 0);
    fs::remove_file(&old).expect("it is ours");
    let old = old.display().to_string();
    assert!(home.read(".cursor/mcp.json").contains(&format!("\"{old}\"")));
    (home, old)
}

#[test]
fn a_guard_whose_binary_was_removed_is_named_with_the_command_that_repairs_it() {
    let (home, old) = gone_guard();
    let expect = format!(
        "~/.cursor/mcp.json: zoo: {} is gone; `unhang adopt` puts this unhang there; `unhang adopt --undo` takes it away",
        old.replace(&home.path("").display().to_string(), "~/")
    );
    let (code, stdout, stderr) = home.adopt(&["--status", "--output", "text"]);
    assert!(code == 0 && stdout.contains(&expect), "{expect}: {stdout} {stderr}");
    let status = home.report(&["--status"], 0);
    let server = &status["files"][0]["servers"][0];
    assert_eq!((&server["state"], &server["repair"]), (&json!("broken"), &json!("unhang adopt")));
    for words in [&["--output", "text"][..], &["zoo", "--output", "text"]] {
        let mut doctor = home.sandbox.unhang();
        doctor.arg("doctor").args(words).env("HOME", home.path(""));
        let (_, stdout, stderr) = run_to_end(doctor);
        assert!(stdout.contains(&expect), "{words:?}: {stdout} {stderr}");
    }
    home.report(&["--undo", "--yes"], 0);
}

#[test]
fn adopting_again_repairs_a_guard_whose_binary_was_removed() {
    let (home, old) = gone_guard();
    let adopted = home.read(".cursor/mcp.json");
    let (_, stdout, _) = home.adopt(&["--dry-run", "--output", "text"]);
    assert!(stdout.contains(&format!("zoo had the guard {old}, which is gone")), "{stdout}");
    let report = home.report(&["--yes"], 0);
    assert_eq!(report["files"][0]["servers"][0]["outcome"], "reguard", "{report}");
    assert_eq!(home.read(".cursor/mcp.json"), adopted.replace(&old, &home.program()));
    let status = home.report(&["--status"], 0);
    let file = &status["files"][0];
    assert_eq!(
        (&file["servers"][0]["state"], &file["servers"][0]["repair"], &file["is_edited"]),
        (&json!("guarded"), &Value::Null, &json!(false))
    );
    home.report(&["--undo", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());

    // Without the repair, and by any binary.
    let (home, _) = gone_guard();
    home.report(&["--undo", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());

    // Of an entry without a record, the guard goes alike.
    let by_hand = |program: &str| {
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "{program}", "args": ["wrap", "--", "a", "-v"]}}, "b": {{"command": "b"}}}}}}"#
        )
    };
    home.write(".cursor/mcp.json", &by_hand("/nowhere/unhang"));
    let report = home.report(&["--yes"], 0);
    let outcome = |index: usize| &report["files"][0]["servers"][index]["outcome"];
    assert_eq!((outcome(0), outcome(1)), (&json!("reguard"), &json!("wrap")));
    home.report(&["--undo", "--yes"], 0);
    let expect = r#"{"mcpServers": {"a": {"command": "a", "args": ["-v"]}, "b": {"command": "b"}}}"#;
    assert_eq!(home.read(".cursor/mcp.json"), expect);
}

/// A server of a few lines. Its tool tells its arguments, a variable, and what has started it.
const SMALL_SERVER: &str = r#"#!/bin/sh
while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"small","version":"1"}}' ;;
    *'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"$* $KEY $(cat /proc/$PPID/comm)\"}]}" ;;
    *) continue ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[test]
fn every_adopted_entry_starts_its_server_through_the_guard() {
    let home = Home::new();
    let server = home.path("small server");
    write_program(&server, SMALL_SERVER);
    let server = server.display();
    let entry = format!(r#""command": "{server}", "args": ["one", "two words"], "env": {{"KEY": "a"}}"#);
    let bare = format!(r#""command": "{server}", "env": {{"KEY": "b"}}"#);
    home.write(
        ".cursor/mcp.json",
        &format!(r#"{{"mcpServers": {{"args": {{{entry}}}, "bare": {{{bare}}}}}}}"#),
    );
    home.write(".config/zed/settings.json", &format!(r#"{{"context_servers": {{"-dash": {{{entry}}}}}}}"#));
    let list = format!(r#""command": ["{server}", "--", "wrap"], "environment": {{"KEY": "c"}}"#);
    home.write(
        ".config/opencode/opencode.json",
        &format!(r#"{{"mcp": {{"list": {{"type": "local", {list}}}}}}}"#),
    );
    home.write(
        ".codex/config.toml",
        &format!("[mcp_servers.codex]\ncommand = \"{server}\"\nargs = [\"x\"]\nenv = {{ KEY = \"d\" }}\n"),
    );
    home.report(&["--yes"], 0);

    let json = |name: &str| serde_json::from_str::<Value>(&home.read(name)).expect("JSON");
    let (cursor, zed) = (json(".cursor/mcp.json"), json(".config/zed/settings.json"));
    let opencode = json(".config/opencode/opencode.json");
    let codex = home.read(".codex/config.toml");
    let of_codex = |key: &str| {
        let line = codex.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        serde_json::from_str::<Value>(line).expect("TOML that is JSON as well")
    };
    let codex = json!({"command": of_codex("command = "), "args": of_codex("args = "), "env": {"KEY": "d"}});
    for (entry, expect) in [
        (&cursor["mcpServers"]["args"], "one two words a"),
        (&cursor["mcpServers"]["bare"], " b"),
        (&zed["context_servers"]["-dash"], "one two words a"),
        (&opencode["mcp"]["list"], "-- wrap c"),
        (&codex, "x d"),
    ] {
        let mut client = started(&home, entry);
        client.initialize();
        assert_eq!(client.tool_text("tell", json!({})), format!("{expect} mcp-lifeline"), "{entry}");
        client.finish();
    }
    home.report(&["--undo", "--yes"], 0);
}

/// Starts an entry as its client does: the command, the arguments and the variables that stand there, and nothing else.
fn started(home: &Home, entry: &Value) -> Client {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let list =
        |value: &Value| value.as_array().map(|words| words.iter().map(text).collect()).unwrap_or_default();
    let words: Vec<String> = match &entry["command"] {
        Value::String(program) => [vec![program.clone()], list(&entry["args"])].concat(),
        words => list(words),
    };
    assert_eq!(words[0], home.program());
    let variables = entry.get("env").or_else(|| entry.get("environment")).expect("variables");
    let mut command = home.sandbox.shell("exec \"$0\" \"$@\"");
    command.args(words).env("HOME", home.path("")).env("KEY", text(&variables["KEY"]));
    Client::start(command)
}

#[test]
fn the_doctor_examines_the_server_behind_the_guard_and_tells_who_guards_it() {
    let home = Home::new();
    let text = format!(
        "{{\"mcpServers\": {{\"odd\": {{\"command\": \"{}\", \"args\": [\"zoo\", \"crlf\"]}}}}}}",
        lab_program()
    );
    home.write(".cursor/mcp.json", &text);
    home.report(&["--yes"], 0);
    let doctor = |words: &[&str]| {
        let mut command = home.sandbox.unhang();
        command.arg("doctor").args(words).env("HOME", home.path(""));
        run_to_end(command)
    };
    let (code, stdout, stderr) = doctor(&["--json"]);
    assert_eq!(code, 1, "{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert!(report[0]["findings"].to_string().contains("crlf-lines"), "it is behind the guard: {report}");
    let guard = &report[0]["guards"][0];
    assert_eq!((&guard["clients"], &guard["state"]), (&json!(["Cursor"]), &json!("guarded")), "{report}");
    assert_eq!(guard["version"], env!("CARGO_PKG_VERSION"));
    let (_, stdout, _) = doctor(&["--output", "text"]);
    assert!(stdout.contains("CLIENT  SERVER  GUARD") && stdout.contains("Cursor  odd"), "{stdout}");
    home.report(&["--undo", "--yes"], 0);
}

#[test]
fn somebody_new_is_told_in_three_lines_what_to_do() {
    let home = Home::new();
    let bare = || {
        let mut command = home.sandbox.unhang();
        command.env("HOME", home.path(""));
        command
    };
    let (mut client, mut screen) = at_terminal(bare());
    screen.until("unhang adopt ");
    screen.until("unhang --help ");
    assert_eq!(client.exit_code(), 2);
    assert_eq!(
        screen.shown.lines().filter(|line| line.starts_with("unhang ")).count(),
        3,
        "{}",
        screen.shown
    );
    assert!(screen.shown.lines().all(|line| line.chars().count() <= 80), "{}", screen.shown);
    // A program gets the help.
    let (code, _, stderr) = run_to_end(bare());
    assert!(code == 2 && stderr.contains("Usage: unhang"), "{stderr}");
    // So does whoever has adopted something.
    home.write(".cursor/mcp.json", r#"{"mcpServers": {"odd": {"command": "true"}}}"#);
    home.report(&["--yes"], 0);
    let (mut client, mut screen) = at_terminal(bare());
    screen.until("Usage: unhang");
    assert_eq!(client.exit_code(), 2);
    home.report(&["--undo", "--yes"], 0);
}
