//! `unhang adopt`: puts the guard in front of the servers in the files of MCP clients, and takes it away again.
//!
//! Invariants
//!
//! - Nothing is written before a person has seen the changes and agreed, unless `--yes` says so.
//! - A file that cannot be changed keeps no other from it. It is reported, and the exit code says so.
//! - A file of a project changes only if it is named. It gets the name `unhang`, and no path of this machine.

mod changes;
mod program;
mod report;
mod status;
mod targets;
mod undoing;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::SystemTime,
};

use unhang::{exit, process::lock::Lock};
use unhang_adopt::AdoptionRecords;
use unhang_terminal::{
    failure::{CommandFailure, Format},
    output, progress,
    text::escaped,
};

pub(super) use self::status::{ClientGuard, UserGuards};
use self::{report::AdoptReport, targets::Targets};
use super::{
    client::beside,
    engine::{CommandOutcome, counted, json, to_its_end, wanted_data_folder},
};
use crate::{arguments::adopt::AdoptArguments, consent::is_yes, signals::signals};

/// Adopts, undoes it, or lists the servers.
pub(super) fn run(arguments: &AdoptArguments, verbose: bool) -> ExitCode {
    to_its_end(arguments.output, verbose, async || {
        let mut stops =
            signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
        let work = AdoptWork::new(arguments);
        // Each file is written in one step, so the command can end at any moment.
        tokio::select! {
            outcome = beside(move || work.run()) => outcome,
            Some(stop) = stops.recv() => Ok(stop.exit_code()),
        }
    })
}

/// The command at work, without its runtime.
struct AdoptWork {
    targets: Vec<std::path::PathBuf>,
    only: Vec<String>,
    except: Vec<String>,
    consent: WriteConsent,
    verb: AdoptVerb,
    format: Format,
}

/// The main choice of the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AdoptVerb {
    Adopt,
    Undo,
    Status,
}

/// Whether the changes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteConsent {
    /// If a person agrees.
    Ask,
    /// In any case.
    Given,
    /// They are only shown.
    DryRun,
}

impl AdoptWork {
    fn new(arguments: &AdoptArguments) -> AdoptWork {
        let AdoptArguments { targets, only, except, dry_run, yes, undo, status, output } = arguments;
        let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
        AdoptWork {
            targets: targets.clone(),
            only: only.clone(),
            except: except.clone(),
            consent: match (dry_run, yes) {
                (true, _) => WriteConsent::DryRun,
                (_, true) => WriteConsent::Given,
                _ => WriteConsent::Ask,
            },
            verb: match (undo, status) {
                (true, _) => AdoptVerb::Undo,
                (_, true) => AdoptVerb::Status,
                _ => AdoptVerb::Adopt,
            },
            format: output.unwrap_or(unsaid),
        }
    }

    fn run(&self) -> CommandOutcome {
        match self.verb {
            AdoptVerb::Adopt => self.adopt(),
            AdoptVerb::Undo => self.undo(),
            AdoptVerb::Status => status::show(&Targets::find(&self.targets)?, self.format),
        }
    }

    fn adopt(&self) -> CommandOutcome {
        let targets = Targets::find(&self.targets)?;
        let records = records()?;
        let mut program = program::choose()?;
        let is_chosen = |name: &str| {
            let names = |list: &[String]| list.iter().any(|listed| listed == name);
            (self.only.is_empty() || names(&self.only)) && !names(&self.except)
        };
        let mut changes = changes::Changes::plan(&targets, &program, &is_chosen);
        changes.check_names(self.only.iter().chain(&self.except))?;
        if changes.files() == 0 && !program.replaces {
            program.copied_from = None;
        }
        let mut report = changes.report(&program);
        report.show_plan(self.format);
        let asked = match changes.files() {
            0 => format!("replace {}? [y/N] ", escaped(&program.path)),
            files => format!("{} in {}? [y/N] ", changes.deed(), counted(files, "file")),
        };
        if (changes.files() > 0 || program.replaces) && self.is_agreed(&asked)? {
            program.install()?;
            report.has_replaced = program.replaces;
            let _held = locked(&records)?;
            changes.write(&records, &mut report, &now());
        }
        Ok(self.finish(&report))
    }

    fn undo(&self) -> CommandOutcome {
        let records = records()?;
        let mut undoing = undoing::Undoing::plan(&records, &self.targets)?;
        let mut report = undoing.report();
        report.show_plan(self.format);
        let (count, files) = undoing.count();
        // A record of a file that has no guard any more is forgotten without a question.
        let is_agreed = match count {
            0 => self.consent != WriteConsent::DryRun,
            _ => {
                let (servers, files) = (counted(count, "server"), counted(files, "file"));
                self.is_agreed(&format!("take the guard away from {servers} in {files}? [y/N] "))?
            }
        };
        if is_agreed && !undoing.is_empty() {
            let _held = locked(&records)?;
            undoing.write(&records, &mut report);
        }
        Ok(self.finish(&report))
    }

    /// Prints the end of the report.
    fn finish(&self, report: &AdoptReport) -> u8 {
        let printed = match self.format {
            Format::Json => json(report),
            Format::Text => report.show_outcome(self.consent == WriteConsent::DryRun),
        };
        if printed == exit::DONE && report.has_failed() { exit::FAILED } else { printed }
    }

    /// Asks a person, if nothing has settled that.
    fn is_agreed(&self, question: &str) -> Result<bool, CommandFailure> {
        match self.consent {
            WriteConsent::DryRun => Ok(false),
            WriteConsent::Given => Ok(true),
            WriteConsent::Ask if !(io::stdin().is_terminal() && io::stderr().is_terminal()) => {
                let message =
                    "nobody can be asked, because stdin or stderr is not a terminal, so nothing was written";
                let hint = "add --yes to write the changes, or --dry-run to see them only";
                Err(CommandFailure {
                    kind: "not_asked",
                    ..CommandFailure::usage(message.to_owned(), Some(hint))
                })
            }
            WriteConsent::Ask => {
                progress::end();
                if is_yes(question) {
                    return Ok(true);
                }
                Err(CommandFailure {
                    code: exit::FAILED,
                    kind: "declined",
                    message: "nothing was written".to_owned(),
                    hint: None,
                    data: None,
                })
            }
        }
    }
}

/// Finds the records in the data folder.
fn records() -> Result<AdoptionRecords, CommandFailure> {
    Ok(AdoptionRecords::in_data_folder(&wanted_data_folder("the files as they were before")?))
}

fn locked(records: &AdoptionRecords) -> Result<Lock, CommandFailure> {
    let cannot =
        |error: &io::Error| CommandFailure::system("the folder of earlier files cannot be used", error);
    records.lock().map_err(|error| cannot(&error))?.ok_or_else(|| CommandFailure {
        code: exit::FAILED,
        kind: "busy",
        message: "another `unhang adopt` is writing".to_owned(),
        hint: Some("run the command again when it has ended".to_owned()),
        data: None,
    })
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Prints text in which everything from outside is escaped.
fn print(text: &str) -> u8 {
    output::write_escaped(text).err().unwrap_or(exit::DONE)
}
