//! `unhang serve`: the servers and tools of unhang.toml, jobs and state, for one MCP client over pipes or for many over HTTP.
//!
//! Invariants: every error in the file is reported. If the data folder cannot be used, a message at the start and every tool say so, and
//! the session goes on (design 7). A message says once, when the first job is accepted, with what jobs would end.

mod access;
mod listening;
mod one_server;
mod plan;
mod reload;
mod service_manager;
mod telemetry;

#[cfg(feature = "postgres")]
pub(super) use self::plan::load;

use std::{io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use unhang::{
    config::STOP_LIMIT,
    exit,
    front::{
        self, FrontSpec, SessionEndHook,
        http::{self, HttpSpec},
    },
    gateway::ServerSet,
    jobs::engine::Engine,
    limits::Limits,
    process::{
        descriptors, file_limit, identity::ask_for_short_turns, pipe::take_standard_streams, reap_orphans,
        shared_fate::ties,
    },
    promoted::{CallsEnd, EngineService},
    settings::{JobSettings, StoreUrl, file_schema},
    sharing::{MeetingPoint, Sharing, SharingSpec},
    telemetry::{Telemetry, TelemetrySpec},
    tools::{CurrentTable, Table, ToolListing, Toolbox, service::JobService},
};
use unhang_terminal::{output, text::escaped};

use self::{
    access::PreparedHttp,
    listening::{HttpListening, listen, unused},
    plan::{InheritedVariables, ServePlan, ServeSource},
    reload::{Current, Entrance, Reload, stamp},
    service_manager::HandedSockets,
};
use super::engine::{options, store};
use crate::{
    arguments::{Serve, bridge::BridgeArguments},
    commands::client::{
        files::{FILE, clients_of_user, own_file_of_user},
        server_launch::url_name,
    },
    data_folder,
    diagnostics::{Diagnostics, KeptLog, LOG_HINT},
    job_environment::{all_variables, inherited},
    own_program::{adopt_orphans_of_container, call_holder_command},
    shared_store::show_calls_of,
    signals::{signals, signals_and_hangups},
};

/// The instructions about jobs that the client may give its model.
const ABOUT_JOBS: &str = "Tools that answer with a job_id work in the background: follow them with get_job_status every 5 to \
    10 seconds, with other work in between, and fetch their results with get_job_results.";

/// The instructions about the state that jobs share.
const ABOUT_STATE: &str = "Named state fields can store results, and other jobs can start from them.";

/// The pause between the end of a child and the search for adopted processes that have ended.
const REAP_PAUSE: Duration = Duration::from_secs(1);

/// Serves the client that has started unhang, from the one server with this URL, until the client or a signal ends the session.
pub(crate) fn bridge(bridge: BridgeArguments, verbose: bool) -> ExitCode {
    if let Err(failure) = url_name(&bridge.server.url) {
        return failure.print(None);
    }
    run(&Serve::from(bridge), verbose)
}

/// Serves clients until the client or a signal ends the session.
pub(crate) fn run(serve: &Serve, verbose: bool) -> ExitCode {
    if serve.print_config_schema {
        return output::data(&format!("{:#}\n", file_schema()));
    }
    if let Err(failure) = data_folder::check() {
        return failure.print(None);
    }
    // Each client over HTTP needs a descriptor. If the limit cannot be raised, fewer clients can connect.
    let raised = descriptors::raise();
    // The sockets are taken before the first thread starts.
    let handed = match HandedSockets::take() {
        Ok(handed) => handed,
        Err(why) => {
            output::error(&why, None);
            return ExitCode::from(exit::USAGE);
        }
    };
    let limits = serve.gateway.limits.limits();
    let name = if serve.bridged.is_some() { "bridge" } else { "serve" };
    let log = KeptLog { name, cap: limits.stderr_log, logging: &serve.gateway.logging, may_be_stderr: true };
    let diagnostics = match Diagnostics::start(&log, verbose) {
        Ok(diagnostics) => diagnostics,
        Err(why) => {
            output::error(&why, Some(LOG_HINT));
            return ExitCode::from(exit::USAGE);
        }
    };
    if let Err(error) = raised {
        diagnostics.warn(&format!("the limit of open files cannot be raised: {error}"));
    }
    adopt_orphans_of_container();
    let outcome =
        source(serve).and_then(|source| prepare(serve, source, &diagnostics)).and_then(|prepared| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| ServeFailure::of_streams(&error))?;
            // Clients wait for this thread, while jobs keep the processors busy.
            ask_for_short_turns();
            let code = runtime.block_on(served(serve, limits, prepared, handed, &diagnostics));
            // Work that still runs must not delay the end (C-59).
            runtime.shutdown_background();
            code
        });
    exit_code(outcome, &diagnostics)
}

