//! The access to `unhang serve --http`.
//!
//! Invariants: all files are read and understood before anything listens. A file with secrets must be such that others cannot read it and
//! could not have put it there. No message contains a secret.

use std::{
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};
use unhang::{
    front::http::{Acceptor, Access, AllowedHosts, Token, is_of_its_owner_alone, name_of},
    settings::{HttpSettings, TlsSettings},
};

use crate::arguments::Serve;

/// The size in bytes of the largest file of tokens, certificates or keys.
const MAX_FILE: u64 = 1 << 20;

/// The checks for clients, and the certificate that they are shown.
pub(super) struct PreparedHttp {
    pub(super) access: Access,
    pub(super) tls: Option<Acceptor>,
    /// Whether clients of 2024-11-05 are let in too.
    pub(super) sse: bool,
    /// The number of bytes that messages may have together.
    pub(super) message_memory: Option<usize>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl PreparedHttp {
    /// Reads the files that flags and settings name.
    pub(super) fn prepare(serve: &Serve, settings: HttpSettings) -> Result<PreparedHttp, String> {
        let HttpSettings {
            mut tokens,
            allowed_hosts,
            allowed_origins,
            message_memory,
            weights,
            sse,
            tls,
            oauth,
        } = settings;
        if let Some(path) = &serve.token_file {
            tokens.extend(tokens_of(path)?);
        }
        let access = match oauth {
            Some(settings) => Access::new(tokens)
                .with_oauth(settings)
                .map_err(|error| format!("[http.oauth] cannot be used: {error}"))?,
            None => Access::new(tokens),
        };
        Ok(PreparedHttp {
            access: access.with_weights(weights),
            tls: tls.as_ref().map(acceptor).transpose()?,
            sse: sse || serve.sse,
            message_memory: message_memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            hosts: allowed_hosts,
            origins: allowed_origins,
        })
    }

    /// Returns the host names under which clients may ask a server that listens at these addresses.
    pub(super) fn hosts(&self, addresses: &[SocketAddr]) -> AllowedHosts {
        // The unspecified address stands for all addresses, and is not one that a client could ask for.
        let own = addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_unspecified());
        AllowedHosts::new(own.map(name_of).chain(self.hosts.iter().cloned()))
            .with_origins(self.origins.iter().cloned())
    }
}

/// Reads the tokens of a file, one on each line.
fn tokens_of(path: &Path) -> Result<Vec<Token>, String> {
    let wrong = |why: &dyn fmt::Display| format!("--token-file {}: {why}", path.display());
    let bytes = read_file(path, Readers::Owner).map_err(|why| wrong(&why))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"is not text"))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let tokens = lines.map(|(number, line)| {
        Token::new(line.trim().to_owned()).map_err(|why| wrong(&format!("line {number}: {why}")))
    });
    let tokens = tokens.collect::<Result<Vec<Token>, String>>()?;
    if tokens.is_empty() {
        return Err(wrong(&"has no token; write one token per line"));
    }
    Ok(tokens)
}

fn acceptor(settings: &TlsSettings) -> Result<Acceptor, String> {
    let read = |path: &PathBuf, readers| {
        read_file(path, readers).map_err(|why| format!("[http] tls: {}: {why}", path.display()))
    };
    let certificate = read(&settings.certificate, Readers::All)?;
    let key = read(&settings.key, Readers::Owner)?;
    Acceptor::new(&certificate, &key).map_err(|error| {
        format!("[http] tls: {} and {}: {error}", settings.certificate.display(), settings.key.display())
    })
}

/// The users who may be able to read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    All,
    Owner,
}

/// Reads a whole file. Fails if it is not a plain file, or too large.
fn read_file(path: &Path, readers: Readers) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot be read: {error}");
    // Without this flag, opening a pipe would wait for its writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if readers == Readers::Owner {
        private(&file, path)?;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {MAX_FILE} bytes"));
    }
    Ok(bytes)
}

/// Refuses a file that others than its owner can read or write. Also refuses one that another user has put there or could exchange.
fn private(file: &File, path: &Path) -> Result<(), String> {
    let cannot = |error: io::Error| format!("cannot be read: {error}");
    let found = file.metadata().map_err(cannot)?;
    let own = geteuid().as_raw();
    if !is_trusted(found.uid(), own) {
        return Err(format!(
            "it belongs to the user with the number {}, and unhang runs as {own}; write a file of your own",
            found.uid()
        ));
    }
    let mode = found.mode() & 0o777;
    // Credentials of systemd belong to root. An access list lets the service read them, and the mode shows this list as a right of the
    // group.
    let given = env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let is_credential = given.is_some_and(|folder| path.parent() == Some(&*folder));
    if !is_of_its_owner_alone(if is_credential { mode & !0o040 } else { mode }) {
        return Err(format!(
            "others can read or write it (mode {mode:04o}); run `chmod 600 {}`",
            path.display()
        ));
    }
    let named = std::path::absolute(path).map_err(cannot)?;
    for ancestor in named.ancestors() {
        let link = fs::symlink_metadata(ancestor).map_err(cannot)?;
        if link.is_symlink() && !is_trusted(link.uid(), own) {
            return Err(format!(
                "{} is a link that belongs to the user with the number {}; name the file itself",
                ancestor.display(),
                link.uid()
            ));
        }
    }
    // Both folders are checked: that of the name, and that of the file to which the name leads.
    let whole = path.canonicalize().map_err(cannot)?;
    [&named, &whole].into_iter().filter_map(|file| file.parent()).try_for_each(|folder| owned(folder, own))
}

/// Refuses a folder in which another user can exchange a file of this user. With the sticky bit, as `/tmp` has it, nobody can.
fn owned(folder: &Path, own: u32) -> Result<(), String> {
    let found = fs::metadata(folder).map_err(|error| format!("cannot be read: {error}"))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !is_trusted(owner, own) {
        return Err(format!("its folder {} belongs to the user with the number {owner}", folder.display()));
    }
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        let folder = folder.display();
        return Err(format!("others can write to its folder (mode {mode:04o}); run `chmod go-w {folder}`"));
    }
    Ok(())
}

/// Returns whether files of this owner can be trusted: it is this process's user, or root, who could do anything anyway.
fn is_trusted(owner: u32, own: u32) -> bool {
    owner == own || owner == 0
}
