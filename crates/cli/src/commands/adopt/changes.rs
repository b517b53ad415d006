//! The changes that adopt files: planned together, written one by one.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use unhang::exit;
use unhang_adopt::{
    AdoptedEntry, AdoptionPlan, AdoptionRecord, AdoptionRecords, ConfigDocument, EntryVerdict, FileSyntax,
    TargetFile, UnreadableRecord, clients::McpClient, plan, undo, without_guard,
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::{
    program::{ChosenProgram, VERSION},
    report::{AdoptReport, FileReport, FileStatus, ServerReport},
    targets::{TargetChoice, Targets},
};
use crate::commands::engine::counted;

/// A file that was read, and what would change in it.
pub(super) struct PlannedFile {
    target: TargetFile,
    document: ConfigDocument,
    plan: AdoptionPlan,
    /// The text that starts unhang in this file.
    program: String,
}

/// The changes of all files.
pub(super) struct Changes {
    files: Vec<(TargetChoice, Result<Box<PlannedFile>, String>)>,
    by_hand: Vec<(Option<&'static McpClient>, PathBuf)>,
    absent: Vec<&'static McpClient>,
}

impl Changes {
    /// Reads all files and plans their changes. A file that cannot be read or changed has the reason in place of a plan.
    pub(super) fn plan(
        targets: &Targets,
        program: &ChosenProgram,
        is_chosen: &dyn Fn(&str) -> bool,
    ) -> Changes {
        let planned = |choice: &TargetChoice| {
            let program = if choice.is_of_project { "unhang" } else { &program.path };
            (choice.clone(), planned(choice, program, is_chosen).map(Box::new))
        };
        Changes {
            files: targets.files.iter().map(planned).collect(),
            by_hand: targets.by_hand.clone(),
            absent: targets.absent.clone(),
        }
    }

    /// Demands that each of the names that were typed is that of a server.
    pub(super) fn check_names<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<(), CommandFailure> {
        let plans = self.files.iter().filter_map(|(_, planned)| planned.as_ref().ok());
        let known: BTreeSet<&str> =
            plans.flat_map(|planned| &planned.plan.entries).map(|entry| entry.name.as_str()).collect();
        let unknown: Vec<String> = names
            .filter(|name| !known.contains(name.as_str()))
            .map(|name| format!("`{}`", escaped(name)))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<String> = known.into_iter().map(escaped).collect();
        Err(CommandFailure {
            code: exit::NOT_FOUND,
            kind: "no_such_server",
            message: format!("no file has a server {}", unknown.join(" or ")),
            hint: (!known.is_empty()).then(|| format!("there are {}", known.join(", "))),
            data: None,
        })
    }

    /// Says what would be done, as the beginning of a question.
    pub(super) fn deed(&self) -> String {
        let count = |of: fn(&AdoptionPlan) -> Vec<AdoptedEntry>| -> usize {
            self.changed().map(|planned| of(&planned.plan).len()).sum()
        };
        let (wrapped, reguarded) = (count(AdoptionPlan::wrapped), count(AdoptionPlan::reguarded));
        let front = format!("put the guard in front of {}", counted(wrapped, "server"));
        match (wrapped, reguarded) {
            (_, 0) => front,
            (0, _) => format!("repair the guard of {}", counted(reguarded, "server")),
            _ => format!("{front} and repair the guard of {reguarded} more"),
        }
    }

    /// Counts the files that change.
    pub(super) fn files(&self) -> usize {
        self.changed().count()
    }

    fn changed(&self) -> impl Iterator<Item = &PlannedFile> {
        let plans = self.files.iter().filter_map(|(_, planned)| planned.as_deref().ok());
        plans.filter(|planned| !planned.plan.patch.is_empty())
    }

    /// Makes the report of the plan.
    pub(super) fn report(&self, program: &ChosenProgram) -> AdoptReport {
        let mut report = AdoptReport::of_program(program);
        for (choice, planned) in &self.files {
            report.files.push(match planned {
                Ok(planned) => planned.report(choice),
                Err(why) => FileReport::failed(&choice.path, &choice.clients, why.clone()),
            });
        }
        let names_unhang =
            |(choice, planned): &(TargetChoice, Result<_, _>)| choice.is_of_project && planned.is_ok();
        if !program.is_on_path && self.files.iter().any(names_unhang) {
            report.notes.push(
                "a project's file starts `unhang` by its name, and no folder of PATH has it: install it there too".to_owned(),
            );
        }
        report.by_hand(&self.by_hand);
        report.not_found = self.absent.iter().map(|client| client.name).collect();
        report
    }

    /// Writes all files, each with its record before it.
    pub(super) fn write(&mut self, records: &AdoptionRecords, report: &mut AdoptReport, now: &str) {
        for ((_, planned), told) in self.files.iter().zip(&mut report.files) {
            let Ok(planned) = planned else { continue };
            if planned.plan.patch.is_empty() {
                continue;
            }
            match planned.write(records, now) {
                Ok(backup) => told.is_adopted(backup),
                Err(why) => told.has_failed(why),
            }
        }
        report.tell_running();
    }
}

fn planned(
    choice: &TargetChoice,
    program: &str,
    is_chosen: &dyn Fn(&str) -> bool,
) -> Result<PlannedFile, String> {
    let target = TargetFile::read(&choice.path).map_err(|error| error.to_string())?;
    let document =
        ConfigDocument::parse(target.text(), target.syntax()).map_err(|error| error.to_string())?;
    if document.is_own() && choice.clients.is_empty() {
        return Err(
            "it is unhang's own file, or no file of a client; `unhang serve` guards its servers".to_owned()
        );
    }
    if choice.clients.is_empty() && !document.has_servers() {
        return Err(
            "it has none of the keys under which clients keep servers: mcpServers, servers, mcp_servers, context_servers, mcp"
                .to_owned(),
        );
    }
    let plan = plan(&document, program, is_chosen, &is_gone).map_err(|error| error.to_string())?;
    if !plan.patch.is_empty() {
        target.check_writable().map_err(|error| error.to_string())?;
    }
    Ok(PlannedFile { target, document, plan, program: program.to_owned() })
}

impl PlannedFile {
    fn report(&self, choice: &TargetChoice) -> FileReport {
        let hunks = self.plan.patch.hunks(self.document.text(), &self.document.secrets());
        let mut report = FileReport::new(&choice.path, self.target.path(), &choice.clients);
        report.status = if hunks.is_empty() { FileStatus::Unchanged } else { FileStatus::Planned };
        report.servers = self.plan.entries.iter().map(ServerReport::of_plan).collect();
        report.hunks = hunks;
        report
    }

    /// Writes the file. Returns the path of the bytes from before.
    fn write(&self, records: &AdoptionRecords, now: &str) -> Result<PathBuf, String> {
        let earlier = records.of(self.target.path()).map_err(|error| unreadable(&error))?;
        let (original, mut entries) = match &earlier {
            Some(record) => without_earlier(records, record, self.target.text())?,
            None => (self.target.text().to_owned(), Vec::new()),
        };
        let mut without_record = self.plan.reguarded();
        without_record.retain(|entry| entries.iter().all(|known| known.place != entry.place));
        let original = without_guards(original, self.document.syntax(), &without_record)?;
        entries.extend(without_record);
        entries.extend(self.plan.wrapped());
        let adopted = self.plan.patch.apply(self.target.text());
        let told = (self.program.as_str(), VERSION, now.to_owned());
        let record = AdoptionRecord::new(&self.target, (&original, &adopted), entries, told);
        let earlier = earlier.map(|record| (records.backup(&record), record));
        records.keep(&record, &original).map_err(|error| format!("its record cannot be kept: {error}"))?;
        if let Err(error) = self.target.replace(&adopted) {
            // The record is about bytes that the file does not have.
            let _ = match &earlier {
                Some((Some(backup), record)) => {
                    records.keep(record, backup).map_err(|error| error.to_string())
                }
                _ => records.forget(&record).map_err(|error| error.to_string()),
            };
            return Err(error.to_string());
        }
        Ok(records.backup_path(&record))
    }
}

/// Says that a record keeps unhang from its file, and what a person can do.
pub(super) fn unreadable(error: &UnreadableRecord) -> String {
    let backup = error.path.with_extension("original");
    format!(
        "{error}; {} has the file as it was before. Take the guards away by hand, and remove both",
        backup.display()
    )
}

/// Returns the text as it would be without what was adopted earlier, and the servers that were adopted then and still have their guard.
fn without_earlier(
    records: &AdoptionRecords,
    record: &AdoptionRecord,
    text: &str,
) -> Result<(String, Vec<AdoptedEntry>), String> {
    let undone = undo(record, records.backup(record).as_deref(), text).map_err(|error| error.to_string())?;
    let entries = record.entries.iter().filter(|entry| undone.undone.contains(&entry.name));
    Ok((undone.text, entries.cloned().collect()))
}

/// Returns the text without the guards of these servers. They have no record, and what they lose with their guard is no loss: it was gone.
fn without_guards(text: String, syntax: FileSyntax, guarded: &[AdoptedEntry]) -> Result<String, String> {
    if guarded.is_empty() {
        return Ok(text);
    }
    let document = ConfigDocument::parse(&text, syntax).map_err(|error| error.to_string())?;
    Ok(without_guard(&document, guarded).0.apply(&text))
}

impl ServerReport {
    fn of_plan(entry: &unhang_adopt::PlannedEntry) -> ServerReport {
        let (outcome, reason) = match &entry.verdict {
            EntryVerdict::Wrap => ("wrap", None),
            EntryVerdict::Reguard(program) => {
                ("reguard", Some(format!("had the guard {program}, which is gone")))
            }
            EntryVerdict::Guarded(program) if is_gone(program) => {
                ("guarded", Some(format!("has the guard {program}, which is gone")))
            }
            EntryVerdict::Guarded(program) => ("guarded", Some(format!("has the guard {program}"))),
            EntryVerdict::GuardedInside(program) => ("guarded", Some(format!("{program} starts its guard"))),
            EntryVerdict::Gateway => ("gateway", Some("starts the gateway of unhang".to_owned())),
            EntryVerdict::Disabled => ("disabled", Some("is switched off".to_owned())),
            EntryVerdict::Remote => (
                "remote",
                Some("is a URL; write it into unhang.toml, and `unhang serve` guards it".to_owned()),
            ),
            EntryVerdict::NoCommand => ("no_command", Some("has no command".to_owned())),
            EntryVerdict::Unclear(why) => ("unclear", Some((*why).to_owned())),
            EntryVerdict::NotChosen => ("not_chosen", Some("was left out".to_owned())),
        };
        ServerReport { name: entry.name.clone(), project: project(&entry.place), outcome, reason }
    }
}

/// Returns whether a program with an absolute path does not exist.
pub(super) fn is_gone(program: &str) -> bool {
    let path = Path::new(program);
    path.is_absolute() && !path.is_file()
}

/// Returns the project of a server that stands in the user's file of Claude Code.
pub(super) fn project(place: &[String]) -> Option<String> {
    match place {
        [projects, project, ..] if projects == "projects" => Some(project.clone()),
        _ => None,
    }
}
