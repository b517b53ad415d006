//! An MCP server on the official Rust SDK whose one tool is slow, and therefore a job: it answers at once with an id, and its
//! work outlives client and server.
//!
//! The program is three things, told apart by its first argument: the server, the supervisor of a job, and the work of one.

mod job_tools;
mod primes;

use std::{env, error::Error, fmt::Display, path::PathBuf, process::ExitCode};

use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResult,
    schemars::JsonSchema,
    tool, tool_handler, tool_router,
    transport::stdio,
};
use serde::Deserialize;
use serde_json::json;
use unhang::{
    job_report::{Accepted, JobReport, ReportReader, ToolNames},
    jobs::{
        engine::{Engine, EngineOptions},
        folder::FileName,
        shim,
        shims::ShimCommand,
        submission::Submission,
    },
    process::lookup::this_program,
};

#[derive(Clone)]
struct Server {
    engine: Engine,
    tools: ToolRouter<Server>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Range {
    /// Primes are counted below this number.
    below: u64,
}

#[tool_router]
impl Server {
    /// Counts primes by trial division. Answers at once with a `job_id`: follow it with `get_job_status`.
    #[tool]
    async fn count_primes(
        &self,
        Parameters(Range { below }): Parameters<Range>,
    ) -> Result<CallToolResult, String> {
        let command = vec![this_program().into(), primes::WORD.into(), below.to_string().into()];
        let mut job = Submission::new(command, self.engine.options().folder.clone()).map_err(told)?;
        job.name = "count_primes".to_owned();
        job.results = Some(FileName::new(primes::RESULTS).map_err(told)?);
        let status = self.engine.submit(job).await.map_err(told)?;
        let accepted = Accepted::new(&JobReport::new(&status, ReportReader::Agent(ToolNames::default())));
        Ok(CallToolResult::structured(json!(accepted)))
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Server {}

/// What the agent is told of an error: its sentence.
fn told(error: impl Display) -> String {
    error.to_string()
}

fn main() -> ExitCode {
    // First of all, while there is one thread and stdout is still nobody's: this very program also is the supervisor of its jobs.
    let shim = ShimCommand::this_program();
    if let Some(code) = shim::run_if_asked(&shim) {
        return code;
    }
    let words: Vec<_> = env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [primes::WORD, below] => primes::work(below),
        [folder] => serve(folder.into(), shim),
        _ => Err("usage: rmcp-server-example FOLDER, where FOLDER is to hold the jobs".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(error.as_ref()),
    }
}

#[expect(
    clippy::print_stderr,
    clippy::disallowed_macros,
    reason = "a program that ends may wait for its reader"
)]
fn complain(error: &dyn Error) -> ExitCode {
    eprintln!("rmcp-server-example: {error}");
    ExitCode::FAILURE
}

/// Serves one client on stdin and stdout until it goes.
fn serve(folder: PathBuf, shim: ShimCommand) -> Result<(), Box<dyn Error>> {
    let (engine, _) = Engine::open(EngineOptions::new(folder, shim))?;
    let tools = Server::tool_router() + job_tools::routes(&engine)?;
    let server = Server { engine: engine.clone(), tools };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        server.serve(stdio()).await?.waiting().await?;
        // A job that was accepted a moment ago may not have its supervisor yet.
        engine.close().await?;
        Ok(())
    });
    // A read of stdin that still waits must not hold the end up.
    runtime.shutdown_background();
    outcome
}
