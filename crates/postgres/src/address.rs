//! Where the shared store is: a URL as all clients of PostgreSQL take it.
//!
//! Invariants
//!
//! - No output has the password. Code that prints an address prints [`StoreAddress::shown`].
//! - A server on another machine has to prove who it is, unless the URL says otherwise.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::password_file::{ConnectionKey, lookup};

/// The time that a connection to one address may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The time after which unacknowledged data means that the server has gone.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(15);
const PORT: u16 = 5432;
/// The name under which the password file has servers on a local socket.
const LOCAL: &str = "localhost";

/// The reason why a text is not the address of a shared store. The text may have a password, so no error has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is not a valid URL of a PostgreSQL database.
    #[error(
        "the address of the job store is not valid ({0}); it has the form \
         postgres://USER@HOST:5432/DATABASE?sslmode=verify-full"
    )]
    Invalid(String),
    /// The mode of TLS is not known.
    #[error("`sslmode={0}` is not known; the modes are disable, prefer, require, verify-ca and verify-full")]
    TlsMode(String),
    /// The password file cannot be used.
    #[error("the password file {} cannot be used: {detail}", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        detail: String,
    },
}

/// Where a password may be found that the URL does not have.
#[derive(Clone, Default)]
pub struct PasswordSources {
    /// The password itself, as `PGPASSWORD` has it.
    pub password: Option<String>,
    /// The password file, as `PGPASSFILE` names it, or `~/.pgpass`.
    pub password_file: Option<PathBuf>,
}

/// Leaves out the password.
impl fmt::Debug for PasswordSources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sources = formatter.debug_struct("PasswordSources");
        sources.field("password_file", &self.password_file).finish_non_exhaustive()
    }
}

/// The proof that the server has to give of who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateCheck {
    /// None: the connection is encrypted, and may lead to anybody.
    Nothing,
    /// A certificate from an authority that is trusted, for any name.
    Authority(TrustedAuthorities),
    /// The same, for the name of the host.
    Full(TrustedAuthorities),
}

/// The authorities whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrustedAuthorities {
    /// Those that the system trusts.
    System,
    /// Those in this file, in PEM form.
    File(PathBuf),
}

/// The address of a shared store, with everything that is needed to connect.
#[derive(Clone)]
pub struct StoreAddress {
    pub(crate) config: Config,
    pub(crate) check: CertificateCheck,
    shown: String,
}

/// Leaves out the password.
impl fmt::Debug for StoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StoreAddress").field(&self.shown).finish()
    }
}

impl StoreAddress {
    /// Returns whether a text means a store of this kind.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Reads an address. Its query may have the parameters of PostgreSQL's clients, `sslmode` and `sslrootcert` among them.
    ///
    /// Without `sslmode`, a server on this machine may have any certificate or none (`prefer`), and any other server needs one for its
    /// name (`verify-full`).
    ///
    /// # Errors
    /// Fails if the text is not such a URL, or if the password file cannot be used.
    pub fn parse(text: &str, sources: &PasswordSources) -> Result<Self, AddressError> {
        if !Self::is_meant(text) {
            return Err(AddressError::Invalid("it does not begin with postgres://".to_owned()));
        }
        // The client library would take a part of the password for the host, and messages would show it.
        let before_query = text.split_once('?').map_or(text, |(before, _)| before);
        if before_query.matches('@').count() > 1 {
            let reason = "it has more than one `@`; in a user or a password write %40 for `@`, %2F for `/`, %3A for `:`";
            return Err(AddressError::Invalid(reason.to_owned()));
        }
        let (url, parameters) = TlsParameters::take(text)?;
        let mut config: Config = url.parse().map_err(|error| AddressError::Invalid(reason(&error)))?;
        if config.get_hosts().is_empty() {
            config.host(LOCAL);
        }
        let is_local = config.get_hosts().iter().all(is_local);
        let (mode, check) = parameters.judge(is_local)?;
        config.ssl_mode(mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNACKNOWLEDGED_LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("unhang");
        }
        let shown = shown(&config);
        if config.get_password().is_none()
            && let Some(password) = password(&config, sources)?
        {
            config.password(password);
        }
        Ok(Self { config, check, shown })
    }

    /// Returns the address without its password.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

/// The parameters of a URL about TLS, which have more values than the client library knows.
#[derive(Debug, Default)]
struct TlsParameters {
    mode: Option<String>,
    authorities: Option<String>,
}

impl TlsParameters {
    /// Takes the parameters out of a URL. Returns the rest of the URL.
    fn take(text: &str) -> Result<(String, Self), AddressError> {
        let mut parameters = Self::default();
        let Some((before, query)) = text.split_once('?') else { return Ok((text.to_owned(), parameters)) };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => parameters.mode = Some(decoded(mode)?),
                Some(("sslrootcert", path)) => parameters.authorities = Some(decoded(path)?),
                _ => rest.push(pair),
            }
        }
        let query = rest.join("&");
        Ok((if query.is_empty() { before.to_owned() } else { format!("{before}?{query}") }, parameters))
    }

    fn judge(self, is_local: bool) -> Result<(SslMode, CertificateCheck), AddressError> {
        let authorities = match self.authorities.as_deref() {
            None | Some("system") => TrustedAuthorities::System,
            Some(path) => TrustedAuthorities::File(path.into()),
        };
        let default = if is_local { "prefer" } else { "verify-full" };
        Ok(match self.mode.as_deref().unwrap_or(default) {
            "disable" => (SslMode::Disable, CertificateCheck::Nothing),
            "prefer" => (SslMode::Prefer, CertificateCheck::Nothing),
            "require" => (SslMode::Require, CertificateCheck::Nothing),
            "verify-ca" => (SslMode::Require, CertificateCheck::Authority(authorities)),
            "verify-full" => (SslMode::Require, CertificateCheck::Full(authorities)),
            other => return Err(AddressError::TlsMode(other.to_owned())),
        })
    }
}

