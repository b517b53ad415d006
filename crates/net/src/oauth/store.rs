//! The logins on the disk: one file a server.
//!
//! Invariants
//!
//! - Files are for their owner alone (0600 in a folder 0700), and replaced by one rename: no reader meets half of one.
//! - A file is used only for the server whose URL it contains, whatever its name.
//! - A process that renews a token holds the lock of its file, so that two processes do not use one refresh token twice.
//! - The disk never stalls a caller: each access is on another thread, and has a limit.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use reqwest::Url;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::error::AuthorizationError;

/// The time for one access to the disk.
const DISK_LIMIT: Duration = Duration::from_secs(10);
/// The time for which a lock is waited for. Another process renews the token meanwhile: a few requests, each with its own limit.
const LOCK_LIMIT: Duration = Duration::from_secs(120);
/// The pause between two looks at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a file; tokens have a few kilobytes.
const MAX_FILE: u64 = 1 << 20;
/// The most characters of a host in the name of a file.
const MAX_HOST: usize = 80;
/// A token that ends sooner is as good as ended: the request has to get there.
const MARGIN: Duration = Duration::from_secs(30);

/// One login, as it is in its file.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
pub(super) struct StoredLogin {
    /// The URL of the server that it is for.
    pub(super) server: String,
    /// The authorization server that gave it.
    pub(super) issuer: String,
    pub(super) client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    /// The client registered itself, and may be used again.
    pub(super) is_registered: bool,
    pub(super) access_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    /// The scopes that were asked for.
    pub(super) requested: Vec<String>,
    /// The scopes that were given.
    pub(super) granted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revocation_endpoint: Option<String>,
}

impl StoredLogin {
    /// Returns whether the token has ended, or will before a request with it gets there.
    pub(super) fn is_ending(&self) -> bool {
        self.ends_within(MARGIN)
    }

    /// Returns whether the token has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    fn ends_within(&self, margin: Duration) -> bool {
        self.expires_at.is_some_and(|end| end <= now().saturating_add(margin.as_secs()))
    }
}

/// Returns the seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The folder in which logins are kept.
#[derive(Clone, Debug)]
pub struct TokenStore {
    folder: PathBuf,
}

/// Held while a token is renewed.
pub(super) struct TokenLock {
    _file: File,
}

impl TokenStore {
    /// Makes a store in this folder, which is created when there is something to keep.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the file of a server.
    #[must_use]
    pub fn path(&self, server: &Url) -> PathBuf {
        self.folder.join(file_name(server))
    }

    /// Reads the login to a server; `None` if there is none for its URL.
    pub(super) async fn load(&self, server: &Url) -> Result<Option<StoredLogin>, AuthorizationError> {
        let login = self.on_disk(server, |path| read(&path)).await?;
        Ok(login.filter(|login: &StoredLogin| login.server == server.as_str()))
    }

    /// Writes a login in the place of the earlier one.
    pub(super) async fn save(&self, server: &Url, login: &StoredLogin) -> Result<(), AuthorizationError> {
        let login = login.clone();
        self.on_disk(server, move |path| write(&path, &login)).await
    }

    /// Removes a login. Returns whether there was one.
    pub(super) async fn remove(&self, server: &Url) -> Result<bool, AuthorizationError> {
        let removed = |path: PathBuf| match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        self.on_disk(server, removed).await
    }

    /// Waits until nobody else renews the token of a server. Returns `None` if there is no file, and so nothing to renew.
    pub(super) async fn lock(&self, server: &Url) -> Result<Option<TokenLock>, AuthorizationError> {
        let locked = async {
            loop {
                match self.on_disk(server, |path| try_lock(&path)).await? {
                    LockTry::Locked(file) => return Ok(Some(TokenLock { _file: file })),
                    LockTry::NoFile => return Ok(None),
                    LockTry::Held => sleep(LOCK_PAUSE).await,
                }
            }
        };
        timeout(LOCK_LIMIT, locked).await.unwrap_or_else(|_| {
            Err(self.error(
                server,
                format!("another unhang holds it, and has not renewed it within {LOCK_LIMIT:?}"),
            ))
        })
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        server: &Url,
        work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuthorizationError> {
        let path = self.path(server);
        match timeout(DISK_LIMIT, spawn_blocking(|| work(path))).await {
            Ok(Ok(done)) => done.map_err(|error| self.error(server, error.to_string())),
            Ok(Err(panicked)) => Err(self.error(server, panicked.to_string())),
            Err(_) => Err(self.error(server, format!("the disk did not answer within {DISK_LIMIT:?}"))),
        }
    }

    fn error(&self, server: &Url, why: String) -> AuthorizationError {
        AuthorizationError::Store { path: self.path(server).display().to_string(), why }
    }
}

/// Returns a name of the host for people, and a number for the rest of the URL.
fn file_name(server: &Url) -> String {
    let host = server.host_str().unwrap_or_default();
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() || byte == b'-' { char::from(byte) } else { '_' };
    let host: String = host.bytes().take(MAX_HOST).map(plain).collect();
    // FNV-1a is the same tomorrow, and a server that meets another's file finds another URL in it.
    let number = server.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{host}-{number:016x}.json")
}

/// Opens a file without following a link: nobody but unhang makes these files. Returns `None` if there is no file.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Option<StoredLogin>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    // The content may be a secret, so the error says no more of it.
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| io::Error::other(format!("it is damaged in line {}; remove it", error.line())))
}

