//! The report about files and servers, for a person and for a program.
//!
//! Invariant: the changes are shown before anybody is asked, and what became of each file afterwards.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde::Serialize;
use unhang_adopt::{
    PatchHunk,
    clients::McpClient,
    running::{process_names, runs},
};
use unhang_terminal::{
    failure::Format,
    text::{escaped, escaped_lines},
};

use super::{print, program::ChosenProgram};
use crate::commands::engine::{TerminalColour, TerminalMarks, counted};

/// The whole report.
#[derive(Default, Serialize)]
pub(super) struct AdoptReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copied_from: Option<PathBuf>,
    pub(super) files: Vec<FileReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_hand: Vec<HandReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_found: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// The clients that run, and have to be restarted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restart: Vec<&'static str>,
    /// Whether the program was put in the place of an older one.
    #[serde(skip)]
    pub(super) has_replaced: bool,
}

/// A YAML file, and what to write into it.
#[derive(Serialize)]
struct HandReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'static str>,
    path: PathBuf,
    write: Vec<String>,
}

/// The report about one file.
#[derive(Serialize)]
pub(super) struct FileReport {
    path: PathBuf,
    /// The file behind a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<PathBuf>,
    clients: Vec<&'static str>,
    pub(super) status: FileStatus,
    /// Whether somebody has edited the file since it was adopted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_edited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    pub(super) servers: Vec<ServerReport>,
    /// The path of the bytes from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<PathBuf>,
    #[serde(skip)]
    pub(super) hunks: Vec<PatchHunk>,
    #[serde(skip)]
    known: Vec<&'static McpClient>,
}

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileStatus {
    Planned,
    Unchanged,
    Adopted,
    Undone,
    Gone,
    Failed,
}

