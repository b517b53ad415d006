//! Takes the guard away again: with the bytes from before, or out of a text that was edited since.
//!
//! Invariant: only servers that were adopted change, and only as far as their guard is concerned.

use unhang::settings::sha256;

use crate::{
    document::{ConfigDocument, ConfiguredEntry, GuardSeen},
    patch::FilePatch,
    records::{AdoptedEntry, AdoptionRecord},
    syntax::SyntaxError,
};

/// The way in which a file is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// The file gets the bytes from before, because nobody has edited it since.
    Exact,
    /// The file was edited since, so only the guard goes.
    Edited,
    /// No adopted server has a guard any more, so nothing changes.
    Nothing,
}

/// The text of a file without the guard, and how it differs.
#[derive(Clone, Debug)]
pub struct UndoPlan {
    /// The way.
    pub kind: UndoKind,
    /// The text afterwards.
    pub text: String,
    /// The changes. They may not show all of them if the way is [`UndoKind::Exact`].
    pub patch: FilePatch,
    /// The servers that lose their guard.
    pub undone: Vec<String>,
    /// The servers that somebody has changed or removed, so that they stay as they are.
    pub left: Vec<String>,
}

/// Makes the plan to undo a file that has this text now. `backup` is the text from before.
///
/// # Errors
/// Fails if the text was edited and cannot be read.
pub fn undo(record: &AdoptionRecord, backup: Option<&str>, text: &str) -> Result<UndoPlan, SyntaxError> {
    let now = sha256(text.as_bytes());
    let names = |entries: &[AdoptedEntry]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    if now == record.original_sha256 {
        let (text, patch) = (text.to_owned(), FilePatch::default());
        return Ok(UndoPlan { kind: UndoKind::Nothing, text, patch, undone: Vec::new(), left: Vec::new() });
    }
    let document = ConfigDocument::parse(text, record.syntax())?;
    let (patch, left) = without_guard(&document, &record.entries);
    let undone = names(&record.entries).into_iter().filter(|name| !left.contains(name)).collect::<Vec<_>>();
    if let Some(backup) = backup.filter(|_| now == record.adopted_sha256) {
        let (kind, text) = (UndoKind::Exact, backup.to_owned());
        return Ok(UndoPlan { kind, text, patch, undone, left: Vec::new() });
    }
    let text = patch.apply(text);
    let kind = match patch.is_empty() {
        true => UndoKind::Nothing,
        // The bytes from before are lost, and were not needed.
        false if sha256(text.as_bytes()) == record.original_sha256 => UndoKind::Exact,
        false => UndoKind::Edited,
    };
    Ok(UndoPlan { kind, text, patch, undone, left })
}

/// Returns the changes that take the guard away from these servers, and the names of those that have none. A server that was renamed since is
/// known by the name that its guard has.
#[must_use]
pub fn without_guard(document: &ConfigDocument, adopted: &[AdoptedEntry]) -> (FilePatch, Vec<String>) {
    let (mut edits, mut left, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let entries = document.entries();
    for entry in adopted {
        let at_place = document.entry(&entry.place).filter(is_whole);
        let renamed = || {
            let is_free = |place: &Vec<String>| {
                !taken.contains(place) && adopted.iter().all(|other| other.place != *place)
            };
            entries
                .iter()
                .find(|found| is_free(&found.place) && is_whole(found) && carries(found, &entry.name))
                .cloned()
        };
        let found = at_place.or_else(renamed);
        match found.as_ref().and_then(|found| document.unguard_edits(found, entry.had_args)) {
            Some(more) => edits.extend(more),
            None => left.push(entry.name.clone()),
        }
        taken.extend(found.map(|found| found.place));
    }
    (FilePatch::new(edits), left)
}

fn is_whole(entry: &ConfiguredEntry<'_>) -> bool {
    matches!(entry.guard(), GuardSeen::Guard { is_whole: true, .. })
}

/// Returns whether the guard of the server has this name.
fn carries(entry: &ConfiguredEntry<'_>, name: &str) -> bool {
    entry.guard_name().as_deref() == Some(name)
}
