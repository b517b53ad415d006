//! What holds of a block that is not run: its `unhang` command lines are ones, and its configuration is read.

use std::fs;

use serde_json::Value;

use super::page::{Block, Mark};
use crate::harness::{Sandbox, run_to_end};

/// What a command line may go on with behind one of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Text(String),
    /// `|`, `&&`, `;`, a line's end and so on: another command begins.
    Next,
}

/// The words of a script, as a shell divides it; variables and patterns stay as they are.
fn words(script: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut into_file = false;
    let mut signs = script.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' | '"' => {
                let inner: String = signs.by_ref().take_while(|inner| *inner != sign).collect();
                word.get_or_insert_default().push_str(&inner);
                continue;
            }
            '\\' => {
                match signs.next() {
                    Some('\n') | None => {}
                    Some(other) => word.get_or_insert_default().push(other),
                }
                continue;
            }
            '#' if word.is_none() => while signs.next_if(|sign| *sign != '\n').is_some() {},
            '$' if signs.next_if_eq(&'(').is_some() => {
                word = None;
                words.push(Word::Next);
            }
            ' ' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>' => {
                if let Some(ended) = word.take()
                    && !std::mem::take(&mut into_file)
                {
                    words.push(Word::Text(ended));
                }
                match sign {
                    ' ' => {}
                    '<' | '>' => into_file = true,
                    _ => words.push(Word::Next),
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.filter(|_| !into_file).map(Word::Text));
    words
}

/// The arguments of each `unhang` in a list of words, up to `--`, and whether that comes.
fn ours(words: &[Word]) -> Vec<(Vec<String>, bool)> {
    let is_unhang =
        |word: &Word| matches!(word, Word::Text(text) if text == "unhang" || text.ends_with("/unhang"));
    let mut ours = Vec::new();
    for (index, _) in words.iter().enumerate().filter(|(_, word)| is_unhang(word)) {
        let mut arguments = Vec::new();
        let mut command_follows = false;
        for word in &words[index + 1..] {
            match word {
                Word::Text(text) if text == "--" => command_follows = true,
                Word::Text(text) => arguments.push(text.clone()),
                Word::Next => {}
            }
            if command_follows || *word == Word::Next {
                break;
            }
        }
        ours.push((arguments, command_follows));
    }
    ours
}

/// Demands of each `unhang` in a script that the argument parser takes it.
#[track_caller]
fn demand_parsed(sandbox: &Sandbox, location: &str, words: &[Word]) {
    for (arguments, command_follows) in ours(words) {
        let line = arguments.join(" ");
        let run = |arguments: &[&str]| {
            let mut command = sandbox.unhang();
            command.args(arguments);
            run_to_end(command)
        };
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match words[..] {
            // It parses nothing itself.
            ["zoo", name, ..] => {
                let (_, list, _) = run(&["zoo", "--list"]);
                let known = name == "--list" || list.lines().any(|line| line.split(' ').next() == Some(name));
                assert!(known, "{location}: `unhang {line}`: no program is called so");
            }
            // Everything behind the first word that is no flag would be the command.
            ["wrap", ..] | ["job", "run", ..] if !command_follows => {
                panic!("{location}: `unhang {line}`: the command comes behind `--`")
            }
            _ => {
                let (code, help, told) = run(&[&words[..], &["--help"]].concat());
                assert!(code == 0 && help.contains("Usage: "), "{location}: `unhang {line}`: {told}");
            }
        }
    }
}

/// Demands that the command lines of a block are taken by the argument parser.
#[track_caller]
pub(super) fn command_lines(sandbox: &Sandbox, block: &Block) {
    for command in block.commands() {
        demand_parsed(sandbox, &block.location, &words(&command.line));
    }
}

