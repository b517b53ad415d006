//! Consent to the files of a project. Somebody who puts a file into a folder must not thereby run commands as the person who works there.
//!
//! # Theory of operation
//!
//! A file of a project counts after somebody has consented to its content: at a terminal, by `unhang trust`, or for one run by `--trust`.
//! The consent lies in the data folder, `trust/<key>.json`. Each consent is a file of its own, replaced in one step, so that two processes
//! need no lock. A consent is for a path without links, and for the folder in which the file's relative paths begin. It also has the
//! SHA-256 of the bytes that were parsed, and of those of the files of variables that it names.
//!
//! Invariants
//!
//! - The consent is to the bytes that were read: nothing is read a second time.
//! - Values of variables and headers are kept as hashes. Text that a person sees cannot steer a terminal.
//! - A file that cannot be read as a consent does not count, nor does a file that another user could have written.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, IsTerminal, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use unhang::{
    exit,
    jobs::folder::{Durability, read_at_most, replace},
    settings::{Declaration, sha256, without_secrets},
};
use unhang_terminal::{failure::CommandFailure, progress, text::escaped};

use crate::data_folder;

/// The version of the stored form.
const FORMAT: u32 = 1;
/// The size in bytes of the largest consent that is read. A file of a client may have many servers.
const MAX_RECORD: u64 = 16 << 20;

/// A file of a project, as it was read.
#[derive(Debug)]
pub(crate) struct ProjectFile {
    /// Its path without links.
    pub(crate) path: PathBuf,
    /// The path where it was found, or as it was named: the same path, but with links.
    pub(crate) named: PathBuf,
    /// The folder in which its relative paths begin.
    pub(crate) folder: PathBuf,
    /// The SHA-256 of the bytes that were parsed.
    pub(crate) sha256: String,
    /// The files of variables that it names, each with the SHA-256 of its bytes. The digest is empty if the file could not be read.
    pub(crate) env_files: BTreeMap<String, String>,
    /// The declarations in the file.
    pub(crate) declarations: Vec<Declaration>,
}

/// A consent as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Consent {
    format: u32,
    /// The path of the file without links.
    pub(crate) path: String,
    /// The path where the file was found, which may be a link. Earlier consents do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<String>,
    /// The folder in which the file's relative paths begin.
    pub(crate) folder: String,
    /// The SHA-256 of the file's bytes.
    pub(crate) sha256: String,
    /// The files of variables, each with the SHA-256 of its bytes.
    env_files: BTreeMap<String, String>,
    /// The time of the consent.
    pub(crate) consented_at: String,
    /// The declarations that were consented to.
    declarations: Vec<ConsentedDeclaration>,
}

impl Consent {
    /// Returns the path of the file as a person knows it.
    pub(crate) fn named(&self) -> &str {
        self.named.as_deref().unwrap_or(&self.path)
    }

    /// Returns whether the consent is for this file with its present content.
    pub(crate) fn covers(&self, file: &ProjectFile) -> bool {
        let is_same =
            self.path == file.path.to_string_lossy() && self.folder == file.folder.to_string_lossy();
        is_same && self.sha256 == file.sha256 && self.env_files == file.env_files
    }
}

/// A declaration that was consented to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ConsentedDeclaration {
    kind: String,
    name: String,
    how: String,
    /// The names of variables, each with the SHA-256 of its value.
    environment: BTreeMap<String, String>,
    rest: String,
}

impl ConsentedDeclaration {
    fn of(declaration: &Declaration) -> ConsentedDeclaration {
        let Declaration { kind, name, how, environment, rest } = declaration;
        let hashed = |(name, value): (&String, &String)| {
            // The hash includes the name, so that nobody can see the same value elsewhere.
            (name.clone(), sha256(format!("{name}\0{value}").as_bytes()))
        };
        let environment = environment.iter().map(hashed).collect();
        let (name, how) = (name.clone(), how.clone());
        ConsentedDeclaration {
            kind: (*kind).to_owned(),
            name,
            how,
            environment,
            rest: sha256(rest.as_bytes()),
        }
    }
}

