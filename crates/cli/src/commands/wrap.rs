//! `unhang wrap`: the guard in front of one stdio server.

use std::{path::PathBuf, process::ExitCode};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use unhang::{
    exit,
    guard::{self, GuardSpec, Stop},
    process::{
        adopt_orphans, lifeline,
        pipe::take_standard_streams,
        server::{LifelineCommand, ServerSpec},
        spawn::Environment,
    },
};

use crate::{arguments::Wrap, diagnostics::Diagnostics, output, server_name::server_name};

/// Guards the server until the client or a signal ends it.
pub(crate) fn run(wrap: &Wrap, verbose: bool) -> ExitCode {
    let name = wrap.name.clone().unwrap_or_else(|| server_name(&wrap.command));
    let limits = wrap.limits.limits();
    let diagnostics = Diagnostics::start(&name, limits.stderr_log, verbose);
    // Should the lifeline itself be killed, what it guarded comes to us.
    if let Err(error) = adopt_orphans() {
        tracing::debug!("orphans cannot be adopted on this system: {error}");
    }
    let outcome = runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let (client_input, client_output) = take_standard_streams()?;
        let server = ServerSpec {
            program: wrap.command[0].clone(),
            arguments: wrap.command[1..].to_vec(),
            environment: Environment::Inherit,
            folder: None,
            grace: limits.stop_grace,
            stop_limit: limits.stop_limit(),
            lifeline: lifeline_command(),
        };
        let notices = diagnostics.notices.clone();
        let spec = GuardSpec { name, limits, server, client_input, client_output, notices };
        let code = runtime.block_on(async { guard::run(spec, signals()?).await });
        // Nothing that is still running may hold the end up (C-59).
        runtime.shutdown_background();
        code
    });
    diagnostics.finish();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output::error(&format!("stdin or stdout cannot be used: {error}"), None);
            ExitCode::from(exit::BUG)
        }
    }
}

/// Our own binary, which also is the lifeline.
fn lifeline_command() -> LifelineCommand {
    // The link still leads to this very program after an upgrade has replaced the file.
    let program = PathBuf::from("/proc/self/exe");
    let program = if program.exists() { program } else { std::env::current_exe().unwrap_or(program) };
    LifelineCommand { program, arguments: vec![lifeline::ARGUMENT.into()] }
}

/// Turns signals into stops. A hang-up is the client's terminal going away, so it ends us as SIGTERM does.
fn signals() -> std::io::Result<mpsc::Receiver<Stop>> {
    let (sender, receiver) = mpsc::channel(4);
    for (kind, stop) in [
        (SignalKind::interrupt(), Stop::Interrupt),
        (SignalKind::terminate(), Stop::Terminate),
        (SignalKind::hangup(), Stop::Terminate),
    ] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            // The receiver has gone when the guard has ended.
            while signals.recv().await.is_some() && sender.send(stop).await.is_ok() {}
        });
    }
    Ok(receiver)
}
