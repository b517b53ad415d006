//! Functions of the Python package, as a worker runs them.
//!
//! Invariants
//!
//! - The worker's own patterns decide, whatever labels a row of the store has.
//! - The name of a function is one word behind the worker's own command. No shell sees it.
//! - The process refuses a function that its module has only imported: the pattern is for what the module defines.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use serde_json::{Map, Value};
use unhang_jobs::{
    record::JobRecord,
    shared_function::{FunctionName, FunctionPattern},
    shared_work::SharedWork,
    submission::Submission,
};

use crate::work::{CommandEnvironment, WorkRefusal, WorkResolver, submission_of};

/// The program for the interpreter. Nothing is imported before the working folder has left the path, which begins with the folder of the
/// functions afterwards.
const BEGIN: &str = "import sys; sys.path[:1] = [] if sys.path[:1] == [''] else sys.path[:1]; \
                     from unhang.run import start_on_worker; start_on_worker()";
/// The variable with the folder from which that program imports modules first.
const FOLDER: &str = "UNHANG_PYTHON_FOLDER";
/// The file in which it leaves the result.
const RESULTS: &str = "results.json";

/// Runs functions of the modules that a worker's owner allows.
pub struct PythonFunctions {
    /// The modules.
    pub patterns: Vec<FunctionPattern>,
    /// The interpreter: a path, or a name that is looked for in `PATH`.
    pub python: OsString,
    /// The working folder, from which modules are imported first.
    pub folder: PathBuf,
    /// The variables of the functions: all of them.
    pub environment: CommandEnvironment,
    /// The time that a function may run, if this machine has a limit of its own.
    pub timeout: Option<Duration>,
    /// The bytes that are kept of each output stream, if this machine has a limit of its own.
    pub log_limit: Option<u64>,
}

/// Leaves out the environment.
impl fmt::Debug for PythonFunctions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PythonFunctions").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

impl WorkResolver for PythonFunctions {
    fn own_labels(&self) -> Vec<String> {
        self.patterns.iter().map(FunctionPattern::label).collect()
    }

    fn submission(&self, record: &JobRecord, work: &SharedWork) -> Result<Submission, WorkRefusal> {
        let SharedWork::PythonFunction { name, arguments } = work else {
            return Err(WorkRefusal("this worker runs functions and nothing else".to_owned()));
        };
        if !self.patterns.iter().any(|pattern| pattern.allows(name)) {
            return Err(WorkRefusal(format!(
                "its worker does not allow functions of the module {}",
                name.module()
            )));
        }
        if record.results.as_deref() != Some(RESULTS) {
            return Err(WorkRefusal(format!("a function leaves its result in {RESULTS} and no other file")));
        }
        self.of_function(record, name, arguments)
    }
}

impl PythonFunctions {
    fn of_function(
        &self,
        record: &JobRecord,
        name: &FunctionName,
        arguments: &Map<String, Value>,
    ) -> Result<Submission, WorkRefusal> {
        let command = [self.python.clone(), "-c".into(), BEGIN.into(), name.to_string().into()];
        let of_record = submission_of(record, command.into(), self.folder.clone())?;
        let folder = (FOLDER.into(), self.folder.clone().into());
        let all = self.environment.all.clone().into_iter().filter(|(variable, _)| variable != FOLDER);
        Ok(Submission {
            arguments: Some(arguments.clone().into()),
            environment: self.environment.usual.clone().into_iter().collect(),
            private_environment: all.chain([folder]).collect(),
            // Of two limits the stricter one holds: the owner of this machine has set the one.
            timeout: self.timeout.into_iter().chain(of_record.timeout).min(),
            log_limit: self.log_limit.unwrap_or(u64::MAX).min(of_record.log_limit),
            ..of_record
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::json;

    use super::*;

    fn record() -> JobRecord {
        let record = json!({
            "format": 2, "job_id": "aaaaaaaaaaaa", "name": "size", "command": [], "folder": "/submitter",
            "results": RESULTS, "timeout_ms": 5000, "stop_grace_ms": 1000, "log_limit": 70_000,
            "rules": { "max_concurrent": 1, "memory_limit": 90.0, "disk_reserve": 0 },
            "variables": ["FROM_AFAR"], "status": "queued", "created_at": "2026-11-29T00:00:00.000Z",
        });
        serde_json::from_value(record).expect("a record")
    }

    fn work(name: &str) -> SharedWork {
        SharedWork::PythonFunction { name: name.parse().unwrap(), arguments: Map::new() }
    }

    fn functions() -> PythonFunctions {
        PythonFunctions {
            patterns: vec!["models.*".parse().unwrap()],
            python: "/venv/bin/python".into(),
            folder: "/srv/app".into(),
            environment: CommandEnvironment::default(),
            timeout: Some(Duration::from_secs(1)),
            log_limit: None,
        }
    }

    #[test]
    fn promise_4_a_function_runs_with_the_workers_own_command_if_its_module_is_allowed() {
        let functions = functions();
        let submission = functions.submission(&record(), &work("models.design:size")).unwrap();
        let program = ["/venv/bin/python", "-c", BEGIN, "models.design:size"];
        assert_eq!(submission.command, program.map(OsString::from));
        assert_eq!(submission.folder, Path::new("/srv/app"));
        assert_eq!(submission.private_environment, [(FOLDER.into(), "/srv/app".into())]);
        assert_eq!((submission.timeout, submission.log_limit), (Some(Duration::from_secs(1)), 70_000));
        let refused = functions.submission(&record(), &work("os:system")).unwrap_err();
        assert_eq!(refused.0, "its worker does not allow functions of the module os");
        let other = JobRecord { results: Some("x.json".to_owned()), ..record() };
        assert!(functions.submission(&other, &work("models.design:size")).is_err());
        assert!(functions.submission(&record(), &SharedWork::Command(vec!["id".into()])).is_err());
    }

    /// The package and the program above are released together.
    #[test]
    fn the_package_has_what_the_program_calls() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/src/unhang");
        let read = |file: &str| fs::read_to_string(sources.join(file)).expect("a file of the package");
        assert!(read("run.py").contains("\ndef start_on_worker() -> None:\n"));
        let worker = read("_worker.py");
        assert!(worker.contains(&format!("_FOLDER = \"{FOLDER}\"")));
        let begin = BEGIN.split(" from ").next().expect("a beginning");
        assert!(worker.contains(&format!("_BEGIN = \"{begin} from {{module}} import start; start()\"")));
        assert!(read("_names.py").contains(&format!("RESULTS = \"{RESULTS}\"")));
    }
}
