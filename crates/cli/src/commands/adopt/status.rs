//! `unhang adopt --status`: each server of each client, its guard, the version of that, and when it last ran.
//!
//! Invariants
//!
//! - A program is asked for its version only if a file of the user starts it, or if it is this one. A file of a project may name any program.
//! - The last run is that of the log of the guard. The log has the server's name, so clients with a server of the same name share it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::Serialize;
use unhang::{exit, process::log_file::last_written, settings::sha256};
use unhang_adopt::{AdoptionRecord, AdoptionRecords, ConfigDocument, ConfiguredEntry, GuardSeen, TargetFile};
use unhang_terminal::{
    failure::{CommandFailure, Format},
    text::escaped,
};

use super::{
    changes::{is_gone, project},
    print,
    program::{VERSION, version_of},
    report::shown,
    targets::{TargetChoice, Targets},
};
use crate::{
    commands::engine::{CommandOutcome, json, lines, shortened, table},
    data_folder,
};

/// The number of characters that the table shows of a name.
const NAME: usize = 30;

/// The report about all files.
#[derive(Serialize)]
struct StatusReport {
    files: Vec<FileStatusReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_found: Vec<&'static str>,
}

#[derive(Serialize)]
struct FileStatusReport {
    path: PathBuf,
    clients: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why the record of the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    record_error: Option<String>,
    /// When unhang adopted the file; absent if it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted_at: Option<String>,
    /// Whether somebody has edited the file since.
    is_edited: bool,
    servers: Vec<GuardReport>,
}

/// The guard of a server.
#[derive(Clone, Serialize)]
pub(in crate::commands) struct GuardReport {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    /// `guarded`, `broken` (its program is gone), `inside` (another program starts it), `gateway`, `unguarded`, `disabled`, `remote`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_ran: Option<String>,
    /// The command that gives the server a guard again.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
}

/// Shows the guards in these files.
pub(super) fn show(targets: &Targets, format: Format) -> CommandOutcome {
    let report = StatusReport {
        files: reports(targets)?,
        not_found: targets.absent.iter().map(|client| client.name).collect(),
    };
    let has_failed = report.files.iter().any(|file| file.error.is_some() || file.record_error.is_some());
    let printed = match format {
        Format::Json => json(&report),
        Format::Text => print(&report.text()),
    };
    Ok(if printed == exit::DONE && has_failed { exit::FAILED } else { printed })
}

/// The guards in the files of the user's clients, for another report.
pub(in crate::commands) struct UserGuards(Vec<FileStatusReport>);

/// The guard that one client starts for a server.
#[derive(Serialize)]
pub(in crate::commands) struct ClientGuard {
    clients: Vec<&'static str>,
    path: PathBuf,
    #[serde(flatten)]
    guard: GuardReport,
}

impl UserGuards {
    /// Reads the files. A file that cannot be read has no guards here; the report about the servers names it.
    pub(in crate::commands) fn find() -> UserGuards {
        let files = Targets::find(&[]).and_then(|targets| reports(&targets)).unwrap_or_default();
        UserGuards(files.into_iter().filter(|file| !file.servers.is_empty()).collect())
    }

    /// Describes them for a person. Returns nothing if no client has a server.
    pub(in crate::commands) fn text(self) -> String {
        if self.0.is_empty() {
            String::new()
        } else {
            StatusReport { files: self.0, not_found: Vec::new() }.text()
        }
    }

    /// Says which guards of the server with this name are gone, and what repairs them.
    pub(in crate::commands) fn repairs(&self, server: &str) -> String {
        self.0.iter().flat_map(|file| file.repairs(Some(server))).collect()
    }

    /// Lists the guards of servers with this name.
    pub(in crate::commands) fn of(&self, server: &str) -> Vec<ClientGuard> {
        let all = self.0.iter().flat_map(|file| file.servers.iter().map(move |guard| (file, guard)));
        let named = all.filter(|(_, guard)| guard.name == server);
        named
            .map(|(file, guard)| ClientGuard {
                clients: file.clients.clone(),
                path: file.path.clone(),
                guard: guard.clone(),
            })
            .collect()
    }
}

fn reports(targets: &Targets) -> Result<Vec<FileStatusReport>, CommandFailure> {
    let data_folder = data_folder::check()?;
    let mut versions = Versions::default();
    let files = targets.files.iter();
    Ok(files.map(|choice| FileStatusReport::of(choice, data_folder.as_deref(), &mut versions)).collect())
}

/// The versions of programs, each asked once.
#[derive(Default)]
struct Versions(BTreeMap<String, Option<String>>);

impl Versions {
    fn of(&mut self, program: &str, may_run: bool) -> Option<String> {
        let path = Path::new(program);
        let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
        if own.is_some() && path.canonicalize().ok() == own {
            return Some(VERSION.to_owned());
        }
        if !may_run || !path.is_absolute() {
            return None;
        }
        self.0.entry(program.to_owned()).or_insert_with(|| version_of(path)).clone()
    }
}

