//! The file with passwords that all clients of PostgreSQL share, `~/.pgpass`.
//!
//! Each line is `host:port:database:user:password`, where `*` matches everything and `\` quotes the next character (PostgreSQL's manual,
//! "The Password File").
//!
//! Invariant: a file that others can read is refused, as it is by PostgreSQL's own clients.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use crate::address::AddressError;

/// The connection for which a password is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionKey<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// Reads the password for this connection from the file. Returns `None` if the file does not exist or has no matching line.
///
/// # Errors
/// Fails if others can read the file, or if it cannot be read.
pub(crate) fn lookup(path: &Path, key: ConnectionKey<'_>) -> Result<Option<String>, AddressError> {
    let unreadable = |error: io::Error| AddressError::PasswordFile {
        path: path.to_owned(),
        detail: format!("it cannot be read: {error}"),
    };
    let metadata = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(unreadable)?,
    };
    if !metadata.is_file() {
        let detail = "it is not a regular file".to_owned();
        return Err(AddressError::PasswordFile { path: path.to_owned(), detail });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let detail = "others can read it; change that with `chmod 600`".to_owned();
        return Err(AddressError::PasswordFile { path: path.to_owned(), detail });
    }
    Ok(find(&fs::read_to_string(path).map_err(unreadable)?, key))
}

/// Returns the password of the first line that matches.
fn find(text: &str, key: ConnectionKey<'_>) -> Option<String> {
    let port = key.port.to_string();
    let wanted = [key.host, &port, key.database, key.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let is_ours =
            wanted.iter().all(|wanted| fields.next().is_some_and(|field| field == "*" || field == *wanted));
        fields.next().filter(|_| is_ours)
    })
}

/// Splits a line at its first four colons that no `\` quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let quoted = if character == '\\' { characters.next() } else { None };
        match (quoted, character) {
            (None, ':') if fields.len() < 5 => fields.push(String::new()),
            (quoted, character) => {
                if let Some(last) = fields.last_mut() {
                    last.push(quoted.unwrap_or(character));
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ConnectionKey<'_> =
        ConnectionKey { host: "db.example", port: 5432, database: "jobs", user: "me" };

    #[test]
    fn the_first_line_that_matches_counts() {
        for (text, password) in [
            ("db.example:5432:jobs:me:secret", Some("secret")),
            ("other:5432:jobs:me:no\ndb.example:*:*:me:yes\n*:*:*:*:late", Some("yes")),
            ("# db.example:5432:jobs:me:comment", None),
            ("db.example:5433:jobs:me:other port", None),
            ("db.example:5432:jobs:me", None),
            ("", None),
            (r"*:*:*:*:a\:b\\c:d", Some(r"a:b\c:d")),
            (r"db\.example:*:*:*:quoted", Some("quoted")),
        ] {
            assert_eq!(find(text, KEY).as_deref(), password, "{text}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        assert_eq!(lookup(&path, KEY).unwrap(), None, "there is none");
        fs::write(&path, "*:*:*:*:secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = lookup(&path, KEY).unwrap_err().to_string();
        assert!(
            error.contains("pgpass") && error.contains("chmod 600") && !error.contains("secret"),
            "{error}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(lookup(&path, KEY).unwrap().as_deref(), Some("secret"));
    }
}
