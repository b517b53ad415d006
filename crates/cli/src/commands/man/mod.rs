//! `unhang man`: the manual, as pages for `man` or as the page in `docs/reference/`, made from the declaration itself.
//!
//! Invariants: hidden commands and flags are not in it. Help, manual and reference have the same texts.

mod notes;
mod reference;
mod roff;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Command;

use unhang_terminal::{failure::CommandFailure, output};

use crate::arguments::{self, Man};

/// Writes the pages, or prints all of it as one page.
pub(super) fn run(man: &Man) -> ExitCode {
    // The page of `help` would say nothing.
    let mut whole = arguments::shown().disable_help_subcommand(true);
    whole.build();
    let Some(folder) = &man.folder else { return output::data(&reference::page(&whole)) };
    match write(folder, &whole) {
        Ok(written) => {
            let first = folder.join("unhang.1");
            let (count, folder) = (written.len(), folder.display());
            output::note(&format!("wrote {count} pages to {folder}; begin with `man {}`", first.display()));
            ExitCode::SUCCESS
        }
        Err(failure) => failure.print(None),
    }
}

fn write(folder: &Path, whole: &Command) -> Result<Vec<PathBuf>, CommandFailure> {
    fs::create_dir_all(folder).map_err(|error| refused("made", folder, &error))?;
    every(whole)
        .into_iter()
        .map(|command| {
            let page = roff::page(command).map_err(|error| refused("written", folder, &error))?;
            let path = folder.join(format!("{}.1", roff::name(command)));
            fs::write(&path, page).map_err(|error| refused("written", &path, &error))?;
            Ok(path)
        })
        .collect()
}

fn refused(what: &str, path: &Path, error: &io::Error) -> CommandFailure {
    let message = format!("{} cannot be {what}: {error}", path.display());
    CommandFailure::usage(message, Some("name a folder that you may write to"))
}

/// Returns the command and all commands below it.
fn every(command: &Command) -> Vec<&Command> {
    [command].into_iter().chain(command.get_subcommands().flat_map(every)).collect()
}
