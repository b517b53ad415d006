//! The changes that undo adopted files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use unhang::exit;
use unhang_adopt::{
    AdoptionRecord, AdoptionRecords, ConfigDocument, ConfiguredEntry, GuardSeen, TargetError, TargetFile,
    UndoKind, UndoPlan, UnreadableRecord, clients::McpClient, undo,
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::{
    changes,
    report::{AdoptReport, FileReport, FileStatus, ServerReport, shown},
    targets::Targets,
};

/// An adopted file, and what undoes it.
struct UndoneFile {
    record: AdoptionRecord,
    clients: Vec<&'static McpClient>,
    state: UndoneState,
}

enum UndoneState {
    /// It is there, and this is the plan.
    Planned(Box<TargetFile>, Box<UndoPlan>),
    /// It is not there now.
    Gone,
    /// It cannot be undone, for this reason.
    Failed(String),
}

/// The changes of all files.
pub(super) struct Undoing {
    files: Vec<UndoneFile>,
    /// Records that cannot be read, and why.
    unreadable: Vec<(PathBuf, String)>,
    /// Servers in files of the user that have a guard without a record.
    unknown: Vec<String>,
    /// Whether somebody has named the files. Then those that are gone are forgotten.
    are_named: bool,
}

impl Undoing {
    /// Plans to undo these clients and files; without a word, all that were adopted.
    pub(super) fn plan(records: &AdoptionRecords, words: &[PathBuf]) -> Result<Undoing, CommandFailure> {
        let of_clients = Targets::find(&[])?;
        let clients_of = |record: &AdoptionRecord| {
            let is_its = |path: &Path| {
                *path == record.path || path.canonicalize().is_ok_and(|path| path == record.target)
            };
            let files = of_clients.files.iter().filter(|file| is_its(&file.path));
            files.flat_map(|file| file.clients.clone()).collect::<Vec<_>>()
        };
        let (all, unreadable) = records.all();
        let unknown = if words.is_empty() { without_record(&of_clients, &all) } else { Vec::new() };
        let (chosen, unreadable) = match words {
            [] => (all, unreadable),
            words => chosen(records, &all, words)?,
        };
        let unreadable = unreadable.iter().map(|error| (error.path.clone(), changes::unreadable(error)));
        let planned = |record: AdoptionRecord| {
            let clients = clients_of(&record);
            let state = state(records, &record);
            UndoneFile { record, clients, state }
        };
        let files = chosen.into_iter().map(planned).collect();
        Ok(Undoing { files, unreadable: unreadable.collect(), unknown, are_named: !words.is_empty() })
    }

    /// Returns whether nothing was adopted.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Counts the servers that lose their guard, and the files that change.
    pub(super) fn count(&self) -> (usize, usize) {
        let undone = self.files.iter().filter_map(|file| match &file.state {
            UndoneState::Planned(_, plan) => Some(plan.undone.len()).filter(|count| *count > 0),
            UndoneState::Gone | UndoneState::Failed(_) => None,
        });
        (undone.clone().sum(), undone.count())
    }

    /// Makes the report of the plan.
    pub(super) fn report(&self) -> AdoptReport {
        let mut report = AdoptReport::default();
        for (path, why) in &self.unreadable {
            report.files.push(FileReport::failed(path, &[], why.clone()));
        }
        report.notes.clone_from(&self.unknown);
        for UndoneFile { record, clients, state } in &self.files {
            report.files.push(match state {
                UndoneState::Failed(why) => FileReport::failed(&record.path, clients, why.clone()),
                UndoneState::Gone => {
                    let mut gone = FileReport::new(&record.path, &record.target, clients);
                    gone.status = FileStatus::Gone;
                    gone
                }
                UndoneState::Planned(target, plan) => planned_report(record, clients, target, plan),
            });
        }
        report
    }

    /// Writes all files, and forgets their records.
    pub(super) fn write(&mut self, records: &AdoptionRecords, report: &mut AdoptReport) {
        let told = report.files.iter_mut().skip(self.unreadable.len());
        for (UndoneFile { record, state, .. }, told) in self.files.iter().zip(told) {
            let backup_stays = match state {
                UndoneState::Failed(_) => continue,
                // The file may come back with its guards: a home that is not mounted, a project that was moved.
                UndoneState::Gone if !self.are_named => continue,
                UndoneState::Gone => true,
                UndoneState::Planned(target, plan) => {
                    if plan.kind != UndoKind::Nothing
                        && let Err(error) = target.replace(&plan.text)
                    {
                        told.has_failed(error.to_string());
                        continue;
                    }
                    plan.kind == UndoKind::Edited
                }
            };
            let forgotten = match backup_stays {
                true => records.forget_and_keep_text(record).map(Some),
                false => records.forget(record).map(|()| None),
            };
            match forgotten {
                Ok(kept) => told.is_undone(kept),
                Err(error) => told.has_failed(format!("its record cannot be removed: {error}")),
            }
        }
        report.tell_running();
    }
}

/// Names the servers in files of the user that have a guard, although unhang has no record of their file.
fn without_record(targets: &Targets, records: &[AdoptionRecord]) -> Vec<String> {
    let mut notes = Vec::new();
    for choice in &targets.files {
        let Ok(target) = TargetFile::read(&choice.path) else { continue };
        if records.iter().any(|record| record.target == target.path()) {
            continue;
        }
        let Ok(document) = ConfigDocument::parse(target.text(), target.syntax()) else { continue };
        let is_guarded = |entry: &ConfiguredEntry<'_>| matches!(entry.guard(), GuardSeen::Guard { .. });
        let guarded: Vec<String> = document
            .entries()
            .iter()
            .filter(|entry| is_guarded(entry))
            .map(|entry| escaped(&entry.name))
            .collect();
        if !guarded.is_empty() {
            let names = guarded.join(", ");
            notes.push(format!(
                "{}: unhang has no record of the guard of {names}: take it away by hand",
                shown(&choice.path)
            ));
        }
    }
    notes
}

fn state(records: &AdoptionRecords, record: &AdoptionRecord) -> UndoneState {
    let read = TargetFile::read(&record.target).and_then(|target| target.check_writable().map(|()| target));
    let target = match read {
        Ok(target) => target,
        Err(TargetError::Absent | TargetError::Dangling) => return UndoneState::Gone,
        Err(error) => return UndoneState::Failed(error.to_string()),
    };
    match undo(record, records.backup(record).as_deref(), target.text()) {
        Ok(plan) => UndoneState::Planned(Box::new(target), Box::new(plan)),
        Err(error) => UndoneState::Failed(error.to_string()),
    }
}

/// Returns the records that are meant by the words, and those that cannot be read.
fn chosen(
    records: &AdoptionRecords,
    all: &[AdoptionRecord],
    words: &[PathBuf],
) -> Result<(Vec<AdoptionRecord>, Vec<UnreadableRecord>), CommandFailure> {
    let (mut chosen, mut unreadable) = (Vec::<AdoptionRecord>::new(), Vec::new());
    for word in words {
        let is_absent = fs::symlink_metadata(word).is_err();
        // A file that was removed since is known by its record.
        let absolute = std::path::absolute(word).unwrap_or_else(|_| word.clone());
        let mut meant: Vec<PathBuf> = vec![absolute];
        if !is_absent || word.to_str().and_then(unhang_adopt::clients::named).is_some() {
            meant.extend(Targets::find(std::slice::from_ref(word))?.files.into_iter().map(|file| file.path));
        }
        let is_meant = |record: &AdoptionRecord| {
            meant.iter().any(|path| {
                *path == record.path
                    || *path == record.target
                    || path.canonicalize().is_ok_and(|path| path == record.target)
            })
        };
        let found: Vec<&AdoptionRecord> = all.iter().filter(|record| is_meant(record)).collect();
        let known = unreadable.len();
        let targets = meant.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        unreadable.extend(targets.filter_map(|target| records.of(&target).err()));
        if found.is_empty() && unreadable.len() == known {
            return Err(CommandFailure {
                code: exit::NOT_FOUND,
                kind: "not_adopted",
                message: format!("unhang has not adopted {}", escaped(&word.display().to_string())),
                hint: Some("`unhang adopt --status` lists the servers and their guards".to_owned()),
                data: None,
            });
        }
        let new: Vec<AdoptionRecord> =
            found.into_iter().filter(|record| !chosen.contains(record)).cloned().collect();
        chosen.extend(new);
    }
    unreadable.dedup();
    Ok((chosen, unreadable))
}

fn planned_report(
    record: &AdoptionRecord,
    clients: &[&'static McpClient],
    target: &TargetFile,
    plan: &UndoPlan,
) -> FileReport {
    let server = |name: &String, outcome, reason: Option<&str>| ServerReport {
        name: name.clone(),
        project: None,
        outcome,
        reason: reason.map(str::to_owned),
    };
    let undone = plan.undone.iter().map(|name| server(name, "unwrap", None));
    let left = plan.left.iter().map(|name| server(name, "left", Some("was changed or removed since")));
    let secrets = ConfigDocument::parse(target.text(), target.syntax()).map(|document| document.secrets());
    let mut report = FileReport::new(&record.path, &record.target, clients);
    report.hunks = plan.patch.hunks(target.text(), &secrets.unwrap_or_default());
    report.servers = undone.chain(left).collect();
    report.is_edited = plan.kind == UndoKind::Edited;
    report.status = if plan.kind == UndoKind::Nothing { FileStatus::Unchanged } else { FileStatus::Planned };
    report
}
