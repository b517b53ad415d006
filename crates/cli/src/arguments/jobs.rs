//! The arguments of `unhang job` and `unhang state`.

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use unhang::{
    jobs::{
        document::{Field, Pointer},
        folder::FileName,
        id::JobId,
        record::{JobState, Patch},
    },
    settings::{JobSettings, StoreUrl},
    units::{parse_duration, parse_size},
};

use unhang_terminal::failure::Format;

use crate::arguments::{
    files::Files,
    number::whole_number,
    worker::{SharedStoreFlag, label, store_url},
};

/// `unhang job`.
#[derive(Debug, Args)]
#[command(after_help = "Jobs outlive the terminal, unhang and each other. unhang keeps them in\n\
    $UNHANG_HOME, else in $XDG_STATE_HOME/unhang, else in ~/.local/state/unhang.\n\n\
    Exit codes: 0 done; 1 a job failed, was not accepted, has ended already or has\n\
    not ended yet, or the data folder cannot be used; 2 wrong usage, also an\n\
    invalid id; 3 the shared database cannot be used; 4 a deadline passed; 6 no such job; 130 and 143 ended by SIGINT and\n\
    SIGTERM, which leave jobs running.")]
pub(crate) struct JobArguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: JobVerb,
}

/// `unhang state`.
#[derive(Debug, Args)]
#[command(after_help = "A field is one JSON document. A job can write its result to a field.\n\n\
    Exit codes: 0 done; 1 the data folder cannot be used; 2 wrong usage, also\n\
    a document that is not JSON; 6 the field was never set.")]
pub(crate) struct StateArguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: StateVerb,
}

/// What every one of these commands takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Print text or JSON [default: text on a terminal, else JSON; text for an id, a log or a document]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    #[command(flatten)]
    pub(crate) files: Files,
    // Before the limits: clap puts everything behind them under their heading.
    #[command(flatten)]
    pub(crate) store: SharedStoreFlag,
    #[command(flatten)]
    pub(crate) limits: JobLimits,
}

/// When jobs may start and how long they are kept. They count for this command and the jobs that it submits, above the file.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct JobLimits {
    /// Jobs that run at the same time on the data folder [default: half the processors, at least 2]
    #[arg(long, global = true, env = "UNHANG_MAX_CONCURRENT", hide_env = true, value_name = "COUNT", value_parser = whole_number::<u32>(1, u32::MAX))]
    pub(crate) max_concurrent: Option<u32>,
    /// Percentage of memory in use above which unhang starts no job [default: 90]
    #[arg(long, global = true, env = "UNHANG_MEMORY_LIMIT", hide_env = true, value_name = "PERCENT", value_parser = whole_number::<u8>(1, 100))]
    pub(crate) memory_limit: Option<u8>,
    /// Time for which unhang keeps an ended job [default: 7d]
    #[arg(long, global = true, env = "UNHANG_RETENTION", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) retention: Option<Duration>,
}

impl JobLimits {
    /// Returns the limits as settings, in the form that the file has.
    pub(crate) fn settings(&self) -> JobSettings {
        let &JobLimits { max_concurrent, memory_limit, retention } = self;
        let memory_limit = memory_limit.map(u32::from);
        JobSettings { max_concurrent, memory_limit, retention, ..JobSettings::default() }
    }
}

/// The verbs of `unhang job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// Start a command as a job, print its id and return
    Run(JobRun),
    /// List the newest jobs
    List(JobList),
    /// Show the status and the details of a job
    Show(OneJob),
    /// Print the output of a job
    Logs(JobLogs),
    /// Print the result of a job that has completed
    Result(OneJob),
    /// Wait until jobs have ended; the exit code is 0 if all of them completed
    Wait(JobWait),
    /// End jobs and everything that they started
    Cancel(ManyJobs),
    /// Remove ended jobs and their files
    Remove(ManyJobs),
    /// Remove all jobs that ended some time ago
    Prune(JobPrune),
    /// Create the database again from the job folders, also if it is damaged
    Rebuild,
    /// Move ended jobs and the named state to a database that machines share
    Move(JobMove),
}

