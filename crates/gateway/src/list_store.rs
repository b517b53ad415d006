//! What servers offered when they were last listed, kept from one run to the next: the next one has their lists before they have come
//! up, and speaks to each in the way that it turned out to understand.
//!
//! # Theory of operation
//!
//! Each server has a file, called after it and after a digest of what it is: its command or its URL, its own variables, its headers. So
//! another command is another server, and nobody who reads the name learns what is secret. What is in the file is what the server said,
//! before any rule of the configuration: those of today hold for what was listed yesterday. Several processes may have the same file;
//! whoever writes last is right, and nobody reads half of what another writes.
//!
//! That a server knows handshakes alone is a guess from then on. One that turns out to be wrong is forgotten, as is that of a server that
//! calls itself something else than it did: the next start finds out anew.
//!
//! Invariants
//!
//! - A file that is torn, another's, too large or of another form is passed over, and is no error.
//! - What is known is there before anybody is told anything, so that nobody hears of it as of a change.
//! - Nobody waits for the disk longer than a moment, and no event loop does: what is known is read ahead, by a thread. One thread a
//!   server at most writes.

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
use unhang_switches::stands;

use crate::route::catalog::ListedItems;
use unhang_core::revision::Revision;
use unhang_upstream::client::ServerInfo;

/// The form of the files. What has another one is passed over.
const FORMAT: u32 = 1;
/// The folder in the data folder.
const FOLDER: &str = "lists";
/// The largest file. A tool has a few kilobytes.
const MAX_FILE: u64 = 16 << 20;
/// For how long a file stays that nobody uses.
const UNUSED: Duration = Duration::from_hours(30 * 24);
/// How many there are at most; the oldest go first.
const MOST_FILES: usize = 1000;
/// How old a file that is used may look, so that not each start writes.
const FRESH: Duration = Duration::from_hours(24);
/// How long anything waits for the disk. What it has not given by then is not known.
const DISK_LIMIT: Duration = Duration::from_secs(1);
/// How much of a server's name is in that of its file.
const MAX_NAME: usize = 64;

/// Where it is kept what one server offered when it was last listed. Clones are the same place.
#[derive(Clone, Debug)]
pub struct ListStore(Arc<ListFile>);

#[derive(Debug)]
struct ListFile {
    folder: PathBuf,
    file: String,
    /// What the server is, as nobody can read it.
    identity: String,
    server: String,
    pending_write: Mutex<PendingWrite>,
    /// What was read from the disk before the server is started.
    ahead: Mutex<Option<StoredLists>>,
    /// Whether somebody writes.
    is_writing: watch::Sender<bool>,
}

/// What is to be written next.
#[derive(Debug, Default)]
struct PendingWrite {
    keep: Option<Vec<u8>>,
    /// How the server speaks is not to be relied on, whatever the file says.
    forget: bool,
    /// The digest of what was kept last.
    kept: Option<String>,
}

/// What is in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLists {
    format: u32,
    identity: String,
    server: String,
    /// The revision that it spoke, where that can be relied on.
    revision: Option<String>,
    server_info: Option<Value>,
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
}

/// What is remembered of a server while it is asked.
#[derive(Debug, Default)]
pub(super) struct RecalledLists {
    /// It is known what it offered in the last run.
    pub(super) has_lists: bool,
    /// It was found to know handshakes alone.
    is_legacy: bool,
    /// The client that there is was started in the belief that the server is what it was, and it is another.
    is_in_doubt: bool,
    /// What it called itself.
    server_info: Option<Value>,
}

impl RecalledLists {
    /// What holds for another instance of the same server.
    pub(super) fn for_another(&self) -> Self {
        Self {
            has_lists: true,
            is_legacy: self.is_legacy,
            is_in_doubt: false,
            server_info: self.server_info.clone(),
        }
    }

    /// A client is started now; whether the server is taken to know handshakes alone.
    pub(super) fn started(&mut self) -> bool {
        self.is_in_doubt = false;
        self.is_legacy
    }

