//! `unhang adopt` on files that cannot be read or written: each is left as it is and named, and keeps no other from its change.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use serde_json::{Value, json};

use crate::{
    adopt::{Home, cursor},
    apart::Apart,
    harness::{Sandbox, run_to_end},
};

/// The status and the error of the file at this index.
fn told(report: &Value, index: usize) -> (String, String) {
    let file = &report["files"][index];
    let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("error"))
}

#[test]
fn a_broken_file_is_left_as_it_is_and_keeps_no_other_from_its_change() {
    let home = Home::new();
    let (json, toml) = ("{\n  \"mcpServers\": {\n    \"a\": {,\n", "[mcp_servers.a\ncommand = 'a'\n");
    home.write(".cursor/mcp.json", json);
    home.write(".codex/config.toml", toml);
    home.write(".gemini/settings.json", &cursor());
    let report = home.report(&["--yes"], 1);
    let (cursors, geminis, codexs) = (told(&report, 0), told(&report, 1), told(&report, 2));
    assert!(cursors.0 == "failed" && cursors.1.starts_with("line 3, column 11"), "{report}");
    assert!(codexs.0 == "failed" && codexs.1.starts_with("line 1, column"), "{report}");
    assert_eq!(geminis.0, "adopted");
    assert_eq!(
        (home.read(".cursor/mcp.json"), home.read(".codex/config.toml")),
        (json.to_owned(), toml.to_owned())
    );
    let (code, stdout, _) = home.adopt(&["--status", "--output", "text"]);
    assert!(code == 1 && stdout.contains("cannot be read: line 3, column 11"), "{stdout}");
    home.report(&["--undo", "--yes"], 0);
}

#[test]
fn a_broken_file_that_was_adopted_is_undone_when_it_is_right_again() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    let adopted = home.read(".cursor/mcp.json");
    home.write(".cursor/mcp.json", &adopted[..adopted.len() - 1]);
    let report = home.report(&["--undo", "--yes"], 1);
    assert!(told(&report, 0).1.starts_with("line "), "{report}");
    assert_eq!(home.read(".cursor/mcp.json"), &adopted[..adopted.len() - 1]);
    home.write(".cursor/mcp.json", &adopted);
    home.report(&["--undo", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());
}

#[test]
fn a_record_that_cannot_be_read_is_told_and_its_file_is_left_as_it_is() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    let report = home.report(&["--yes"], 0);
    let adopted = home.read(".cursor/mcp.json");
    let backup = report["files"][0]["backup"].as_str().expect("a path").to_owned();
    let record = backup.replace(".original", ".json");
    let good = fs::read(&record).expect("it is there");
    fs::write(&record, "{").expect("it is ours");
    for words in [&["--undo", "--yes"][..], &["--undo", "--yes", "cursor"]] {
        let report = home.report(words, 1);
        let (status, error) = told(&report, 0);
        assert!(status == "failed" && error.contains(&record) && error.contains(&backup), "{report}");
    }
    assert_eq!(home.adopt(&["--status"]).0, 1);
    // A word that means another file is about that file.
    home.write(".gemini/settings.json", &cursor());
    let (code, _, stderr) = home.adopt(&["--undo", "--yes", "gemini"]);
    assert!(code == 6 && stderr.contains("has not adopted gemini"), "{stderr}");
    fs::remove_file(home.path(".gemini/settings.json")).expect("it is there");
    // To adopt one more server would write a new record over it.
    home.write(".cursor/mcp.json", r#"{"mcpServers": {"new": {"command": "new"}}}"#);
    let report = home.report(&["--yes"], 1);
    assert!(told(&report, 0).1.contains(&record), "{report}");
    assert_eq!(fs::read_to_string(&backup).expect("it is there"), cursor());
    home.write(".cursor/mcp.json", &adopted);
    fs::write(&record, good).expect("it is ours");
    home.report(&["--undo", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());
}

#[test]
fn undo_names_guards_without_a_record() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    let report = home.report(&["--yes"], 0);
    let backup = report["files"][0]["backup"].as_str().expect("a path").to_owned();
    fs::remove_file(backup.replace(".original", ".json")).expect("it is there");
    let (code, stdout, stderr) = home.adopt(&["--undo", "--yes", "--output", "text"]);
    assert!(code == 0 && stdout.contains("no record of the guard of"), "{stdout} {stderr}");
}

