//! Takes the guard away again: with the bytes from before, or out of a text that was edited since.
//!
//! Invariant: only servers that were adopted change, and only as far as their guard is concerned.

use unhang::settings::sha256;

use crate::{
    document::{ConfigDocument, ConfiguredEntry, GuardSeen, PlaceMap, place_key},
    patch::{FilePatch, TextEdit},
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
    let mut unguarding = Unguarding::of(&document, &record.entries);
    let copies = backup.map(|backup| unguarding.add_copies(&document, record, backup)).unwrap_or_default();
    let Unguarding { edits, left, .. } = unguarding;
    let patch = FilePatch::new(edits);
    let kept_guard = |name: &String| !left.contains(name);
    let undone = names(&record.entries).into_iter().filter(kept_guard).chain(copies).collect::<Vec<_>>();
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
    let Unguarding { edits, left, .. } = Unguarding::of(document, adopted);
    (FilePatch::new(edits), left)
}

/// The edits that take guards away.
struct Unguarding {
    edits: Vec<TextEdit>,
    /// The names of adopted servers that have no guard.
    left: Vec<String>,
    /// The places of the servers that lose their guard.
    taken: PlaceMap,
}

impl Unguarding {
    fn of(document: &ConfigDocument, adopted: &[AdoptedEntry]) -> Unguarding {
        let (mut edits, mut left, mut taken) = (Vec::new(), Vec::new(), PlaceMap::new());
        let entries = document.entries();
        let mut places = PlaceMap::new();
        for entry in adopted {
            places.insert(place_key(&entry.place), 0);
        }
        let one = |entry: &&ConfiguredEntry<'_>| !entry.is_twofold() && is_whole(entry);
        let mut guarded = PlaceMap::new();
        for (entry, index) in entries.iter().zip(0..).filter(|(entry, _)| one(entry)) {
            guarded.insert(place_key(&entry.place), index);
        }
        for entry in adopted {
            let at_place =
                guarded.get(&place_key(&entry.place)).and_then(|index| entries.get(*index as usize));
            let renamed = || {
                let is_free = |place: &[String]| {
                    let key = place_key(place);
                    !taken.contains_key(&key) && !places.contains_key(&key)
                };
                entries
                    .iter()
                    .find(|found| is_whole(found) && carries(found, &entry.name) && is_free(&found.place))
            };
            let found = at_place.or_else(renamed);
            match found.and_then(|found| document.unguard_edits(found, entry.had_args)) {
                Some(more) => edits.extend(more),
                None => left.push(entry.name.clone()),
            }
            if let Some(found) = found {
                taken.insert(place_key(&found.place), 0);
            }
        }
        Unguarding { edits, left, taken }
    }

    /// Adds the servers that somebody has copied with their guard, or renamed in the guard too: they have the guard of the record, and the
    /// text from before had none at their place. Returns their names.
    fn add_copies(
        &mut self,
        document: &ConfigDocument,
        record: &AdoptionRecord,
        backup: &str,
    ) -> Vec<String> {
        let Ok(before) = ConfigDocument::parse(backup, record.syntax()) else { return Vec::new() };
        let mut by_hand = PlaceMap::new();
        for entry in before.entries() {
            if is_whole(&entry) {
                by_hand.insert(place_key(&entry.place), 0);
            }
        }
        let mut names = Vec::new();
        for entry in document.entries() {
            let is_ours = matches!(entry.guard(), GuardSeen::Guard { program, is_whole: true } if program == record.program);
            let key = place_key(&entry.place);
            if !is_ours || self.taken.contains_key(&key) || by_hand.contains_key(&key) {
                continue;
            }
            let guard_name = entry.guard_name();
            let original = record.entries.iter().find(|known| Some(&known.name) == guard_name.as_ref());
            // Without an original, a list that becomes empty goes: it means the same.
            let had_args = original.is_some_and(|original| original.had_args);
            if let Some(edits) = document.unguard_edits(&entry, had_args) {
                self.edits.extend(edits);
                names.push(entry.name);
            }
        }
        names
    }
}

fn is_whole(entry: &ConfiguredEntry<'_>) -> bool {
    matches!(entry.guard(), GuardSeen::Guard { is_whole: true, .. })
}

/// Returns whether the guard of the server has this name.
fn carries(entry: &ConfiguredEntry<'_>, name: &str) -> bool {
    entry.guard_name().as_deref() == Some(name)
}