impl ProjectFile {
    /// Returns the name of the file with the consent, made of path and folder.
    fn key(&self) -> String {
        let parts = [self.path.as_os_str().as_bytes(), self.folder.as_os_str().as_bytes()];
        format!("{}.json", &sha256(&parts.join(&0))[..32])
    }

    fn consent(&self) -> Consent {
        Consent {
            format: FORMAT,
            path: self.path.to_string_lossy().into_owned(),
            named: (self.named != self.path).then(|| self.named.to_string_lossy().into_owned()),
            folder: self.folder.to_string_lossy().into_owned(),
            sha256: self.sha256.clone(),
            env_files: self.env_files.clone(),
            consented_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            declarations: self.declarations.iter().map(ConsentedDeclaration::of).collect(),
        }
    }

    /// Returns the path for a person, and for a link also its target.
    pub(crate) fn shown(&self) -> String {
        let link = if self.named == self.path {
            String::new()
        } else {
            format!(" (a link to {})", self.path.to_string_lossy())
        };
        escaped(&format!("{}{link}", self.named.to_string_lossy()))
    }

    /// Lists the declarations of the file, each on a line.
    pub(crate) fn told(&self) -> String {
        let lines = self.declarations.iter().map(|one| format!("  {}\n", line(one)));
        let text: String = lines.collect();
        if text.is_empty() { "  nothing\n".to_owned() } else { text }
    }
}

/// Describes a declaration for a person.
fn line(declaration: &Declaration) -> String {
    let Declaration { kind, name, how, environment, .. } = declaration;
    let names: Vec<String> = environment.keys().map(|name| declaration.told(name)).collect();
    let with = if names.is_empty() { String::new() } else { format!("  [{}]", names.join(", ")) };
    escaped(&format!("{kind} {name}: {how}{with}"))
}

/// The stored consents.
pub(crate) struct Consents {
    folder: Option<PathBuf>,
}

impl Consents {
    /// Opens the consents in the data folder that the environment names.
    ///
    /// # Errors
    /// Fails if another user could have put a consent there, or if the working folder decides which folder that is.
    pub(crate) fn open() -> Result<Consents, CommandFailure> {
        Ok(Consents { folder: data_folder::check()?.map(|folder| folder.join("trust")) })
    }

    /// Returns the consent to this file, perhaps to an earlier content, or `None` if there is none.
    fn earlier(&self, file: &ProjectFile) -> Option<Consent> {
        self.read(&self.folder.as_ref()?.join(file.key()))
    }

    /// Reads a consent. Returns `None` if it cannot be read, or if another user could have written it. In a folder of this user alone,
    /// nobody exchanges the file between the check of its owner and the read. But the file may be older than that protection.
    fn read(&self, path: &Path) -> Option<Consent> {
        let found = fs::symlink_metadata(path).ok()?;
        if !data_folder::is_of(geteuid().as_raw(), found.uid(), found.mode()) {
            tracing::debug!("unhang ignores {}, because another user could have written it", path.display());
            return None;
        }
        let bytes = read_at_most(path, MAX_RECORD).ok()??;
        let read = serde_json::from_slice(&bytes).ok().filter(|consent: &Consent| consent.format == FORMAT);
        read.map(|mut consent| {
            for known in &mut consent.declarations {
                // Earlier consents have URLs with their secret parts.
                if ["http://", "https://"]
                    .iter()
                    .any(|scheme| known.how.trim_start_matches('\'').starts_with(scheme))
                {
                    known.how = without_secrets(&known.how);
                }
            }
            consent
        })
    }

    /// Returns whether somebody has consented to this file with its present content.
    fn cover(&self, file: &ProjectFile) -> bool {
        self.earlier(file).is_some_and(|consent| consent.covers(file))
    }

