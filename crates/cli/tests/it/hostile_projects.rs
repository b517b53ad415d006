//! What other users and other people's projects may put before us: no consent in our name, no wait for ever, no secret shown (F-22, F-23).

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::{
    consent::Project,
    harness::{Sandbox, lab_program, run_to_end},
};

/// The number of a user who is never us.
const NOBODY: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
}

/// Commands for which a consent counts, or that keep, list or remove one.
const CONSENTING: [&[&str]; 9] = [
    &["ping", "theirs"],
    &["call", "theirs", "echo"],
    &["tools"],
    &["servers"],
    &["doctor", "theirs"],
    &["job", "list"],
    &["trust"],
    &["trust", "--list"],
    &["trust", "--remove"],
];

#[test]
fn f_23_no_consent_counts_that_another_user_could_have_given() {
    let project = Project::new(Sandbox::with_jobs()).with_server("");
    assert_eq!(project.run(&["trust"]).0, 0);
    let data = project.sandbox.path().join("state");
    for (at, mode) in [(data.join("trust"), 0o777), (data.join("trust"), 0o720), (data.clone(), 0o777)] {
        set_mode(&at, mode);
        for words in CONSENTING {
            let (code, stdout, stderr) = project.run(words);
            assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
            let why = format!("{} is not used: other users can write to it", at.display());
            let hint = format!("`chmod go-w {}`", at.display());
            assert!(stderr.contains(&why) && stderr.contains(&hint), "{words:?}: {stderr}");
            assert!(!project.has_started(), "{words:?}");
        }
        let (code, _, stderr) = run_to_end(project.sandbox.shell(&format!("chmod go-w {}", at.display())));
        assert_eq!(code, 0, "{stderr}");
    }
    let consent = fs::read_dir(data.join("trust")).expect("consents").flatten().next().expect("one").path();
    // One that somebody else could have changed is none, wherever it lies.
    set_mode(&consent, 0o666);
    assert_eq!(project.run(&["ping", "theirs"]).0, 2);
    set_mode(&consent, 0o600);
    assert_eq!(project.run(&["ping", "theirs"]).0, 0);
    fs::remove_file(project.folder.join("started")).expect("it was started");
    // Only root can give files away.
    if chown(&consent, Some(NOBODY), None).is_err() {
        return;
    }
    assert_eq!(project.run(&["ping", "theirs"]).0, 2);
    for at in [data.join("trust"), data] {
        chown(&at, Some(NOBODY), None).expect("we are root");
        for words in CONSENTING {
            let (code, _, stderr) = project.run(words);
            assert!(
                code == 2 && stderr.contains("belongs to the user with the number"),
                "{words:?}: {stderr}"
            );
        }
        chown(&at, Some(rustix::process::geteuid().as_raw()), None).expect("it is ours again");
    }
    assert!(!project.has_started());
}

/// In the place of the file that is read first, too.
#[test]
fn f_22_what_is_no_plain_file_is_told_of_and_not_passed_by() {
    for what in ["pipe", "folder", "link"] {
        let project = Project::new(Sandbox::with_jobs());
        let path = project.folder.join("unhang.toml");
        match what {
            "pipe" => pipe(&path),
            "folder" => fs::create_dir(&path).expect("a folder"),
            _ => symlink("/nowhere/at-all", &path).expect("a link"),
        }
        for words in [&["servers"][..], &["tools"], &["trust"], &["job", "list"]] {
            let (code, stdout, stderr) = project.run(words);
            assert_eq!((code, stdout.as_str()), (2, ""), "{what} {words:?}: {stderr}");
            assert!(stderr.contains("unhang.toml cannot be read"), "{what} {words:?}: {stderr}");
        }
    }
}

#[test]
fn f_22_no_project_ships_the_consent_to_itself() {
    let project = Project::new(Sandbox::new()).with_server("");
    let with = |home: &str, data: Option<&str>, words: &[&str]| {
        let mut command = project.sandbox.unhang();
        command.current_dir(&project.folder).args(words).env("HOME", home).env_remove("UNHANG_HOME");
        command.envs(data.map(|data| ("UNHANG_HOME", data)));
        run_to_end(command)
    };
    // As its author prepares it.
    for shipped in ["state", ".local/state/unhang"] {
        let whole = project.folder.join(shipped);
        let (code, _, stderr) = with("/nowhere", whole.to_str(), &["trust"]);
        assert_eq!(code, 0, "{stderr}");
    }
    for words in [&["ping", "theirs"][..], &["job", "list"], &["trust", "--list"], &["state", "list"]] {
        for relative in ["state", "./state", "../project/state"] {
            let (code, stdout, stderr) = with("/nowhere", Some(relative), words);
            assert_eq!((code, stdout.as_str()), (2, ""), "{words:?} {relative}: {stderr}");
            assert!(stderr.contains("UNHANG_HOME") && stderr.contains(relative), "{words:?}: {stderr}");
        }
        let (code, _, stderr) = with(".", None, words);
        let is_alone = words == ["trust", "--list"];
        assert_eq!(code, if is_alone { 0 } else { 2 }, "{words:?}: {stderr}");
    }
    assert!(!project.has_started());
}

