//! `unhang trust`: gives consent to the files of a project, lists it, and takes it back.
//!
//! Invariant: nothing in a file is run, asked or expanded here.

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::Serialize;
use unhang::exit;
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, output, text::escaped};

use super::{
    client::{beside, files::project_files},
    engine::{CommandOutcome, counted, json, to_its_end},
};
use crate::{
    arguments::trust::TrustArguments,
    consent::{Consent, Consents},
};

/// The report about a consent.
#[derive(Serialize)]
struct TrustReport {
    path: String,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    consented_at: Option<String>,
    /// `trusted`, `changed`, `gone` or `removed`.
    status: &'static str,
}

/// Gives consent, lists it, or takes it back.
pub(super) fn run(arguments: &TrustArguments, verbose: bool) -> ExitCode {
    let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
    let format = arguments.output.unwrap_or(unsaid);
    let (path, list, remove) = (arguments.path.clone(), arguments.list, arguments.remove);
    to_its_end(arguments.output, verbose, async || -> CommandOutcome {
        let path = path.unwrap_or_else(|| PathBuf::from("."));
        let told = beside(move || match (list, remove) {
            (true, _) => listed(),
            (_, true) => removed(&path),
            _ => given(&path),
        });
        let (told, text) = told.await?;
        Ok(match format {
            Format::Json => json(&told),
            Format::Text => output::bytes(text.as_bytes()),
        })
    })
}

fn given(path: &Path) -> Result<(Vec<TrustReport>, String), CommandFailure> {
    let files = project_files(path)?;
    if files.is_empty() {
        return Err(CommandFailure {
            code: exit::NOT_FOUND,
            kind: "no_project_file",
            message: format!("there is nothing to consent to in {}", escaped(&path.display().to_string())),
            hint: Some("`unhang trust --help` lists the names of the files".to_owned()),
            data: None,
        });
    }
    let (consents, mut told, mut text) = (Consents::open()?, Vec::new(), String::new());
    for file in &files {
        consents.give(file)?;
        text.push_str(&format!("trusted: {}\n{}", file.shown(), file.told()));
        let (path, sha256) = (file.named.to_string_lossy().into_owned(), file.sha256.clone());
        told.push(TrustReport { path, sha256, consented_at: None, status: "trusted" });
    }
    Ok((told, text))
}

fn listed() -> Result<(Vec<TrustReport>, String), CommandFailure> {
    let told: Vec<TrustReport> =
        Consents::open()?.all().into_iter().map(|(_, consent)| of(consent)).collect();
    let line = |told: &TrustReport| {
        let given = told.consented_at.as_deref().unwrap_or_default();
        format!("{}  {}  {}\n", escaped(given), told.status, escaped(&told.path))
    };
    let text: String = told.iter().map(line).collect();
    let text = if text.is_empty() { "No file of a project is trusted.\n".to_owned() } else { text };
    Ok((told, text))
}

/// Makes the report about a consent, with its status compared with the file now.
fn of(consent: Consent) -> TrustReport {
    let named = Path::new(consent.named());
    let files = project_files(named).unwrap_or_default();
    let status = match &files[..] {
        _ if !named.exists() => "gone",
        [file] if consent.covers(file) => "trusted",
        _ => "changed",
    };
    let path = consent.named().to_owned();
    let Consent { sha256, consented_at, .. } = consent;
    TrustReport { path, sha256, consented_at: Some(consented_at), status }
}

fn removed(path: &Path) -> Result<(Vec<TrustReport>, String), CommandFailure> {
    let whole =
        whole(path).map_err(|error| CommandFailure::usage(format!("{}: {error}", path.display()), None))?;
    let whole = whole.to_string_lossy().into_owned();
    let (mut told, mut text) = (Vec::new(), String::new());
    for (path, consent) in Consents::open()?.all() {
        if ![consent.named(), &consent.path, &consent.folder].contains(&&*whole) {
            continue;
        }
        fs::remove_file(&path)
            .map_err(|error| CommandFailure::system("the consent cannot be removed", &error))?;
        text.push_str(&format!("no longer trusted: {}\n", escaped(consent.named())));
        told.push(TrustReport { status: "removed", ..of(consent) });
    }
    if told.is_empty() && fs::symlink_metadata(path).is_err() {
        return Err(CommandFailure {
            code: exit::NOT_FOUND,
            kind: "no_project_file",
            message: format!("there is no {}, and no consent for it", escaped(&path.display().to_string())),
            hint: Some("`unhang trust --list` lists the trusted files".to_owned()),
            data: None,
        });
    }
    if told.is_empty() {
        text = format!("there was no consent for {}\n", escaped(&whole));
    }
    tracing::debug!("{}", counted(told.len(), "consent"));
    Ok((told, text))
}

/// Returns the path as consents know it. A link to a file stays, but the path of a folder, or to something that is gone, has no links.
fn whole(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.is_dir(), absolute.parent(), absolute.file_name()) {
        (false, Some(folder), Some(name)) => {
            Ok(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).join(name))
        }
        _ => absolute.canonicalize(),
    }
}