#[test]
fn a_copy_that_is_old_or_cannot_run_is_replaced_though_no_file_changes() {
    let home = Home { sandbox: Sandbox::with_adoptions() };
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    let adopted = home.read(".cursor/mcp.json");
    let copy = fs::read(home.program()).expect("it was copied");
    let old: fn(&str) = |place| fs::write(place, "#!/bin/sh\necho unhang 0.0.1\n").expect("it is ours");
    let locked: fn(&str) = |place| {
        fs::set_permissions(place, fs::Permissions::from_mode(0o600)).expect("it is ours");
    };
    for (damage, note) in
        [(old, "is unhang 0.0.1, which"), (locked, "nobody may execute ~/.local/bin/unhang")]
    {
        damage(&home.program());
        let (code, stdout, stderr) = home.adopt(&["--yes", "--output", "text"]);
        assert!(code == 0 && stdout.contains("~/.local/bin/unhang is unhang "), "{stdout} {stderr}");
        assert!(!stdout.contains("nothing to do"), "{stdout}");
        let told = stdout.replace(&home.program(), "~/.local/bin/unhang");
        assert!(told.contains(note), "{stdout}");
        assert!(fs::read(home.program()).expect("it is there") == copy);
        let mode = fs::metadata(home.program()).expect("it is there").permissions().mode();
        assert_eq!((mode & 0o777, home.read(".cursor/mcp.json")), (0o755, adopted.clone()));
    }
    let (code, stdout, _) = home.adopt(&["--yes", "--output", "text"]);
    assert!(code == 0 && stdout.contains("nothing to do") && !stdout.contains("copies"), "{stdout}");
    home.report(&["--undo", "--yes"], 0);
}

#[test]
fn a_file_that_was_removed_is_forgotten_if_it_is_named() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    fs::remove_file(home.path(".cursor/mcp.json")).expect("it is there");
    let file = home.path(".cursor/mcp.json").display().to_string();
    for words in [&["--undo"][..], &["--undo"], &["--undo", &file]] {
        let report = home.report(words, 0);
        assert_eq!(told(&report, 0).0, "gone", "{words:?}");
        // Only this report names the backup of the file.
        assert_eq!(report["files"][0]["backup"].is_string(), words.len() > 1, "{report}");
    }
    assert_eq!(home.report(&["--undo"], 0)["files"], json!([]));
}

/// The finding: the undo forgot a file that was away for a moment, and its guards stayed for good.
#[test]
fn a_file_that_is_away_is_undone_when_it_is_back() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.report(&["--yes"], 0);
    let (file, aside) = (home.path(".cursor/mcp.json"), home.path("aside"));
    fs::rename(&file, &aside).expect("it is there");
    assert_eq!(told(&home.report(&["--undo", "--yes"], 0), 0).0, "gone");
    fs::rename(&aside, &file).expect("it is there");
    home.report(&["--undo", "--yes"], 0);
    assert_eq!(home.read(".cursor/mcp.json"), cursor());
}

#[test]
fn what_may_not_be_written_is_left_alone() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &cursor());
    home.write(".codeium/windsurf/mcp_config.json", &cursor());
    let mode = |name: &str, mode| {
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    mode(".cursor/mcp.json", 0o400);
    mode(".codeium/windsurf", 0o500);
    let report = home.report(&["--yes"], 1);
    mode(".codeium/windsurf", 0o700);
    assert!(told(&report, 0).1.contains("read-only (its mode is 0400)"), "{report}");
    assert!(told(&report, 1).1.contains("its folder") && told(&report, 1).1.contains("0500"), "{report}");
    for name in [".cursor/mcp.json", ".codeium/windsurf/mcp_config.json"] {
        assert_eq!(home.read(name), cursor());
    }
}

