//! Files of every client, in all forms that people give them: adopting and undoing gives the same bytes, and adopting twice changes nothing
//! the second time.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use unhang::settings::sha256;
use unhang_adopt::{
    AdoptionRecord, ConfigDocument, EntryVerdict, FileSyntax, TargetFile, UndoKind, plan, undo, without_guard,
};

/// The program that the entries get.
const PROGRAM: &str = "/home/ana/.local/bin/unhang";

/// A sample, and the servers in it that get the guard.
const SAMPLES: &[(&str, &[&str])] = &[
    ("antigravity.json", &["bigquery"]),
    ("claude_code_minified.json", &["one", "two", "three"]),
    ("claude_code_project.json", &["browser", "db"]),
    ("claude_code_user.json", &["context", "shop-db"]),
    ("claude_desktop.json", &["filesystem", "weather"]),
    ("claude_desktop_tabs.json", &["postgres", "notes"]),
    ("cline.json", &["filesystem"]),
    ("codex.toml", &["context", "docs"]),
    ("codex_bom.toml", &["time"]),
    ("codex_crlf.toml", &["git", "alone", "text"]),
    ("codex_dotted.toml", &["one", "two", "th.ree"]),
    ("codex_inline.toml", &["one", "two", "odd name"]),
    ("codex_no_servers.toml", &[]),
    ("codex_tools.toml", &["jira", "last"]),
    ("comma_first.json", &["a", "b"]),
    ("continue_list.json", &["SQLite", "Alone"]),
    ("copilot.json", &["playwright"]),
    ("cursor_bom.json", &["time"]),
    ("cursor_comments.json", &["search", "files"]),
    ("cursor_crlf.json", &["excel", "plain"]),
    ("empty_lists.json", &["a", "b", "c", "d", "e"]),
    ("gemini.json", &["python-tools"]),
    ("gemini_allowed.json", &["yes"]),
    ("kiro.json", &["aws-docs"]),
    ("lm_studio.json", &["calculator"]),
    ("opencode.json", &["everything"]),
    ("opencode.jsonc", &["lines", "one"]),
    ("other_wrappers.json", &["policy", "proxy"]),
    ("qwen.json", &["memory"]),
    ("roo.json", &["thinking"]),
    ("unicode.json", &["Zeit ü \"quoted\"", "日本語", "", "-dash"]),
    ("unusable.json", &["fine"]),
    ("vscode_settings_mcp.json", &["legacy"]),
    ("vscode_user.json", &["perplexity"]),
    ("vscode_workspace.json", &["gistpad", "py"]),
    ("windsurf.json", &["github"]),
    ("zed.json", &["local"]),
    ("zed_old.json", &["postgres", "alone"]),
];

/// A sample that was read and adopted.
struct Sample {
    name: &'static str,
    expected: &'static [&'static str],
    before: ConfigDocument,
    after: ConfigDocument,
    record: AdoptionRecord,
}

fn samples() -> Vec<Sample> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples"));
    SAMPLES
        .iter()
        .map(|&(name, expected)| {
            let file = TargetFile::read(&folder.join(name)).expect("a sample");
            let read = |text: &str| {
                ConfigDocument::parse(text, file.syntax()).unwrap_or_else(|error| panic!("{name}: {error}"))
            };
            let before = read(file.text());
            let plan = plan(&before, PROGRAM, &|_| true, &|_| false)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let after = read(&plan.patch.apply(before.text()));
            let texts = (before.text(), after.text());
            let record = AdoptionRecord::new(&file, texts, plan.wrapped(), (PROGRAM, "1.0.0", String::new()));
            Sample { name, expected, before, after, record }
        })
        .collect()
}

#[test]
fn every_sample_is_in_the_table() {
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples")).expect("a folder");
    let mut found: Vec<String> =
        folder.map(|entry| entry.expect("a file").file_name().into_string().expect("text")).collect();
    found.sort();
    let mut listed: Vec<&str> = SAMPLES.iter().map(|(name, _)| *name).collect();
    listed.sort_unstable();
    assert_eq!(found, listed);
    assert!(found.len() >= 30);
}

