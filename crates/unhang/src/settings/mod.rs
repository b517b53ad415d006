//! The configuration file `unhang.toml` (design 6): its settings, and complaints about it.
//!
//! [`Settings::read`] is a function of the file's text, its folder and the environment that is handed in. It opens no file. [`file_schema`]
//! describes the same keys to editors.
//!
//! Invariants
//! - An unknown key is a warning with a proposal. A wrong type, a missing key or a name that could leave its folder is an error with file,
//!   line and key. No text in the file is ignored silently.
//! - Lengths of time and sizes have a unit.
//! - Every name from here that becomes part of a path is checked first: it must be one plain name.

mod clients;
mod declared;
mod env_file;
mod expand;
mod foreign;
mod guarded;
mod http;
mod keys;
mod limit_keys;
mod section;
mod server;
mod shown;
mod telemetry;
mod tool;
mod tool_rules;
mod workers;

use std::{cell::RefCell, collections::BTreeSet, path::Path, time::Duration};

use toml::de::DeTable;
use unhang_jobs::{
    document::{Field, NotAField},
    engine::EngineOptions,
};

use unhang_core::{clients::Clocks, insertion::InsertEach};
use unhang_gateway::{Bounds, Capacity, route::names::Style};

pub use declared::{Declaration, declared, sha256};
pub use foreign::{FileText, ForeignFile, ForeignServer, read_foreign};
pub use guarded::{OwnCommand, own_command};
pub use http::{HttpSettings, TlsSettings};
pub use keys::file_schema;
pub use section::Complaint;
pub use server::{LimitSettings, ServerSettings, Transport};
pub use shown::without_secrets;
pub use telemetry::TelemetrySettings;
pub use unhang_tools::{Mode, ToolSettings};
pub use unhang_upstream::http::HttpDialect;
pub use workers::{FunctionRules, StoreUrl, WorkerRules};

use keys::{CONCURRENT, COUNT, FILE, GATEWAY, JOBS, PERCENT, STATE_SHARING};
use section::{Section, SettingsFile};

/// All settings of the file. Settings that the file does not have are at their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `[jobs]`.
    pub jobs: JobSettings,
    /// `[worker]`.
    pub worker: WorkerRules,
    /// `[state]`.
    pub state: StateSettings,
    /// `[tools.*]`, in the order of the file.
    pub tools: Vec<ToolSettings>,
    /// `[servers.*]`, in the order of the file.
    pub servers: Vec<ServerSettings>,
    /// The form of the names of tools and prompts.
    pub style: Style,
    /// `[clients.*]`, which override the table of clocks.
    pub clocks: Clocks,
    /// `[http]`.
    pub http: HttpSettings,
    /// `[gateway]`.
    pub gateway: GatewaySettings,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
}

/// `[state]`: the owners of the named state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSettings {
    /// Fields that all callers share. Any other field belongs to its caller, as jobs do.
    pub shared: BTreeSet<Field>,
}

/// `[gateway]`: limits of all servers together. Limits that the file does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Requests with servers at the same time.
    pub max_in_flight: Option<u32>,
    /// Requests that wait because of that limit.
    pub max_waiting: Option<u32>,
    /// Instances of the servers that run once per session.
    pub max_instances: Option<u32>,
}

impl GatewaySettings {
    /// Returns these limits, with defaults for those that are not set.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let count = |said: Option<u32>| said.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let Capacity { requests: Bounds { permits, room }, instances } = Capacity::default();
        Capacity {
            requests: Bounds {
                permits: count(self.max_in_flight).unwrap_or(permits),
                room: count(self.max_waiting).unwrap_or(room),
            },
            instances: count(self.max_instances).unwrap_or(instances),
        }
    }
}