/// Returns the exit code for this outcome, and prints the reason if nothing was served.
pub(super) fn exit_code(outcome: Result<u8, ServeFailure>, diagnostics: &Diagnostics) -> ExitCode {
    diagnostics.finish();
    let code = outcome.unwrap_or_else(|ServeFailure { why, code }| {
        output::error(&why, None);
        code
    });
    ExitCode::from(code)
}

/// The reason why nothing is served, and its exit code.
pub(super) struct ServeFailure {
    pub(super) why: String,
    pub(super) code: u8,
}

impl ServeFailure {
    pub(super) fn of_streams(error: &io::Error) -> ServeFailure {
        let why = format!("stdin or stdout cannot be used: {error}");
        match file_limit::cause_of(error) {
            // A limit that somebody has set is no bug of ours.
            Some(limit) => ServeFailure { why: format!("{why}; {limit}"), code: exit::UNREACHABLE },
            None => ServeFailure { why, code: exit::BUG },
        }
    }
}

impl From<String> for ServeFailure {
    fn from(why: String) -> ServeFailure {
        ServeFailure { why, code: exit::USAGE }
    }
}

/// Serves one client over stdin and stdout, or many over HTTP.
async fn served(
    serve: &Serve,
    limits: Limits,
    prepared: PreparedServe,
    handed: HandedSockets,
    diagnostics: &Diagnostics,
) -> Result<u8, ServeFailure> {
    let PreparedServe {
        source,
        current,
        given,
        table,
        service,
        store,
        mut lineup,
        meeting_point,
        http_settings,
        telemetry,
    } = prepared;
    let telemetry = telemetry::start(telemetry);
    if let Some(warning) = unused(serve.http.as_deref(), handed.sockets.len()) {
        diagnostics.warn(&warning);
    }
    let manager = handed.manager();
    let listening = match (&serve.http, http_settings) {
        (Some(address), Some(http_settings)) => {
            Some((listen(address, handed.sockets, &http_settings).await?, http_settings))
        }
        _ => None,
    };
    let table = Arc::new(CurrentTable::new(table));
    let toolbox = Arc::clone(&table) as Arc<dyn Toolbox>;
    let is_listed = |name: &str| {
        let definitions = toolbox.definitions();
        definitions.iter().any(|tool| tool.name == name && tool.listing != ToolListing::Nowhere)
    };
    // Instructions that name an unlisted tool would mislead a model.
    let told = [("get_job_status", ABOUT_JOBS), ("get_state", ABOUT_STATE)];
    let told: Vec<&str> = told.iter().filter(|(tool, _)| is_listed(tool)).map(|(_, text)| *text).collect();
    let instructions = (!told.is_empty()).then(|| told.join(" "));
    lineup.notices = diagnostics.notices();
    lineup.own = toolbox.definitions().iter().map(|tool| tool.name.clone()).collect();
    // Over pipes there is only one client, and its identity is known.
    let tells_callers_apart = listening.is_none();
    let behind = front::SessionJobs { service: Arc::clone(&service), tells_callers_apart };
    let sharing = Sharing::start(SharingSpec {
        meeting_point,
        may_follow: serve.http.is_none(),
        lineup,
        limits: limits.clone(),
        jobs: Some(behind.clone()),
    })
    .await;
    let (servers, ending) = (Some(sharing.servers()), sharing.end());
    // This one thread serves everything.
    tokio::spawn(reap());
    let awake = sharing.servers();
    tokio::spawn(async move { awake.stay_awake().await });
    if let Some(store) = store {
        tokio::spawn(show_calls_of(Arc::clone(&service), store));
    }
    let (opens, takes) = (Arc::clone(&service), sharing.shared());
    tokio::spawn(async move {
        if let Some(promoted) = opens.until_opened().await {
            takes.take_up(&promoted);
        }
    });
    let jobs = Arc::clone(&service) as Arc<dyn JobService>;
    let taken = match serve.bridged {
        None => signals_and_hangups(),
        // A bridge has nothing to read again: neither a file nor tokens.
        Some(_) => signals().map(|stops| (stops, mpsc::channel(1).1)),
    };
    let (stops, hangups) = taken.map_err(|error| ServeFailure::of_streams(&error))?;
    let reload = Reload {
        serve: serve.clone(),
        source,
        diagnostics,
        table,
        jobs,
        shared: sharing.shared(),
        entrance: None,
        given,
        current,
    };
    let to_tell = telemetry.clone();
    let at_end: Option<SessionEndHook> = Some(Box::new(|why| Box::pin(end(service, why, sharing, to_tell))));
    let Some((listening, http_settings)) = listening else {
        let (client_input, client_output) =
            take_standard_streams().map_err(|error| ServeFailure::of_streams(&error))?;
        let spec = FrontSpec {
            limits,
            toolbox,
            servers,
            jobs: Some(behind),
            instructions,
            telemetry,
            at_end,
            ending,
            client_input,
            client_output,
        };
        return tokio::select! {
            code = front::run(spec, stops) => code.map_err(|error| ServeFailure::of_streams(&error)),
            () = reload.run(hangups) => Ok(exit::BUG),
        };
    };
    let told = listening.told(&http_settings);
    let HttpListening { listeners, addresses, warning } = listening;
    if let Some(warning) = warning {
        diagnostics.warn(&warning);
    }
    diagnostics.notice(&told);
    tokio::spawn(manager.follow(told, ending.subscribe()));
    let hosts = http_settings.hosts(&addresses);
    let PreparedHttp { access, tls, sse: offers_sse, message_memory, .. } = http_settings;
    let (access_policy, opened) = watch::channel(Arc::new(http::AccessPolicy { hosts, access }));
    let (tls, tls_updates) = watch::channel(tls);
    let reload = Reload { entrance: Some(Entrance { addresses, access_policy, tls }), ..reload };
    if offers_sse {
        diagnostics.notice("clients of 2024-11-05 find it at /sse");
    }
    let spec = HttpSpec {
        limits,
        toolbox,
        servers,
        jobs: Some(behind),
        instructions,
        telemetry,
        at_end,
        ending,
        listeners,
        tls: tls_updates,
        access_policy: opened,
        offers_sse,
        message_memory,
    };
    Ok(tokio::select! {
        code = http::run(spec, stops) => code,
        () = reload.run(hangups) => exit::BUG,
    })
}

