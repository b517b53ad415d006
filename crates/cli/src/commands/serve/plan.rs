//! The plan of a gateway that a configuration makes: read whole and understood before any of it takes effect.
//!
//! Invariants: reading changes nothing and starts nothing, so a file with errors spoils nothing that runs. Every error in the file is
//! reported.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    ffi::OsString,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use unhang::{
    client::DecliningListener,
    gateway::{RequestTimeouts, Scope, ServerEntry, ServerSet},
    notices::Notices,
    promotion::Promotion,
    secrets::Secrets,
    settings::{
        JobSettings, LimitSettings, Loaded, ServerSettings, Settings, StateSettings, ToolSettings, Transport,
    },
    sharing::MeetingPoint,
    telemetry::TelemetrySpec,
    tools::JobTools,
};

use super::{access::PreparedHttp, telemetry};
use crate::{
    arguments::Serve,
    commands::client::{
        files::{Lookup, NamedFile, read_named_with},
        server_launch::by_settings,
    },
    data_folder::data_folder,
    job_environment::inherited,
};

/// The variables with the proxies for servers over HTTP, in upper case; lower case counts as well.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// The place that says what is to be served.
#[derive(Clone, Debug)]
pub(super) enum ServeSource {
    /// A configuration file.
    File(PathBuf),
    /// The command line, which names one server.
    OneServer(Box<ServerSettings>),
}

impl ServeSource {
    /// Returns the file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::OneServer(_) => None,
        }
    }

    /// Returns its name in messages.
    pub(super) fn shown(&self) -> String {
        self.file().map_or_else(|| "the command line".to_owned(), |path| path.display().to_string())
    }

    /// Reads the settings, with warnings about errors that harm nothing else.
    fn settings(
        &self,
        asked: &RefCell<BTreeMap<String, Option<String>>>,
    ) -> Result<(Settings, Vec<String>), String> {
        match self {
            Self::File(path) => load(path, asked),
            Self::OneServer(server) => Ok((Settings::of_servers(vec![(**server).clone()]), Vec::new())),
        }
    }
}

/// Everything that is to be served.
pub(super) struct ServePlan {
    /// The servers. The set does not know the names of unhang's own tools yet.
    pub(super) lineup: ServerSet,
    pub(super) tools: Vec<ToolSettings>,
    pub(super) jobs: JobSettings,
    pub(super) state: StateSettings,
    /// The settings for clients over HTTP.
    pub(super) http_settings: Option<PreparedHttp>,
    /// The collector that is told of requests.
    pub(super) telemetry: Option<TelemetrySpec>,
    /// The secrets that must be in no line of a log.
    pub(super) secrets: Vec<Secrets>,
    /// Warnings about errors that harm nothing else.
    pub(super) warnings: Vec<String>,
    /// All files that the plan was read from.
    pub(super) files: Vec<PathBuf>,
    /// The variables that servers get from this process's environment: servers are shared if these are the same.
    given: InheritedVariables,
}

/// The variables that servers get from this process's environment: those that the file names, and those that they inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct InheritedVariables {
    /// The variables that the file names, with their values.
    named: BTreeMap<String, Option<String>>,
    inherited: BTreeMap<OsString, OsString>,
}

impl InheritedVariables {
    /// Returns the variables that these servers get.
    fn to(servers: &[ServerSettings], named: BTreeMap<String, Option<String>>) -> InheritedVariables {
        let mut inherited_by_some = BTreeMap::new();
        for server in servers {
            match &server.transport {
                Transport::Stdio { inherits_environment: true, .. } => {
                    inherited_by_some.extend(env::vars_os());
                }
                Transport::Stdio { .. } => inherited_by_some.extend(inherited()),
                // Proxies are for servers over HTTP.
                Transport::Http { .. } => inherited_by_some.extend(env::vars_os().filter(|(name, _)| {
                    name.to_str().is_some_and(|name| PROXIES.contains(&&*name.to_ascii_uppercase()))
                })),
            }
        }
        InheritedVariables { named, inherited: inherited_by_some }
    }
}