#[test]
fn the_chosen_servers_get_the_guard_and_no_others() {
    for Sample { name, expected, before, after, record } in samples() {
        let wrapped: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(wrapped, expected, "{name}");
        assert_eq!(before.entries().len(), after.entries().len(), "{name}");
        for (old, new) in before.entries().iter().zip(after.entries()) {
            assert_eq!(old.place, new.place, "{name}");
            let old_words = old.words();
            if !record.entries.iter().any(|entry| entry.place == old.place) {
                assert_eq!(old_words, new.words(), "{name}: {}", old.name);
                continue;
            }
            let new_words = new.words().expect("a command");
            let begin = new_words.iter().position(|word| word == "--").expect("a separator") + 1;
            let guard: Vec<&str> = new_words[..begin].iter().map(String::as_str).collect();
            let dashed = format!("--name={}", old.name);
            let expect: &[&str] = match old.name.as_str() {
                "" => &[PROGRAM, "wrap", "--"],
                "-dash" => &[PROGRAM, "wrap", &dashed, "--"],
                other => &[PROGRAM, "wrap", "--name", other, "--"],
            };
            assert_eq!(guard, expect, "{name}");
            assert_eq!(Some(&new_words[begin..]), old_words.as_deref(), "{name}: {}", old.name);
        }
    }
}

#[test]
fn everything_else_in_the_file_stays_as_it_is() {
    for Sample { name, before, after, .. } in samples() {
        // The edits keep comments, other keys and variables in their order: each line without an insertion is in the result.
        let mut rest = after.text().split_inclusive('\n');
        for line in before.text().split_inclusive('\n') {
            if ["command", "args", "path", "[ \"one\""].iter().any(|key| line.contains(key))
                || !line.ends_with('\n')
            {
                continue;
            }
            assert!(rest.any(|new| new == line), "{name}: {line:?} is gone:\n{}", after.text());
        }
        for comment in ["//", "/*", " # ", "\t", "\r\n", "\u{feff}", ",]", ",}"] {
            let count = |text: &str| text.matches(comment).count();
            assert!(count(after.text()) >= count(before.text()), "{name}: {comment:?}\n{}", after.text());
        }
        if before.text().contains("\r\n") {
            let bare = after.text().replace("\r\n", "").contains('\n');
            assert!(!bare, "{name}: it has two kinds of line breaks");
        }
        assert_eq!(before.text().ends_with('\n'), after.text().ends_with('\n'), "{name}");
    }
}

#[test]
fn adopting_twice_changes_nothing_the_second_time() {
    for Sample { name, after, expected, .. } in samples() {
        let again = plan(&after, PROGRAM, &|_| true, &|_| false).expect("a plan");
        assert!(again.patch.is_empty(), "{name}: {:?}", again.patch);
        let guarded = again.entries.iter().filter(|entry| matches!(entry.verdict, EntryVerdict::Guarded(_)));
        assert!(guarded.count() >= expected.len(), "{name}");
    }
}

#[test]
fn a_guard_that_is_gone_gets_another_program_and_nothing_else_changes() {
    const NEW: &str = "/opt/unhang";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for Sample { name, before, after, expected, record } in samples() {
        let again = plan(&after, NEW, &|_| true, &|program| program == PROGRAM).expect("a plan");
        let moved = again.patch.apply(after.text());
        let program = |path: &str| format!("\"{path}\"");
        assert_eq!(moved, after.text().replace(&program(PROGRAM), &program(NEW)), "{name}");
        let repaired: Vec<String> = again.reguarded().into_iter().map(|entry| entry.name).collect();
        assert_eq!((repaired, again.wrapped().len()), (names(expected), 0), "{name}");
        let undone = undo(&record, None, &moved).expect("it can be read");
        assert_eq!(undone.text, before.text(), "{name}");
        // Somebody may want to leave it as it is.
        assert!(plan(&after, NEW, &|_| false, &|_| true).expect("a plan").patch.is_empty(), "{name}");
    }
}

#[test]
fn undoing_gives_the_same_bytes_with_the_backup_and_without_it() {
    for Sample { name, before, after, record, expected } in samples() {
        if expected.is_empty() {
            continue;
        }
        let exact = undo(&record, Some(before.text()), after.text()).expect("it can be read");
        assert_eq!((exact.kind, exact.text.as_str()), (UndoKind::Exact, before.text()), "{name}");
        let alone = undo(&record, None, after.text()).expect("it can be read");
        assert_eq!((alone.kind, alone.text.as_str()), (UndoKind::Exact, before.text()), "{name}");
        assert_eq!((alone.undone.len(), alone.left.len()), (expected.len(), 0), "{name}");
        let nothing = undo(&record, Some(before.text()), before.text()).expect("it can be read");
        assert_eq!(nothing.kind, UndoKind::Nothing, "{name}");
    }
}

