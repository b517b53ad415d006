//! The last lists of servers, kept from one run to the next. So the next run has the lists before the servers are up, and speaks to each
//! server in the way that it understood.
//!
//! # Theory of operation
//!
//! Each server has a file, named after the server and a digest of its identity: its command or URL, its own variables and its headers. So
//! another command is another server, and the file name gives no secret away. The file holds the lists as the server wrote them, before any
//! rule of the configuration: the rules of today hold for the lists of yesterday. Several processes may share a file. The last writer is
//! right, and no reader sees half of a write.
//!
//! The file also says if a server knows handshakes alone, which is a guess from then on. A guess that turns out to be wrong is forgotten,
//! and so is that of a server that calls itself something else than before. The next start finds out anew.
//!
//! Invariants
//!
//! - A file that is torn, another server's, too large or of another format is passed over, and is not an error.
//! - The lists of the last run are there before any session is told anything. So no session hears of them as of a change.
//! - Nobody waits for the disk longer than a moment, and no event loop does: a thread reads the lists ahead. At most one thread writes for
//!   each server.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use unhang_jobs::folder::{Durability, FileError, read_at_most, replace};

use crate::route::{
    catalog::{ListedItems, Owners},
    extensions::Extensions,
};
use unhang_core::revision::Revision;
use unhang_upstream::client::ServerInfo;

/// The format of the files. Files of another format are passed over.
const FORMAT: u32 = 1;
/// The folder in the data folder.
const FOLDER: &str = "lists";
/// The largest file, in bytes. A tool has a few kilobytes.
const MAX_FILE: u64 = 16 << 20;
/// The age at which a file is removed that nobody uses.
const UNUSED: Duration = Duration::from_hours(30 * 24);
/// The most files that are kept; the oldest go first.
const MOST_FILES: usize = 1000;
/// The age that a file in use may show, so that not every start writes.
const FRESH: Duration = Duration::from_hours(24);
/// The longest wait for the disk. Lists that were not read by then are not known.
const DISK_LIMIT: Duration = Duration::from_secs(1);
/// The most characters of a server's name in the name of its file.
const MAX_NAME: usize = 64;

/// The file that keeps the last lists of one server. Clones share the file.
#[derive(Clone, Debug)]
pub struct ListStore(Arc<ListFile>);

#[derive(Debug)]
struct ListFile {
    folder: PathBuf,
    file: String,
    /// The identity of the server as a digest.
    identity: String,
    server: String,
    pending_write: Mutex<PendingWrite>,
    /// The lists that were read from the disk before the server is started.
    ahead: Mutex<Option<StoredLists>>,
    /// Whether a thread is writing.
    is_writing: watch::Sender<bool>,
}

/// The work for the next write.
#[derive(Debug, Default)]
struct PendingWrite {
    keep: Option<Vec<u8>>,
    /// The way the server speaks must be forgotten, whatever the file says.
    forget: bool,
    /// The digest of the bytes that were kept last.
    kept: Option<String>,
}

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLists {
    format: u32,
    identity: String,
    server: String,
    /// The revision that the server spoke, if that can be relied on.
    revision: Option<String>,
    server_info: Option<Value>,
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
    #[serde(default)]
    skills: Vec<Box<RawValue>>,
    #[serde(default)]
    extensions: Extensions,
    #[serde(default)]
    declares_resources: bool,
}

/// The memory of a server's last run, while the server is in use.
#[derive(Debug, Default)]
pub(super) struct RecalledLists {
    /// The lists of the last run are known.
    pub(super) has_lists: bool,
    /// The server was found to know handshakes alone.
    is_legacy: bool,
    /// The current client was started with the old memory, and the server turned out to have changed.
    is_in_doubt: bool,
    /// The server's name and version, as it gave them.
    server_info: Option<Value>,
}

impl RecalledLists {
    /// Returns the memory for another instance of the same server.
    pub(super) fn for_another(&self) -> Self {
        Self {
            has_lists: true,
            is_legacy: self.is_legacy,
            is_in_doubt: false,
            server_info: self.server_info.clone(),
        }
    }

    /// Returns whether the server was found to know handshakes alone.
    pub(super) fn is_legacy(&self) -> bool {
        self.is_legacy
    }

    /// Notes that a client is started now, and returns whether the server is taken to know handshakes alone.
    pub(super) fn started(&mut self) -> bool {
        self.is_in_doubt = false;
        self.is_legacy
    }

    /// Forgets the guess of a start that has failed, and returns whether there was one.
    pub(super) fn doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_legacy)
    }

    /// Notes the era and the name that the server has given. Returns whether the next start can rely on them.
    pub(super) fn learn(&mut self, is_legacy: bool, server_info: Option<&Value>) -> bool {
        // A server that has changed may know more than it did, and is asked at the next start.
        let is_another = self.is_legacy && is_legacy && self.server_info.as_ref() != server_info;
        self.is_in_doubt |= is_another;
        self.is_legacy = is_legacy && !self.is_in_doubt;
        self.server_info = server_info.cloned();
        !self.is_in_doubt
    }
}

