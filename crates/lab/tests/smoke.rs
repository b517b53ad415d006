//! The binary starts, and says how it is used.

#![expect(clippy::disallowed_methods, reason = "a test of a binary that starts nothing and ends at once")]

use std::process::{Command, Output};

fn lab(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_unhang-lab")).args(words).output().expect("the lab runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_help_names_each_command() {
    let (code, stdout, _) = lab(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(["bench", "rounds", "zoo"].iter().all(|name| stdout.contains(name)), "{stdout}");
}

#[test]
fn a_wrong_command_line_is_exit_2_and_says_where_the_help_is() {
    let (code, stdout, stderr) = lab(&["bench", "--onyl", "wrap"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("'--only'") && stderr.contains("`unhang-lab bench --help`"), "{stderr}");
}

#[test]
fn a_missing_product_is_named() {
    let (code, stdout, stderr) = lab(&["bench", "--quick", "--unhang", "/no/such/unhang"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("/no/such/unhang") && stderr.contains("--unhang"), "{stderr}");
}

#[test]
fn the_zoo_lists_its_programs() {
    for flag in ["--list", "--page"] {
        let (code, stdout, _) = lab(&["zoo", flag]);
        assert_eq!(code, Some(0));
        // One of the demonstration, and one of the zoo's own.
        assert!(stdout.contains("well-behaved") && stdout.contains("answers-twice"), "{flag}: {stdout}");
    }
}