/// Demands that a block is a configuration that is read without a word against it.
#[track_caller]
pub(super) fn configuration(sandbox: &Sandbox, block: &Block) {
    let texts = match (block.kind.as_str(), &block.mark) {
        (_, Some(Mark::NotRead)) => return,
        ("toml" | "json" | "jsonc", _) => vec![block.text()],
        // Both what was there before and what is there then.
        ("diff", _) => ['-', '+'].map(|side| of_diff(block, side)).to_vec(),
        _ => return,
    };
    for text in texts {
        let suffix = if block.kind == "toml" { "toml" } else { "json" };
        let file = sandbox.path().join(format!("checked.{suffix}"));
        fs::write(&file, &text).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["servers", "--output", "json", "--config"]).arg(&file).envs(variables(&text));
        let (code, listed, told) = run_to_end(command);
        assert!((code, told.as_str()) == (0, ""), "{}: exit code {code}: {told}", block.location);
        let servers: Value = serde_json::from_str(&listed).expect("a list");
        for server in servers.as_array().expect("a list") {
            assert!(server.get("unused").is_none(), "{}: {server}", block.location);
            let arguments = server["args"].as_array().into_iter().flatten();
            let words: Vec<Word> = [&server["command"]]
                .into_iter()
                .chain(arguments)
                .filter_map(|word| Some(Word::Text(word.as_str()?.to_owned())))
                .collect();
            demand_parsed(sandbox, &block.location, &words);
        }
    }
}

fn of_diff(block: &Block, side: char) -> String {
    let lines = block.lines.iter().filter_map(|line| line.strip_prefix([' ', side]));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What the variables and inputs that a configuration names may be.
fn variables(text: &str) -> Vec<(String, String)> {
    let named = text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let variable = |name: &str| {
        let name = name.split_once(":-").map_or(name, |(name, _)| name);
        match name.split_once(':') {
            Some(("input", input)) => format!("UNHANG_INPUT_{}", input.to_uppercase().replace('-', "_")),
            Some((_, name)) => name.to_owned(),
            None => name.to_owned(),
        }
    };
    // Codex names a variable without these signs.
    let plain = text.lines().filter_map(|line| line.strip_prefix("bearer_token_env_var = "));
    let names = named.map(variable).chain(plain.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())));
    names.map(|name| (name, "0123456789abcdef0123456789abcdef".to_owned())).collect()
}

#[test]
fn the_command_lines_of_a_script_are_found() {
    let found = |script: &str| -> Vec<String> {
        let line = |(words, follows): (Vec<String>, bool)| {
            format!("{}{}", words.join(" "), if follows { " --" } else { "" })
        };
        ours(&words(script)).into_iter().map(line).collect()
    };
    for (script, expect) in [
        ("unhang call a b 'c d' # unhang no", &["call a b c d"][..]),
        ("id=$(unhang job run -- make) && unhang job wait \"$id\"", &["job run --", "job wait $id"]),
        ("claude mcp add x -- unhang wrap --name y -- npx z", &["wrap --name y --"]),
        ("unhang a \\\n  b > file c; target/unhang d | unhang e", &["a b c", "d", "e"]),
        ("unhang a\nunhang b", &["a", "b"]),
        ("echo no", &[]),
    ] {
        assert_eq!(found(script), expect, "{script}");
    }
}

#[test]
fn a_wrong_command_line_and_a_wrong_configuration_are_found() {
    let sandbox = Sandbox::new();
    let fails = |kind: &str, text: &str| {
        let block = Block {
            location: "page:1".to_owned(),
            kind: kind.to_owned(),
            mark: None,
            lines: text.lines().map(str::to_owned).collect(),
        };
        let check = || {
            if block.is_commands() {
                command_lines(&sandbox, &block);
            } else {
                configuration(&sandbox, &block);
            }
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
    };
    for (kind, right, wrong) in [
        ("sh", "unhang tools --call-timeout 9s -- x", "unhang tools --call-timeout 9 -- x"),
        ("sh", "claude mcp add x -- unhang wrap -- y", "claude mcp add x -- unhang wrap y"),
        ("console", "$ unhang zoo well-behaved", "$ unhang zoo well-behavd"),
        ("toml", "[jobs]\ntimeout = \"3m\"", "[jobs]\ntime-out = \"3m\""),
        ("toml", "[http]\ntokens = [\"${A}\"]", "[http]\ntokens = [\"A\"]"),
        (
            "json",
            r#"{"mcpServers": {"a": {"command": "unhang", "args": ["serve", "--stdio"]}}}"#,
            r#"{"mcpServers": {"a": {"command": "unhang", "args": ["serve", "--stdoi"]}}}"#,
        ),
        (
            "diff",
            " {\"mcpServers\": {\"a\":\n-{\"url\": \"https://a.example/\"}\n+{\"command\": \"a\"}\n }}",
            " {\"mcpServers\": {\"a\":\n-{\"url\": \"https://a.example/\"}\n+{\"comand\": \"a\"}\n }}",
        ),
    ] {
        assert!(!fails(kind, right), "{right}");
        assert!(fails(kind, wrong), "{wrong}");
    }
}