impl ServePlan {
    /// Reads what the source says, and the files that it and the flags name.
    pub(super) fn read(serve: &Serve, source: &ServeSource) -> Result<ServePlan, String> {
        let variables = RefCell::default();
        let (settings, mut warnings) = source.settings(&variables)?;
        let Settings { jobs, worker: _, state, tools, servers, style, clocks, http, gateway, telemetry } =
            settings;
        let secrets = servers.iter().map(ServerSettings::secrets).collect();
        // The limit of one client's requests says nothing about the number of requests that a server can take.
        let said = serve.gateway.limits.settings();
        let joins_none = said.join_same_call == Some(false);
        let join_same_call = said.join_same_call.or(jobs.join_same_call);
        let flags = LimitSettings { max_in_flight: None, join_same_call, ..said };
        let folder = data_folder();
        // Over stdin and stdout there is one session, and the process serves nothing else.
        let own = if serve.http.is_some() { Scope::Session } else { Scope::Process };
        let servers_made = servers.iter().map(|settings| {
            let scope = if settings.per_session { own } else { Scope::Everybody };
            Ok(ServerEntry { scope, ..entry(settings, &flags, joins_none, folder.as_deref())? })
        });
        let entries = servers_made.collect::<Result<Vec<ServerEntry>, String>>()?;
        warnings.extend(entries.iter().flat_map(never_jobs));
        let mut files: Vec<PathBuf> = source.file().map(Path::to_owned).into_iter().collect();
        if serve.http.is_some() {
            files.extend(serve.token_file.clone());
            files.extend(http.tls.iter().flat_map(|tls| [tls.certificate.clone(), tls.key.clone()]));
        } else if serve.token_file.is_some() {
            warnings.push(
                "--token-file has no effect without --http: over stdin and stdout there is only one client"
                    .to_owned(),
            );
        }
        let http_settings = serve.http.is_some().then(|| PreparedHttp::prepare(serve, http)).transpose()?;
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let (telemetry, wrong) = telemetry::spec(&telemetry, variable);
        warnings.extend(wrong);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        warnings.extend(serve.tool_mode.unknown(&names));
        let given = InheritedVariables::to(&servers, variables.take());
        let lineup = ServerSet {
            entries,
            style,
            own: Vec::new(),
            capacity: gateway.capacity(),
            clocks,
            notices: Notices::default(),
            awaits_client: serve.http.is_none(),
        };
        Ok(ServePlan {
            lineup,
            tools,
            jobs,
            state,
            http_settings,
            telemetry,
            secrets,
            warnings,
            files,
            given,
        })
    }

    /// Returns the variables that servers get from this process's environment.
    pub(super) fn given(&self) -> &InheritedVariables {
        &self.given
    }

    /// Gives each window processes of its own for these servers, except those whose settings are as before. Other windows may give the
    /// changed servers another environment, and the meeting place depends on the environment at the start.
    pub(super) fn keep_apart(&mut self, before: &[ServerEntry]) {
        for entry in &mut self.lineup.entries {
            let is_as_before = before.iter().any(|old| {
                (&old.spec.name, &old.made_from, old.scope)
                    == (&entry.spec.name, &entry.made_from, Scope::Everybody)
            });
            if entry.scope == Scope::Everybody && !is_as_before {
                entry.scope = Scope::Process;
            }
        }
    }

    /// Returns which of unhang's own tools are listed. If the file has no tool and no call may become a job, none of them is useful.
    pub(super) fn job_tools(&self) -> JobTools {
        match self.lineup.entries.iter().any(|entry| RequestTimeouts::from(entry).promotes()) {
            true => JobTools::Listed,
            false => JobTools::ListedWithTools,
        }
    }

