//! `unhang serve`: the servers and tools of unhang.toml, jobs and state in front of one MCP client.
//!
//! Invariants: nothing that is wrong in the file is passed over in silence; a data folder that cannot be used is told at the start
//! and by every tool, and the session goes on (design 7); what jobs would end with is said before the first is accepted.

use std::{path::Path, process::ExitCode, sync::Arc};

use tokio::{runtime, time::timeout};
use unhang::{
    client::Silent,
    config::STOP_LIMIT,
    exit,
    front::{self, FrontSpec, Toolbox},
    gateway::{ServerEntry, Servers},
    jobs::engine::Engine,
    process::{identity::ask_for_short_turns, pipe::take_standard_streams, surroundings::ties},
    route::names::Style,
    settings::{JobSettings, Loaded, Settings, file_schema},
    tools::{EngineService, Table},
};

use super::engine::options;
use crate::{
    arguments::Serve,
    commands::client::{
        files::{FILE, Named, own_file, read_named},
        reach::by_settings,
    },
    diagnostics::Diagnostics,
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
    let diagnostics = Diagnostics::start("serve", limits.stderr_log, verbose);
    let outcome = prepare(serve, &diagnostics).map(|Prepared { table, service, servers }| {
        runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let (client_input, client_output) = take_standard_streams()?;
            let toolbox = Arc::new(table);
            let instructions = Some(INSTRUCTIONS.to_owned());
            // The client waits for this thread, while its jobs keep the processors busy.
            ask_for_short_turns();
            let code = runtime.block_on(async {
                let own = toolbox.definitions().into_iter().map(|tool| tool.name).collect();
                let servers = (!servers.is_empty()).then(|| Servers::start(Style::default(), own, servers));
                let spec = FrontSpec {
                    limits,
                    toolbox,
                    servers: servers.clone(),
                    instructions,
                    at_end: Some(Box::pin(end(service, servers))),
                    client_input,
                    client_output,
                };
                front::run(spec, signals()?).await
            });
            // Nothing that is still running may hold the end up (C-59).
            runtime.shutdown_background();
            code
        })
    });
    diagnostics.finish();
    match outcome {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) => {
            output::error(&format!("stdin or stdout cannot be used: {error}"), None);
            ExitCode::from(exit::BUG)
        }
        Err(why) => {
            output::error(&why, None);
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Ends what stands behind a session. Each has a limit of its own.
async fn end(service: Arc<EngineService>, servers: Option<Servers>) {
    let servers_end = async {
        if let Some(servers) = servers {
            servers.close().await;
        }
    };
    let (_not_in_time, ()) = tokio::join!(timeout(STOP_LIMIT, service.close()), servers_end);
}

/// What stands behind a session.
struct Prepared {
    table: Table,
    service: Arc<EngineService>,
    servers: Vec<ServerEntry>,
}

/// Reads the file and opens the data folder.
fn prepare(serve: &Serve, diagnostics: &Diagnostics) -> Result<Prepared, String> {
    let (settings, warnings) = load(serve.config.as_deref())?;
    let warn = |text: &str| {
        tracing::warn!("{text}");
        diagnostics.notices.send(format!("unhang: {text}\n").as_bytes());
    };
    warnings.iter().for_each(|warning| warn(warning));
    let flags = serve.limits.settings();
    let servers = settings.servers.iter().map(|settings| {
        let spec = by_settings(settings, &flags, Arc::new(Silent)).map_err(|failure| failure.message)?;
        let prefix = settings.prefix.clone().unwrap_or_else(|| settings.name.clone());
        Ok(ServerEntry { spec, prefix })
    });
    let servers = servers.collect::<Result<Vec<ServerEntry>, String>>()?;
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
    Ok(Prepared { table, service, servers })
}

/// What the file says, and what is wrong in it and harms nothing else.
fn load(named: Option<&Path>) -> Result<(Settings, Vec<String>), String> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => own_file().ok_or_else(|| format!("there is no {FILE} here; name one with --config"))?,
    };
    match read_named(&path)? {
        Named::Ours(Loaded { settings, warnings }) => {
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
            Ok((Settings { jobs: JobSettings::default(), tools: Vec::new(), servers }, warnings))
        }
    }
}
