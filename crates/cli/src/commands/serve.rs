//! `unhang serve`: the tools of unhang.toml, jobs and state in front of one MCP client.
//!
//! Invariants: nothing that is wrong in the file is passed over in silence; a data folder that cannot be used is told at the start
//! and by every tool, and the session goes on (design 7); what jobs would end with is said before the first is accepted.

use std::{env, fs, path::Path, process::ExitCode, sync::Arc};

use tokio::{runtime, time::timeout};
use unhang::{
    config::STOP_LIMIT,
    exit,
    front::{self, FrontSpec},
    jobs::engine::Engine,
    process::{identity::ask_for_short_turns, pipe::take_standard_streams, surroundings::ties},
    settings::{Loaded, Settings, file_schema},
    tools::{EngineService, Table},
};

use super::engine::options;
use crate::{
    arguments::Serve,
    commands::client::files::{FILE, folder_of, own_file},
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
    let outcome = prepare(serve, &diagnostics).map(|(table, service)| {
        runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let (client_input, client_output) = take_standard_streams()?;
            let toolbox = Arc::new(table);
            let instructions = Some(INSTRUCTIONS.to_owned());
            let spec = FrontSpec { limits, toolbox, instructions, client_input, client_output };
            // The client waits for this thread, while its jobs keep the processors busy.
            ask_for_short_turns();
            let code = runtime.block_on(async {
                let code = front::run(spec, signals()?).await;
                let _not_in_time = timeout(STOP_LIMIT, service.close()).await;
                code
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

/// Reads the file and opens the data folder.
fn prepare(serve: &Serve, diagnostics: &Diagnostics) -> Result<(Table, Arc<EngineService>), String> {
    let Loaded { settings, warnings } = load(serve.config.as_deref())?;
    let warn = |text: &str| {
        tracing::warn!("{text}");
        diagnostics.notices.send(format!("unhang: {text}\n").as_bytes());
    };
    warnings.iter().for_each(|warning| warn(&warning.to_string()));
    if !settings.servers.is_empty() {
        warn("the servers of the file are not served by this build yet; its tools and jobs are");
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
    Ok((table, service))
}

fn load(named: Option<&Path>) -> Result<Loaded, String> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => own_file().ok_or_else(|| format!("there is no {FILE} here; name one with --config"))?,
    };
    let told = path.display().to_string();
    let text = fs::read_to_string(&path).map_err(|error| format!("{told} cannot be read: {error}"))?;
    let folder =
        folder_of(&path).map_err(|error| format!("the folder of {told} cannot be found: {error}"))?;
    Settings::read(&text, &told, &folder, &|name| env::var(name).ok())
        .map_err(|complaint| complaint.to_string())
}