#[test]
fn undoing_an_edited_file_keeps_the_edit() {
    for Sample { name, before, after, record, expected } in samples() {
        if expected.is_empty() {
            continue;
        }
        // An editor that adds an empty line at the end, and one that writes the file anew.
        let edited = format!("{}\n", after.text());
        let undone = undo(&record, Some(before.text()), &edited).expect("it can be read");
        assert_eq!((undone.kind, undone.text), (UndoKind::Edited, format!("{}\n", before.text())), "{name}");
        if let Some(written_anew) = anew(after.text()) {
            let undone = undo(&record, Some(before.text()), &written_anew).expect("it can be read");
            let text = undone.text.replace("\"args\": []", "\"args\": [\n\n]");
            let words = |text: &str| {
                let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
                let words: Vec<_> =
                    document.entries().iter().map(|entry| (entry.place.clone(), entry.words())).collect();
                words
            };
            let mut expect = words(before.text());
            let mut found = words(&text);
            expect.sort();
            found.sort();
            assert_eq!(found, expect, "{name}: {text}");
        }
    }
}

/// Writes JSON as a program does that reads it and writes it again. Returns `None` for text that such a program does not read.
fn anew(text: &str) -> Option<String> {
    let tree: serde_json::Value = serde_json::from_str(text).ok()?;
    // Members with the same name do not outlive it.
    (text.matches("\"twice\"").count() == 0).then(|| serde_json::to_string_pretty(&tree).expect("JSON"))
}