/// `unhang job run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang job run [OPTIONS] -- <CMD>...",
    after_help = "The job runs in the current folder with this environment, and with UNHANG_JOB_ID and\n\
    UNHANG_JOB_DIR, the folder for inputs and results. Its stdin is empty. The record of\n\
    the job contains only the names of variables. Their values are in its launch.json,\n\
    which only the owner can read, until the job has started.\n\n\
    With --wait, the exit code is that of the job, or 128 plus the number of its signal.\n\
    It is 1 if the job failed in another way.\n\n\
    Examples:\n  \
    unhang job run -- python simulate.py\n  \
    unhang job run --wait --result results.json --state plant -- ./simulate"
)]
pub(crate) struct JobRun {
    /// The name of the job in lists [default: the program]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The id of the job: 12 characters from a-z and 2-7 [default: random]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<JobId>,
    /// Copy this file into UNHANG_JOB_DIR before the start; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// The JSON file that the command must leave in UNHANG_JOB_DIR
    #[arg(long, value_name = "FILE", value_parser = FileName::new)]
    pub(crate) result: Option<FileName>,
    /// Write the result, or the part at the JSON pointer, to this state field when the job completes
    #[arg(long, value_name = "FIELD[=POINTER]", value_parser = parse_patch, requires = "result")]
    pub(crate) state: Option<Patch>,
    /// End the job if it runs longer than this [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The size that unhang keeps of stdout, and of stderr; less than 64KiB counts as 64KiB [default: 8MiB]
    #[arg(long, env = "UNHANG_LOG_LIMIT", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) log_limit: Option<u64>,
    /// With --store: the labels that the worker must have, with commas between them
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',', value_parser = label)]
    pub(crate) labels: Vec<String>,
    /// With --store: the job may run again if its worker is lost
    #[arg(long)]
    pub(crate) repeatable: bool,
    /// With --repeatable: how often the job may begin [default: 3]
    #[arg(long, value_name = "COUNT", requires = "repeatable", value_parser = whole_number::<u32>(1, 1000))]
    pub(crate) max_attempts: Option<u32>,
    /// Wait until the job has ended
    #[arg(long)]
    pub(crate) wait: bool,
    /// The command and its arguments, after `--`
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `unhang job list`.
#[derive(Debug, Args)]
pub(crate) struct JobList {
    /// List only jobs that are queued, starting, running, completed, failed, cancelled or lost
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<JobState>,
    /// List at most this number of jobs
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = whole_number::<u32>(1, 1000))]
    pub(crate) limit: u32,
}

/// A job, as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobReference {
    /// By its id.
    Id(JobId),
    /// By the beginning of its id, which no other has.
    Beginning(String),
    /// The newest.
    Last,
}

impl FromStr for JobReference {
    type Err = <JobId as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(id) => Ok(JobReference::Id(id)),
            Err(_) if text == "last" => Ok(JobReference::Last),
            // A text is the beginning of an id if letters can complete it to a valid one.
            Err(error) => {
                let is_beginning = || format!("{text:a<12}").parse::<JobId>().is_ok();
                let beginning = (!text.is_empty() && is_beginning()).then(|| text.to_owned());
                beginning.map(JobReference::Beginning).ok_or(error)
            }
        }
    }
}

/// One job.
#[derive(Debug, Args)]
pub(crate) struct OneJob {
    /// The job: its id, a unique prefix of its id, or `last` for the newest job
    #[arg(value_name = "ID")]
    pub(crate) id: JobReference,
}

/// Some jobs.
#[derive(Debug, Args)]
pub(crate) struct ManyJobs {
    /// The jobs: ids, unique prefixes of ids, or `last` for the newest job
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<JobReference>,
}

/// `unhang job logs`.
#[derive(Debug, Args)]
#[command(after_help = "If stdout is a terminal, unhang removes control sequences from the output.\n\
    As JSON, unhang prints one page of at most 1 MiB, and with -f one page per line.")]
