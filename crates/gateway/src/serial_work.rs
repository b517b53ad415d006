//! Sees that a server works on one call at a time while one of its calls is a job, and logs once what would help.
//!
//! Invariants
//!
//! - Nothing is guessed. A request has waited for `busy-after` behind an earlier call that is a job, and the server does not answer a ping
//!   that it gets then, for [`PING_LIMIT`]. A server that answers the ping is slow with that request and no more.
//! - The watch changes no request and delays none.

use std::{
    collections::BTreeSet,
    future,
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::watch, time::sleep};

use super::{backend::Backend, task_news::TaskNews};
use unhang_core::{fault::FaultKind, health::WORKS_ON_ONE_CALL};
use unhang_upstream::client::{Client, Error, RequestOptions};

/// How long the server has for the answer to a ping. A server on a crowded machine takes a part of that.
const PING_LIMIT: Duration = Duration::from_secs(2);

/// The requests with one process of a server, as far as they are jobs.
#[derive(Default)]
pub(super) struct SerialWorkWatch {
    /// The numbers of the requests that are jobs. Later requests have larger numbers.
    jobs: watch::Sender<BTreeSet<u64>>,
    next: AtomicU64,
}

/// The place of a job among the requests, until this is dropped.
struct JobOfServer<'a> {
    watch: &'a SerialWorkWatch,
    number: u64,
}

impl SerialWorkWatch {
    /// Waits for the outcome of a request to this client of the server, and watches meanwhile. `news` says when the request becomes a job.
    pub(super) async fn over<T>(
        &self,
        (backend, client): (&Backend, &Client),
        news: Option<&TaskNews>,
        mut asking: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        if !backend.could_have_instances() || backend.record.is_told_of_serial_work() {
            return asking.await;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut becomes_job = pin!(async {
            match news {
                Some(news) => news.until_job().await,
                None => future::pending().await,
            }
        });
        let mut blocked = pin!(self.until_blocked(number, backend, client));
        let (mut job, mut is_watched) = (None, true);
        loop {
            tokio::select! {
                biased;
                outcome = &mut asking => return outcome,
                () = &mut becomes_job, if job.is_none() => job = Some(JobOfServer::begin(self, number)),
                is_serial = &mut blocked, if is_watched => {
                    is_watched = false;
                    if is_serial && backend.record.tell_of_serial_work() {
                        tracing::warn!(
                            "{} {WORKS_ON_ONE_CALL}, if it keeps no state between calls",
                            backend.title()
                        );
                    }
                }
            }
        }
    }

    /// Waits until this request has waited behind an earlier one that is a job. Returns whether the server answers nothing meanwhile.
    async fn until_blocked(&self, number: u64, backend: &Backend, client: &Client) -> bool {
        let mut jobs = self.jobs.subscribe();
        let is_behind = |jobs: &BTreeSet<u64>| jobs.first().is_some_and(|first| *first < number);
        loop {
            if jobs.wait_for(is_behind).await.is_err() {
                return false;
            }
            sleep(backend.spec.limits.busy_after).await;
            if !is_behind(&self.jobs.borrow()) {
                continue;
            }
            let options = RequestOptions { timeout: Some(PING_LIMIT), ..RequestOptions::default() };
            // In a box, what few requests need makes the future of all others no larger.
            let answered = Box::pin(client.ping(&options)).await;
            let is_late =
                matches!(&answered, Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline);
            return is_late && is_behind(&self.jobs.borrow());
        }
    }
}

impl<'a> JobOfServer<'a> {
    fn begin(watch: &'a SerialWorkWatch, number: u64) -> Self {
        watch.jobs.send_if_modified(|jobs| jobs.insert(number));
        Self { watch, number }
    }
}

impl Drop for JobOfServer<'_> {
    fn drop(&mut self) {
        self.watch.jobs.send_if_modified(|jobs| jobs.remove(&self.number));
    }
}