impl ListStore {
    /// Makes the store for the server of this name, in the data folder `folder`. `parts` are all that makes the server a different one if
    /// they change. No file is made before there is something to keep.
    #[must_use]
    pub fn new<'a>(folder: &Path, server: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let identity = identity(parts);
        let plain =
            |byte: u8| if byte.is_ascii_alphanumeric() || byte == b'-' { char::from(byte) } else { '_' };
        let name: String = server.bytes().take(MAX_NAME).map(plain).collect();
        let file = format!("{name}-{}.json", &identity[..16]);
        let folder = folder.join(FOLDER);
        let (pending_write, is_writing) = (Mutex::default(), watch::Sender::new(false));
        let (server, ahead) = (server.to_owned(), Mutex::default());
        Self(Arc::new(ListFile { folder, file, identity, server, pending_write, ahead, is_writing }))
    }

    /// Keeps these lists in place of the old ones. A thread writes them later.
    fn keep(&self, kept: &StoredLists) {
        let Ok(bytes) = serde_json::to_vec(kept) else { return };
        let mut pending_write = self.0.pending_write();
        let digest = Some(digest(&bytes));
        if pending_write.kept == digest {
            return;
        }
        pending_write.kept = digest;
        if bytes.len() as u64 > MAX_FILE {
            tracing::warn!(
                "unhang does not keep the lists of `{}` for the next run: they have {} bytes, over the \
                 limit of {MAX_FILE}",
                self.0.server,
                bytes.len()
            );
            return;
        }
        (pending_write.keep, pending_write.forget) = (Some(bytes), false);
        self.write(pending_write);
    }

    /// Takes the lists that were read from the disk before the server is started, before any rule, and the rest of the memory.
    pub(super) fn take_read_ahead(&self) -> Option<(ListedItems, RecalledLists)> {
        let kept = self.0.ahead().take()?;
        let StoredLists { revision, server_info, tools, prompts, resources, templates, .. } = kept;
        let StoredLists { skills, extensions, declares_resources, .. } = kept;
        let owners = Owners::new();
        let listed = ListedItems {
            tools,
            prompts,
            resources,
            templates,
            skills,
            extensions,
            declares_resources,
            owners,
        };
        let is_legacy = revision.is_some_and(|name| Revision::of_handshake(&name).is_some());
        Some((listed, RecalledLists { has_lists: true, is_legacy, server_info, is_in_doubt: false }))
    }

    /// Keeps the lists that a server has just given for the next run. Its revision is kept if `is_reliable`.
    pub(super) fn remember(&self, session: &ServerInfo, is_reliable: bool, listed: ListedItems) {
        let ListedItems { tools, prompts, resources, templates, skills, extensions, .. } = listed;
        self.keep(&StoredLists {
            format: FORMAT,
            identity: self.0.identity.clone(),
            server: self.0.server.clone(),
            revision: is_reliable.then(|| session.revision.name().to_owned()),
            server_info: session.server_info.clone(),
            tools,
            prompts,
            resources,
            templates,
            skills,
            extensions,
            declares_resources: listed.declares_resources,
        });
    }

    /// Forgets the revision of the server, so that the next start finds out how it speaks.
    pub(super) fn forget_revision(&self) {
        let mut pending_write = self.0.pending_write();
        (pending_write.forget, pending_write.kept) = (true, None);
        self.write(pending_write);
    }

    /// Starts a thread that writes the pending work, unless one does already.
    fn write(&self, pending_write: MutexGuard<'_, PendingWrite>) {
        if !self.0.is_writing.send_if_modified(|is_writing| !std::mem::replace(is_writing, true)) {
            return;
        }
        drop(pending_write);
        let store = Arc::clone(&self.0);
        // Nobody waits for the thread but `settled`, for a moment.
        let _on_its_own = spawn_blocking(move || store.work());
    }

    /// Reads the lists that are kept. Blocks.
    fn read(&self) -> Option<StoredLists> {
        self.0.read()
    }

    /// Waits until all pending work is written, or for [`DISK_LIMIT`] at most.
    pub(super) async fn settled(&self) {
        let mut is_writing = self.0.is_writing.subscribe();
        let by = Instant::now() + DISK_LIMIT;
        // The channel is never closed.
        let _in_time = timeout_at(by, is_writing.wait_for(|is_writing| !is_writing)).await;
    }
}

