//! `unhang job run`: runs a command as a job.
//!
//! Invariants
//!
//! - The id is printed when the job is on the disk and has been handed to its supervisor. From then on this process is not needed.
//! - The job gets the environment of the process that submits it, as a command of a shell does. No record and no log has values of it.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use unhang::{
    exit,
    job_report::{Accepted, JobReport, ReportReader},
    jobs::{
        engine::JobStatus,
        folder::InputName,
        id::JobId,
        record::JobState,
        shared_jobs::Placement,
        submission::{InputSource, JobInput, Submission},
    },
    settings::JobSettings,
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output, text::escaped};

use super::wait::{WaitOutcome, until_ended};
use crate::{
    arguments::jobs::JobRun,
    commands::engine::{CommandOutcome, JobContext, failure, json},
    job_environment::{all_variables, inherited},
};

pub(super) async fn run(context: &JobContext, arguments: JobRun) -> CommandOutcome {
    let wait = arguments.wait;
    if context.options.shared.is_none() && (arguments.repeatable || !arguments.labels.is_empty()) {
        return Err(CommandFailure::usage(
            "--labels and --repeatable are for workers, and this job would run on this machine".to_owned(),
            Some("name the database of the workers by --store or UNHANG_JOBS_STORE"),
        ));
    }
    let submission = submission(arguments, &context.of_file)?;
    let engine = context.engine().await?;
    let status = engine.submit(submission).await.map_err(|error| failure(&error))?;
    engine.handed_over().await.map_err(|error| failure(&error))?;
    let id = status.record.job_id;
    let format = context.plain_format();
    let printed = match format {
        Format::Text => output::bytes(format!("{id}\n").as_bytes()),
        Format::Json => json(&accepted(&status)),
    };
    if !wait {
        if format == Format::Text && io::stdout().is_terminal() && io::stderr().is_terminal() {
            tell_what_next(&status);
        }
        return Ok(printed);
    }
    let ended = match until_ended(&engine, &[id], None, |_| {}).await? {
        WaitOutcome::Ended(statuses) | WaitOutcome::Late(statuses) => statuses,
        WaitOutcome::Stopped(code) => return Ok(code),
    };
    let Some(status) = ended.first() else { return Ok(exit::BUG) };
    let report = JobReport::new(status, ReportReader::Person);
    if format == Format::Json {
        json(&report);
    } else if report.status != JobState::Completed {
        let hint = format!("unhang job logs --stderr {id}");
        output::error(&format!("job {id} {}", escaped(&report.summary())), Some(&hint));
    }
    Ok(own_code(&report))
}

fn accepted(status: &JobStatus) -> Accepted {
    Accepted::new(&JobReport::new(status, ReportReader::Person))
}

/// Tells a person the next steps; a program gets the id alone.
fn tell_what_next(status: &JobStatus) {
    let accepted = accepted(status);
    output::error(&accepted.message, Some(&accepted.next_steps.join(", or ")));
}

/// Returns the exit code of a job as this command's own (design 7).
fn own_code(report: &JobReport) -> u8 {
    let of_signal = report.signal.and_then(|signal| u8::try_from(128 + signal).ok());
    let own = report.exit_code.and_then(|code| u8::try_from(code).ok()).or(of_signal);
    match report.status {
        JobState::Completed => exit::DONE,
        // A job that left with 0 may have failed all the same, as has one that never ran.
        _ => own.filter(|code| *code != exit::DONE).unwrap_or(exit::FAILED),
    }
}

fn submission(arguments: JobRun, of_file: &JobSettings) -> Result<Submission, CommandFailure> {
    let folder = std::env::current_dir()
        .map_err(|error| CommandFailure::system("the current folder cannot be used", &error))?;
    let inputs = inputs(&arguments.input)?;
    let name = arguments.name.unwrap_or_else(|| program_name(&arguments.command));
    let mut submission = Submission::new(arguments.command, folder)
        .map_err(|error| CommandFailure::system("the system has no random source for an id", &error))?;
    submission.id = arguments.id.unwrap_or(submission.id);
    submission.name = name;
    submission.environment = inherited().collect();
    // The job gets all variables, as from a shell. Variables outside of the small set may be secret.
    submission.private_environment =
        all_variables().filter(|variable| !submission.environment.contains(variable)).collect();
    submission.inputs = inputs;
    submission.results = arguments.result;
    submission.patch = arguments.state;
    submission.timeout = arguments.timeout.or(of_file.timeout);
    submission.log_limit = arguments.log_limit.or(of_file.log_limit).unwrap_or(submission.log_limit);
    let max_attempts = arguments.max_attempts.unwrap_or(submission.placement.max_attempts);
    submission.placement = Placement {
        labels: arguments.labels,
        function: None,
        is_repeatable: arguments.repeatable,
        max_attempts,
    };
    Ok(submission)
}

fn program_name(command: &[OsString]) -> String {
    let program = command.first().map(PathBuf::from).unwrap_or_default();
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

fn usage(message: String) -> CommandFailure {
    CommandFailure { code: exit::USAGE, kind: "bad_input", message, hint: None, data: None }
}

/// Makes the inputs of these files. They lie in one folder, so no two may have the same name.
fn inputs(paths: &[PathBuf]) -> Result<Vec<JobInput>, CommandFailure> {
    let mut inputs: Vec<JobInput> = Vec::with_capacity(paths.len());
    for path in paths {
        let input = input(path)?;
        if let Some(index) = inputs.iter().position(|earlier| earlier.file == input.file) {
            let name = escaped(&path.file_name().unwrap_or_default().to_string_lossy());
            return Err(usage(format!(
                "--input {} and --input {}: both would be `{name}` in the folder of the job; copy one under another name",
                escaped(&paths[index].display().to_string()),
                escaped(&path.display().to_string()),
            )));
        }
        inputs.push(input);
    }
    Ok(inputs)
}

/// Makes the input of a file, under the file's own name.
fn input(path: &Path) -> Result<JobInput, CommandFailure> {
    let name = path.file_name().unwrap_or_default();
    let file = InputName::new(name).map_err(|error| usage(format!("--input {}: {error}", path.display())))?;
    // The engine follows no links, so the source is the file at the end of a link.
    let source = path
        .canonicalize()
        .map_err(|error| usage(format!("--input {} cannot be read: {error}", path.display())))?;
    if source.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(usage(format!("--input {} cannot be read: it is not a regular file", path.display())));
    }
    Ok(JobInput { file, source: InputSource::File(source) })
}

/// Removes repeated ids, and keeps the order of the others.
pub(super) fn distinct(ids: &[JobId]) -> Vec<JobId> {
    let mut distinct: Vec<JobId> = Vec::with_capacity(ids.len());
    for id in ids {
        if !distinct.contains(id) {
            distinct.push(*id);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_by_its_program() {
        assert_eq!(program_name(&["/usr/bin/python3".into(), "x.py".into()]), "python3");
        assert_eq!(program_name(&["..".into()]), "..");
    }
}