/// Reaps the processes that this one has adopted: supervisors that another process started, because jobs outlive the process that accepted
/// them.
pub(super) async fn reap() {
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    while ends.recv().await.is_some() {
        // Several signals at once arrive as one, and an ended job can wait to be reaped.
        sleep(REAP_PAUSE).await;
        // `reap_orphans` cannot panic.
        let _reaped = spawn_blocking(reap_orphans).await;
    }
}

/// Ends everything behind a session. Each part has a limit of its own.
pub(super) async fn end(
    service: Arc<EngineService>,
    why: CallsEnd,
    sharing: Sharing,
    telemetry: Option<Telemetry>,
) {
    // Promoted calls end before their servers, so that the end of this process ends them, and not the end of a server.
    if let Some(promoted) = service.promoted() {
        promoted.end(why).await;
    }
    let traces_end = async {
        if let Some(telemetry) = telemetry {
            telemetry.close().await;
        }
    };
    let (_not_in_time, (), ()) =
        tokio::join!(timeout(STOP_LIMIT, service.close()), sharing.close(), traces_end);
}

/// Everything behind a session.
struct PreparedServe {
    source: ServeSource,
    current: Current,
    given: InheritedVariables,
    table: Table,
    service: Arc<EngineService>,
    /// The store of many machines, if the jobs are there.
    store: Option<StoreUrl>,
    lineup: ServerSet,
    /// The place where this window meets others with the same servers.
    meeting_point: Option<MeetingPoint>,
    /// The settings for clients over HTTP.
    http_settings: Option<PreparedHttp>,
    /// The collector that is told of requests.
    telemetry: Option<TelemetrySpec>,
}

