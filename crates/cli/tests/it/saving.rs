//! What is no text is saved, and what cannot be saved is no success.

use std::fs;

use crate::harness::{Sandbox, lab_program, run_to_end};

const ASKED: [&[&str]; 2] = [&["call", "test_image_content"], &["read", "test://static-binary"]];

#[test]
fn a_folder_that_cannot_be_saved_to_is_refused_before_the_server_is_asked() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("file"), "").expect("a file");
    for asked in ASKED {
        for (folder, expect) in
            [("/proc/nope", "--save /proc/nope: No such file"), ("file", "--save file: it is not a folder")]
        {
            let mut command = sandbox.unhang();
            command.args(asked).args(["--output", "text", "--save", folder]);
            command.args([
                "--",
                "sh",
                "-c",
                "touch started; exec \"$@\"",
                "sh",
                lab_program(),
                "zoo",
                "conformance-fixture",
            ]);
            let (code, stdout, stderr) = run_to_end(command);
            assert_eq!((code, &*stdout), (2, ""), "{asked:?}: {stderr}");
            assert!(stderr.contains(expect), "{asked:?}: {stderr}");
            assert!(!sandbox.path().join("started").exists(), "{asked:?}");
        }
    }
}

#[test]
fn what_cannot_be_saved_is_told_with_its_path_and_is_no_success() {
    let sandbox = Sandbox::new();
    // In either of them nothing can be made, whoever asks.
    for (folder, words) in [("/proc", &[][..]), ("/", &["--save", "/proc"])] {
        for asked in ASKED {
            let mut command = sandbox.unhang();
            command.args(asked).args(["--output", "text"]).args(words).current_dir(folder);
            command.args(["--", lab_program(), "zoo", "conformance-fixture"]);
            let (code, stdout, stderr) = run_to_end(command);
            // Where we may not write, as any other user, that is told before.
            let is_known = code == 2 && stderr.contains("--save /proc: it cannot be written to");
            let is_told = code == 1 && stdout.contains("that cannot be saved") && stderr.contains("/proc/");
            assert!(
                is_told || (is_known && !words.is_empty()),
                "{asked:?} {words:?}: {code} {stdout} {stderr}"
            );
        }
    }
}

#[test]
fn what_can_be_saved_is() {
    let sandbox = Sandbox::new();
    for (asked, name) in ASKED.into_iter().zip(["test_image_content-1.png", "resource-1.png"]) {
        let mut command = sandbox.unhang();
        command.args(asked).args([
            "--output",
            "text",
            "--save",
            ".",
            "--",
            lab_program(),
            "zoo",
            "conformance-fixture",
        ]);
        let (code, stdout, stderr) = run_to_end(command);
        assert!(code == 0 && stdout.contains(name) && stderr.is_empty(), "{code} {stdout} {stderr}");
        assert!(sandbox.path().join(name).is_file(), "{name}");
    }
}

#[test]
fn save_prints_text_that_names_the_files_where_no_form_was_asked_for() {
    let sandbox = Sandbox::new();
    for (asked, name) in ASKED.into_iter().zip(["test_image_content-1.png", "resource-1.png"]) {
        let mut command = sandbox.unhang();
        command.args(asked).args(["--save", ".", "--", lab_program(), "zoo", "conformance-fixture"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stderr), (0, ""), "{asked:?}");
        assert!(stdout.starts_with('[') && stdout.contains(&format!("bytes: ./{name}]")), "{stdout}");
        assert!(sandbox.path().join(name).is_file(), "{name}");
    }
}

#[test]
fn save_is_refused_with_what_would_save_nothing() {
    let sandbox = Sandbox::new();
    let server = ["--", "sh", "-c", "touch started", "sh"];
    for asked in ASKED {
        for (words, expect) in [
            (&["--save", ".", "--output", "json"][..], "leave out `--output json`"),
            (&["--save", ".", "--raw"], "cannot be used with"),
        ] {
            let mut command = sandbox.unhang();
            command.args(asked).args(words).args(server);
            let (code, stdout, stderr) = run_to_end(command);
            assert_eq!((code, &*stdout), (2, ""), "{asked:?} {words:?}: {stderr}");
            assert!(stderr.contains(expect), "{asked:?} {words:?}: {stderr}");
            assert!(!sandbox.path().join("started").exists(), "{asked:?}");
        }
    }
}