    /// Forgets what a start was made on that has failed, and returns whether that was a guess.
    pub(super) fn doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_legacy)
    }

    /// Notes what the server says of itself, and returns whether it can be relied on that it says it at the next start too.
    pub(super) fn learn(&mut self, is_legacy: bool, server_info: Option<&Value>) -> bool {
        // One that has changed may know more than it did, and is asked for that at the next start.
        let is_another = self.is_legacy && is_legacy && self.server_info.as_ref() != server_info;
        self.is_in_doubt |= is_another && stands("changed-server-is-asked-anew");
        self.is_legacy = is_legacy && !self.is_in_doubt;
        self.server_info = server_info.cloned();
        !self.is_in_doubt
    }
}

impl ListStore {
    /// The place in the data folder for the server of this name. `parts` are all that makes it another server where it is another. Nothing
    /// is made before there is something to keep.
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

    /// Keeps this in the place of what there was, later.
    fn keep(&self, kept: &StoredLists) {
        let Ok(bytes) = serde_json::to_vec(kept) else { return };
        let mut pending_write = self.0.pending_write();
        let digest = Some(digest(&bytes));
        if pending_write.kept == digest {
            return;
        }
        pending_write.kept = digest;
        if bytes.len() as u64 > MAX_FILE && stands("kept-lists-bounded") {
            tracing::warn!(
                "`{}` offers {} bytes, which are not kept for the next run: at most {MAX_FILE} are",
                self.0.server,
                bytes.len()
            );
            return;
        }
        (pending_write.keep, pending_write.forget) = (Some(bytes), false);
        self.write(pending_write);
    }

    /// Takes what was read from the disk before the server is started: what it offered, before any rule, and what else is known of it.
    pub(super) fn take_read_ahead(&self) -> Option<(ListedItems, RecalledLists)> {
        let kept = self.0.ahead().take()?;
        let StoredLists { revision, server_info, tools, prompts, resources, templates, .. } = kept;
        let listed = ListedItems { tools, prompts, resources, templates, ..ListedItems::default() };
        let is_legacy = revision.is_some_and(|name| Revision::of_handshake(&name).is_some());
        Some((listed, RecalledLists { has_lists: true, is_legacy, server_info, is_in_doubt: false }))
    }

