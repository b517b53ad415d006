//! Asks a server for all its lists at once. A list that takes long holds back no other.
//!
//! Invariants: the tools come first, and without them there are no lists. Dropping [`LateLists`] withdraws their requests.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde_json::value::RawValue;
use tokio::{task::JoinSet, time::sleep};
use unhang_bridge::Era;

use unhang_core::{config::TOOLS_PATIENCE, list::ServerList};
use unhang_upstream::client::{Client, Error, RequestOptions, ServerInfo};

/// The items of a list, or the reason why there are none.
pub(super) type Listed = Result<Vec<Box<RawValue>>, Error>;

/// The lists of a server that has answered about its tools.
pub(super) struct FetchedLists {
    /// The tools, or the server's refusal to list them.
    pub tools: Listed,
    /// The other lists that have come.
    pub others: Vec<(ServerList, Listed)>,
    /// The others that have not come yet.
    pub late: LateLists,
}

/// Lists that a server has been asked for, and that have not come yet.
pub(super) struct LateLists {
    requests: JoinSet<(ServerList, Listed)>,
    awaited: Vec<ServerList>,
    /// The handshake of the server, and the era in which it was greeted.
    pub greeted: (Arc<ServerInfo>, Era),
}

impl LateLists {
    /// Gives the next list that comes, and `None` if no list is awaited.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(ServerList, Listed)>> {
        loop {
            match self.requests.poll_join_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                // A panic in one task is the end of that list alone.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(Some(Ok((list, listed)))) => {
                    self.awaited.retain(|awaited| *awaited != list);
                    return Poll::Ready(Some((list, listed)));
                }
            }
        }
    }

    /// Returns the lists that have not come yet.
    pub(super) fn awaited(&self) -> &[ServerList] {
        &self.awaited
    }
}

/// Asks a ready server, which was greeted in this era, for all its lists. Waits for the tools, and a moment for the others, except for
/// those that are known to be slow.
///
/// # Errors
/// Fails if the server gives no answer about its tools.
pub(super) async fn fetch(
    client: &Client,
    greeted: (Arc<ServerInfo>, Era),
    slow: &[ServerList],
) -> Result<FetchedLists, Error> {
    let mut requests = JoinSet::new();
    for list in ServerList::ALL {
        let client = client.clone();
        // No server declares templates by themselves, and many have none.
        requests.spawn(async move { (list, client.list(list, &RequestOptions::default()).await) });
    }
    let mut late = LateLists { requests, awaited: ServerList::ALL.to_vec(), greeted };
    let (mut tools, mut others) = (None, Vec::new());
    let mut is_time = pin!(sleep(TOOLS_PATIENCE));
    while tools.is_none() || late.awaited.iter().any(|list| !slow.contains(list)) {
        tokio::select! {
            biased;
            next = poll_fn(|context| late.poll_next(context)) => match next {
                Some((ServerList::Tools, Err(error @ Error::Failure(_)))) => return Err(error),
                Some((ServerList::Tools, listed)) => tools = Some(listed),
                Some(other) => others.push(other),
                None => break,
            },
            () = is_time.as_mut(), if tools.is_some() => break,
        }
    }
    // Only a panic ends the request for the tools without an outcome.
    let tools = tools.ok_or(Error::Disposed)?;
    Ok(FetchedLists { tools, others, late })
}
