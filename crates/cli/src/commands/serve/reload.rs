//! The configuration while unhang serves: it is read again on SIGHUP, and when one of its files has changed.
//!
//! Invariants
//!
//! - A configuration with errors changes nothing: the previous one stays, and a message gives the reason.
//! - Sessions go on, with their requests in flight. A server whose description is unchanged goes on as it is.
//! - Files are examined and read beside the event loop, so that a disk that stands still keeps nobody from an answer.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::sleep,
};
use unhang::{
    clients::Clocks,
    front::http::{Acceptor, AccessPolicy as Admission},
    gateway::{RosterChange, ServerEntry},
    sharing::SharedServers,
    tools::{CurrentTable, JobTools, Table, Toolbox, service::JobService},
};

use super::plan::{InheritedVariables, ServePlan, ServeSource};
use crate::{arguments::Serve, diagnostics::Diagnostics};

/// The interval at which files are examined. A changed file is read once it has stayed the same for so long, because editors write in
/// pieces.
const LOOK: Duration = Duration::from_secs(2);

/// The data that tells one state of a file from another; `None` if there is no such file.
type FileStamp = Option<[i128; 7]>;

/// A follower that applies changes of the configuration to everything that is served.
pub(super) struct Reload<'a> {
    pub(super) serve: Serve,
    pub(super) source: ServeSource,
    pub(super) diagnostics: &'a Diagnostics,
    pub(super) table: Arc<CurrentTable>,
    pub(super) jobs: Arc<dyn JobService>,
    pub(super) shared: SharedServers,
    /// The entrance for clients over HTTP.
    pub(super) entrance: Option<Entrance>,
    /// The variables that servers got from this process's environment at the start, on which the meeting place of windows depends.
    pub(super) given: InheritedVariables,
    /// The configuration that applies now.
    pub(super) current: Current,
}

/// The entrance of clients over HTTP, and its changeable settings.
pub(super) struct Entrance {
    /// The addresses on the network.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) access_policy: watch::Sender<Arc<Admission>>,
    pub(super) tls: watch::Sender<Option<Acceptor>>,
}

/// The configuration that was read last.
pub(super) struct Current {
    /// The settings of tools, as text. `fixed` has the settings that cannot change while unhang runs.
    tools: String,
    job_tools: JobTools,
    clocks: Clocks,
    servers: Vec<ServerEntry>,
    fixed: String,
    files: Vec<PathBuf>,
    stamps: Vec<FileStamp>,
}

impl Current {
    /// Makes the state of this plan. `before` is the stamp that the configuration file had before it was read, if there is such a file.
    pub(super) fn of(plan: &ServePlan, before: Option<FileStamp>) -> Current {
        let mut stamps: Vec<FileStamp> = plan.files.iter().map(|file| stamp(file)).collect();
        if let Some((first, before)) = stamps.first_mut().zip(before) {
            *first = before;
        }
        Current {
            tools: format!("{:?}", plan.tools),
            job_tools: plan.job_tools(),
            clocks: plan.lineup.clocks.clone(),
            servers: plan.lineup.entries.clone(),
            fixed: format!(
                "{:?}{:?}{:?}{:?}",
                plan.jobs,
                plan.state,
                plan.telemetry,
                plan.http_settings
                    .as_ref()
                    .map(|http_settings| (http_settings.sse, http_settings.message_memory))
            ),
            files: plan.files.clone(),
            stamps,
        }
    }
}

/// Returns the stamp of a file. Returns `None` if it is not a plain file, because such a file is read only once.
pub(super) fn stamp(file: &Path) -> FileStamp {
    let data = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Some([
        data.dev().into(),
        data.ino().into(),
        data.size().into(),
        data.mtime().into(),
        data.mtime_nsec().into(),
        // The permissions of the file can have changed as well.
        data.ctime().into(),
        data.ctime_nsec().into(),
    ])
}

/// The reason why the configuration is read again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Signal,
    Change,
}