impl ListFile {
    fn ahead(&self) -> MutexGuard<'_, Option<StoredLists>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending_write(&self) -> MutexGuard<'_, PendingWrite> {
        self.pending_write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the pending work until none is left. Blocks.
    fn work(&self) {
        loop {
            let (keep, forget) = {
                let mut pending_write = self.pending_write();
                let work = (pending_write.keep.take(), std::mem::take(&mut pending_write.forget));
                if matches!(work, (None, false)) {
                    // The lock on the pending work is held here, so that no writer takes this thread for one that will look again.
                    self.is_writing.send_replace(false);
                    return;
                }
                work
            };
            let written = keep.map_or(Ok(()), |bytes| self.put(&bytes));
            let written = written.and_then(|()| if forget { self.put_without_revision() } else { Ok(()) });
            if let Err(error) = written {
                tracing::warn!("unhang cannot keep the lists of `{}` for the next run: {error}", self.server);
            }
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<(), FileError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        created.map_err(|source| FileError::System {
            action: "cannot make",
            path: self.folder.clone(),
            source,
        })?;
        replace(&self.folder, &self.file, bytes, Durability::Memory)?;
        if let Err(error) = self.tidy(SystemTime::now()) {
            tracing::debug!("unhang cannot remove old lists: {error}");
        }
        Ok(())
    }

    fn put_without_revision(&self) -> Result<(), FileError> {
        let Some(kept) = self.read() else { return Ok(()) };
        let bytes = serde_json::to_vec(&StoredLists { revision: None, ..kept }).unwrap_or_default();
        self.put(&bytes)
    }

    /// Reads the file of this server. Returns `None` if there is none, or if it has to be passed over. Blocks.
    fn read(&self) -> Option<StoredLists> {
        let path = self.folder.join(&self.file);
        let bytes = match read_at_most(&path, MAX_FILE) {
            Ok(bytes) => bytes?,
            Err(error) => {
                tracing::warn!(
                    "unhang cannot read the lists of `{}` from the last run: {error}",
                    self.server
                );
                return None;
            }
        };
        let kept = match serde_json::from_slice::<StoredLists>(&bytes) {
            Ok(kept) if kept.format != FORMAT => {
                tracing::debug!(
                    "unhang ignores the lists of `{}` from the last run, because they have the format {}",
                    self.server,
                    kept.format
                );
                return None;
            }
            // Half of the digest is in the name. The whole one here tells files that somebody has copied about.
            Ok(kept) if kept.identity != self.identity => {
                tracing::warn!("unhang ignores {}, which belongs to another server", path.display());
                return None;
            }
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(
                    "unhang ignores {}, which is damaged in line {}",
                    path.display(),
                    error.line()
                );
                return None;
            }
        };
        self.used(&path);
        self.pending_write().kept = Some(digest(&bytes));
        Some(kept)
    }

    /// Touches a file that is in use, if it looks older than [`FRESH`].
    fn used(&self, path: &Path) {
        let now = SystemTime::now();
        let is_old = |file: &File| {
            file.metadata()?.modified().map(|then| now.duration_since(then).is_ok_and(|age| age > FRESH))
        };
        let touched =
            File::open(path).and_then(|file| if is_old(&file)? { file.set_modified(now) } else { Ok(()) });
        if let Err(error) = touched {
            tracing::debug!("unhang cannot mark the lists of `{}` as used: {error}", self.server);
        }
    }

    /// Removes files that nobody has used for long, and the oldest of too many, our own and others'.
    fn tidy(&self, now: SystemTime) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort_unstable_by(|one, other| other.cmp(one));
        let is_unused = |then: SystemTime| now.duration_since(then).is_ok_and(|age| age > UNUSED);
        for (index, (then, path)) in files.into_iter().enumerate() {
            if is_unused(then) || index >= MOST_FILES {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Reads from the disk the lists of the last run, so that [`ListStore::take_read_ahead`] has them. Waits for a moment at most.
pub(super) async fn read_ahead(memories: Vec<ListStore>) {
    read_ahead_by(memories, ListStore::read).await;
}

async fn read_ahead_by(
    memories: Vec<ListStore>,
    read: impl Fn(&ListStore) -> Option<StoredLists> + Send + 'static,
) {
    if memories.is_empty() {
        return;
    }
    let (tell, mut told) = mpsc::channel(memories.len());
    // A thread of its own, since it may hang with the disk. Nobody waits for its end.
    let reading = thread::Builder::new().name("recalls-lists".to_owned());
    let reading = reading.spawn(move || {
        for memory in memories {
            let kept = read(&memory);
            // The caller may have stopped waiting.
            if tell.blocking_send((memory, kept)).is_err() {
                return;
            }
        }
    });
    if let Err(error) = reading {
        return tracing::warn!("unhang cannot read the lists of the last run: {error}");
    }
    let by = Instant::now() + DISK_LIMIT;
    // The channel ends when all files have been read.
    while let Ok(Some((memory, kept))) = timeout_at(by, told.recv()).await {
        *memory.0.ahead() = kept;
    }
}

/// Returns the identity of a server as a digest of its parts. Each part goes in with its length, so that no part runs into the next.
fn identity<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    HEXLOWER.encode(context.finish().as_ref())
}

fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(ring::digest::digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests;
