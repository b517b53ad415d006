//! `[worker]`, the address of the store of many machines, and the demands of a tool on its worker.
//!
//! Invariant: no output has the password of an address.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use unhang_jobs::{
    document::MAX_DOCUMENT, shared_function::FunctionPattern, shared_jobs::Placement, shared_work::is_label,
};

use super::{
    keys::{ATTEMPTS, CONCURRENT, SettingKey, SettingKind, key},
    section::{Complaint, Section, SettingValue},
};

/// The address of a store as it was typed. It may have a password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Takes the text of an address. Whoever opens the store checks it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns whether the text is empty, which switches off the store of a file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the address with its password.
    #[must_use]
    pub fn with_password(&self) -> &str {
        &self.0
    }
}

/// Leaves out everything: a text that is no URL may be a password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StoreUrl(…)")
    }
}

/// `[worker]`: the rules of a worker. Rules that the file does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerRules {
    /// The most jobs that the worker runs at the same time.
    pub slots: Option<u32>,
    /// The labels of the worker.
    pub labels: Vec<String>,
    /// Whether the worker runs any command.
    pub any_command: Option<bool>,
    /// The functions of the Python package that the worker runs.
    pub functions: FunctionRules,
    /// The time after a heartbeat within which a job that may run again must have the next one.
    pub lease: Option<Duration>,
    /// The time between two heartbeats.
    pub heartbeat: Option<Duration>,
    /// The time after a heartbeat after which any other job is lost.
    pub lost_after: Option<Duration>,
}

/// The functions of the Python package that a worker runs, and what it runs them with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRules {
    /// The modules whose functions the worker runs.
    pub patterns: Vec<FunctionPattern>,
    /// The interpreter: a path, or a name that is looked for in `PATH`.
    pub python: String,
    /// The working folder, from which modules are imported first; `None` if there is no `[worker]` and so no folder of its file.
    pub folder: Option<PathBuf>,
}

impl Default for FunctionRules {
    fn default() -> Self {
        Self { patterns: Vec::new(), python: PYTHON.to_owned(), folder: None }
    }
}

/// The interpreter of functions, unless a worker names another one.
const PYTHON: &str = "python3";

/// The keys of `[worker]`.
pub(super) const WORKER: &[SettingKey] = &[
    key(
        "slots",
        SettingKind::Whole(CONCURRENT),
        "Jobs that the worker runs at the same time. Default: half the processors, at least 2.",
    ),
    key(
        "labels",
        SettingKind::List,
        "The labels of the worker, which tools and jobs may demand. Default: none.",
    ),
    key(
        "any-command",
        SettingKind::Flag,
        "Whether the worker runs any command of `unhang job run`, and not only the tools of this file. \
         Default: false.",
    ),
    key(
        "functions",
        SettingKind::List,
        "The modules whose functions the worker runs, if servers submit them with the Python package: \
         models.design is a module, models.* all modules below models, * all modules. Default: none.",
    ),
    key(
        "python",
        SettingKind::Text,
        "The Python that runs such functions, with the package `unhang` in it. Default: python3 in PATH.",
    ),
    key(
        "folder",
        SettingKind::Text,
        "The working folder of such functions, from which Python imports modules first. Default: the \
         folder of this file.",
    ),
    key(
        "lease",
        SettingKind::Duration,
        "The time after a heartbeat within which a repeatable job must have the next one. Then the worker \
         kills the job, and another worker may run it. Default: 30s.",
    ),
    key(
        "heartbeat",
        SettingKind::Duration,
        "The time between two heartbeats. Default: a sixth of `lease`, 5s.",
    ),
    key(
        "lost-after",
        SettingKind::Duration,
        "The time after a heartbeat after which the worker kills any other job, which is lost then. \
         Default: 10m.",
    ),
];

/// Reads `[worker]` of a file in this folder.
pub(super) fn worker(section: &Section<'_>, folder: &Path) -> Result<WorkerRules, Complaint> {
    let duration = |name| section.get(name).map(|field| field.duration()).transpose();
    Ok(WorkerRules {
        slots: section.get("slots").map(|field| field.whole(CONCURRENT)).transpose()?,
        labels: section.get("labels").map_or(Ok(Vec::new()), |field| labels(&field))?,
        any_command: section.get("any-command").map(|field| field.flag()).transpose()?,
        functions: functions(section, folder)?,
        lease: duration("lease")?,
        heartbeat: duration("heartbeat")?,
        lost_after: duration("lost-after")?,
    })
}

/// Reads the functions that a worker runs.
fn functions(section: &Section<'_>, folder: &Path) -> Result<FunctionRules, Complaint> {
    let pattern = |item: SettingValue<'_>| {
        let text = item.plain()?;
        text.parse().map_err(|error| item.complaint(format!("`{text}` {error}")))
    };
    let patterns = section.get("functions").map_or(Ok(Vec::new()), |field| field.items())?;
    let python = section.get("python").map(|field| field.plain()).transpose()?;
    let place = section.get("folder").map(|field| field.plain()).transpose()?;
    Ok(FunctionRules {
        patterns: patterns.into_iter().map(pattern).collect::<Result<_, Complaint>>()?,
        // A name without a folder is looked for in PATH, and a path begins at the file.
        python: match python {
            Some(path) if path.contains('/') => folder.join(path).to_string_lossy().into_owned(),
            named => named.unwrap_or_else(|| PYTHON.to_owned()),
        },
        folder: Some(place.map_or_else(|| folder.to_owned(), |place| folder.join(place))),
    })
}