/// The report about one server.
#[derive(Serialize)]
pub(super) struct ServerReport {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<String>,
    pub(super) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl FileReport {
    pub(super) fn new(path: &Path, target: &Path, clients: &[&'static McpClient]) -> FileReport {
        FileReport {
            path: path.to_owned(),
            target: (path != target).then(|| target.to_owned()),
            clients: clients.iter().map(|client| client.name).collect(),
            status: FileStatus::Unchanged,
            is_edited: false,
            error: None,
            servers: Vec::new(),
            backup: None,
            hunks: Vec::new(),
            known: clients.to_vec(),
        }
    }

    pub(super) fn failed(path: &Path, clients: &[&'static McpClient], why: String) -> FileReport {
        FileReport { status: FileStatus::Failed, error: Some(why), ..FileReport::new(path, path, clients) }
    }

    pub(super) fn is_adopted(&mut self, backup: PathBuf) {
        (self.status, self.backup) = (FileStatus::Adopted, Some(backup));
    }

    pub(super) fn is_undone(&mut self, backup: Option<PathBuf>) {
        if self.status == FileStatus::Planned {
            self.status = FileStatus::Undone;
        }
        self.backup = backup;
    }

    pub(super) fn has_failed(&mut self, why: String) {
        (self.status, self.error) = (FileStatus::Failed, Some(why));
    }

    /// Returns the clients and the path, as the heading of the file.
    fn heading(&self) -> String {
        let link = self.target.as_ref().map(|target| format!(" (a link to {})", shown(target)));
        let path = format!("{}{}", shown(&self.path), link.unwrap_or_default());
        if self.clients.is_empty() { path } else { format!("{}: {path}", self.clients.join(", ")) }
    }

    /// Describes the plan for a person.
    fn plan(&self, marks: TerminalMarks) -> String {
        let mut text = format!("{}\n", self.heading());
        if let Some(why) = &self.error {
            text.push_str(&format!(
                "  {}\n",
                marks.paint(TerminalColour::Red, &format!("left as it is: {}", escaped(why)))
            ));
        }
        if self.status == FileStatus::Gone {
            text.push_str("  the file is not there; `unhang adopt --undo FILE` forgets it\n");
        }
        if self.is_edited {
            text.push_str("  somebody has edited the file since, so only the guard goes:\n");
        }
        for hunk in &self.hunks {
            text.push_str(&marks.paint(TerminalColour::Cyan, &format!("  line {}", hunk.line)));
            text.push('\n');
            for (sign, colour, lines) in
                [('-', TerminalColour::Red, &hunk.removed), ('+', TerminalColour::Green, &hunk.added)]
            {
                for line in lines {
                    text.push_str(
                        &marks.paint(colour, &format!("{sign} {}", escaped_lines(line.trim_end()))),
                    );
                    text.push('\n');
                }
            }
        }
        for ServerReport { name, project, reason, .. } in &self.servers {
            let Some(reason) = reason else { continue };
            let project = project.as_ref().map(|project| format!(" (of {})", shown(Path::new(project))));
            text.push_str(&format!(
                "  {}{} {}\n",
                escaped(name),
                project.unwrap_or_default(),
                escaped(reason)
            ));
        }
        if self.servers.is_empty() && self.status == FileStatus::Unchanged {
            text.push_str("  no servers\n");
        }
        text
    }

    /// Describes what became of the file.
    fn outcome(&self) -> Option<String> {
        let path = shown(&self.path);
        let done = |what: &str| self.servers.iter().filter(|server| server.outcome == what).count();
        match self.status {
            FileStatus::Adopted => {
                Some(format!("{path}: {} behind unhang\n", counted(done("wrap") + done("reguard"), "server")))
            }
            FileStatus::Undone => {
                let kept = self
                    .backup
                    .as_ref()
                    .map(|backup| format!("; the file as it was before is {}", shown(backup)));
                let how = if self.is_edited { "without the guard" } else { "as it was before" };
                Some(format!("{path}: {how}{}\n", kept.unwrap_or_default()))
            }
            // A plan that failed has been shown.
            FileStatus::Failed if !self.hunks.is_empty() => Some(format!(
                "{path}: left as it is: {}\n",
                escaped(self.error.as_deref().unwrap_or_default())
            )),
            FileStatus::Gone => {
                let kept = self.backup.as_ref()?;
                Some(format!("{path}: forgotten; the file as it was before is {}\n", shown(kept)))
            }
            FileStatus::Failed | FileStatus::Planned | FileStatus::Unchanged => None,
        }
    }
}

impl AdoptReport {
    pub(super) fn of_program(program: &ChosenProgram) -> AdoptReport {
        AdoptReport {
            program: Some(program.path.clone()),
            copied_from: program.copied_from.clone(),
            notes: program.note.iter().cloned().collect(),
            ..AdoptReport::default()
        }
    }

    /// Adds what to write into files that are not edited.
    pub(super) fn by_hand(&mut self, files: &[(Option<&'static McpClient>, PathBuf)]) {
        let program = self.program.clone().unwrap_or_default();
        for (client, path) in files {
            let key = if client.is_some_and(|client| client.id == "goose") { "cmd" } else { "command" };
            let write = vec![
                format!("{key}: {program}"),
                "args: [wrap, --name, NAME, --, OLD COMMAND, OLD ARGS...]".to_owned(),
            ];
            self.by_hand.push(HandReport {
                client: client.map(|client| client.name),
                path: path.clone(),
                write,
            });
        }
    }

    /// Finds the clients of changed files that run.
    pub(super) fn tell_running(&mut self) {
        let names = process_names();
        let changed = |file: &&FileReport| matches!(file.status, FileStatus::Adopted | FileStatus::Undone);
        let clients = self.files.iter().filter(changed).flat_map(|file| &file.known);
        self.restart = clients.filter(|client| runs(client, &names)).map(|client| client.name).collect();
        self.restart.dedup();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.files.iter().any(|file| file.status == FileStatus::Failed)
    }

    /// Shows a person what would change. A program gets the whole report at the end.
    pub(super) fn show_plan(&self, format: Format) {
        if format == Format::Json {
            return;
        }
        let marks = TerminalMarks::of_stdout();
        let mut text: String = self.files.iter().map(|file| format!("{}\n", file.plan(marks))).collect();
        for HandReport { client, path, write } in &self.by_hand {
            let client = client.map(|client| format!("{client}: ")).unwrap_or_default();
            text.push_str(&format!(
                "{client}{} is YAML, which unhang does not edit. Write this for each server with a command:\n",
                shown(path)
            ));
            write.iter().for_each(|line| text.push_str(&format!("    {}\n", escaped(line))));
            text.push('\n');
        }
        if !self.not_found.is_empty() {
            text.push_str(&format!("no file of: {}\n", self.not_found.join(", ")));
        }
        if let (Some(from), Some(program)) = (&self.copied_from, &self.program) {
            text.push_str(&format!(
                "{} does not stay where it is, so unhang copies it to {} first\n",
                shown(from),
                shown(Path::new(program))
            ));
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
        let _reader_gone = print(&text);
    }

    /// Shows a person what was done.
    pub(super) fn show_outcome(&self, is_dry: bool) -> u8 {
        let mut text: String = self.files.iter().filter_map(FileReport::outcome).collect();
        for client in &self.restart {
            text.push_str(&format!("{client} runs: restart {client}\n"));
        }
        if let Some(program) = self.program.as_ref().filter(|_| self.has_replaced) {
            let version = env!("CARGO_PKG_VERSION");
            text.push_str(&format!("{} is unhang {version} now\n", shown(Path::new(program))));
        }
        let any = |status: FileStatus| self.files.iter().any(|file| file.status == status);
        if any(FileStatus::Adopted) {
            text.push_str("`unhang adopt --undo` takes it back\n");
        }
        if is_dry && any(FileStatus::Planned) {
            text.push_str("nothing was written (--dry-run)\n");
        } else if !(self.has_replaced
            || any(FileStatus::Adopted)
            || any(FileStatus::Undone)
            || any(FileStatus::Failed))
        {
            text.push_str("nothing to do\n");
        }
        print(&text)
    }
}

/// Returns a path for a person: below the home folder, it begins with `~`.
pub(super) fn shown(path: &Path) -> String {
    let home = env::var_os("HOME").map(PathBuf::from);
    let below = home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned));
    let text = below.map_or_else(|| path.display().to_string(), |below| format!("~/{}", below.display()));
    escaped(&text)
}
