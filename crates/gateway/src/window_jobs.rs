//! Calls of a window of which the leading window makes jobs. The window orders the job, and the leader answers the order and the call with
//! it.
//!
//! Invariant: an order that is not confirmed within [`ORDER_LIMIT`] is withdrawn.

use std::sync::Arc;

use tokio::time::timeout;
use unhang_jobs::id::JobId;

use super::{Servers, backend::Backend, lifecycle::StartReason};
use unhang_upstream::{
    client::{CallOptions, Error},
    window_job::{MAKE_JOB, ORDER_LIMIT, WindowJobOrder, read_made_job},
};

/// Returns whether the server at this index is the leading window.
#[must_use]
pub fn is_leader(servers: &Servers, server_index: usize) -> bool {
    servers.at(server_index).is_some_and(|backend| backend.is_gateway())
}

/// Has the leading window at this index make a job of a call that it has, and returns that job. Dropping the future withdraws the order.
///
/// # Errors
/// Fails with the reason why the leader makes no job of the call.
pub async fn job_of_leader(
    servers: &Servers,
    server_index: usize,
    order: &WindowJobOrder,
) -> Result<JobId, String> {
    let Some(backend) = servers.at(server_index).filter(|backend| backend.is_gateway()) else {
        return Err("the server is not the window that runs the servers".to_owned());
    };
    match timeout(ORDER_LIMIT, ordered(&backend, order)).await {
        Ok(Ok(Some(job))) => Ok(job),
        Ok(Ok(None)) => Err("the window that runs the servers names no job".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_late) => Err("the window that runs the servers did not answer in time".to_owned()),
    }
}

async fn ordered(backend: &Arc<Backend>, order: &WindowJobOrder) -> Result<Option<JobId>, Error> {
    let (client, _) = backend.ready(StartReason::Request).await?;
    let options = CallOptions { timeout: Some(ORDER_LIMIT), ..CallOptions::default() };
    Ok(read_made_job(&client.ask(MAKE_JOB, &order.params(), &options).await?))
}
