//! `unhang wrap --instances N`: one server in several processes for one client.
//!
//! The guard has one server and passes bytes on unchanged, so it cannot choose a process for each call. The gateway can. It gets the one
//! server as `unhang wrap` starts it, and its tools keep their names.

use std::{io, process::ExitCode, sync::Arc};

use tokio::runtime;
use unhang::{
    client::{ClientSpec, DecliningListener, Endpoint},
    front::{self, FrontSpec, SessionEndHook, SessionJobs},
    gateway::{EraPolicy, RequestTimeouts, Scope, ServerEntry, ServerSet},
    jobs::engine::Engine,
    limits::Limits,
    process::{pipe::take_standard_streams, server::ServerSpec},
    promoted::EngineService,
    route::rules::ToolRules,
    secrets::Secrets,
    sharing::{Sharing, SharingSpec},
    tools::{CurrentTable, JobTools, ModeOverrides, Table, Toolbox},
};

use crate::{
    commands::{
        engine::options,
        serve::{ServeFailure, end, exit_code, reap},
    },
    diagnostics::Diagnostics,
    job_environment::inherited,
    own_program::{adopt_orphans_of_container, call_holder_command},
    signals::signals,
};

/// The one server, and how many processes of it there may be.
pub(super) struct SharedServer {
    pub(super) name: String,
    pub(super) server: ServerSpec,
    pub(super) limits: Limits,
    pub(super) instances: usize,
}

/// Serves the server until the client or a signal ends it.
pub(super) fn run(server: SharedServer, diagnostics: &Diagnostics) -> ExitCode {
    adopt_orphans_of_container();
    let outcome = prepare(&server).and_then(|(service, table)| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ServeFailure::of_streams(&error))?;
        let code = runtime.block_on(served(server, service, table, diagnostics));
        // Work that still runs must not delay the end (C-59).
        runtime.shutdown_background();
        code.map_err(|error| ServeFailure::of_streams(&error))
    });
    exit_code(outcome, diagnostics)
}

/// Opens the engine for slow calls, and makes the table of the tools about jobs.
fn prepare(server: &SharedServer) -> Result<(Arc<EngineService>, Table), ServeFailure> {
    let options = options(&[]).map_err(|failure| failure.message)?;
    let open = move || Engine::open(options.clone()).map(|(engine, _)| engine);
    let service = EngineService::reopening(open(), open, inherited().collect());
    let service = Arc::new(service.with_call_holder(call_holder_command()));
    let job_tools = match RequestTimeouts::from(&entry(server)).promotes() {
        true => JobTools::Listed,
        false => JobTools::ListedWithTools,
    };
    let table = Table::new(Vec::new(), &ModeOverrides::default(), Arc::clone(&service) as _, job_tools);
    Ok((service, table?))
}

fn entry(server: &SharedServer) -> ServerEntry {
    let SharedServer { name, server, limits, instances } = server;
    let spec = ClientSpec {
        name: name.clone(),
        endpoint: Endpoint::Stdio(server.clone()),
        limits: limits.clone(),
        listener: Arc::new(DecliningListener),
    };
    ServerEntry {
        spec,
        scope: Scope::Process,
        era: EraPolicy::default(),
        prefix: String::new(),
        tool_rules: ToolRules::default(),
        idle_timeout: None,
        instances: *instances,
        secrets: Secrets::default(),
        made_from: String::new(),
        memory: None,
        behind: None,
    }
}

async fn served(
    server: SharedServer,
    service: Arc<EngineService>,
    table: Table,
    diagnostics: &Diagnostics,
) -> io::Result<u8> {
    let toolbox = Arc::new(CurrentTable::new(table)) as Arc<dyn Toolbox>;
    let lineup = ServerSet {
        entries: vec![entry(&server)],
        own: toolbox.definitions().iter().map(|tool| tool.name.clone()).collect(),
        notices: diagnostics.notices(),
        awaits_client: true,
        ..ServerSet::default()
    };
    let limits = server.limits;
    let sharing = Sharing::start(SharingSpec {
        meeting_point: None,
        may_follow: false,
        lineup,
        limits: limits.clone(),
        jobs: None,
    })
    .await;
    let (servers, ending) = (Some(sharing.servers()), sharing.end());
    tokio::spawn(reap());
    let jobs = Some(SessionJobs { service: Arc::clone(&service), tells_callers_apart: true });
    let at_end: Option<SessionEndHook> = Some(Box::new(|why| Box::pin(end(service, why, sharing, None))));
    let (client_input, client_output) = take_standard_streams()?;
    let spec = FrontSpec {
        limits,
        toolbox,
        servers,
        jobs,
        instructions: None,
        telemetry: None,
        at_end,
        ending,
        client_input,
        client_output,
    };
    front::run(spec, signals()?).await
}