#[test]
fn f_22_no_pipe_that_is_found_in_a_project_is_waited_for() {
    let project = Project::new(Sandbox::with_jobs());
    pipe(&project.folder.join(".mcp.json"));
    for words in [&["servers"][..], &["tools"]] {
        let (_, _, stderr) = project.run(words);
        assert!(stderr.contains(".mcp.json cannot be read: it is not a regular file"), "{words:?}: {stderr}");
    }
    pipe(&project.folder.join("unhang.toml"));
    for words in [
        &["trust", "unhang.toml"][..],
        &["trust", ".mcp.json"],
        &["tools", "--config", "unhang.toml"],
        &["job", "list", "--config", "unhang.toml"],
        &["serve", "--config", "unhang.toml"],
    ] {
        let (code, _, stderr) = project.run(words);
        assert!(code == 2 && stderr.contains("it is not a regular file"), "{words:?}: {code} {stderr}");
    }
    fs::remove_file(project.folder.join(".mcp.json")).expect("it is there");
    let project = project.with_server(", \"envFile\": \"variables\"");
    pipe(&project.folder.join("variables"));
    for words in [&["ping", "theirs", "--trust"][..], &["trust"], &["ping", "theirs"]] {
        let (code, _, stderr) = project.run(words);
        let is_told = words == ["trust"] || stderr.contains("it is not a regular file");
        assert!(is_told && !project.has_started(), "{words:?}: {code} {stderr}");
    }
}

#[test]
fn f_22_what_is_secret_in_a_url_is_neither_shown_nor_kept() {
    let project = Project::new(Sandbox::new());
    let secrets = ["ada-of-old", "hunter2-pass", "tokSEKRET7", "bareSEKRET8", "fragSEKRET9", "otherSEKRET"];
    let write = |token: &str| {
        let url =
            format!("https://ada-of-old:hunter2-pass@127.0.0.1:1/mcp?key={token}&bareSEKRET8#fragSEKRET9");
        project.write(".mcp.json", &json!({ "mcpServers": { "theirs": { "url": url } } }).to_string());
    };
    let assert_hidden = |text: &str| {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    };
    write("tokSEKRET7");
    let (code, stdout, stderr) = project.run(&["trust", "--output", "text"]);
    assert!(code == 0 && stdout.contains("@127.0.0.1:1/mcp?key=…"), "{stdout} {stderr}");
    assert_hidden(&stdout);
    let kept = fs::read_dir(project.sandbox.path().join("state/trust")).expect("consents");
    for entry in kept {
        assert_hidden(&fs::read_to_string(entry.expect("a file").path()).expect("text"));
    }
    // A change of what is hidden is seen.
    write("otherSEKRET");
    let (code, _, stderr) = project.run(&["ping", "theirs"]);
    assert!(code == 2 && stderr.contains("changed: server theirs: URL"), "{code} {stderr}");
    assert_hidden(&stderr);
}

#[test]
fn f_22_a_url_that_is_none_shows_nothing_secret() {
    let sandbox = Sandbox::new();
    for (text, expect) in [
        (
            "[servers.v]\nurl = 'https://h /?k=${SEKRET}'\n",
            "servers.v.url: `https://h /?k=${SEKRET}` is not a URL",
        ),
        ("[servers.v]\nurl = '${SEKRET}'\n", "`${SEKRET}` is not a URL"),
        ("[servers.v]\nurl = 'https://ada:hunter2@h /?k=tokSEKRET7'\n", "`https://…@h /?k=…` is not a URL"),
        ("[telemetry]\notlp = 'ftp://ada:hunter2@h?tokSEKRET7'\n", "`ftp://…@h?…` is not a URL"),
    ] {
        fs::write(sandbox.path().join("v.toml"), text).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["tools", "--config", "v.toml"]).env("SEKRET", "tokSEKRET7");
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains(expect), "{expect}: {stderr}");
        assert!(!stderr.contains("hunter2") && !stderr.contains("tokSEKRET7"), "{stderr}");
    }
}