fn write(path: &Path, login: &StoredLogin) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    let temporary = path.with_extension(format!("{:016x}", u64::from_ne_bytes(random)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(login)?)?;
        // A refresh token that is lost to a power failure is a login that is lost.
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The file may not even be there; the earlier error counts.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

enum LockTry {
    Locked(File),
    Held,
    NoFile,
}

fn try_lock(path: &Path) -> io::Result<LockTry> {
    let Some(file) = open(path)? else { return Ok(LockTry::NoFile) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => return Ok(LockTry::Held),
        Err(error) => return Err(error.into()),
    }
    // The earlier holder of the lock has put another file in its place meanwhile: that one is to be locked.
    let is_same =
        fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
    Ok(if is_same { LockTry::Locked(file) } else { LockTry::Held })
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) fn login(server: &Url) -> StoredLogin {
        StoredLogin {
            server: server.to_string(),
            issuer: "https://as.example.org".to_owned(),
            client_id: "client".to_owned(),
            client_secret: None,
            redirect_uri: "http://127.0.0.1:1/callback".to_owned(),
            is_registered: true,
            access_token: "access".to_owned(),
            refresh_token: Some("refresh".to_owned()),
            expires_at: None,
            requested: Vec::new(),
            granted: Vec::new(),
            revocation_endpoint: None,
        }
    }

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn names_of_files_are_safe_and_differ() {
        let name = |text| file_name(&url(text));
        assert_eq!(name("https://example.org/mcp"), name("https://example.org/mcp"));
        let names = [
            name("https://example.org/mcp"),
            name("https://example.org/mcp/"),
            name("https://example.org/mcp?a=1"),
            name("http://example.org/mcp"),
            name("https://[::1]/../../mcp"),
        ];
        for (index, name) in names.iter().enumerate() {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(name.bytes().all(is_plain) && !name.starts_with('.'), "{name}");
            assert!(!names[..index].contains(name), "{name}");
        }
        assert_eq!(names[0], "example_org-25347faf04e6eaab.json", "it is the same tomorrow");
        assert!(name(&format!("https://{}.org/", "a.".repeat(500))).len() < 120);
    }

    #[test]
    fn a_token_that_is_about_to_end_is_ending() {
        let with = |expires_at| StoredLogin { expires_at, ..login(&url("https://a/")) };
        let states = |login: &StoredLogin| (login.is_ending(), login.has_ended());
        assert_eq!(states(&with(None)), (false, false));
        assert_eq!(states(&with(Some(now() + 60))), (false, false));
        assert_eq!(states(&with(Some(now() + 10))), (true, false));
        assert_eq!(states(&with(Some(now() - 1))), (true, true));
    }

    #[tokio::test]
    async fn a_login_is_kept_for_its_owner_and_its_server_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = TokenStore::new(folder.path().join("state/tokens"));
        let (here, there) = (url("https://example.org/mcp"), url("https://example.org/other"));
        assert!(store.load(&here).await.expect("nothing is there").is_none());
        assert!(store.lock(&here).await.expect("nothing is there").is_none());
        assert!(!store.remove(&here).await.expect("nothing is there"));
        store.save(&here, &login(&here)).await.expect("saved");
        assert!(store.load(&here).await.expect("read") == Some(login(&here)));
        assert!(store.load(&there).await.expect("read").is_none());
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&store.path(&here)), mode(&store.folder)), (0o600, 0o700));
        // Somebody renamed it.
        fs::rename(store.path(&here), store.path(&there)).expect("renamed");
        assert!(store.load(&there).await.expect("read").is_none());
        fs::write(store.path(&there), "{\"access_token\": \"secret").expect("written");
        let error = store.load(&there).await.err().expect("it is damaged").to_string();
        assert!(error.contains("damaged in line 1; remove it") && !error.contains("secret"), "{error}");
        assert!(store.remove(&there).await.expect("removed"));
        assert_eq!(fs::read_dir(&store.folder).expect("it is there").count(), 0);
    }

    #[tokio::test]
    async fn one_at_a_time_renews_and_the_next_sees_what_came_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, here) = (TokenStore::new(folder.path().to_owned()), url("https://example.org/mcp"));
        store.save(&here, &login(&here)).await.expect("saved");
        let lock = store.lock(&here).await.expect("free").expect("there");
        let second = tokio::spawn({
            let (store, here) = (store.clone(), here.clone());
            async move {
                let _lock = store.lock(&here).await.expect("free").expect("there");
                store.load(&here).await.expect("read").expect("there").access_token
            }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        let renewed = StoredLogin { access_token: "renewed".to_owned(), ..login(&here) };
        store.save(&here, &renewed).await.expect("saved");
        drop(lock);
        assert_eq!(second.await.expect("it ends"), "renewed");
    }
}