    /// Keeps the consent to this file with its present content.
    pub(crate) fn give(&self, file: &ProjectFile) -> Result<(), CommandFailure> {
        let Some(folder) = &self.folder else {
            return Err(CommandFailure::usage(
                format!("there is no folder for the consent: {}", data_folder::absence()),
                Some("set UNHANG_HOME to a folder for it, or add --trust for one run"),
            ));
        };
        let failed = |error: &dyn std::fmt::Display| CommandFailure {
            code: exit::FAILED,
            kind: "system",
            message: format!("the consent cannot be stored: {error}"),
            hint: Some(
                "set UNHANG_HOME to another folder for consents, or add --trust for one run".to_owned(),
            ),
            data: None,
        };
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| failed(&format!("{}: {error}", folder.display())))?;
        let text = serde_json::to_vec_pretty(&file.consent()).map_err(|error| failed(&error))?;
        replace(folder, &file.key(), &text, Durability::Disk).map_err(|error| failed(&error))
    }

    /// Returns all stored consents with their paths, in the order of the files' names.
    pub(crate) fn all(&self) -> Vec<(PathBuf, Consent)> {
        let entries = self.folder.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let paths = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"));
        let mut all: Vec<_> = paths.filter_map(|path| Some((path.clone(), self.read(&path)?))).collect();
        all.sort_by(|(_, one), (_, other)| one.named().cmp(other.named()));
        all
    }
}

/// Demands that somebody has consented to these files, and asks if there is a terminal. It waits for the person.
///
/// # Errors
/// Fails if nobody has consented, or if the person says no.
pub(crate) fn demand(files: &[ProjectFile]) -> Result<(), CommandFailure> {
    if files.is_empty() {
        return Ok(());
    }
    let consents = Consents::open()?;
    let wanting: Vec<&ProjectFile> = files.iter().filter(|file| !consents.cover(file)).collect();
    if wanting.is_empty() {
        return Ok(());
    }
    let earlier: Vec<Option<Consent>> = wanting.iter().map(|file| consents.earlier(file)).collect();
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(refusal(&wanting, &earlier));
    }
    progress::end();
    let mut question = String::new();
    for (file, earlier) in wanting.iter().zip(&earlier) {
        question.push_str(&shown(file, earlier.as_ref()));
    }
    say(&question);
    let files = if wanting.len() == 1 { "this file" } else { "these files" };
    if !is_yes(&format!("trust {files}? [y/N] ")) {
        return Err(refusal(&wanting, &earlier));
    }
    for file in wanting {
        if let Err(failure) = consents.give(file) {
            say(&format!("unhang: {}; the consent counts only for this run\n", failure.message));
        }
    }
    Ok(())
}

/// Describes a file for the question.
fn shown(file: &ProjectFile, earlier: Option<&Consent>) -> String {
    let path = file.shown();
    match earlier {
        None => format!(
            "unhang: {path} belongs to this project, and is not trusted yet. It declares:\n{}",
            file.told()
        ),
        Some(earlier) => format!(
            "unhang: {path} has changed since it was trusted ({}):\n{}",
            escaped(&earlier.consented_at),
            changes(earlier, file)
        ),
    }
}

fn refusal(files: &[&ProjectFile], earlier: &[Option<Consent>]) -> CommandFailure {
    let paths: Vec<String> = files.iter().map(|file| file.shown()).collect();
    let has_changed = earlier.iter().all(Option::is_some);
    let state = match (has_changed, files.len()) {
        (true, 1) => "has changed since it was trusted",
        (true, _) => "have changed since they were trusted",
        (false, 1) => "belongs to this project, and is not trusted",
        (false, _) => "belong to this project, and are not all trusted",
    };
    let changed: String = files
        .iter()
        .zip(earlier)
        .filter_map(|(file, earlier)| Some(changes(earlier.as_ref()?, file)))
        .collect();
    let changed = if changed.is_empty() { changed } else { format!(":\n{}", changed.trim_end()) };
    // The command names the link, if the file is one: a consent to its target is for another folder.
    let trust: Vec<String> =
        files.iter().map(|file| format!("`unhang trust {}`", data_folder::quoted(&file.named))).collect();
    CommandFailure {
        code: exit::USAGE,
        kind: "untrusted",
        message: format!("{} {state}{changed}", paths.join(" and ")),
        hint: Some(format!(
            "read it, then run {}, or add --trust for this run; --config FILE reads another file instead",
            trust.join(" and ")
        )),
        data: None,
    }
}

