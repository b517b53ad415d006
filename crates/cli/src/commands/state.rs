//! `unhang state`: the named documents from which jobs start, and in which they leave their results.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::ExitCode,
};

use serde_json::Value;
use unhang::{
    config::REQUEST_TIMEOUT,
    exit,
    job_report::{DocumentReport, ListedReport},
    jobs::document::{Field, MAX_DOCUMENT},
};
use unhang_terminal::{failure::CommandFailure, failure::Format};

use crate::{
    arguments::jobs::{StateArguments, StateVerb},
    commands::{
        client::{beside, read_within},
        engine::{self, CommandOutcome, JobContext, failure, json},
        large_numbers,
    },
};

/// Runs the verb that was typed.
pub(super) fn run(state: StateArguments, verbose: bool) -> ExitCode {
    let StateArguments { common, verb } = state;
    engine::run(&common, verbose, async |context| match verb {
        StateVerb::List => list(context).await,
        StateVerb::Get(arguments) => get(context, arguments.field).await,
        StateVerb::Set(arguments) => set(context, arguments.field, &arguments.value).await,
    })
}

async fn list(context: &JobContext) -> CommandOutcome {
    let engine = context.engine().await?;
    let listed = engine.documents().await.map_err(|error| failure(&error))?;
    let reports: Vec<ListedReport> = listed.into_iter().map(Into::into).collect();
    Ok(context.report(&reports, || {
        if reports.is_empty() {
            return "No field has been set.\n".to_owned();
        }
        let mut table = engine::table(["FIELD", "BYTES", "CHANGED"], 3);
        for ListedReport { field, bytes, updated_at } in &reports {
            table.add_row([field.to_string(), bytes.to_string(), updated_at.to_string()]);
        }
        engine::lines(&table)
    }))
}

async fn get(context: &JobContext, field: Field) -> CommandOutcome {
    let engine = context.engine().await?;
    let document = engine.document(field.clone()).await.map_err(|error| failure(&error))?;
    let document = document.ok_or_else(|| CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_field",
        message: format!("the state field `{field}` was never set"),
        hint: Some("`unhang state list` shows all fields".to_owned()),
        data: None,
    })?;
    Ok(match context.plain_format() {
        Format::Json => json(&DocumentReport::from(document)),
        Format::Text => json(&document.value),
    })
}

async fn set(context: &JobContext, field: Field, text: &OsStr) -> CommandOutcome {
    let value = match text.as_bytes() {
        [b'@', path @ ..] => {
            let (path, text) = (String::from_utf8_lossy(path), text.to_owned());
            read_within(&path, REQUEST_TIMEOUT, move || read(&text)).await?
        }
        _ => {
            let text = text.to_owned();
            beside(move || read(&text)).await?
        }
    };
    let engine = context.engine().await?;
    engine.set_document(field, value).await.map_err(|error| failure(&error))?;
    Ok(exit::DONE)
}

/// Reads the document that was typed, or that is in the named file or on stdin.
fn read(text: &OsStr) -> Result<Value, CommandFailure> {
    let (bytes, source) = match text.as_bytes() {
        b"-" => (read_limited(io::stdin().lock(), "stdin")?, "stdin".to_owned()),
        b"@" => {
            let hint = "write @FILE, or - for stdin";
            return Err(bad_value("`@` names no file".to_owned(), Some(hint)));
        }
        [b'@', path @ ..] => {
            let path = Path::new(OsStr::from_bytes(path));
            let source = path.display().to_string();
            let file = File::open(path)
                .map_err(|error| bad_value(format!("cannot read {source}: {error}"), None))?;
            (read_limited(file, &source)?, source)
        }
        typed => (typed.to_owned(), "this text".to_owned()),
    };
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        let hint = "a text needs its own quotes, as in '\"hello\"'; write @FILE for a file, and - for stdin";
        bad_value(format!("{source} is not JSON: {error}"), Some(hint))
    })?;
    match large_numbers::in_json(&bytes) {
        Some(number) => Err(bad_value(large_numbers::told(number, &source), None)),
        None => Ok(value),
    }
}

fn read_limited(from: impl Read, source: &str) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    from.take(MAX_DOCUMENT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| bad_value(format!("cannot read {source}: {error}"), None))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_DOCUMENT {
        return Err(bad_value(format!("{source} has more than {} MiB", MAX_DOCUMENT >> 20), None));
    }
    Ok(bytes)
}

fn bad_value(message: String, hint: Option<&str>) -> CommandFailure {
    CommandFailure {
        code: exit::USAGE,
        kind: "bad_value",
        message,
        hint: hint.map(str::to_owned),
        data: None,
    }
}