#[test]
fn f_22_a_file_that_is_reached_by_a_link_is_consented_to_where_the_link_lies() {
    let project = Project::new(Sandbox::new());
    let home = project.sandbox.path().canonicalize().expect("a folder");
    let server =
        json!({ "mcpServers": { "theirs": { "command": lab_program(), "args": ["zoo", "well-behaved"] } } });
    fs::create_dir(home.join("elsewhere")).expect("a folder");
    fs::write(home.join("elsewhere/servers.json"), server.to_string()).expect("a file");
    symlink("../elsewhere/servers.json", project.folder.join(".mcp.json")).expect("a link");
    let named = home.join("project/.mcp.json").display().to_string();
    let target = home.join("elsewhere/servers.json").display().to_string();
    let (code, _, stderr) = project.run(&["ping", "theirs"]);
    assert!(code == 2 && stderr.contains(&format!("`unhang trust {named}`")), "{code} {stderr}");
    // What is told helps, and a consent to the target itself is another.
    assert_eq!(project.run(&["trust", &named]).0, 0);
    let (code, _, stderr) = project.run(&["ping", "theirs"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(project.run(&["trust", &target]).0, 0);
    let listed = || {
        let (_, listed, stderr) = project.run(&["trust", "--list", "--output", "json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        let told = |one: &Value| format!("{} {}", one["status"], one["path"]).replace('"', "");
        listed.as_array().expect("a list").iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(listed(), [format!("trusted {target}"), format!("trusted {named}")]);
    let (code, removed, _) = project.run(&["trust", "--remove", ".mcp.json", "--output", "text"]);
    assert_eq!((code, removed), (0, format!("no longer trusted: {named}\n")));
    assert_eq!(listed(), [format!("trusted {target}")]);
    // What a link points to has changed: another file, and the same place.
    assert_eq!(project.run(&["trust"]).0, 0);
    fs::remove_file(project.folder.join(".mcp.json")).expect("it is there");
    fs::write(project.folder.join(".mcp.json"), server.to_string()).expect("a file");
    assert_eq!(project.run(&["ping", "theirs"]).0, 2);
}

#[test]
fn f_22_the_variables_that_a_project_would_be_sent_are_named() {
    let project = Project::new(Sandbox::new());
    project.write(
        "unhang.toml",
        "[servers.a]\nurl = 'https://${USER_A}:${PASS_A}@h.example/${TENANT}?k=${env:KEY_A:-hidden-default}'\n\
         headers = { X = '${GITHUB_TOKEN}', Y = 'plain-SEKRET', Z = '${ONE} $${NONE} ${TWO:-hidden-default}' }\n\
         [servers.b]\ncommand = 'b'\nenv = { B = '${AWS_SECRET}', C = '1' }\n\
         [telemetry]\notlp = 'https://ada:hunter2@collector.example/x?k=${KEY_T}'\nheaders = { T = '${TOKEN_T}' }\n",
    );
    project.write(
        ".codex/config.toml",
        "[mcp_servers.c]\nurl = 'https://c.example/mcp'\nbearer_token_env_var = 'TOKEN_C'\n\
         http_headers = { P = 'x' }\nenv_http_headers = { Q = 'TOKEN_Q' }\n",
    );
    let (code, told, stderr) = project.run(&["trust", "--output", "text"]);
    assert_eq!(code, 0, "{stderr}");
    for expect in [
        "server a: https://…@h.example/${TENANT}?k=…",
        "URL (user and query, from $USER_A, $PASS_A, $TENANT, $KEY_A)",
        "X (header, from $GITHUB_TOKEN), Y (header), Z (header, from $ONE, $TWO)",
        "server b: b  [B (from $AWS_SECRET), C]",
        "https://…@collector.example/x?k=${KEY_T}",
        "URL (user and query, from $KEY_T)",
        "T (header, from $TOKEN_T)",
        "P (header)",
        "Q (header, from $TOKEN_Q)",
        "bearer token (header, from $TOKEN_C)",
    ] {
        assert!(told.contains(expect), "{expect}: {told}");
    }
    for hidden in ["plain-SEKRET", "hidden-default", "hunter2", "NONE"] {
        assert!(!told.contains(hidden), "{hidden}: {told}");
    }
    // What is sent elsewhere than before is said.
    project.write("unhang.toml", "[servers.b]\ncommand = 'b'\nenv = { B = '${OTHER:-x}', C = '1' }\n");
    let (code, _, stderr) = project.run(&["tools"]);
    assert!(code == 2 && stderr.contains("B (from $OTHER) has another value"), "{code} {stderr}");
}

#[test]
fn the_list_of_servers_is_as_long_as_what_is_in_it() {
    let sandbox = Sandbox::new();
    let long = "n".repeat(7_000);
    let server =
        |name: &str| format!("[servers.{name}]\ncommand = '{}'\nargs = ['{long}']\n", &long[..3_000]);
    let text: String = [&long, "short"].iter().map(|name| server(name)).collect();
    fs::write(sandbox.path().join("long.toml"), text).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["servers", "--output", "text", "--config", "long.toml"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.len() < 100_000, "{} bytes", stdout.len());
    assert!(stdout.contains("short  ") && stdout.contains("nnn…"), "{stdout}");
}