pub(crate) struct JobLogs {
    /// The job: its id, a unique prefix of its id, or `last` for the newest job
    #[arg(value_name = "ID")]
    pub(crate) id: JobReference,
    /// Continue until the job has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print stderr in place of stdout
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Begin at this byte
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = whole_number::<u64>(0, u64::MAX))]
    pub(crate) offset: u64,
    /// Print at most this number of bytes [default: all]
    #[arg(long, value_name = "BYTES", value_parser = whole_number::<u64>(1, u64::MAX))]
    pub(crate) max_bytes: Option<u64>,
}

/// `unhang job wait`.
#[derive(Debug, Args)]
pub(crate) struct JobWait {
    /// The jobs: ids, unique prefixes of ids, or `last` for the newest job
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<JobReference>,
    /// Wait no longer than this, then exit with 4 [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `unhang job prune`.
#[derive(Debug, Args)]
pub(crate) struct JobPrune {
    /// Remove the jobs that ended at least this long ago [default: as --retention]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,
}

/// `unhang job move`.
#[derive(Debug, Args)]
#[command(
    after_help = "Jobs keep their ids. A job that has not ended stays on this machine; run the command\n\
    again when it has. A job whose work left more files than its result stays here as\n\
    well, because the database takes no other files. The named state is copied, and a\n\
    field that the database has already keeps its value."
)]
pub(crate) struct JobMove {
    /// The database: postgres://USER@HOST/DATABASE [default: as --store]
    #[arg(long, value_name = "URL", value_parser = store_url)]
    pub(crate) to: Option<StoreUrl>,
}

/// The verbs of `unhang state`.
#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// List the fields
    List,
    /// Print the document of a field
    Get(StateGet),
    /// Replace the document of a field
    Set(StateSet),
}

/// `unhang state get`.
#[derive(Debug, Args)]
pub(crate) struct StateGet {
    /// The name of the field
    #[arg(value_name = "FIELD")]
    pub(crate) field: Field,
}

/// `unhang state set`.
#[derive(Debug, Args)]
pub(crate) struct StateSet {
    /// The name of the field
    #[arg(value_name = "FIELD")]
    pub(crate) field: Field,
    /// The JSON document, `@FILE` for a document in a file, or `-` for a document on stdin
    #[arg(value_name = "@FILE|TEXT|-", allow_hyphen_values = true)]
    pub(crate) value: OsString,
}

fn parse_patch(text: &str) -> Result<Patch, String> {
    let (field, pointer) = match text.split_once('=') {
        Some((field, pointer)) => (field, Some(pointer)),
        None => (text, None),
    };
    let pointer: Option<Pointer> = pointer.map(str::parse).transpose().map_err(|error| format!("{error}"))?;
    let field = field.parse().map_err(|error| format!("{error}"))?;
    Ok(Patch { field, pointer, is_shared: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_75_a_job_is_typed_by_its_id_its_beginning_or_as_the_last() {
        let read = |text: &str| text.parse::<JobReference>().ok();
        assert_eq!(read("abcdefgh2345"), "abcdefgh2345".parse().ok().map(JobReference::Id));
        assert_eq!(read("abc2"), Some(JobReference::Beginning("abc2".to_owned())));
        assert_eq!(read("last"), Some(JobReference::Last));
        for none in ["", "abcdefgh23456", "../x", "ABC", "a1", "a.b", "ä"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn a_patch_is_a_field_and_perhaps_a_pointer() {
        let patch = parse_patch("simulation=/digester/a=b").unwrap();
        assert_eq!((patch.field.as_str(), patch.pointer.unwrap().as_str()), ("simulation", "/digester/a=b"));
        assert_eq!(parse_patch("simulation").unwrap().pointer, None);
        assert!(parse_patch("../x").unwrap_err().contains("not a name of a state field"));
        assert!(parse_patch("x=digester").unwrap_err().contains("not a JSON pointer"));
    }
}
