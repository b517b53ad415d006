//! Which servers of a file get a guard, which get another program for it, and which are left alone and why.
//!
//! Invariant: a plan that changes something can be undone: that gives the bytes from before, but for guards that were gone. Otherwise there is
//! no plan.

use crate::{
    document::{ConfigDocument, ConfiguredEntry, GuardSeen},
    patch::{FilePatch, TextEdit},
    records::AdoptedEntry,
    undo::without_guard,
};

/// The judgement about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryVerdict {
    /// It gets the guard.
    Wrap,
    /// It has the guard of this program.
    Guarded(String),
    /// Its guard is this program, which is gone, and gets another program.
    Reguard(String),
    /// Another program starts its guard.
    GuardedInside(String),
    /// It starts the gateway, which guards its servers.
    Gateway,
    /// The file switches it off.
    Disabled,
    /// It is reached by a URL.
    Remote,
    /// It has no command.
    NoCommand,
    /// It cannot be understood, for this reason.
    Unclear(&'static str),
    /// The user left it out.
    NotChosen,
}

/// A server and the judgement about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEntry {
    /// The server's name.
    pub name: String,
    /// Its place in the file.
    pub place: Vec<String>,
    /// The judgement.
    pub verdict: EntryVerdict,
    /// Whether it has a list of arguments now.
    pub had_args: bool,
}

/// The changes that adopt a file, and the judgement about each of its servers.
#[derive(Clone, Debug)]
pub struct AdoptionPlan {
    /// All servers of the file.
    pub entries: Vec<PlannedEntry>,
    /// The changes.
    pub patch: FilePatch,
}

/// The failure of a plan: the file has a form that the edits do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unhang cannot edit its form and take the change back exactly")]
pub struct UneditableFile;

impl AdoptionPlan {
    /// Lists the servers that get the guard, in the form of records.
    #[must_use]
    pub fn wrapped(&self) -> Vec<AdoptedEntry> {
        self.records_of(|verdict| *verdict == EntryVerdict::Wrap)
    }

    /// Lists the servers whose guard gets another program, in the form of records.
    #[must_use]
    pub fn reguarded(&self) -> Vec<AdoptedEntry> {
        self.records_of(|verdict| matches!(verdict, EntryVerdict::Reguard(_)))
    }

    fn records_of(&self, is_meant: impl Fn(&EntryVerdict) -> bool) -> Vec<AdoptedEntry> {
        let chosen = self.entries.iter().filter(|entry| is_meant(&entry.verdict));
        chosen
            .map(|entry| AdoptedEntry {
                name: entry.name.clone(),
                place: entry.place.clone(),
                had_args: entry.had_args,
            })
            .collect()
    }
}

/// Makes the plan for a file. `program` is the text that starts unhang, `is_chosen` judges the names of servers, and `is_gone` says which
/// programs of guards do not exist any more.
///
/// # Errors
/// Fails if the change could not be undone exactly.
pub fn plan(
    document: &ConfigDocument,
    program: &str,
    is_chosen: &dyn Fn(&str) -> bool,
    is_gone: &dyn Fn(&str) -> bool,
) -> Result<AdoptionPlan, UneditableFile> {
    let (mut entries, mut edits, mut moved) = (Vec::new(), Vec::<TextEdit>::new(), Vec::<TextEdit>::new());
    for entry in document.entries() {
        let verdict = judge(&entry, is_chosen, is_gone);
        match &verdict {
            EntryVerdict::Wrap => edits.extend(document.guard_edits(&entry, program)),
            EntryVerdict::Reguard(_) => moved.extend(document.program_edit(&entry, program)),
            _ => {}
        }
        let had_args = entry.has_args();
        entries.push(PlannedEntry { name: entry.name, place: entry.place, verdict, had_args });
    }
    // `--undo` removes the new guards and keeps repaired ones, so it has to give the old text with the repairs.
    let expected = FilePatch::new(moved.clone()).apply(document.text());
    edits.extend(moved);
    let plan = AdoptionPlan { entries, patch: FilePatch::new(edits) };
    let result = plan.patch.apply(document.text());
    let again = ConfigDocument::parse(&result, document.syntax()).map_err(|_| UneditableFile)?;
    let (undone, left) = without_guard(&again, &plan.wrapped());
    let is_exact = left.is_empty() && undone.apply(&result) == expected;
    is_exact.then_some(plan).ok_or(UneditableFile)
}

fn judge(
    entry: &ConfiguredEntry<'_>,
    is_chosen: &dyn Fn(&str) -> bool,
    is_gone: &dyn Fn(&str) -> bool,
) -> EntryVerdict {
    if entry.is_twofold() {
        return EntryVerdict::Unclear("its name, or the key above it, stands twice in the file");
    }
    match entry.guard() {
        GuardSeen::Guard { program, is_whole: true } if is_gone(&program) && is_chosen(&entry.name) => {
            return EntryVerdict::Reguard(program);
        }
        GuardSeen::Guard { program, .. } => return EntryVerdict::Guarded(program),
        GuardSeen::Inside(program) => return EntryVerdict::GuardedInside(program),
        GuardSeen::Gateway => return EntryVerdict::Gateway,
        GuardSeen::Nothing => {}
    }
    let words = entry.words();
    if words.is_none() && entry.is_remote() {
        return EntryVerdict::Remote;
    }
    let Some(words) = words else { return no_command(entry) };
    if entry.is_disabled {
        return EntryVerdict::Disabled;
    }
    if entry.is_remote() {
        return EntryVerdict::Unclear("it has a command and a URL");
    }
    if let [line] = &words[..]
        && is_whole_line(line)
    {
        return EntryVerdict::Unclear("its command is a whole line; write the arguments into `args`");
    }
    if entry.name.contains('\0') {
        return EntryVerdict::Unclear("its name has a character that no argument of a program can have");
    }
    if is_chosen(&entry.name) { EntryVerdict::Wrap } else { EntryVerdict::NotChosen }
}

fn no_command(entry: &ConfiguredEntry<'_>) -> EntryVerdict {
    match entry.has_command() {
        true => {
            EntryVerdict::Unclear("its command or its arguments have another form than a text and a list")
        }
        false => EntryVerdict::NoCommand,
    }
}

/// Returns whether a command has its arguments in the same text. Some clients split such a text, and the guard does not.
fn is_whole_line(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    program.len() < command.trim().len() && !program.contains('/')
}