/// Lists the differences from the content that was consented to, each on a line.
fn changes(earlier: &Consent, now: &ProjectFile) -> String {
    let mut lines = Vec::new();
    let known = |one: &Declaration| {
        earlier.declarations.iter().find(|known| known.kind == one.kind && known.name == one.name)
    };
    for one in &now.declarations {
        let Some(was) = known(one) else {
            lines.push(format!("new: {}", line(one)));
            continue;
        };
        let is = ConsentedDeclaration::of(one);
        let (kind, name) = (one.kind, &one.name);
        if is.how != was.how {
            lines.push(format!("changed: {}", line(one)));
            lines.push(escaped(&format!("    was: {}", was.how)));
        }
        for (variable, value) in &is.environment {
            let told = one.told(variable);
            match was.environment.get(variable) {
                None => lines.push(escaped(&format!("changed: {kind} {name}: {told} is new"))),
                Some(before) if before != value => {
                    lines.push(escaped(&format!("changed: {kind} {name}: {told} has another value")));
                }
                Some(_) => {}
            }
        }
        let gone = was.environment.keys().filter(|variable| !is.environment.contains_key(*variable));
        lines.extend(gone.map(|variable| escaped(&format!("changed: {kind} {name}: {variable} is gone"))));
        if is.rest != was.rest {
            lines.push(escaped(&format!("changed: {kind} {name}: other settings of it")));
        }
    }
    for was in &earlier.declarations {
        if !now.declarations.iter().any(|one| one.kind == was.kind && one.name == was.name) {
            lines.push(escaped(&format!("gone: {} {}: {}", was.kind, was.name, was.how)));
        }
    }
    let files =
        earlier.env_files.keys().chain(now.env_files.keys()).collect::<std::collections::BTreeSet<_>>();
    for file in files {
        match (earlier.env_files.get(file), now.env_files.get(file)) {
            (before, after) if before == after => {}
            (None, _) => lines.push(escaped(&format!("new: variables of {file}"))),
            (_, None) => lines.push(escaped(&format!("gone: variables of {file}"))),
            _ => lines.push(escaped(&format!("changed: the content of {file}"))),
        }
    }
    if lines.is_empty() {
        lines.push("changed: only comments, order or keys that are not shown here".to_owned());
    }
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

fn say(text: &str) {
    let _nobody_reads = io::stderr().write_all(text.as_bytes());
}

/// Asks a person at the terminal, and returns whether the answer is yes.
pub(crate) fn is_yes(prompt: &str) -> bool {
    say(prompt);
    let mut line = String::new();
    let _end_of_input_is_no = io::stdin().lock().read_line(&mut line);
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(name: &str, how: &str, environment: &[(&str, &str)]) -> Declaration {
        let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (name, how) = (name.to_owned(), how.to_owned());
        Declaration { kind: "server", name, how, environment: pairs.collect(), rest: "{}".to_owned() }
    }

    fn file(declarations: Vec<Declaration>, env_file: &str) -> ProjectFile {
        ProjectFile {
            path: "/p/.mcp.json".into(),
            named: "/p/.mcp.json".into(),
            folder: "/p".into(),
            sha256: "x".to_owned(),
            env_files: BTreeMap::from([("/p/.env".to_owned(), env_file.to_owned())]),
            declarations,
        }
    }

    #[test]
    fn f_22_what_has_changed_is_said_and_values_are_kept_as_hashes() {
        let before = file(
            vec![declaration("a", "npx a", &[("KEY", "secret"), ("OLD", "")]), declaration("b", "b", &[])],
            "1",
        );
        let consent = before.consent();
        let kept = serde_json::to_string(&consent).expect("JSON");
        assert!(kept.contains("npx a") && kept.contains("KEY") && !kept.contains("secret"), "{kept}");
        let now = file(
            vec![
                declaration("a", "npx\u{1b} evil", &[("KEY", "other"), ("NEW", "")]),
                declaration("c", "c", &[]),
            ],
            "2",
        );
        let told = changes(&consent, &now);
        for expect in [
            "was: npx a",
            "KEY has another value",
            "NEW is new",
            "OLD is gone",
            "new: server c: c",
            "gone: server b: b",
            "changed: the content of /p/.env",
        ] {
            assert!(told.contains(expect), "{expect} in {told}");
        }
        assert!(!told.contains('\u{1b}'), "{told}");
        assert!(changes(&consent, &before).contains("not shown here"));
    }
}
