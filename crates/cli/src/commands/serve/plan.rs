//! What a configuration makes of a gateway: read whole and understood before anything of it holds.
//!
//! Invariants: reading changes nothing and starts nothing, so that a file which cannot be right spoils nothing that is there; nothing
//! that is wrong in it is passed over in silence.

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
    clients::Clocks,
    gateway::{RequestTimeouts, Scope, ServerEntry, ServerSet},
    notices::Notices,
    promotion::Promotion,
    route::names::Style,
    secrets::Secrets,
    settings::{
        GatewaySettings, HttpSettings, JobSettings, LimitSettings, Loaded, ServerSettings, Settings,
        StateSettings, TelemetrySettings, ToolSettings, Transport,
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

/// What servers somewhere else are reached through, in either spelling.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// What is to be served.
pub(super) struct ServePlan {
    /// The servers; of the names of our own tools it does not know yet.
    pub(super) lineup: ServerSet,
    pub(super) tools: Vec<ToolSettings>,
    pub(super) jobs: JobSettings,
    pub(super) state: StateSettings,
    /// For those who come over HTTP.
    pub(super) http_settings: Option<PreparedHttp>,
    /// Where requests are told.
    pub(super) telemetry: Option<TelemetrySpec>,
    /// What is to be in no line of a log.
    pub(super) secrets: Vec<Secrets>,
    /// What is wrong and harms nothing else.
    pub(super) warnings: Vec<String>,
    /// All files that this was read from.
    pub(super) files: Vec<PathBuf>,
    /// What servers are given of our environment: what is the same is shared.
    given: InheritedVariables,
}

/// What servers are given of our environment: the variables that the file names, and those that they inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct InheritedVariables {
    /// With what they hold.
    named: BTreeMap<String, Option<String>>,
    inherited: BTreeMap<OsString, OsString>,
}

impl InheritedVariables {
    /// That of these servers.
    fn to(servers: &[ServerSettings], named: BTreeMap<String, Option<String>>) -> InheritedVariables {
        let mut inherited_by_some = BTreeMap::new();
        for server in servers {
            match &server.transport {
                Transport::Stdio { inherits_environment: true, .. } => {
                    inherited_by_some.extend(env::vars_os());
                }
                Transport::Stdio { .. } => inherited_by_some.extend(inherited()),
                // Proxies are for those that are somewhere else.
                Transport::Http { .. } => inherited_by_some.extend(env::vars_os().filter(|(name, _)| {
                    name.to_str().is_some_and(|name| PROXIES.contains(&&*name.to_ascii_uppercase()))
                })),
            }
        }
        InheritedVariables { named, inherited: inherited_by_some }
    }
}

impl ServePlan {
    /// Reads this file, and those that it and the flags name.
    pub(super) fn read(serve: &Serve, path: &Path) -> Result<ServePlan, String> {
        let variables = RefCell::default();
        let (settings, mut warnings) = load(path, &variables)?;
        let Settings { jobs, state, tools, servers, style, clocks, http, gateway, telemetry } = settings;
        let secrets = servers.iter().map(ServerSettings::secrets).collect();
        // How much one client may ask for says nothing of what a server can take.
        let said = serve.limits.settings();
        let joins_none = said.join_same_call == Some(false);
        let join_same_call = said.join_same_call.or(jobs.join_same_call);
        let flags = LimitSettings { max_in_flight: None, join_same_call, ..said };
        let folder = data_folder();
        // Over stdin and stdout there is one session, which is all that its own process serves.
        let own = if serve.http.is_some() { Scope::Session } else { Scope::Process };
        let servers_made = servers.iter().map(|settings| {
            let scope = if settings.per_session { own } else { Scope::Everybody };
            Ok(ServerEntry { scope, ..entry(settings, &flags, joins_none, folder.as_deref())? })
        });
        let entries = servers_made.collect::<Result<Vec<ServerEntry>, String>>()?;
        warnings.extend(entries.iter().flat_map(never_jobs));
        let mut files = vec![path.to_owned()];
        if serve.http.is_some() {
            files.extend(serve.token_file.clone());
            files.extend(http.tls.iter().flat_map(|tls| [tls.certificate.clone(), tls.key.clone()]));
        } else if serve.token_file.is_some() {
            warnings.push(
                "--token-file has no effect without --http: over stdin and stdout nobody else can ask"
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

    /// What servers are given of our environment.
    pub(super) fn given(&self) -> &InheritedVariables {
        &self.given
    }

    /// Has each window have its own of these servers, but for those that are made as they were before: the others are given what other
    /// windows may have otherwise, and where windows meet goes by what was given at the start.
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

    /// Which of our own tools are listed: without a tool of the file, and without a call that may become a job, there is no use for any.
    pub(super) fn job_tools(&self) -> JobTools {
        match self.lineup.entries.iter().any(|entry| RequestTimeouts::from(entry).promotes()) {
            true => JobTools::Listed,
            false => JobTools::ListedWithTools,
        }
    }

    /// Where windows meet that serve the same file with the same limits and would give servers the same environment, of the same version
    /// of unhang; none where there is nothing to share or no data folder. What the file says may change while they are there.
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

/// One server, by what the file says and the flags above it, for everybody.
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
    // What flags say is above all that the file says, of single tools too.
    for rule in tool_rules.tools.values_mut() {
        rule.call_timeout = rule.call_timeout.filter(|_| flags.call_timeout.is_none());
        rule.promote_after = rule.promote_after.filter(|_| flags.promote_after.is_none());
        rule.job_timeout = rule.job_timeout.filter(|_| flags.job_timeout.is_none());
        rule.join_same_call = rule.join_same_call.filter(|_| !joins_none);
    }
    Ok(ServerEntry {
        spec,
        scope: Scope::Everybody,
        prefix,
        tool_rules,
        idle_timeout: settings.idle_timeout,
        secrets: settings.secrets(),
        memory: data.map(|data| settings.memory(data)),
        // All of it, secrets included: nobody is shown this.
        made_from: format!("{settings:?}"),
        behind: None,
    })
}

/// What is said in vain of when calls of a server become jobs.
fn never_jobs(entry: &ServerEntry) -> Vec<String> {
    let (timeouts, name) = (RequestTimeouts::from(entry), &entry.spec.name);
    let whole = timeouts.promotion.in_vain(timeouts.call).map(|why| format!("`{name}`: {why}"));
    let single = |(tool, promotion): (&String, &Promotion)| {
        promotion.in_vain(timeouts.of_call(tool)).map(|why| format!("`{tool}` of `{name}`: {why}"))
    };
    whole.into_iter().chain(timeouts.promotions.iter().filter_map(single)).collect()
}

/// What the file says, and what is wrong in it and harms nothing else.
fn load(
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
            let (jobs, http) = (JobSettings::default(), HttpSettings::default());
            let state = StateSettings::default();
            let (style, gateway) = (Style::default(), GatewaySettings::default());
            let telemetry = TelemetrySettings::default();
            let clocks = Clocks::default();
            let tools = Vec::new();
            Ok((Settings { jobs, state, tools, servers, style, clocks, http, gateway, telemetry }, warnings))
        }
    }
}