/// Returns the reason why nothing is served if no file was named. The file of the working folder does not count: whatever program started
/// unhang there did not choose it.
fn nothing_to_serve() -> String {
    let quoted = |path: &Path| escaped(&format!("--config {}", path.display()));
    let here = Some(Path::new(FILE)).filter(|path| path.is_file()).map(quoted);
    // A client's file is not served by itself: one of its servers may have started this process.
    let of_clients = clients_of_user().iter().map(|path| quoted(path)).collect::<Vec<_>>();
    let choices: Vec<String> = here.into_iter().chain(of_clients).collect();
    let how = if choices.is_empty() { "--config FILE".to_owned() } else { choices.join(" or ") };
    format!(
        "there is no {FILE} in ~/.config/unhang or in the home folder, and unhang serves no other file by \
        itself; name one: {how}"
    )
}

/// Lists in words everything with which jobs end, or returns `None` if there is nothing.
fn ties_in_words() -> Option<String> {
    let ties: Vec<String> = ties().iter().map(ToString::to_string).collect();
    (!ties.is_empty()).then(|| format!("jobs here do not survive everything: {}", ties.join("; ")))
}

/// Returns the place that says what is to be served.
fn source(serve: &Serve) -> Result<ServeSource, ServeFailure> {
    if let Some(bridged) = &serve.bridged {
        let server = one_server::by_url(&bridged.url, &bridged.header);
        return Ok(ServeSource::OneServer(Box::new(server)));
    }
    if !serve.command.is_empty() {
        return Ok(ServeSource::OneServer(Box::new(one_server::by_command(&serve.command)?)));
    }
    let path = serve.config.clone().or_else(own_file_of_user);
    Ok(ServeSource::File(path.ok_or_else(nothing_to_serve)?))
}

/// Reads the configuration and opens the data folder.
fn prepare(
    serve: &Serve,
    source: ServeSource,
    diagnostics: &Diagnostics,
) -> Result<PreparedServe, ServeFailure> {
    let before = source.file().map(stamp);
    let plan = ServePlan::read(serve, &source)?;
    let current = Current::of(&plan, before);
    let flags = serve.gateway.limits.settings();
    let warn = |text: &str| diagnostics.warn(text);
    let meeting_point = source.file().filter(|_| !serve.own).and_then(|path| {
        plan.meeting_place(path, &flags).unwrap_or_else(|error| {
            warn(&format!("servers are not shared with other windows: {error}"));
            None
        })
    });
    let given = plan.given().clone();
    let job_tools = plan.job_tools();
    let ServePlan { lineup, tools, jobs, state, http_settings, telemetry, secrets, warnings, .. } = plan;
    diagnostics.hide(secrets.into_iter());
    warnings.iter().for_each(|warning| warn(warning));

    let of_flags =
        JobSettings { store: serve.gateway.store.url.clone(), ..serve.gateway.job_limits.settings() };
    let layers = [jobs, of_flags];
    let options = options(&layers).map_err(|failure| failure.message)?;
    let store = store(&layers).cloned();
    tracing::info!("{} jobs may run at the same time", options.rules.max_concurrent);
    let again = options.clone();
    let open_again = move || Engine::open(again.clone()).map(|(engine, _)| engine);
    let engine = match Engine::open(options) {
        Ok((engine, opened)) => {
            if opened.rebuilt.is_some() {
                warn("the database of jobs was missing, and unhang created it again from their folders");
            }
            Ok(engine)
        }
        Err(error) => {
            warn(&format!("jobs cannot run until this is fixed: {error}"));
            Err(error)
        }
    };
    let service = EngineService::reopening(engine, open_again, inherited().collect())
        .with_all(all_variables().collect())
        .sharing_state(state.shared)
        .telling_at_first_job(diagnostics.notices(), ties_in_words);
    let service = service.with_call_holder(call_holder_command());
    let service = Arc::new(service);
    let table = Table::new(tools, &serve.tool_mode, Arc::clone(&service) as _, job_tools)?;
    Ok(PreparedServe {
        source,
        current,
        given,
        table,
        service,
        store,
        lineup,
        meeting_point,
        http_settings,
        telemetry,
    })
}
