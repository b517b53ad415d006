//! `unhang serve`: the servers and tools of unhang.toml, jobs and state in front of one MCP client over pipes, or of many over HTTP.
//!
//! Invariants: nothing that is wrong in the file is passed over in silence; a data folder that cannot be used is told at the start
//! and by every tool, and the session goes on (design 7); what jobs would end with is said before the first is accepted.

mod access;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use tokio::{runtime, sync::watch, time::timeout};
use unhang::{
    client::Silent,
    config::{Limits, STOP_LIMIT},
    exit,
    front::{
        self, AtEnd, FrontSpec, Toolbox,
        http::{self, HttpSpec},
    },
    gateway::ServerEntry,
    jobs::engine::Engine,
    process::{identity::ask_for_short_turns, pipe::take_standard_streams, surroundings::ties},
    route::names::Style,
    secrets::Secrets,
    settings::{HttpSettings, JobSettings, LimitSettings, Loaded, Settings, file_schema},
    sharing::{Place, Sharing, SharingSpec},
    tools::{EngineService, Table, service::JobService},
};

use self::access::{Door, Listening, listen};
use super::engine::options;
use crate::{
    arguments::Serve,
    commands::client::{
        files::{FILE, Named, own_file, read_named},
        reach::by_settings,
    },
    data_folder::data_folder,
    diagnostics::{Diagnostics, LOG_HINT, Log},
    inherited::inherited,
    output,
    signals::signals,
};

/// What the client may tell its model about the whole.
const INSTRUCTIONS: &str = "Tools that answer with a job_id work in the background: follow them with get_job_status every 5 to \
    10 seconds, with other work in between, and fetch what they leave with get_job_results. Results can be kept in named \
    state fields, from which other jobs start.";

/// Serves the client until it or a signal ends the session.
pub(crate) fn run(serve: &Serve, verbose: bool) -> ExitCode {
    if serve.print_config_schema {
        return output::data(&format!("{:#}\n", file_schema()));
    }
    let limits = serve.limits.limits();
    let log = Log { name: "serve", cap: limits.stderr_log, logging: &serve.logging, may_be_stderr: true };
    let diagnostics = match Diagnostics::start(&log, verbose) {
        Ok(diagnostics) => diagnostics,
        Err(why) => {
            output::error(&why, Some(LOG_HINT));
            return ExitCode::from(exit::USAGE);
        }
    };
    let outcome = prepare(serve, &diagnostics).and_then(|prepared| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failed::bug(&error))?;
        // Clients wait for this thread, while jobs keep the processors busy.
        ask_for_short_turns();
        let code = runtime.block_on(served(serve, limits, prepared, &diagnostics));
        // Nothing that is still running may hold the end up (C-59).
        runtime.shutdown_background();
        code
    });
    diagnostics.finish();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Failed { why, code }) => {
            output::error(&why, None);
            ExitCode::from(code)
        }
    }
}

/// Why nothing is served, and the exit code for it.
struct Failed {
    why: String,
    code: u8,
}

impl Failed {
    fn bug(error: &io::Error) -> Failed {
        Failed { why: format!("stdin or stdout cannot be used: {error}"), code: exit::BUG }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed { why, code: exit::USAGE }
    }
}

/// Serves one client over our pipes, or many over HTTP.
async fn served(
    serve: &Serve,
    limits: Limits,
    prepared: Prepared,
    diagnostics: &Diagnostics,
) -> Result<u8, Failed> {
    let Prepared { table, service, servers, place, door } = prepared;
    let listening = match (&serve.http, door) {
        (Some(address), Some(door)) => Some((listen(address, &door).await?, door)),
        _ => None,
    };
    let toolbox = Arc::new(table);
    let instructions = Some(INSTRUCTIONS.to_owned());
    let own = toolbox.definitions().into_iter().map(|tool| tool.name).collect();
    let sharing = (!servers.is_empty()).then(|| {
        let may_follow = serve.http.is_none();
        let (style, limits) = (Style::default(), limits.clone());
        Sharing::start(SharingSpec { place, may_follow, style, own, entries: servers, limits })
    });
    let servers = sharing.as_ref().map(Sharing::servers);
    let ending = sharing.as_ref().map_or_else(|| watch::Sender::new(false), Sharing::end);
    let jobs = Some(Arc::clone(&service) as Arc<dyn JobService>);
    let at_end: Option<AtEnd> = Some(Box::pin(end(service, sharing)));
    let stops = signals().map_err(|error| Failed::bug(&error))?;
    let Some((Listening { listener, address, warning }, door)) = listening else {
        let (client_input, client_output) = take_standard_streams().map_err(|error| Failed::bug(&error))?;
        let spec =
            FrontSpec { limits, toolbox, servers, instructions, at_end, ending, client_input, client_output };
        return front::run(spec, stops).await.map_err(|error| Failed::bug(&error));
    };
    if let Some(warning) = warning {
        diagnostics.warn(&warning);
    }
    diagnostics.notice(&format!("MCP is at {}", door.url(address)));
    let hosts = door.hosts(address);
    let Door { access, tls, .. } = door;
    let spec = HttpSpec {
        limits,
        toolbox,
        servers,
        jobs,
        instructions,
        at_end,
        ending,
        listener,
        tls,
        hosts,
        access,
    };
    Ok(http::run(spec, stops).await)
}