#[test]
fn a_server_that_somebody_changed_or_renamed_is_undone_as_far_as_it_is_ours() {
    let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["a"]}, "b": {"command": "b"}, "c": {"command": "c"}, "d": {"command": "d"}}}"#;
    let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
    let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
    let after = plan.patch.apply(text);
    let edited = after
        // Options of the guard, and another version of the server.
        .replace(
            r#""--name", "a", "--", "npx", "a"]"#,
            r#""--name", "a", "--call-timeout", "90s", "--", "npx", "a@2", "-v"]"#,
        )
        // Another name.
        .replace(r#""b": {"#, r#""renamed": {"#)
        // Unwrapped by hand.
        .replace(
            r#""c": {"command": "/home/ana/.local/bin/unhang", "args": ["wrap", "--name", "c", "--", "c"]}"#,
            r#""c": {"command": "c"}"#,
        );
    assert_ne!(edited, after);
    let edited = ConfigDocument::parse(&edited, FileSyntax::Json).expect("JSON");
    let (patch, left) = without_guard(&edited, &plan.wrapped());
    assert_eq!(left, ["c"]);
    let expect = text.replace(r#"["a"]"#, r#"["a@2", "-v"]"#).replace(r#""b": {"#, r#""renamed": {"#);
    assert_eq!(patch.apply(edited.text()), expect);
}

#[test]
fn a_renamed_server_is_known_by_the_name_of_its_guard_alone() {
    let text = r#"{"servers": {"-x": {"command": "x"}, "y": {"command": "y"}}}"#;
    let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
    let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
    // Somebody removes `y`, renames `-x`, and guards a server whose own argument is `--name y`.
    let own = format!(r#""z": {{"command": "{PROGRAM}", "args": ["wrap", "--", "z", "--name", "y"]}}"#);
    let edited = format!(
        r#"{{"servers": {{"new": {{"command": "{PROGRAM}", "args": ["wrap", "--name=-x", "--", "x"]}}, {own}}}}}"#
    );
    let edited = ConfigDocument::parse(&edited, FileSyntax::Json).expect("JSON");
    let (patch, left) = without_guard(&edited, &plan.wrapped());
    assert_eq!(left, ["y"]);
    assert_eq!(patch.apply(edited.text()), format!(r#"{{"servers": {{"new": {{"command": "x"}}, {own}}}}}"#));
}

/// Adopts a file with these servers. Returns its record, and its text afterwards.
fn adopted(text: &str) -> (AdoptionRecord, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mcp.json");
    fs::write(&path, text).expect("a file");
    let target = TargetFile::read(&path).expect("it can be read");
    let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
    let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
    let after = plan.patch.apply(text);
    let told = (PROGRAM, "1.0.0", "2026-11-28T00:00:00Z".to_owned());
    (AdoptionRecord::new(&target, (text, &after), plan.wrapped(), told), after)
}

#[test]
fn a_copy_of_a_server_and_one_that_was_renamed_in_its_guard_too_lose_the_guard() {
    let own = format!(r#""own": {{"command": "{PROGRAM}", "args": ["wrap", "--", "own"]}}"#);
    let text = format!(r#"{{"mcpServers": {{"a": {{"command": "a"}}, "b": {{"command": "b"}}, {own}}}}}"#);
    let (record, after) = adopted(&text);
    let a = &after[after.find(r#""a":"#).expect("a")..after.find(r#", "b":"#).expect("b")];
    let edited = after
        .replace(r#""b": {"#, r#""bee": {"#)
        .replace(r#""--name", "b""#, r#""--name", "bee""#)
        .replace(&own, &format!("{own}, {}", a.replacen(r#""a""#, r#""copy""#, 1)));
    let undone = undo(&record, Some(&text), &edited).expect("JSON");
    let expect = text
        .replace(r#""b": {"#, r#""bee": {"#)
        .replace(&own, &format!(r#"{own}, "copy": {{"command": "a"}}"#));
    assert_eq!((undone.kind, undone.text), (UndoKind::Edited, expect));
    assert_eq!(
        (undone.undone, undone.left),
        (vec!["a".to_owned(), "bee".to_owned(), "copy".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn a_table_of_servers_that_stands_twice_is_left_alone() {
    for text in [
        r#"{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}}}"#,
        r#"{"projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}, "/p": {"mcpServers": {"b": {"command": "y"}}}}}"#,
    ] {
        let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
        let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
        assert!(plan.patch.is_empty() && plan.entries.len() == 2, "{text}");
        for entry in &plan.entries {
            assert!(format!("{:?}", entry.verdict).contains("stands twice"), "{text}: {entry:?}");
        }
    }
}

#[test]
fn a_server_that_a_project_switches_off_is_left_alone() {
    let text = r#"{"projects": {"/p": {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}, "disabledMcpServers": ["a"]}}}"#;
    let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
    let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
    let verdicts: Vec<_> = plan.entries.iter().map(|entry| &entry.verdict).collect();
    assert_eq!(verdicts, [&EntryVerdict::Disabled, &EntryVerdict::Wrap]);
}

#[test]
fn a_secret_of_any_kind_is_hidden_where_it_stands() {
    for server in [
        r#""env": {"PIN": 1234567, "ON": true}"#,
        r#""env": {/* "OLD": "1234567", */ "A": "b"}"#,
        r#""requestInit": {"headers": {"Authorization": "1234567"}}"#,
        r#""bearer_token": "1234567""#,
        r#""env": ["A=1234567"]"#,
    ] {
        let text = format!(r#"{{"mcpServers": {{"a": {{"command": "x", {server}}}}}}}"#);
        let document = ConfigDocument::parse(&text, FileSyntax::Json).expect("JSON");
        let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
        let shown = format!("{:?}", plan.patch.hunks(&text, &document.secrets()));
        assert!(shown.contains("wrap") && !shown.contains("1234567") && !shown.contains("true"), "{shown}");
    }
}

#[test]
fn many_servers_in_one_file_take_little_time() {
    let servers: Vec<_> = (0..4_000).map(|number| format!(r#""s{number}": {{"command": "x"}}"#)).collect();
    let text = format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(",\n"));
    let begin = SystemTime::now();
    let (record, after) = adopted(&text);
    let undone = undo(&record, None, &after).expect("JSON");
    assert_eq!((undone.text == text, undone.undone.len()), (true, 4_000));
    let took = begin.elapsed().expect("no clock step");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn nobody_sees_a_secret_in_the_changes() {
    for Sample { name, before, after, .. } in samples() {
        let plan = plan(&before, PROGRAM, &|_| true, &|_| false).expect("a plan");
        let shown = format!("{:?}", plan.patch.hunks(before.text(), &before.secrets()));
        assert!(!shown.contains("s3cret-value"), "{name}: {shown}");
        assert_eq!(before.text() != after.text(), !shown.is_empty() && shown != "[]", "{name}");
    }
}

#[test]
fn only_the_chosen_servers_change() {
    let text = "[mcp_servers.a]\ncommand = 'a'\n[mcp_servers.b]\ncommand = 'b'\n";
    let document = ConfigDocument::parse(text, FileSyntax::Toml).expect("TOML");
    let plan = plan(&document, "unhang", &|name| name == "b", &|_| false).expect("a plan");
    let expect = "[mcp_servers.a]\ncommand = 'a'\n[mcp_servers.b]\ncommand = \"unhang\"\nargs = [\"wrap\", \"--name\", \"b\", \"--\", 'b']\n";
    assert_eq!(plan.patch.apply(text), expect);
    assert_eq!(plan.entries[0].verdict, EntryVerdict::NotChosen);
    assert_eq!(sha256(expect.as_bytes()).len(), 64);
}

#[test]
fn what_cannot_be_wrapped_says_why() {
    let verdicts: Vec<(String, String)> = samples()
        .iter()
        .filter(|sample| ["unusable.json", "other_wrappers.json", "zed.json"].contains(&sample.name))
        .flat_map(|sample| {
            let plan = plan(&sample.before, PROGRAM, &|_| true, &|_| false).expect("a plan");
            plan.entries
                .into_iter()
                .map(|entry| (entry.name, format!("{:?}", entry.verdict)))
                .collect::<Vec<_>>()
        })
        .collect();
    for (name, expect) in [
        ("no-command", "NoCommand"),
        ("number", "another form"),
        ("text-args", "another form"),
        ("line", "whole line"),
        ("twice", "stands twice"),
        ("two-commands", "another form"),
        ("both", "a command and a URL"),
        ("guarded", "Guarded(\"/usr/local/bin/unhang\")"),
        ("by-npx", "GuardedInside(\"npx\")"),
        ("inside", "GuardedInside(\"mcpwall\")"),
        ("all", "Gateway"),
        ("github", "NoCommand"),
        ("remote", "Remote"),
        ("off", "Disabled"),
    ] {
        let (_, verdict) = verdicts.iter().find(|(other, _)| other == name).expect("it is there");
        assert!(verdict.contains(expect), "{name}: {verdict}");
    }
}

#[test]
fn a_form_that_the_edits_do_not_fit_is_left_alone() {
    // The key looks like the beginning of an inline table.
    let text = "mcp_servers.\"a{b\".command = 'a'\n";
    let document = ConfigDocument::parse(text, FileSyntax::Toml).expect("TOML");
    assert!(plan(&document, PROGRAM, &|_| true, &|_| false).is_err());
    assert!(plan(&document, PROGRAM, &|_| false, &|_| false).is_ok(), "nothing changes");
    // A guard of another name would not be found again.
    let document = ConfigDocument::parse("[mcp_servers.a]\ncommand = 'a'\n", FileSyntax::Toml).expect("TOML");
    assert!(plan(&document, "/opt/other", &|_| true, &|_| false).is_err());
}

#[test]
fn a_comment_stays_with_the_command_and_a_comma_of_an_editor_goes_with_the_list() {
    let all = samples();
    let sample = all.iter().find(|sample| sample.name == "cursor_comments.json").expect("a sample");
    let line = format!("      \"command\": \"{PROGRAM}\" // built by hand\n");
    assert!(sample.after.text().contains(&line), "{}", sample.after.text());

    let text = r#"{"mcpServers": {"a": {"command": "a", "args": []}}}"#;
    let document = ConfigDocument::parse(text, FileSyntax::Json).expect("JSON");
    let plan = plan(&document, PROGRAM, &|_| true, &|_| false).expect("a plan");
    let edited = plan.patch.apply(text).replace(r#""a"]"#, r#""a" , ]"#);
    let edited = ConfigDocument::parse(&edited, FileSyntax::Json).expect("JSON");
    let (patch, left) = without_guard(&edited, &plan.wrapped());
    assert_eq!((patch.apply(edited.text()), left.len()), (text.replace("[]", "[ ]"), 0));
}
