//! Durable background jobs: a command that answers at once with an id, outlives the program that started it, and is never lost.
//!
//! This crate knows nothing of MCP. It keeps promise 7: a job whose id was given out reaches its true final state, with its output,
//! whichever process dies on the way.
//!
//! Theory of operation. An [`Engine`](engine::Engine) takes a [`Submission`](submission::Submission): it makes the job's folder, fills it,
//! and notes the job in the database; then the id goes out. When a slot is free, a *supervisor* is started (see [`shim`]): unhang's own
//! binary under another name, which runs the work, sees it to its end and starts the next job. The folder of a job alone tells its state
//! ([`verdict`]), so that any process that opens the data folder later can judge.
//!
//! Invariants
//!
//! - An accepted job is on the disk before anybody is told of it.
//! - Work that may have run is not run again. No job is called completed unless its supervisor saw it complete.
//! - Only the holder of a job's lock writes about its end.
//! - Nothing here is global: an engine is a value, and engines share what is on the disk.
//!
//! ```no_run
//! use std::{process::ExitCode, time::Duration};
//! use unhang_jobs::{engine::{Engine, EngineOptions}, shim, shims::ShimCommand, submission::Submission};
//! use unhang_proc::deadline::Deadline;
//!
//! fn main() -> ExitCode {
//!     // First thing in `main`: this very program is also the supervisor. Without this it would start itself anew for each job, no job
//!     // would begin, and each would end as failed, with the reason `start_failed`.
//!     let command = ShimCommand::this_program();
//!     if let Some(code) = shim::run_if_asked(&command) {
//!         return code;
//!     }
//!     // ...
//! #   drop(command);
//! #   ExitCode::SUCCESS
//! }
//!
//! # async fn run(command: ShimCommand) -> Result<(), Box<dyn std::error::Error>> {
//! let (engine, _) = Engine::open(EngineOptions::new("/var/lib/mine".into(), command))?;
//! let mut job = Submission::new(vec!["python3".into(), "simulate.py".into()], ".".into())?;
//! job.environment = vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())];
//! let id = engine.submit(job).await?.record.job_id;
//! // It is on the disk now, and goes on whatever becomes of this program.
//! let status = engine.wait(id, Deadline::after(Duration::from_secs(60))).await?;
//! println!("{id}: {}, {}", status.record.status, engine.results(id).await?.stdout_tail);
//! engine.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A job is one command, and so it can be a part of the program that submits it: `examples/rmcp-server` of the repository is an MCP server
//! on the official SDK whose slow tool is a job of its own program.

pub mod document;
pub mod engine;
pub mod error;
pub mod filesystem;
pub mod folder;
pub mod id;
mod judge;
mod judge_call;
pub mod large_numbers;
mod launch;
mod limits;
pub mod log;
pub mod progress;
pub mod questions;
pub mod record;
pub mod room;
mod settle;
pub mod shared_function;
pub mod shared_jobs;
pub mod shared_work;
pub mod shim;
pub mod shims;
pub mod status;
pub mod store;
pub mod submission;
mod submitting;
#[cfg(test)]
mod testing;
pub mod timestamp;
pub mod transfer;
pub mod verdict;
pub mod wait;
mod work_lease;
