//! A job that a caller wants to be run, and the way in which it becomes a job's folder.
//!
//! Theory of operation. The caller draws the id, so that a submission whose outcome nobody learnt can be looked up afterwards. The folder
//! is made with "must not exist" and filled. The orders in it are marked as the submitter's (`submitting.rs`). Only then the job is taken
//! into the database. A process that dies in between leaves a folder that no row knows, which the retention removes.
//!
//! Invariants
//!
//! - Nothing is started from a folder that is not complete. An accepted job outlives a power failure: in its folder, or in the database if
//!   it is small.
//! - A submission that fails leaves no folder (J-21, J-136).
//! - The work gets the environment that the submission names and nothing else, besides three variables of unhang.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;
use unhang_proc::{lookup, spawn::Environment};

use crate::{
    document::{Documents, Field, MAX_DOCUMENT},
    error::JobError,
    folder::{
        ARGUMENTS, DataFolder, FileError, FileName, InputName, JobFolder, LAUNCH, LEASE, WorkFolder,
        read_at_most, sync_all, to_json,
    },
    id::JobId,
    launch::{LaunchFiles, LaunchOrders, shown},
    record::{FORMAT, JobRecord, JobState, Patch},
    room::Rules,
    shared_jobs::{DocumentName, Placement, SharedJob, SharedJobs},
    shared_work::SharedWork,
    submitting::SubmissionMark,
    timestamp::JobTimestamp,
    work_lease::{MARK, WorkLease},
};

/// The bytes on the disk for each of a job's logs.
pub const LOG_LIMIT: u64 = 8 << 20;
/// The bytes of arguments up to which they lie among the orders, and with them in the database. Each further file makes a submission a
/// tenth slower.
const WITH_ORDERS: usize = 32 << 10;
/// The smallest limit: a hole has the size of a few blocks.
pub const MIN_LOG_LIMIT: u64 = 64 << 10;
/// The time between SIGTERM and SIGKILL when a job has to end. A job may have results to write, so it gets longer than a server.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// A job to be run.
///
/// The work reads the null device, and its output goes to files. Besides `environment` it gets `UNHANG_JOB_ID`, `UNHANG_JOB_DIR` (the
/// work's own folder, where `inputs` lie and `results` go) and `PYTHONUNBUFFERED=1`. The work can tell its progress by a line on its
/// stdout, such as `progress: 40%` or `{"progress": 0.4, "message": "..."}`, and the reason of a failure by `error.json` in its folder.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The job's id, from [`JobId::random`] or from the user.
    pub id: JobId,
    /// The name that people see.
    pub name: String,
    /// The configured tool that makes the job.
    pub tool: Option<String>,
    /// The owner of the job, if those who start jobs are told from one another.
    pub owner: Option<String>,
    /// The program, which is looked for in the `PATH` of `environment`, and its arguments.
    pub command: Vec<OsString>,
    /// The working folder; it has to exist.
    pub folder: PathBuf,
    /// The environment of the work: no variable of unhang's own environment is handed on that is not named here.
    pub environment: Vec<(OsString, OsString)>,
    /// More variables, which may be secret. Their values lie in `launch.json` alone, for its owner, until the job has started or ended;
    /// everywhere else are their names. Of two variables with the same name, the private one counts.
    ///
    /// A job with any of them is accepted when its folder is on the disk, and not with the log of the database. This takes some
    /// milliseconds longer.
    pub private_environment: Vec<(OsString, OsString)>,
    /// The files that are in the work's folder before it starts.
    pub inputs: Vec<JobInput>,
    /// All arguments of the tool call, for `input.json`.
    pub arguments: Option<Value>,
    /// The file that the work has to leave in its folder for a good end.
    pub results: Option<FileName>,
    /// The change of the named state by the result.
    pub patch: Option<Patch>,
    /// The time that the job may run.
    pub timeout: Option<Duration>,
    /// The time between SIGTERM and SIGKILL when the job has to end.
    pub stop_grace: Duration,
    /// The bytes on the disk for each of the logs.
    pub log_limit: u64,
    /// The time of [`since_boot`](unhang_proc::identity::since_boot) at which the work is killed, unless
    /// [`Engine::prolong`](crate::engine::Engine::prolong) names a later one. `None` if the work needs no lease.
    pub lease_until: Option<Duration>,
    /// The demands of the job on its worker, if the engine has a store of many machines.
    pub placement: Placement,
}

