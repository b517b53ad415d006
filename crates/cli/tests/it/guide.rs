//! The commands of `docs/guide/command-line.md`, run as they are written, at a terminal.
//!
//! In what a command prints, `…` stands for anything, and a line of it alone for any lines.

use std::{fs, io::Read, os::fd::AsFd, process::Stdio};

use crate::{
    harness::{Client, Sandbox},
    terminal::terminal,
};

const PAGE: &str = include_str!("../../../../docs/guide/command-line.md");

/// A command and what it prints.
struct Shown<'a> {
    command: &'a str,
    output: Vec<&'a str>,
}

/// The blocks of this kind.
fn blocks<'a>(kind: &str) -> Vec<Vec<&'a str>> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line.strip_prefix("```") == Some(kind) {
            blocks.push(lines.by_ref().take_while(|line| *line != "```").collect());
        } else if line.starts_with("```") {
            lines.by_ref().take_while(|line| *line != "```").for_each(drop);
        }
    }
    blocks
}

fn shown<'a>() -> Vec<Shown<'a>> {
    let mut all: Vec<Shown<'a>> = Vec::new();
    for line in blocks("console").into_iter().flatten() {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { command, output: Vec::new() }),
            (None, Some(last)) => last.output.push(line),
            (None, None) => panic!("a block begins with what no command has printed: {line}"),
        }
    }
    all
}

/// What a person sees at the end of it: lines that were written over are gone.
fn seen(printed: &str) -> String {
    let line =
        |line: &str| line.rsplit("\r\u{1b}[K").next().unwrap_or_default().trim_end_matches('\r').to_owned();
    printed.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether a text is one that a pattern stands for.
fn fits(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["…", rest @ ..] => (0..=lines.len()).any(|from| fits(rest, &lines[from..])),
        [first, rest @ ..] => {
            lines.first().is_some_and(|line| line_fits(first, line)) && fits(rest, &lines[1..])
        }
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (place, part) in parts.iter().enumerate() {
        if place + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

fn run(sandbox: &Sandbox, command: &str) -> String {
    let mut shell = sandbox.shell(command);
    let (master, screen) = terminal();
    let stream = || Stdio::from(screen.as_fd().try_clone_to_owned().expect("a descriptor"));
    shell.stdin(stream()).stdout(stream()).stderr(stream());
    let mut client = Client::start_alone(shell);
    drop(screen);
    let mut printed = Vec::new();
    // The end of a terminal is an error.
    let _end = fs::File::from(master).read_to_end(&mut printed);
    client.exit_code();
    seen(&String::from_utf8_lossy(&printed))
}

#[test]
fn the_commands_of_the_guide_print_what_it_shows() {
    let sandbox = Sandbox::new();
    let [file] = &blocks("toml")[..] else { panic!("one file") };
    fs::write(sandbox.path().join("unhang.toml"), file.join("\n")).expect("a file");
    let shown = shown();
    assert!(shown.len() >= 15, "the page has its commands");
    for Shown { command, output } in shown {
        let printed = run(&sandbox, command);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(fits(&output, &lines), "$ {command}\n{printed}\n\nthe page has:\n{}", output.join("\n"));
    }
}

#[test]
fn a_pattern_stands_for_what_it_says_and_nothing_else() {
    for (pattern, line, expect) in [
        ("demo: … ms", "demo: 0.4 ms", true),
        ("demo: … ms", "demo: 0.4 s", false),
        ("{…}", "{}", true),
        ("a…b…c", "a1b2c", true),
        ("a…b…c", "a1c", false),
        ("same", "same", true),
        ("same", "same ", false),
    ] {
        assert_eq!(line_fits(pattern, line), expect, "{pattern}: {line}");
    }
    assert!(fits(&["a", "…", "c"], &["a", "b", "b", "c"]) && !fits(&["a", "…", "c"], &["a", "b"]));
    assert_eq!(seen("\r\u{1b}[K1 %\r\u{1b}[K\r\u{1b}[Kdone\r\nnext\r\n"), "done\nnext");
}