#[test]
fn two_clients_that_share_a_file_change_it_once_and_the_link_stays() {
    let home = Home::new();
    home.write("shared/mcp.json", &cursor());
    for folder in [".cursor", ".lmstudio"] {
        fs::create_dir_all(home.path(folder)).expect("a folder");
        symlink("../shared/mcp.json", home.path(&format!("{folder}/mcp.json"))).expect("a link");
    }
    let report = home.report(&["--yes"], 0);
    assert_eq!(report["files"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["files"][0]["clients"], json!(["Cursor", "LM Studio"]));
    assert_eq!(home.read("shared/mcp.json").matches("\"wrap\"").count(), 1);
    assert!(fs::symlink_metadata(home.path(".lmstudio/mcp.json")).expect("it is there").is_symlink());
    home.report(&["--undo", "lm-studio", "--yes"], 0);
    assert_eq!(home.read("shared/mcp.json"), cursor());

    // A link that leads nowhere.
    fs::remove_file(home.path("shared/mcp.json")).expect("it is there");
    let report = home.report(&["cursor", "--yes"], 1);
    assert!(told(&report, 0).1.contains("a link to a file that does not exist"), "{report}");
}

#[test]
fn on_a_full_disk_the_old_file_stays() {
    let home = Home::new();
    home.write("any", "");
    // The client's file lies on a disk without a free byte, and the data folder does not.
    let mut any = home.sandbox.unhang();
    any.env("HOME", home.path(""));
    let file = "$HOME/.cursor/mcp.json";
    let script = format!(
        "mkdir -p \"$HOME/.cursor\"; mount -t tmpfs -o size=1m,mode=700 none \"$HOME/.cursor\"; cp \"$HOME/source\" \"{file}\"; \
         dd if=/dev/zero of=\"$HOME/.cursor/full\" bs=4k 2>/dev/null || true"
    );
    home.write("source", &cursor());
    let apart = Apart::new(&any, &script);
    let mut adopt = home.sandbox.unhang();
    adopt.args(["adopt", "--yes", "--output", "json"]).env("HOME", home.path(""));
    let (code, stdout, stderr) = run_to_end(apart.enter(&adopt));
    assert_eq!(code, 1, "{stdout} {stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert!(told(&report, 0).1.contains("the new text cannot be written"), "{report}");
    let left = apart.shell(&any, "cat \"$HOME/.cursor/mcp.json\"; ls -A \"$HOME/.cursor\"");
    assert_eq!(left, format!("{}full\nmcp.json\n", cursor()));
    assert_eq!(home.report(&["--undo"], 0)["files"], json!([]), "no record is kept of what was not written");
}

#[test]
fn what_is_no_client_and_no_file_is_refused_and_yaml_is_shown() {
    let home = Home::new();
    let (code, _, stderr) = home.adopt(&["curser"]);
    assert!(
        code == 6
            && stderr.contains("`curser` is neither a client nor a file")
            && stderr.contains("did you mean `cursor`?"),
        "{stderr}"
    );
    let (code, _, stderr) = home.adopt(&["cursor"]);
    assert!(code == 6 && stderr.contains("Cursor has no file at "), "{stderr}");
    let (code, _, stderr) = home.adopt(&["--undo", "cursor"]);
    assert!(code == 6, "{stderr}");
    for (name, text) in [("unhang.toml", "[servers.a]\ncommand = 'a'\n"), ("other.json", "{\"a\": 1}")] {
        home.write(name, text);
        let report = home.report(&[name, "--yes"], 1);
        let expect = if name == "unhang.toml" { "unhang's own file" } else { "none of the keys" };
        assert!(told(&report, 0).1.contains(expect), "{report}");
    }
    home.write(".config/goose/config.yaml", "extensions: {}\n");
    let (code, stdout, _) = home.adopt(&["--output", "text"]);
    for expect in ["Goose: ~/.config/goose/config.yaml is YAML", "cmd: /", "args: [wrap, --name, NAME, --,"] {
        assert!(code == 0 && stdout.contains(expect), "{expect}: {stdout}");
    }
}
