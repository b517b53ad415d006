//! A number that is typed is what arrives, or it is refused: none is changed without a word.

use crate::harness::{Sandbox, lab_program, run_to_end};

#[test]
fn a_whole_number_that_does_not_fit_into_64_bits_is_refused() {
    let sandbox = Sandbox::with_jobs();
    let server = ["--", lab_program(), "zoo", "well-behaved"];
    for words in [
        &["state", "set", "x", "12345678901234567890123"][..],
        &["state", "set", "x", "{\"a\": [-12345678901234567890123]}"],
        &[&["call", "echo", "--no-check", "text=a", "n=12345678901234567890123"], &server[..]].concat(),
        &[&["call", "sleep", "ms=12345678901234567890123"], &server[..]].concat(),
        &[&["call", "echo", "--json", "{\"text\": 12345678901234567890123}"], &server[..]].concat(),
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        for expect in ["12345678901234567890123", "give it as a text"] {
            assert!(stderr.contains(expect), "{words:?}: {stderr}");
        }
    }
    for value in ["18446744073709551615", "\"12345678901234567890123\"", "-9223372036854775808"] {
        for (words, printed) in [(&["state", "set", "x", value][..], ""), (&["state", "get", "x"], value)] {
            let mut command = sandbox.unhang();
            command.args(words);
            let (code, stdout, stderr) = run_to_end(command);
            assert_eq!((code, stdout.trim_end()), (0, printed), "{words:?}: {stderr}");
        }
    }
}

#[test]
fn an_at_sign_alone_names_no_file() {
    let sandbox = Sandbox::with_jobs();
    for (words, expect) in [
        (
            &["call", "echo", "--json", "@", "--", lab_program(), "zoo", "well-behaved"][..],
            "`--json @` names no file",
        ),
        (&["state", "set", "x", "@"], "`@` names no file"),
        (
            &["job", "wait", "last", "--timeout", "99999999999999999999s"],
            "`99999999999999999999s` is too long",
        ),
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, _, stderr) = run_to_end(command);
        assert!(code == 2 && stderr.contains(expect), "{words:?}: {code} {stderr}");
        assert!(!stderr.contains("lack of precision"), "{stderr}");
    }
}