impl Reload<'_> {
    /// Follows the configuration for ever.
    pub(super) async fn run(mut self, mut hangups: mpsc::Receiver<()>) {
        loop {
            let cause = self.cause(&mut hangups).await;
            self.read_again(cause).await;
        }
    }

    /// Waits until the configuration has to be read again.
    async fn cause(&mut self, hangups: &mut mpsc::Receiver<()>) -> Cause {
        let mut pending = None;
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => return Cause::Signal,
                () = sleep(LOOK) => {}
            }
            let files = self.current.files.clone();
            let look = move || files.iter().map(|file| stamp(file)).collect::<Vec<FileStamp>>();
            // `stamp` cannot panic.
            let Ok(now) = spawn_blocking(look).await else { continue };
            if now == self.current.stamps {
                pending = None;
            } else if pending.as_ref() == Some(&now) {
                self.current.stamps = now;
                return Cause::Change;
            } else {
                pending = Some(now);
            }
        }
    }

    async fn read_again(&mut self, cause: Cause) {
        let (serve, source) = (self.serve.clone(), self.source.clone());
        let read = spawn_blocking(move || {
            let before = source.file().map(stamp);
            ServePlan::read(&serve, &source).map(|plan| (Current::of(&plan, before), plan))
        });
        let read = match read.await {
            Ok(Ok((current, plan))) => {
                plan.lineup.read_ahead().await;
                self.take(current, plan)
            }
            Ok(Err(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        };
        let path = self.source.shown();
        match read {
            Ok(told) if !told.is_empty() => {
                self.diagnostics.notice(&format!("{path} was read again: {}", told.join("; ")));
            }
            Ok(_) if cause == Cause::Signal => {
                self.diagnostics.notice(&format!("{path} was read again, and nothing has changed"));
            }
            Ok(_) => tracing::debug!("{path} was written again, and nothing has changed"),
            Err(why) => {
                self.diagnostics
                    .warn(&format!("{why}; unhang ignores the new file and keeps the earlier settings"));
            }
        }
    }

    /// Applies this configuration, if all of it can be applied, and returns the changes in words. Otherwise it fails and changes nothing.
    fn take(&mut self, mut current: Current, mut plan: ServePlan) -> Result<Vec<String>, String> {
        if *plan.given() != self.given {
            plan.keep_apart(&self.current.servers);
            current.servers = plan.lineup.entries.clone();
        }
        let ServePlan { mut lineup, tools, http_settings, secrets, warnings, .. } = plan;
        let opened = match (&self.entrance, http_settings) {
            (Some(entrance), Some(http_settings)) => {
                let access = http_settings.access.clone().after(&entrance.access_policy.borrow().access);
                if let Some(address) =
                    entrance.addresses.iter().find(|address| !access.suffices_at(address.ip()))
                {
                    return Err(format!(
                        "{}: the file has no token and no [http.oauth], but other machines can reach \
                         {address}",
                        self.source.shown(),
                    ));
                }
                let admission = Admission { hosts: http_settings.hosts(&entrance.addresses), access };
                Some((entrance, Arc::new(admission), http_settings.tls))
            }
            _ => None,
        };
        let mut told = Vec::new();
        let table = match current.tools == self.current.tools && current.job_tools == self.current.job_tools {
            true => None,
            false => {
                Some(Table::new(tools, &self.serve.tool_mode, Arc::clone(&self.jobs), current.job_tools)?)
            }
        };
        // Nothing can fail from here on.
        self.diagnostics.hide(secrets.into_iter());
        warnings.iter().for_each(|warning| self.diagnostics.warn(warning));
        if let Some(table) = table {
            self.table.replace(table);
            told.push("the tools for jobs have changed".to_owned());
        }
        lineup.notices = self.diagnostics.notices();
        lineup.own = self.table.definitions().iter().map(|tool| tool.name.clone()).collect();
        told.extend(sentence(&self.shared.replace(lineup)));
        if current.clocks != self.current.clocks {
            told.push("the clocks of clients have changed".to_owned());
        }
        if let Some((entrance, admission, tls)) = opened {
            entrance.access_policy.send_replace(admission);
            entrance.tls.send_replace(tls);
        }
        if current.fixed != self.current.fixed {
            told.push(
                "changes in [jobs], [state], [telemetry], `sse` and `message-memory` take effect at the \
                 next start"
                    .to_owned(),
            );
        }
        self.current = current;
        Ok(told)
    }
}

/// Describes the changes of servers, or returns `None` if there are none.
fn sentence(change: &RosterChange) -> Option<String> {
    let names = |names: &[String], what| {
        let named: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        (!named.is_empty()).then(|| format!("{what} {}", named.join(", ")))
    };
    let RosterChange { added, changed, removed } = change;
    let parts = [names(added, "new:"), names(changed, "started anew:"), names(removed, "gone:")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("servers {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_said_in_one_sentence() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let change =
            RosterChange { added: names(&["a", "b"]), changed: names(&["c"]), removed: names(&["d"]) };
        let expect = "servers new: `a`, `b`, started anew: `c`, gone: `d`";
        assert_eq!(sentence(&change).as_deref(), Some(expect));
        assert_eq!(sentence(&RosterChange::default()), None);
    }
}