/// A file that is in the work's folder before the job starts.
#[derive(Clone, Debug)]
pub struct JobInput {
    /// The file's name there.
    pub file: InputName,
    /// The source of its content.
    pub source: InputSource,
}

/// The source of an input.
#[derive(Clone, Debug)]
pub enum InputSource {
    /// A document of the named state that is shared or belongs to the data folder's owner.
    State(Field),
    /// The document of this name that belongs to the job's owner.
    OwnState(Field),
    /// A file at any path, which is copied.
    File(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl InputSource {
    /// Returns the document of the named state that is the source, if one is.
    fn field(&self) -> Option<&Field> {
        match self {
            Self::State(field) | Self::OwnState(field) => Some(field),
            Self::File(_) | Self::Bytes(_) => None,
        }
    }
}

/// A submission whose folder is filled.
pub(crate) struct PreparedSubmission {
    pub(crate) record: JobRecord,
    /// The files for the database, if the job is small.
    pub(crate) files: Option<LaunchFiles>,
    /// If there are no such files: all files that the work needs, and the folders that have their names.
    durable: Vec<PathBuf>,
    /// The mark that keeps every other process from the folder.
    pub(crate) mark: Option<SubmissionMark>,
}

impl PreparedSubmission {
    /// Makes a submission that needs nothing but its row.
    pub(crate) fn without_files(record: JobRecord) -> Self {
        Self { record, files: None, durable: Vec::new(), mark: None }
    }

    /// Makes everything that the work needs survive a power failure, unless the row does.
    ///
    /// This is separate from writing, because a file system with a journal writes the journal once for everything that came before.
    pub(crate) fn sync(&self) -> Result<(), JobError> {
        sync_all(&self.durable).map_err(JobError::Serialization)
    }
}

impl Submission {
    /// Makes a submission of this command with everything else at its default: a drawn id, no environment, no inputs, no results, no
    /// timeout.
    ///
    /// # Errors
    /// Fails if the system has no random source to draw an id from.
    pub fn new(command: Vec<OsString>, folder: PathBuf) -> io::Result<Self> {
        Ok(Self {
            id: JobId::random()?,
            name: command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default(),
            tool: None,
            owner: None,
            command,
            folder,
            environment: Vec::new(),
            private_environment: Vec::new(),
            inputs: Vec::new(),
            arguments: None,
            results: None,
            patch: None,
            timeout: None,
            stop_grace: STOP_GRACE,
            log_limit: LOG_LIMIT,
            lease_until: None,
            placement: Placement::default(),
        })
    }

    /// Checks the submission before anything is made.
    pub(crate) fn check(&self) -> Result<(), JobError> {
        let program = self.check_names()?;
        let environment = Environment::Exactly(self.variables().cloned().collect());
        lookup::executable(program, &environment, Some(&self.folder)).map_err(JobError::Command)?;
        Ok(())
    }

    /// Checks the parts that mean the same on every machine. Returns the name of the program.
    fn check_names(&self) -> Result<&OsStr, JobError> {
        let program = self.command.first().ok_or(JobError::NoCommand)?;
        let has_taken = self.inputs.iter().any(|input| input.file.as_os_str() == ARGUMENTS)
            || self.results.as_ref().is_some_and(|name| name.as_str() == ARGUMENTS);
        if self.arguments.is_some() && has_taken {
            return Err(JobError::ArgumentsTaken);
        }
        Ok(program)
    }

    /// Makes the job for a store of many machines, with inputs from the state that the store has. The environment stays here: the worker has
    /// its own.
    pub(crate) fn to_shared(
        &self,
        data: &DataFolder,
        rules: Rules,
        store: &dyn SharedJobs,
    ) -> Result<SharedJob, JobError> {
        self.check_names()?;
        let mut documents = self.documents_of(store)?.into_iter();
        let mut input = |input: &JobInput| {
            let name = input.file.as_os_str().to_str();
            let name = name.ok_or(JobError::NotShared(
                "has no input whose name is not UTF-8: give the file another name",
            ))?;
            let content = match input.source.field() {
                Some(field) => {
                    documents.next().flatten().ok_or_else(|| JobError::MissingState(field.clone()))?
                }
                None => input.read(data, None)?,
            };
            Ok((name.to_owned(), content))
        };
        let work = match (&self.placement.function, &self.tool, &self.arguments) {
            (Some(name), _, Some(Value::Object(arguments))) => {
                SharedWork::PythonFunction { name: name.clone(), arguments: arguments.clone() }
            }
            (None, Some(name), Some(Value::Object(arguments))) => {
                SharedWork::Tool { name: name.clone(), arguments: arguments.clone() }
            }
            _ => SharedWork::Command(self.command.clone()),
        };
        Ok(SharedJob {
            record: self.record(rules),
            work,
            placement: self.placement.clone(),
            inputs: self.inputs.iter().map(&mut input).collect::<Result<_, JobError>>()?,
        })
    }

    /// Reads the inputs from the named state of a store of many machines, in their order.
    fn documents_of(&self, store: &dyn SharedJobs) -> Result<Vec<Option<Vec<u8>>>, JobError> {
        let name = |input: &JobInput| {
            let owner = self.owner.clone().filter(|_| matches!(input.source, InputSource::OwnState(_)));
            Some(DocumentName { owner, field: input.source.field()?.clone() })
        };
        let names: Vec<DocumentName> = self.inputs.iter().filter_map(name).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let documents = store.documents(&names)?;
        Ok(documents.into_iter().map(|found| found.map(|document| document.text.into_bytes())).collect())
    }

    /// Makes and fills the folder. The caller has to remove it if the job is not accepted after all.
    pub(crate) fn prepare(
        &self,
        data: &DataFolder,
        rules: Rules,
        boot: &str,
    ) -> Result<PreparedSubmission, JobError> {
        let folder = data.job(self.id);
        match folder.create() {
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {
                return Err(JobError::IdTaken(self.id));
            }
            made => made?,
        }
        let filled = self.fill(data, &folder, rules, boot);
        if filled.is_err() {
            discard(&folder);
        }
        filled
    }

    fn fill(
        &self,
        data: &DataFolder,
        folder: &JobFolder,
        rules: Rules,
        boot: &str,
    ) -> Result<PreparedSubmission, JobError> {
        let arguments = self.arguments.as_ref().map(|arguments| format!("{arguments}\n"));
        let is_apart = arguments.as_ref().is_some_and(|text| text.len() > WITH_ORDERS);
        let (apart, arguments) = if is_apart { (arguments, None) } else { (None, arguments) };
        let mut durable = self.fill_work(data, &folder.work(FORMAT), apart.as_deref())?;
        let record = self.record(rules);
        let orders = LaunchOrders { arguments, ..self.launch(folder, &record, boot)? };
        if let Some(lease) = &orders.lease {
            folder.write_lightly(LEASE, lease).map_err(JobError::Serialization)?;
        }
        let launch = to_json(&orders);
        let mark = SubmissionMark::put(folder, &launch).map_err(JobError::Serialization)?;
        // Inputs are not in the database. Secrets never get there: the database's log keeps its content for a while.
        let is_all = durable.is_empty() && self.private_environment.is_empty();
        let files = is_all.then_some(LaunchFiles { launch, arguments: None }).and_then(LaunchFiles::if_small);
        if files.is_none() {
            durable.extend([folder.file(LAUNCH), folder.path().to_owned(), data.jobs()]);
        }
        Ok(PreparedSubmission { record, files, durable, mark: Some(mark) })
    }

    /// Writes inputs and arguments, and returns the paths that it has made. If there is nothing to write, the supervisor makes the folder.
    fn fill_work(
        &self,
        data: &DataFolder,
        work: &WorkFolder,
        arguments: Option<&str>,
    ) -> Result<Vec<PathBuf>, JobError> {
        if self.inputs.is_empty() && arguments.is_none() {
            return Ok(Vec::new());
        }
        work.create_if_missing()?;
        let mut made = vec![work.path().to_owned()];
        let mut add = |name: &OsStr, content: &[u8]| {
            made.push(work.file(name));
            work.add(name, content).map_err(JobError::Serialization)
        };
        for input in &self.inputs {
            add(input.file.as_os_str(), &input.read(data, self.owner.as_deref())?)?;
        }
        if let Some(arguments) = arguments {
            add(OsStr::new(ARGUMENTS), arguments.as_bytes())?;
        }
        Ok(made)
    }

    fn variables(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.environment.iter().chain(&self.private_environment)
    }

    fn record(&self, rules: Rules) -> JobRecord {
        JobRecord {
            format: FORMAT,
            job_id: self.id,
            name: self.name.clone(),
            tool: self.tool.clone(),
            owner: self.owner.clone(),
            call: None,
            command: shown(&self.command),
            folder: self.folder.to_string_lossy().into_owned().into(),
            variables: self.private_names(),
            results: self.results.as_ref().map(|name| name.as_str().to_owned()),
            patch: self.patch.clone(),
            timeout_ms: self.timeout.map(millis),
            stop_grace_ms: millis(self.stop_grace),
            log_limit: self.log_limit.max(MIN_LOG_LIMIT),
            rules,
            status: JobState::Queued,
            created_at: JobTimestamp::now(),
            started_at: None,
            ending: None,
            state_applied: None,
            state_reason: None,
        }
    }

    fn private_names(&self) -> Vec<String> {
        let names = self.private_environment.iter().map(|(name, _)| name.to_string_lossy().into_owned());
        names.collect::<BTreeSet<String>>().into_iter().collect()
    }

    fn launch(&self, folder: &JobFolder, record: &JobRecord, boot: &str) -> Result<LaunchOrders, JobError> {
        let mut environment: Vec<_> = self.variables().cloned().collect();
        let lease = match self.lease_until {
            Some(until) => {
                let drawn = JobId::random()
                    .map_err(|error| FileError::system("cannot draw a mark for", folder.path(), error))?;
                environment.push((MARK.into(), drawn.as_str().into()));
                Some(WorkLease::until(boot, until, drawn.as_str()))
            }
            None => None,
        };
        let ours: [(&str, OsString); 3] = [
            ("UNHANG_JOB_ID", self.id.as_str().into()),
            ("UNHANG_JOB_DIR", folder.work(FORMAT).path().into()),
            // Python buffers its output to a file, so that progress and the last words of a killed job would be missing.
            ("PYTHONUNBUFFERED", "1".into()),
        ];
        // Of two variables with the same name the later one counts.
        environment.extend(ours.map(|(name, value)| (name.into(), value)));
        Ok(LaunchOrders {
            format: FORMAT,
            record: record.clone(),
            command: self.command.iter().map(|word| word.as_os_str().into()).collect(),
            folder: self.folder.as_os_str().into(),
            environment: environment
                .iter()
                .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
                .collect(),
            is_private: !self.private_environment.is_empty(),
            arguments: None,
            boot: Some(boot.to_owned()),
            lease,
        })
    }
}

impl JobInput {
    fn read(&self, data: &DataFolder, owner: Option<&str>) -> Result<Vec<u8>, JobError> {
        let state = |owner, field: &Field| {
            let document = Documents::owned(data, owner).raw(field).map_err(JobError::Serialization)?;
            document.ok_or_else(|| JobError::MissingState(field.clone()))
        };
        match &self.source {
            InputSource::Bytes(bytes) => Ok(bytes.clone()),
            InputSource::State(field) => state(None, field),
            InputSource::OwnState(field) => state(owner, field),
            InputSource::File(path) => {
                let bytes = path.metadata().map_or(0, |found| found.len());
                if bytes > MAX_DOCUMENT {
                    let (path, limit) = (path.clone(), MAX_DOCUMENT);
                    return Err(JobError::InputTooLarge { path, bytes, limit });
                }
                let content = read_at_most(path, MAX_DOCUMENT).map_err(JobError::Serialization)?;
                content.ok_or_else(|| {
                    let error = FileError::system("cannot read", path, io::ErrorKind::NotFound.into());
                    JobError::Serialization(error)
                })
            }
        }
    }
}

/// Removes the folder of a job that was not accepted. The caller holds the mark on its orders, if there are any.
pub(crate) fn discard(folder: &JobFolder) {
    // The orders go first: they say that the folder is a job's.
    let removed = match fs::remove_file(folder.file(LAUNCH)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // Looking into a folder takes an open file; if the process has no more of them, there is little in the folder.
        _ => fs::remove_dir_all(folder.path()).or_else(|error| remove_empty(folder).map_err(|_| error)),
    };
    if let Err(error) = removed {
        tracing::warn!("cannot remove {}: {error}", folder.path().display());
    }
}

/// Removes a folder in which a submission has just begun, without a look into it.
fn remove_empty(folder: &JobFolder) -> io::Result<()> {
    match fs::remove_dir(folder.work(FORMAT).path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_dir(folder.path()),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