impl FileStatusReport {
    fn of(choice: &TargetChoice, data_folder: Option<&Path>, versions: &mut Versions) -> FileStatusReport {
        let clients = choice.clients.iter().map(|client| client.name).collect();
        let mut report = FileStatusReport {
            path: choice.path.clone(),
            clients,
            error: None,
            record_error: None,
            adopted_at: None,
            is_edited: false,
            servers: Vec::new(),
        };
        let target = match TargetFile::read(&choice.path) {
            Ok(target) => target,
            Err(error) => return FileStatusReport { error: Some(error.to_string()), ..report },
        };
        let records = data_folder.map(AdoptionRecords::in_data_folder);
        let record = records.map_or(Ok(None), |records| records.of(target.path()));
        let record = record.unwrap_or_else(|error| {
            report.record_error = Some(error.to_string());
            None
        });
        if let Some(AdoptionRecord { adopted_at, adopted_sha256, .. }) = record {
            report.is_edited = sha256(target.text().as_bytes()) != adopted_sha256;
            report.adopted_at = Some(adopted_at);
        }
        match ConfigDocument::parse(target.text(), target.syntax()) {
            Ok(document) => {
                let logs = data_folder.map(|folder| folder.join("logs"));
                let servers = document.entries();
                let of =
                    |entry: &ConfiguredEntry<'_>| GuardReport::of(entry, logs.as_deref(), versions, choice);
                report.servers = servers.iter().map(of).collect();
            }
            Err(error) => report.error = Some(error.to_string()),
        }
        report
    }

    /// Says which guards are gone, of all servers or of one, and what repairs them.
    fn repairs<'a>(&'a self, server: Option<&'a str>) -> impl Iterator<Item = String> + 'a {
        let is_meant = move |guard: &&GuardReport| server.is_none_or(|server| guard.name == server);
        self.servers.iter().filter(is_meant).filter_map(|guard| {
            let undo = if self.adopted_at.is_some() { "; `unhang adopt --undo` takes it away" } else { "" };
            let (name, program) = (escaped(&guard.name), guard.guard());
            let repair = guard.repair.as_deref()?;
            Some(format!(
                "{}: {name}: {program}; `{repair}` puts this unhang there{undo}\n",
                shown(&self.path)
            ))
        })
    }
}

impl GuardReport {
    fn of(
        entry: &ConfiguredEntry<'_>,
        logs: Option<&Path>,
        versions: &mut Versions,
        choice: &TargetChoice,
    ) -> GuardReport {
        let mut report = GuardReport {
            name: entry.name.clone(),
            project: project(&entry.place),
            state: "unguarded",
            program: None,
            version: None,
            last_ran: None,
            repair: None,
        };
        match entry.guard() {
            GuardSeen::Guard { program, is_whole } => {
                let is_gone = is_gone(&program);
                report.state = if is_gone { "broken" } else { "guarded" };
                report.repair = (is_gone && is_whole).then(|| match choice.clients.is_empty() {
                    true => format!("unhang adopt {}", shown(&choice.path)),
                    false => "unhang adopt".to_owned(),
                });
                report.version = versions.of(&program, !choice.is_of_project).filter(|_| !is_gone);
                report.program = Some(program);
                let name = entry.guard_name();
                let written = logs.zip(name).and_then(|(logs, name)| last_written(logs, &name));
                report.last_ran = written.map(moment);
            }
            GuardSeen::Inside(program) => (report.state, report.program) = ("inside", Some(program)),
            GuardSeen::Gateway => report.state = "gateway",
            GuardSeen::Nothing if entry.words().is_none() && entry.is_remote() => report.state = "remote",
            GuardSeen::Nothing if entry.is_disabled => report.state = "disabled",
            GuardSeen::Nothing => {}
        }
        report
    }

    /// Describes the guard for a person.
    fn guard(&self) -> String {
        let program = self.program.as_deref().map(|program| shown(Path::new(program))).unwrap_or_default();
        match self.state {
            "guarded" => program,
            "broken" => format!("{program} is gone"),
            "inside" => format!("behind {program}"),
            "gateway" => "is the gateway".to_owned(),
            "unguarded" => "none".to_owned(),
            other => format!("none ({other})"),
        }
    }
}

impl StatusReport {
    fn text(&self) -> String {
        let mut all = table(["CLIENT", "SERVER", "GUARD", "VERSION", "LAST RAN"], 2);
        let nothing = || "-".to_owned();
        for file in &self.files {
            let client = if file.clients.is_empty() { shown(&file.path) } else { file.clients.join(", ") };
            for server in &file.servers {
                all.add_row([
                    client.clone(),
                    escaped(&shortened(&server.name, NAME)),
                    server.guard(),
                    server.version.clone().unwrap_or_else(nothing),
                    server.last_ran.clone().unwrap_or_else(nothing),
                ]);
            }
        }
        let mut text = if self.files.iter().all(|file| file.servers.is_empty()) {
            "no file of a client has a server\n".to_owned()
        } else {
            lines(&all)
        };
        for FileStatusReport { path, clients, error, record_error, adopted_at, is_edited, .. } in &self.files
        {
            let clients =
                if clients.is_empty() { String::new() } else { format!("{}: ", clients.join(", ")) };
            let state = match (error, adopted_at) {
                (Some(error), _) => format!(" cannot be read: {}", escaped(error)),
                (None, Some(at)) if *is_edited => format!(", adopted {}, and edited since", escaped(at)),
                (None, Some(at)) => format!(", adopted {}", escaped(at)),
                (None, None) => String::new(),
            };
            text.push_str(&format!("{clients}{}{state}\n", shown(path)));
            if let Some(error) = record_error {
                text.push_str(&format!("{}: {}\n", shown(path), escaped(error)));
            }
        }
        self.files.iter().flat_map(|file| file.repairs(None)).for_each(|line| text.push_str(&line));
        if !self.not_found.is_empty() {
            text.push_str(&format!("no file of: {}\n", self.not_found.join(", ")));
        }
        let unguarded =
            |file: &FileStatusReport| file.servers.iter().any(|server| server.state == "unguarded");
        if self.files.iter().any(unguarded) {
            text.push_str("`unhang adopt` puts the guard in front of servers without one\n");
        }
        text
    }
}

fn moment(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}