    /// Keeps what a server has just said for the next run. How it spoke is kept where it is reliable.
    pub(super) fn remember(&self, session: &ServerInfo, is_reliable: bool, listed: ListedItems) {
        let ListedItems { tools, prompts, resources, templates, .. } = listed;
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
        });
    }

    /// Has the next start find out how the server speaks.
    pub(super) fn forget_revision(&self) {
        let mut pending_write = self.0.pending_write();
        (pending_write.forget, pending_write.kept) = (true, None);
        self.write(pending_write);
    }

    /// Has a thread write what is pending, unless one does.
    fn write(&self, pending_write: MutexGuard<'_, PendingWrite>) {
        if !self.0.is_writing.send_if_modified(|is_writing| !std::mem::replace(is_writing, true)) {
            return;
        }
        drop(pending_write);
        let store = Arc::clone(&self.0);
        // Nobody waits for it but the end, for a moment.
        let _on_its_own = spawn_blocking(move || store.work());
    }

    /// What is kept. Blocks.
    fn read(&self) -> Option<StoredLists> {
        self.0.read()
    }

    /// Everything that was to be kept is, or the disk does not take it within a moment.
    pub(super) async fn settled(&self) {
        let mut is_writing = self.0.is_writing.subscribe();
        let by = Instant::now() + DISK_LIMIT;
        // It is never closed.
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

    /// Writes what is pending until there is nothing. Blocks.
    fn work(&self) {
        loop {
            let (keep, forget) = {
                let mut pending_write = self.pending_write();
                let work = (pending_write.keep.take(), std::mem::take(&mut pending_write.forget));
                if matches!(work, (None, false)) {
                    // While the pending write is held, so that nobody takes us for one who will look again.
                    self.is_writing.send_replace(false);
                    return;
                }
                work
            };
            let written = keep.map_or(Ok(()), |bytes| self.put(&bytes));
            let written = written.and_then(|()| if forget { self.put_without_revision() } else { Ok(()) });
            if let Err(error) = written {
                tracing::warn!("what `{}` offers is not kept for the next run: {error}", self.server);
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
            tracing::debug!("old lists stay where they are: {error}");
        }
        Ok(())
    }

    fn put_without_revision(&self) -> Result<(), FileError> {
        let Some(kept) = self.read() else { return Ok(()) };
        let bytes = serde_json::to_vec(&StoredLists { revision: None, ..kept }).unwrap_or_default();
        self.put(&bytes)
    }

    /// What is there for this server. Blocks.
    fn read(&self) -> Option<StoredLists> {
        let path = self.folder.join(&self.file);
        let bytes = match read_at_most(&path, MAX_FILE) {
            Ok(bytes) => bytes?,
            Err(error) => {
                tracing::warn!("what `{}` offered is not known from the last run: {error}", self.server);
                return None;
            }
        };
        let kept = match serde_json::from_slice::<StoredLists>(&bytes) {
            Ok(kept) if kept.format != FORMAT => {
                tracing::debug!(
                    "what `{}` offered was kept in another form, {}, and is passed over",
                    self.server,
                    kept.format
                );
                return None;
            }
            // Half of the digest is in the name; whoever copies files about has the whole one here.
            Ok(kept) if kept.identity != self.identity => {
                tracing::warn!("{} is of another server, and is passed over", path.display());
                return None;
            }
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!("{} is damaged in line {}, and is passed over", path.display(), error.line());
                return None;
            }
        };
        self.used(&path);
        self.pending_write().kept = Some(digest(&bytes));
        Some(kept)
    }

    /// A file that is used looks as if it had just been written.
    fn used(&self, path: &Path) {
        let now = SystemTime::now();
        let is_old = |file: &File| {
            file.metadata()?.modified().map(|then| now.duration_since(then).is_ok_and(|age| age > FRESH))
        };
        let touched =
            File::open(path).and_then(|file| if is_old(&file)? { file.set_modified(now) } else { Ok(()) });
        if let Err(error) = touched {
            tracing::debug!("what `{}` offered looks unused: {error}", self.server);
        }
    }

    /// Removes what nobody has used for long, ours or another's.
    fn tidy(&self, now: SystemTime) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort_unstable_by(|one, other| other.cmp(one));
        let is_unused = |then: SystemTime| now.duration_since(then).is_ok_and(|age| age > UNUSED);
        for (index, (then, path)) in files.into_iter().enumerate() {
            if (is_unused(then) || index >= MOST_FILES) && stands("old-lists-removed") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Has what these offered in the last run read from the disk, so that [`ListStore::take_read_ahead`] has it. Waits for a moment at most.
pub(super) async fn read_ahead(memories: Vec<ListStore>) {
    if stands("lists-of-the-last-run") {
        read_ahead_by(memories, ListStore::read).await;
    }
}

async fn read_ahead_by(
    memories: Vec<ListStore>,
    read: impl Fn(&ListStore) -> Option<StoredLists> + Send + 'static,
) {
    if memories.is_empty() {
        return;
    }
    let (tell, mut told) = mpsc::channel(memories.len());
    // Of its own, for it may hang with the disk. Nobody waits for its end.
    let reading = thread::Builder::new().name("recalls-lists".to_owned());
    let reading = reading.spawn(move || {
        for memory in memories {
            let kept = read(&memory);
            // Whoever has asked may wait no more.
            if tell.blocking_send((memory, kept)).is_err() {
                return;
            }
        }
    });
    if let Err(error) = reading {
        return tracing::warn!("what servers offered in the last run is not known: {error}");
    }
    let limit = if stands("lists-wait-for-no-disk") { DISK_LIMIT } else { UNUSED };
    let by = Instant::now() + limit;
    // It ends when all have been read.
    while let Ok(Some((memory, kept))) = timeout_at(by, told.recv()).await {
        *memory.0.ahead() = kept;
    }
}

/// What a server is, in a form that nobody can read: each part with its length, so that none runs into the next.
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