/// Reads the demands of a tool on the worker that runs it.
pub(super) fn placement(section: &Section<'_>) -> Result<Placement, Complaint> {
    let defaults = Placement::default();
    let function = |field: SettingValue<'_>| {
        let text = field.text()?;
        text.parse().map_err(|error| field.complaint(format!("`{text}` {error}")))
    };
    Ok(Placement {
        function: section.get("function").map(function).transpose()?,
        labels: section.get("labels").map_or(Ok(Vec::new()), |field| labels(&field))?,
        is_repeatable: section.get("repeatable").map_or(Ok(false), |field| field.flag())?,
        max_attempts: section
            .get("max-attempts")
            .map_or(Ok(defaults.max_attempts), |field| field.whole(ATTEMPTS))?,
    })
}

/// Reads a size of files of jobs. No file of a job is larger than a document of the named state.
#[expect(clippy::needless_pass_by_value, reason = "the caller has no other use for it")]
pub(super) fn file_size(field: SettingValue<'_>) -> Result<u64, Complaint> {
    let size = field.size()?;
    if size <= MAX_DOCUMENT {
        return Ok(size);
    }
    let most = MAX_DOCUMENT >> 20;
    Err(field.complaint(format!("no file of a job has more than {most}MiB, so this is at most {most}MiB")))
}

fn labels(field: &SettingValue<'_>) -> Result<Vec<String>, Complaint> {
    let label = |item: SettingValue<'_>| {
        let label = item.plain()?;
        if is_label(&label) {
            return Ok(label);
        }
        Err(item.complaint(format!(
            "`{label}` is no label: a label has letters, digits, `_`, `-`, `.` and `/`, at most 64 of them"
        )))
    };
    field.items()?.into_iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{Loaded, Settings},
        *,
    };

    fn read(text: &str) -> Result<Loaded, Complaint> {
        Settings::read(text, "unhang.toml", Path::new("/project"), &|_| None)
    }

    #[test]
    fn the_store_the_worker_and_the_demands_of_a_tool_are_read() {
        let text = "[jobs]\nstore = \"postgres://me:geheim@db/jobs\"\n\
                    [worker]\nslots = 3\nlabels = [\"gpu\", \"big/1\"]\nany-command = true\nlease = \"10s\"\n\
                    heartbeat = \"1s\"\nlost-after = \"5m\"\n\
                    functions = [\"models.*\"]\npython = \"venv/bin/python\"\n\
                    [tools.a]\ncommand = [\"a\"]\nlabels = [\"gpu\"]\nrepeatable = true\nmax-attempts = 5\n\
                    function = \"models.design:size\"\n\
                    [tools.b]\ncommand = [\"b\"]\n";
        let Loaded { settings, warnings } = read(text).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let store = settings.jobs.store.unwrap();
        assert_eq!(store.with_password(), "postgres://me:geheim@db/jobs");
        assert!(!format!("{store:?}").contains("geheim"));
        let labels = ["gpu", "big/1"].map(str::to_owned).to_vec();
        let seconds = |count| Some(Duration::from_secs(count));
        let expected = WorkerRules {
            slots: Some(3),
            labels,
            any_command: Some(true),
            functions: FunctionRules {
                patterns: vec!["models.*".parse().unwrap()],
                python: "/project/venv/bin/python".to_owned(),
                folder: Some("/project".into()),
            },
            lease: seconds(10),
            heartbeat: seconds(1),
            lost_after: seconds(300),
        };
        assert_eq!(settings.worker, expected);
        let [a, b] = &settings.tools[..] else { panic!("two tools") };
        let demands = Placement {
            labels: vec!["gpu".to_owned()],
            function: Some("models.design:size".parse().unwrap()),
            is_repeatable: true,
            max_attempts: 5,
        };
        assert_eq!((&a.placement, &b.placement), (&demands, &Placement::default()));
    }

    #[test]
    fn the_places_of_files_are_read_and_none_is_larger_than_a_file_of_a_job() {
        let text = "[jobs]\nartifacts = \"s3://jobs/unhang\"\nartifact-inline = \"2MiB\"\nartifact-max = \"64MiB\"\n";
        let jobs = read(text).unwrap().settings.jobs;
        assert_eq!(jobs.artifacts.as_deref(), Some("s3://jobs/unhang"));
        assert_eq!((jobs.artifact_inline, jobs.artifact_max), (Some(2 << 20), Some(64 << 20)));
        for key in ["artifact-inline", "artifact-max"] {
            let told = read(&format!("[jobs]\n{key} = \"65MiB\"\n")).unwrap_err().to_string();
            assert!(told.contains(key) && told.contains("at most 64MiB"), "{told}");
        }
    }

    #[test]
    fn a_wrong_function_is_a_complaint_with_its_place() {
        let of_worker = read("[worker]\nfunctions = [\"a.*\", \"models/*\"]").unwrap_err().to_string();
        assert!(of_worker.contains("functions[1]") && of_worker.contains("names no modules"), "{of_worker}");
        let of_tool = read("[tools.a]\ncommand = [\"a\"]\nfunction = \"size\"").unwrap_err().to_string();
        assert!(of_tool.contains("`size` is not a function"), "{of_tool}");
    }

    #[test]
    fn a_label_of_unhangs_own_is_refused_in_the_file() {
        for text in
            ["[worker]\nlabels = [\"unhang:command\"]", "[tools.a]\ncommand = [\"a\"]\nlabels = [\"a b\"]"]
        {
            let told = read(text).unwrap_err().to_string();
            assert!(told.contains("labels[0]: `") && told.contains("is no label"), "{told}");
        }
    }
}