/// `[jobs]`: rules for background jobs. Rules that the file does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSettings {
    /// Jobs that run at the same time.
    pub max_concurrent: Option<u32>,
    /// How long a finished job is kept.
    pub retention: Option<Duration>,
    /// Memory in use, in per cent, above which nothing new starts.
    pub memory_limit: Option<u32>,
    /// Free disk space, in bytes, below which nothing new starts.
    pub free_disk: Option<u64>,
    /// Bytes that are kept of each output stream.
    pub log_limit: Option<u64>,
    /// How long a job may run if its tool does not say so.
    pub timeout: Option<Duration>,
    /// Whether the same call joins the job that it has become.
    pub join_same_call: Option<bool>,
    /// The store of many machines.
    pub store: Option<StoreUrl>,
    /// The object store for large files of that store, as it was typed. Whoever opens it checks the text.
    pub artifacts: Option<String>,
    /// The bytes of a file above which it goes to the object store.
    pub artifact_inline: Option<u64>,
    /// The bytes of the largest file that goes to the store of many machines itself.
    pub artifact_max: Option<u64>,
}

impl JobSettings {
    /// Replaces the engine's defaults by the values of the file.
    pub fn apply(&self, options: &mut EngineOptions) {
        let rules = &mut options.rules;
        rules.max_concurrent = self.max_concurrent.unwrap_or(rules.max_concurrent);
        options.max_concurrent_was_said |= self.max_concurrent.is_some();
        rules.memory_limit = self.memory_limit.map_or(rules.memory_limit, f64::from);
        rules.disk_reserve = self.free_disk.unwrap_or(rules.disk_reserve);
        if let Some(retention) = self.retention {
            options.retention = retention;
            options.retention_was_said = true;
            rules.retention_ms = Some(u64::try_from(retention.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

/// A file that was read, and the warnings about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings of the file.
    pub settings: Settings,
    /// Complaints about parts that have no effect, or none yet.
    pub warnings: Vec<Complaint>,
}

impl Settings {
    /// Makes settings with these servers, and everything else at its default.
    #[must_use]
    pub fn of_servers(servers: Vec<ServerSettings>) -> Self {
        Self {
            jobs: JobSettings::default(),
            worker: WorkerRules::default(),
            state: StateSettings::default(),
            tools: Vec::new(),
            servers,
            style: Style::default(),
            clocks: Clocks::default(),
            http: HttpSettings::default(),
            gateway: GatewaySettings::default(),
            telemetry: TelemetrySettings::default(),
        }
    }

    /// Reads the text of a file. `file` is its name in complaints, `folder` its folder, and `lookup` the environment.
    ///
    /// # Errors
    /// Fails with the first complaint that is not a mere warning.
    pub fn read(
        text: &str,
        file: &str,
        folder: &Path,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Loaded, Complaint> {
        let source = SettingsFile { file, text, lookup, warnings: RefCell::default() };
        let table = source.toml()?;
        let settings = read(&source, &table, folder)?;
        Ok(Loaded { settings, warnings: source.warnings.take() })
    }
}

impl JobSettings {
    /// Reads `[jobs]` alone. It complains about the rest only if that prevents the file from being read. Servers and tools are not looked
    /// into: a variable that one of them lacks is no reason to refuse work on jobs.
    ///
    /// # Errors
    /// Fails as [`Settings::read`] does.
    pub fn read(text: &str, file: &str) -> Result<(JobSettings, Vec<Complaint>), Complaint> {
        let source = SettingsFile { file, text, lookup: &|_| None, warnings: RefCell::default() };
        let table = source.toml()?;
        let top = Section::open(&source, String::new(), 0, &table, FILE);
        let settings = match top.get("jobs") {
            Some(field) => jobs(&field.section(JOBS)?)?,
            None => JobSettings::default(),
        };
        Ok((settings, source.warnings.take()))
    }
}

/// Returns whether a file has settings for jobs or for the named state. Returns true for a file that cannot be parsed. Nothing in the file
/// is used.
#[must_use]
pub fn speaks_of_jobs(text: &str) -> bool {
    let source = SettingsFile { file: "", text, lookup: &|_| None, warnings: RefCell::default() };
    source.toml().map_or(true, |table| ["jobs", "state"].iter().any(|name| table.contains_key(*name)))
}

fn read<'a>(
    source: &'a SettingsFile<'a>,
    table: &'a DeTable<'a>,
    folder: &Path,
) -> Result<Settings, Complaint> {
    let top = Section::open(source, String::new(), 0, table, FILE);
    let jobs = match top.get("jobs") {
        Some(field) => jobs(&field.section(JOBS)?)?,
        None => JobSettings::default(),
    };
    let worker = match top.get("worker") {
        Some(field) => workers::worker(&field.section(workers::WORKER)?, folder)?,
        None => WorkerRules::default(),
    };
    let state = match top.get("state") {
        Some(field) => state(&field.section(STATE_SHARING)?)?,
        None => StateSettings::default(),
    };
    let tools = match top.get("tools") {
        Some(field) => {
            let tools = field.fields()?.into_iter();
            tools.map(|(name, field)| tool::read(name, &field, folder, &jobs)).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let servers = match top.get("servers") {
        Some(field) => {
            let servers = field.fields()?.into_iter();
            servers.map(|(name, field)| server::read(name, &field, folder)).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let clocks = match top.get("clients") {
        Some(field) => clients::read(&field)?,
        None => Clocks::default(),
    };
    let http = match top.get("http") {
        Some(field) => http::read(&field, folder)?,
        None => HttpSettings::default(),
    };
    let style = match top.get("separator") {
        Some(field) => {
            let separator = field.text()?;
            Style::separated_by(separator).ok_or_else(|| {
                field
                    .complaint(format!("`{separator}` must be one to eight letters, digits, `_`, `-` or `.`"))
            })?
        }
        None => Style::default(),
    };
    let gateway = match top.get("gateway") {
        Some(field) => gateway(&field.section(GATEWAY)?)?,
        None => GatewaySettings::default(),
    };
    let telemetry = match top.get("telemetry") {
        Some(field) => telemetry::read(&field)?,
        None => TelemetrySettings::default(),
    };
    Ok(Settings { jobs, worker, state, tools, servers, style, clocks, http, gateway, telemetry })
}

fn state(section: &Section<'_>) -> Result<StateSettings, Complaint> {
    let Some(list) = section.get("shared") else { return Ok(StateSettings::default()) };
    let field = |item: section::SettingValue<'_>| {
        item.plain()?.parse().map_err(|error: NotAField| item.complaint(error.to_string()))
    };
    Ok(StateSettings { shared: list.items()?.into_iter().map(field).try_insert_each()? })
}

fn gateway(section: &Section<'_>) -> Result<GatewaySettings, Complaint> {
    let count = |name| section.get(name).map(|field| field.whole(COUNT)).transpose();
    Ok(GatewaySettings {
        max_in_flight: count("max-in-flight")?,
        max_waiting: count("max-waiting")?,
        max_instances: count("max-instances")?,
    })
}

fn jobs(section: &Section<'_>) -> Result<JobSettings, Complaint> {
    let duration = |name| section.get(name).map(|field| field.duration()).transpose();
    let size = |name| section.get(name).map(|field| field.size()).transpose();
    let whole = |name, bounds| section.get(name).map(|field| field.whole(bounds)).transpose();
    Ok(JobSettings {
        max_concurrent: whole("max-concurrent", CONCURRENT)?,
        retention: duration("retention")?,
        memory_limit: whole("memory-limit", PERCENT)?,
        free_disk: size("free-disk")?,
        log_limit: size("log-limit")?,
        timeout: duration("timeout")?,
        join_same_call: section.get("join-same-call").map(|field| field.flag()).transpose()?,
        store: section.get("store").map(|field| field.text().map(StoreUrl::new)).transpose()?,
        artifacts: section.get("artifacts").map(|field| field.text().map(str::to_owned)).transpose()?,
        artifact_inline: section.get("artifact-inline").map(workers::file_size).transpose()?,
        artifact_max: section.get("artifact-max").map(workers::file_size).transpose()?,
    })
}

#[cfg(test)]
mod tests;