/// Decodes `%20` and the like.
fn decoded(text: &str) -> Result<String, AddressError> {
    let invalid = || AddressError::Invalid(format!("`{text}` has a `%` without two digits"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(invalid);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| invalid())?);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Invalid("it is not text".to_owned()))
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == LOCAL || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
    }
}

/// Returns the reason of an error and of its cause, neither of which has the password.
fn reason(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

fn database(config: &Config) -> &str {
    config.get_dbname().or(config.get_user()).unwrap_or_default()
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(path) => path.display().to_string(),
    });
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    format!("postgres://{user}{}/{}", hosts.collect::<Vec<_>>().join(","), database(config))
}

/// Looks for the password that the URL does not have.
fn password(config: &Config, sources: &PasswordSources) -> Result<Option<String>, AddressError> {
    if let Some(password) = &sources.password {
        return Ok(Some(password.clone()));
    }
    let Some(path) = sources.password_file.as_deref() else { return Ok(None) };
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name,
        Some(Host::Unix(_)) | None => LOCAL,
    };
    let port = config.get_ports().first().copied().unwrap_or(PORT);
    let key =
        ConnectionKey { host, port, database: database(config), user: config.get_user().unwrap_or_default() };
    lookup(Path::new(path), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreAddress, AddressError> {
        StoreAddress::parse(text, &PasswordSources::default())
    }

    #[test]
    fn promise_4_no_text_of_an_address_has_its_password() {
        let address = parse("postgres://me:hunter2@db.example:6543/jobs?sslmode=require").unwrap();
        assert_eq!(address.shown(), "postgres://me@db.example:6543/jobs");
        assert!(!format!("{address:?}").contains("hunter2"));
        let sources = PasswordSources { password: Some("hunter2".to_owned()), password_file: None };
        assert!(!format!("{sources:?}").contains("hunter2"));
        for wrong in [
            "postgres://me:hunter2@db:port/jobs",
            "postgres://me:hunter2@db/jobs?sslmode=perhaps",
            "postgres://me:hunter2@db/jobs?unknown=1",
            "mysql://me:hunter2@db/jobs",
            "postgres://me:hunter2@db/jobs?sslrootcert=%zz",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_server_elsewhere_has_to_prove_its_name_unless_the_url_says_otherwise() {
        use CertificateCheck as Check;
        let file = || TrustedAuthorities::File("/etc/ca 1.pem".into());
        for (text, mode, check) in [
            ("postgres://me@db.example/jobs", SslMode::Require, Check::Full(TrustedAuthorities::System)),
            ("postgres://me@localhost/jobs", SslMode::Prefer, Check::Nothing),
            ("postgres://me@127.0.0.1/jobs", SslMode::Prefer, Check::Nothing),
            ("postgres://me@[::1]/jobs", SslMode::Prefer, Check::Nothing),
            ("postgres:///jobs?host=/run/postgresql", SslMode::Prefer, Check::Nothing),
            ("postgres://me@10.0.0.1/jobs?sslmode=disable", SslMode::Disable, Check::Nothing),
            ("postgres://me@db/jobs?sslmode=require", SslMode::Require, Check::Nothing),
            ("postgres://me@localhost,db/jobs", SslMode::Require, Check::Full(TrustedAuthorities::System)),
            (
                "postgres://db/jobs?sslmode=verify-ca&sslrootcert=/etc/ca%201.pem",
                SslMode::Require,
                Check::Authority(file()),
            ),
            ("postgres://db/jobs?sslrootcert=/etc/ca%201.pem", SslMode::Require, Check::Full(file())),
        ] {
            let address = parse(text).unwrap();
            assert_eq!((address.config.get_ssl_mode(), address.check), (mode, check), "{text}");
        }
    }

    #[test]
    fn a_password_comes_from_the_url_or_the_environment_or_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        std::fs::write(&path, "db:5432:jobs:me:of the file\nlocalhost:5432:jobs:me:of the socket").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let password = |text: &str, password: Option<&str>| {
            let sources =
                PasswordSources { password: password.map(str::to_owned), password_file: Some(path.clone()) };
            let address = StoreAddress::parse(text, &sources).unwrap();
            address.config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(password("postgres://me:of-the-url@db/jobs", Some("other")), told("of-the-url"));
        assert_eq!(password("postgres://me@db/jobs", Some("other")), told("other"));
        assert_eq!(password("postgres://me@db/jobs", None), told("of the file"));
        assert_eq!(password("postgres://me@/jobs?host=/run/postgresql", None), told("of the socket"));
        assert_eq!(password("postgres://you@db/jobs", None), None);
    }
}
