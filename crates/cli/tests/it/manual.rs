//! What documents the command line: completions, manual pages and the reference are the declaration's own.

use std::{collections::BTreeSet, fs};

use crate::harness::{Sandbox, run_to_end};

fn printed(sandbox: &Sandbox, words: &[&str]) -> String {
    let mut command = sandbox.unhang();
    command.args(words);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{words:?}: {stderr}");
    stdout
}

/// The commands, and those below them, as `unhang COMMAND --help` lists them.
fn commands(sandbox: &Sandbox, above: &[&str]) -> Vec<Vec<String>> {
    let help = printed(sandbox, &[above, &["--help"]].concat());
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    let path = |name: &str| above.iter().map(|word| (*word).to_owned()).chain([name.to_owned()]).collect();
    names.filter(|name| *name != "help").map(path).collect()
}

#[test]
fn r_43_the_reference_is_the_generated_one() {
    let sandbox = Sandbox::new();
    assert!(
        printed(&sandbox, &["man", "--page"]) == include_str!("../../../../docs/reference/cli.md"),
        "docs/reference/cli.md is out of date; write it anew: cargo run -- man --page > docs/reference/cli.md"
    );
}

#[test]
fn r_43_each_command_has_a_page_with_the_words_of_its_help() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("a/new/man1");
    let mut command = sandbox.unhang();
    command.arg("man").arg(&folder);
    let (code, stdout, told) = run_to_end(command);
    assert_eq!((code, stdout.as_str()), (0, ""), "{told}");

    let top = commands(&sandbox, &[]);
    let words = |path: &[String]| path.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let below = top.iter().flat_map(|path| commands(&sandbox, &[path[0].as_str()])).collect::<Vec<_>>();
    let every: Vec<Vec<String>> = [vec![vec![]], top, below].concat();
    assert!(every.len() > 25, "{every:?}");
    let page = |path: &[String]| format!("{}.1", [&["unhang".to_owned()], path].concat().join("-"));
    let expect: BTreeSet<String> = every.iter().map(|path| page(path)).collect();
    let entries = fs::read_dir(&folder).expect("a folder");
    let found =
        entries.map(|entry| entry.expect("a file").file_name().into_string().expect("text")).collect();
    assert_eq!(expect, found);
    assert!(told.contains(&format!("wrote {} pages", every.len())), "{told}");

    for path in &every {
        let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = printed(&sandbox, &arguments);
        let text = fs::read_to_string(folder.join(page(path))).expect("a page").replace('\\', "");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Flags, defaults and exit codes are words of a help; the layout is not.
        let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let flags = flat
            .split([' ', ','])
            .filter(|word| word.starts_with("--") && word.len() > 2 && !word.contains('='));
        for flag in
            flags.filter(|flag| flag[2..].chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'))
        {
            assert!(text.contains(flag), "{flag} of `unhang {}`: {text}", words(path));
        }
        let codes = flat.split_once("Exit codes: ").map_or("", |(_, codes)| codes.trim_end_matches('.'));
        for code in codes.split("; ") {
            assert!(text.contains(&code.replace('\'', "*(Aq")), "{code} of `unhang {}`: {text}", words(path));
        }
        assert!(!text.contains("zoo"), "{text}");
    }
}

#[test]
fn pages_that_cannot_be_written_are_wrong_usage() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("file");
    fs::write(&file, "mine").expect("a file");
    let below = file.join("man1");
    for (folder, told) in [(&file, "File exists"), (&below, "Not a directory")] {
        let mut command = sandbox.unhang();
        command.arg("man").arg(folder);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains(told) && stderr.contains("hint: "), "{stderr}");
    }
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
}

#[test]
fn r_43_shells_complete_what_there_is_and_nothing_hidden() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&sandbox, &["completions", shell]);
        for word in ["call-timeout", "completions", "rebuild"] {
            assert!(script.contains(word), "{shell} has no {word}");
        }
        assert!(!script.contains("zoo") && !script.contains("mcp-job"), "{shell}: {script}");
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let sandbox = Sandbox::new();
    let script = printed(&sandbox, &["completions", "bash"]);
    fs::write(sandbox.path().join("completions"), script).expect("a file");
    let complete = |words: &str, at: usize| {
        let line = format!(
            ". ./completions; COMP_WORDS=({words}); COMP_CWORD={at}; _unhang unhang \"${{COMP_WORDS[{at}]}}\" x; \
             echo \"${{COMPREPLY[@]}}\""
        );
        fs::write(sandbox.path().join("try"), line).expect("a file");
        run_to_end(sandbox.shell("exec bash ./try")).1
    };
    assert_eq!(complete("unhang ca", 1).trim(), "call");
    assert_eq!(complete("unhang job re", 2).trim(), "result remove rebuild");
    assert_eq!(complete("unhang wrap --call", 2).trim(), "--call-timeout");
    assert_eq!(complete("unhang zo", 1).trim(), "");
}

#[test]
fn r_16_a_wrong_command_line_is_told_with_two_hints_at_most() {
    let sandbox = Sandbox::new();
    for (words, message, hint) in [
        (&["cal", "time"][..], "unrecognized subcommand 'cal'", "hint: a similar subcommand exists: 'call'"),
        (&["call", "--cal-timeout", "5s"], "unexpected argument '--cal-timeout' found", "'--call-timeout'"),
        (&["job", "show"], "were not provided: <ID>", "Usage: unhang job show <ID>"),
        (&["wrap", "--call-timeout", "5", "--", "x"], "needs a unit", "hint: `unhang wrap --help` says more"),
        (&["call"], "the tool is missing", "hint: give both"),
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        assert!(
            stderr.starts_with("unhang: ") && stderr.contains(message) && stderr.contains(hint),
            "{stderr}"
        );
        assert!(stderr.matches("hint: ").count() <= 2 && !stderr.contains("tip"), "{stderr}");
    }
}
