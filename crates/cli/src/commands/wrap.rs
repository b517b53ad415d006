//! `unhang wrap`: the guard in front of one stdio server.

mod instances;

use std::process::ExitCode;

use tokio::runtime;
use unhang::{
    exit,
    guard::{self, GuardSpec, UnopenedJobs},
    jobs::engine::Engine,
    process::{
        file_limit, give_back_code, pipe::take_standard_streams, server::ServerSpec, spawn::Environment,
    },
    promoted::EngineService,
};
use unhang_terminal::output;

use self::instances::SharedServer;
use crate::{
    arguments::WrapArguments,
    commands::engine::options,
    data_folder,
    diagnostics::{Diagnostics, KeptLog, LOG_HINT},
    job_environment::inherited,
    near_misses::url_of_command,
    own_program::{adopt_orphans_of_container, call_holder_command, lifeline_command},
    server_name::server_name,
    signals::signals,
};

/// Guards the server until the client or a signal ends it.
pub(crate) fn run(wrap: &WrapArguments, verbose: bool) -> ExitCode {
    // The code of the argument parser would be half of the guard's peak.
    give_back_code();
    if let Some(url) = url_of_command(&wrap.command) {
        let message = format!("`{url}` is a URL, and `unhang wrap` guards a command");
        let hint = "`unhang bridge URL` offers it to the client as a stdio server; `unhang tools URL` lists its \
            tools from here";
        output::error(&message, Some(hint));
        return ExitCode::from(exit::USAGE);
    }
    if let Err(failure) = data_folder::check() {
        return failure.print(None);
    }
    let name = wrap.name.clone().unwrap_or_else(|| server_name(&wrap.command));
    let limits = wrap.limits.limits();
    let log = KeptLog { name: &name, cap: limits.stderr_log, logging: &wrap.logging, may_be_stderr: false };
    let diagnostics = match Diagnostics::start(&log, verbose) {
        Ok(diagnostics) => diagnostics,
        Err(why) => {
            output::error(&why, Some(LOG_HINT));
            return ExitCode::from(exit::USAGE);
        }
    };
    if let Some(why) = limits.promote_after.in_vain(limits.call_timeout) {
        diagnostics.warn(&why);
    }
    let server = ServerSpec {
        program: wrap.command[0].clone(),
        arguments: wrap.command[1..].to_vec(),
        environment: Environment::Inherit,
        folder: None,
        grace: limits.stop_grace,
        stop_limit: limits.stop_limit(),
        lifeline: lifeline_command(),
    };
    if let Some(instances) =
        wrap.instances.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 1)
    {
        return instances::run(SharedServer { name, server, limits, instances }, &diagnostics);
    }
    adopt_orphans_of_container();
    let outcome = runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let (client_input, client_output) = take_standard_streams()?;
        let notices = diagnostics.notices.clone();
        let spec = GuardSpec {
            name,
            limits,
            server,
            client_input,
            client_output,
            notices,
            jobs: jobs(),
            call_holder: call_holder_command(),
        };
        // From here on the guard lives as long as its client, and needs a small part of its code.
        give_back_code();
        let code = runtime.block_on(async { Box::pin(guard::run(spec, signals()?)).await });
        // Work that still runs must not delay the end (C-59).
        runtime.shutdown_background();
        code
    });
    diagnostics.finish();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let limit = file_limit::cause_of(&error);
            // A limit that somebody has set is no bug of ours.
            let code = if limit.is_some() { exit::UNREACHABLE } else { exit::BUG };
            output::error(&format!("stdin or stdout cannot be used: {error}"), limit.as_deref());
            ExitCode::from(code)
        }
    }
}

/// Returns the function that opens the engine for slow calls, or `None` if there is no place for jobs.
fn jobs() -> Option<UnopenedJobs> {
    let options =
        options(&[]).map_err(|failure| tracing::info!("no call becomes a job: {}", failure.message));
    let options = options.ok()?;
    let folder = options.folder.clone();
    let open = Box::new(move || {
        let open = move || Engine::open(options.clone()).map(|(engine, _)| engine);
        EngineService::reopening(open(), open, inherited().collect())
    });
    Some(UnopenedJobs { folder, open })
}
