//! The blocks of a page, and what is said of each in the comment before it.

use std::fs;

/// Where the pages are.
pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What a comment directly before a block says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `<!-- not run: WHY -->`: its command lines are parsed, and that is all.
    NotRun,
    /// `<!-- not read: WHY -->`: it is no configuration.
    NotRead,
    /// `<!-- file: NAME -->`: it lies under this name in the folder of the reader.
    File(String),
    /// `<!-- runs on -->`: it runs in another terminal until the page ends.
    RunsOn,
}

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    /// `PAGE:LINE` of its fence.
    pub(super) location: String,
    pub(super) kind: String,
    pub(super) mark: Option<Mark>,
    pub(super) lines: Vec<String>,
}

impl Block {
    pub(super) fn is_commands(&self) -> bool {
        matches!(self.kind.as_str(), "sh" | "console")
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The commands of a console, each with what it prints; a script has one, which prints anything.
    pub(super) fn commands(&self) -> Vec<Command> {
        if self.kind == "sh" {
            return vec![Command { line: self.text(), output: None }];
        }
        let mut commands: Vec<Command> = Vec::new();
        let mut goes_on = false;
        for line in &self.lines {
            if goes_on {
                let last = commands.last_mut().expect("what goes on has begun");
                last.line.push('\n');
                last.line.push_str(line.strip_prefix("> ").unwrap_or(line));
            } else if let Some(command) = line.strip_prefix("$ ") {
                commands.push(Command { line: command.to_owned(), output: Some(Vec::new()) });
            } else {
                let last = commands.last_mut().and_then(|last| last.output.as_mut());
                let output =
                    last.unwrap_or_else(|| panic!("{}: no command has printed `{line}`", self.location));
                output.push(line.clone());
                continue;
            }
            goes_on = line.ends_with('\\');
        }
        commands
    }
}

/// A command and the lines that it prints, where the page shows them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) line: String,
    pub(super) output: Option<Vec<String>>,
}

/// The blocks of a page of the project.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(format!("{ROOT}/{page}")).unwrap_or_else(|error| panic!("{page}: {error}"));
    blocks_of(page, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The blocks of a text; an error says what is wrong with one, and where.
pub(super) fn blocks_of(page: &str, text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            let location = format!("{page}:{}", number + 1);
            if line.starts_with(' ') {
                return Err(format!("{location}: a fence begins its line"));
            }
            if matches!(kind, "" | "shell" | "shell-session" | "zsh") {
                return Err(format!("{location}: say `sh`, `console` or `text` behind the fence"));
            }
            let mark = mark(before, kind).map_err(|error| format!("{location}: {error}"))?;
            if kind == "bash" && !matches!(mark, Some(Mark::File(_))) {
                return Err(format!("{location}: say `sh` or `console` behind the fence of what is typed"));
            }
            let content =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").map(str::to_owned);
            blocks.push(Block { kind: kind.to_owned(), mark, lines: content.collect(), location });
        }
        before = line;
    }
    Ok(blocks)
}

fn mark(before: &str, kind: &str) -> Result<Option<Mark>, String> {
    let Some(comment) = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else {
        return Ok(None);
    };
    let commands = matches!(kind, "sh" | "console");
    let (word, rest) = comment.split_once(": ").unwrap_or((comment, ""));
    match (word, rest.trim(), commands) {
        ("not run", why, true) if !why.is_empty() => Ok(Some(Mark::NotRun)),
        ("not read", why, false) if !why.is_empty() => Ok(Some(Mark::NotRead)),
        ("file", name, false) if !name.is_empty() && !name.starts_with('/') && !name.contains("..") => {
            Ok(Some(Mark::File(name.to_owned())))
        }
        ("runs on", "", true) => Ok(Some(Mark::RunsOn)),
        _ => Err(format!("`{comment}` says nothing that the test knows of such a block")),
    }
}

/// Every page whose commands are tested, relative to the project.
pub(super) fn every() -> Vec<String> {
    let mut folders = vec!["docs".to_owned()];
    let mut pages = vec!["README.md".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(format!("{ROOT}/{folder}")).expect("a folder of the project") {
            let entry = entry.expect("a file");
            let name = format!("{folder}/{}", entry.file_name().to_str().expect("text"));
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                pages.push(name);
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn a_block_has_its_kind_its_place_and_its_mark() {
    let text = "<!-- not run: needs npx -->\n```sh\na\n```\n\n```console\n$ b \\\n> c\nd\n$ e\n```\n";
    let blocks = blocks_of("p", text).expect("a page");
    assert_eq!((blocks[0].location.as_str(), &blocks[0].mark), ("p:2", &Some(Mark::NotRun)));
    assert_eq!(blocks[0].commands(), [Command { line: "a\n".to_owned(), output: None }]);
    assert_eq!((blocks[1].location.as_str(), &blocks[1].mark), ("p:6", &None));
    let shown = |line: &str, output: &[&str]| Command {
        line: line.to_owned(),
        output: Some(output.iter().map(|line| (*line).to_owned()).collect()),
    };
    assert_eq!(blocks[1].commands(), [shown("b \\\nc", &["d"]), shown("e", &[])]);
    for (text, told) in [
        ("```bash\na\n```\n", "p:1: say `sh` or `console`"),
        ("```\na\n```\n", "p:1: say `sh`"),
        ("- a\n  ```sh\n  a\n  ```\n", "p:2: a fence begins its line"),
        ("<!-- not run -->\n```sh\na\n```\n", "p:2: `not run` says nothing"),
        ("<!-- not run:  -->\n```sh\na\n```\n", "p:2: `not run:"),
        ("<!-- not read: it is a message -->\n```sh\na\n```\n", "p:2: "),
        ("<!-- file: ../x -->\n```toml\na\n```\n", "p:2: "),
    ] {
        let error = blocks_of("p", text).expect_err("it is wrong");
        assert!(error.starts_with(told), "{error}");
    }
}