/// Ends what stands behind a session. Each has a limit of its own.
async fn end(service: Arc<EngineService>, sharing: Option<Sharing>) {
    let servers_end = async {
        if let Some(sharing) = sharing {
            sharing.close().await;
        }
    };
    let (_not_in_time, ()) = tokio::join!(timeout(STOP_LIMIT, service.close()), servers_end);
}

/// What stands behind a session.
struct Prepared {
    table: Table,
    service: Arc<EngineService>,
    servers: Vec<ServerEntry>,
    /// Where other windows with the same servers are met.
    place: Option<Place>,
    /// For those who come over HTTP.
    door: Option<Door>,
}

/// Reads the file and opens the data folder.
fn prepare(serve: &Serve, diagnostics: &Diagnostics) -> Result<Prepared, Failed> {
    let path = match &serve.config {
        Some(path) => path.clone(),
        None => own_file().ok_or_else(|| format!("there is no {FILE} here; name one with --config"))?,
    };
    let (settings, warnings) = load(&path)?;
    diagnostics.hide(settings.servers.iter().map(Secrets::of));
    let warn = |text: &str| diagnostics.warn(text);
    warnings.iter().for_each(|warning| warn(warning));
    let flags = serve.limits.settings();
    let place = match serve.own {
        true => None,
        false => meeting_place(&path, &settings, &flags).unwrap_or_else(|error| {
            warn(&format!("servers are not shared with other windows: {error}"));
            None
        }),
    };
    let servers = settings.servers.iter().map(|settings| {
        let spec = by_settings(settings, &flags, Arc::new(Silent)).map_err(|failure| failure.message)?;
        let prefix = settings.prefix.clone().unwrap_or_else(|| settings.name.clone());
        let mut tool_rules = settings.tool_rules.clone();
        if flags.call_timeout.is_some() {
            // Above all that the file says, of single tools too.
            tool_rules.tools.values_mut().for_each(|rule| rule.call_timeout = None);
        }
        Ok(ServerEntry {
            spec,
            prefix,
            tool_rules,
            idle_timeout: settings.idle_timeout,
            secrets: Secrets::of(settings),
        })
    });
    let servers = servers.collect::<Result<Vec<ServerEntry>, String>>()?;
    let door = serve.http.is_some().then(|| Door::prepare(serve, settings.http)).transpose()?;
    if door.is_none() && serve.token_file.is_some() {
        warn("--token-file has no effect without --http: over stdin and stdout nobody else can ask");
    }
    let names: Vec<&str> = settings.tools.iter().map(|tool| tool.name.as_str()).collect();
    serve.tool_mode.unknown(&names).iter().for_each(|sentence| warn(sentence));

    let options =
        options(&[settings.jobs, serve.job_limits.settings()]).map_err(|failure| failure.message)?;
    tracing::info!("{} jobs may run at the same time", options.rules.max_concurrent);
    let engine = match Engine::open(options) {
        Ok((engine, opened)) => {
            if opened.rebuilt.is_some() {
                warn("the database of jobs was missing and was made anew from their folders");
            }
            Ok(engine)
        }
        Err(error) => {
            warn(&format!("no job can be run: {error}"));
            Err(error)
        }
    };
    let ties: Vec<String> = ties().iter().map(ToString::to_string).collect();
    if !ties.is_empty() {
        warn(&format!("jobs do not outlive everything here: {}", ties.join("; ")));
    }
    let service = Arc::new(EngineService::new(engine, inherited().collect()));
    let table = Table::new(settings.tools, &serve.tool_mode, Arc::clone(&service) as _)?;
    Ok(Prepared { table, service, servers, place, door })
}

/// Where windows meet that have the same servers with the same limits by the same file, of the same version of unhang; none where
/// there is no data folder.
fn meeting_place(path: &Path, settings: &Settings, flags: &LimitSettings) -> io::Result<Option<Place>> {
    let Some(folder) = data_folder() else { return Ok(None) };
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), path.canonicalize()?).hash(&mut hasher);
    // What is not the same differs here, secrets from the environment included.
    let tools: Vec<&str> = settings.tools.iter().map(|tool| tool.name.as_str()).collect();
    format!("{:?}{flags:?}{tools:?}", settings.servers).hash(&mut hasher);
    Place::new(&folder, &format!("{:016x}", hasher.finish())).map(Some)
}

/// What the file says, and what is wrong in it and harms nothing else.
fn load(path: &Path) -> Result<(Settings, Vec<String>), String> {
    match read_named(path)? {
        Named::Ours(loaded) => {
            let Loaded { settings, warnings } = *loaded;
            Ok((settings, warnings.iter().map(ToString::to_string).collect()))
        }
        Named::Clients(found) => {
            let (mut servers, mut warnings) = (Vec::new(), Vec::new());
            for server in found.into_iter().filter(|server| !server.is_disabled) {
                match server.settings {
                    Ok(settings) => servers.push(settings),
                    Err(complaint) => warnings.push(format!("{complaint}; `{}` is left out", server.name)),
                }
            }
            let (jobs, http) = (JobSettings::default(), HttpSettings::default());
            Ok((Settings { jobs, tools: Vec::new(), servers, http }, warnings))
        }
    }
}