    /// Returns the place where windows meet. They serve the same file with the same limits, would give servers the same environment, and
    /// have the same version of unhang. Returns `None` if there is nothing to share, or no data folder. The content of the file may change
    /// while they run.
    pub(super) fn meeting_place(
        &self,
        path: &Path,
        flags: &LimitSettings,
    ) -> io::Result<Option<MeetingPoint>> {
        let Some(folder) = data_folder().filter(|_| !self.lineup.entries.is_empty()) else { return Ok(None) };
        let mut hasher = DefaultHasher::new();
        (env!("CARGO_PKG_VERSION"), path.canonicalize()?, &self.given).hash(&mut hasher);
        format!("{flags:?}").hash(&mut hasher);
        MeetingPoint::new(&folder, &format!("{:016x}", hasher.finish())).map(Some)
    }
}

/// Makes the entry of one server, from the settings in the file and the flags above them, for everybody.
fn entry(
    settings: &ServerSettings,
    flags: &LimitSettings,
    joins_none: bool,
    data: Option<&Path>,
) -> Result<ServerEntry, String> {
    let spec =
        by_settings(settings, flags, Arc::new(DecliningListener)).map_err(|failure| failure.message)?;
    let prefix = settings.prefix.clone().unwrap_or_else(|| settings.name.clone());
    let mut tool_rules = settings.tool_rules.clone();
    // Flags override everything in the file, the limits of single tools too.
    for rule in tool_rules.tools.values_mut() {
        rule.call_timeout = rule.call_timeout.filter(|_| flags.call_timeout.is_none());
        rule.promote_after = rule.promote_after.filter(|_| flags.promote_after.is_none());
        rule.job_timeout = rule.job_timeout.filter(|_| flags.job_timeout.is_none());
        rule.join_same_call = rule.join_same_call.filter(|_| !joins_none);
    }
    Ok(ServerEntry {
        spec,
        scope: Scope::Everybody,
        era: settings.era,
        prefix,
        tool_rules,
        idle_timeout: settings.idle_timeout,
        instances: usize::try_from(settings.instances).unwrap_or(usize::MAX),
        secrets: settings.secrets(),
        memory: data.map(|data| settings.memory(data)),
        // The text has all settings, secrets included, and is shown to nobody.
        made_from: format!("{settings:?}"),
        behind: None,
    })
}

/// Lists settings without effect about when calls of a server become jobs.
fn never_jobs(entry: &ServerEntry) -> Vec<String> {
    let (timeouts, name) = (RequestTimeouts::from(entry), &entry.spec.name);
    let whole = timeouts.promotion.in_vain(timeouts.call).map(|why| format!("`{name}`: {why}"));
    let single = |(tool, promotion): (&String, &Promotion)| {
        promotion.in_vain(timeouts.of_call(tool)).map(|why| format!("`{tool}` of `{name}`: {why}"))
    };
    whole.into_iter().chain(timeouts.promotions.iter().filter_map(single)).collect()
}

/// Reads the settings in the file, with warnings about errors that harm nothing else.
pub(in crate::commands) fn load(
    path: &Path,
    asked: &RefCell<BTreeMap<String, Option<String>>>,
) -> Result<(Settings, Vec<String>), String> {
    let lookup: &Lookup = &|name| {
        let value = env::var(name).ok();
        asked.borrow_mut().insert(name.to_owned(), value.clone());
        value
    };
    match read_named_with(path, lookup)? {
        NamedFile::Ours(loaded) => {
            let Loaded { settings, warnings } = *loaded;
            Ok((settings, warnings.iter().map(ToString::to_string).collect()))
        }
        NamedFile::Clients(found) => {
            let (mut servers, mut warnings) = (Vec::new(), Vec::new());
            for server in found.into_iter().filter(|server| !server.is_disabled) {
                match server.settings {
                    Ok(settings) => servers.push(settings),
                    Err(complaint) => warnings.push(format!("{complaint}; `{}` is left out", server.name)),
                }
            }
            Ok((Settings::of_servers(servers), warnings))
        }
    }
}
