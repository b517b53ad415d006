//! One `[servers.NAME]`: the way to an MCP server, and its limits.
//!
//! Invariants: a server has a command or a URL, never both. Texts for a process or a request have no byte that is not allowed there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use unhang_net::{http::Address, oauth::ClientSettings};

use super::{
    HttpDialect,
    keys::{COUNT, ERAS, INSTANCES, OAUTH, SERVER, TRANSPORTS},
    limit_keys::LIMITS,
    section::{Complaint, Section, SettingValue},
    shown::without_secrets,
    tool_rules,
};
use unhang_core::{
    config::IDLE_TIMEOUT_MIN, limits::Limits, promotion::Promotion, secrets::Secrets, units::in_words,
};
use unhang_gateway::{Era, EraPolicy, ListStore, route::rules::ToolRules};

/// The longest prefix. A longer one would leave too little of a name of 64 characters for the tool's own name.
const LONGEST_PREFIX: usize = 32;

/// The settings of one `[servers.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The server's name.
    pub name: String,
    /// The way to the server.
    pub transport: Transport,
    /// The prefix of its tools' names behind `unhang serve`. `None` stands for the server's name.
    pub prefix: Option<String>,
    /// The rules for its tools behind `unhang serve`: which are offered, and how.
    pub tool_rules: ToolRules,
    /// After how long without a request the server is stopped behind `unhang serve`, until the next one. `None` means that it stays.
    pub idle_timeout: Option<Duration>,
    /// Whether each session behind `unhang serve` has an instance of its own.
    pub per_session: bool,
    /// The most instances that all sessions share behind `unhang serve`.
    pub instances: u32,
    /// The eras in which the server is asked behind `unhang serve`.
    pub era: EraPolicy,
    /// The limits that the file sets.
    pub limits: LimitSettings,
}

impl ServerSettings {
    /// Makes a server with a transport and limits, and no other settings.
    pub(super) fn new(name: &str, transport: Transport, limits: LimitSettings) -> Self {
        Self {
            name: name.to_owned(),
            transport,
            prefix: None,
            tool_rules: ToolRules::default(),
            idle_timeout: None,
            per_session: false,
            instances: 1,
            era: EraPolicy::default(),
            limits,
        }
    }

    /// Makes the one server of a process, which is in no file. Its tools keep their names. A command gets the whole environment of this
    /// process.
    #[must_use]
    pub fn alone(name: &str, transport: Transport) -> Self {
        let prefix = Some(String::new());
        Self { prefix, ..Self::new(name, transport, LimitSettings::default()) }
    }

    /// Returns the secrets of the server: the values of its variables, its headers, the user and the query of its URL, and the client
    /// secret that its authorization server knows.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        match &self.transport {
            Transport::Stdio { environment, .. } => environment.values().cloned().collect(),
            Transport::Http { url, headers, oauth, .. } => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let address = Address { url: url.clone(), headers, uses_proxies: false, socket: None };
                address.secrets().into_iter().chain(oauth.client_secret.clone()).collect()
            }
        }
    }

    /// Returns the store in the data folder in which the gateway remembers the last list that the server offered.
    #[must_use]
    pub fn memory(&self, data: &Path) -> ListStore {
        ListStore::new(data, &self.name, self.parts())
    }

    /// Lists everything that identifies the server. The order leaves no doubt about which part is which.
    fn parts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<&[u8]> = vec![self.name.as_bytes(), self.transport.word().as_bytes()];
        match &self.transport {
            Transport::Stdio { command, arguments, environment, inherits_environment, folder } => {
                parts.extend([command.as_bytes(), folder.as_os_str().as_encoded_bytes()]);
                parts.push(if *inherits_environment { b"all" } else { b"some" });
                parts
                    .extend(environment.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
                // A variable cannot have this name.
                parts.push(b"=");
                parts.extend(arguments.iter().map(String::as_bytes));
            }
            Transport::Http { url, headers, .. } => {
                parts.push(url.as_bytes());
                parts.extend(headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
            }
        }
        parts
    }
}

/// The way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A command that speaks over its stdin and stdout.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its own variables.
        environment: BTreeMap<String, String>,
        /// Whether the command gets our whole environment, and not just a small part of it.
        inherits_environment: bool,
        /// The folder that the command runs in.
        folder: PathBuf,
    },
    /// A server that is reached over HTTP.
    Http {
        /// The server's URL.
        url: String,
        /// The headers of every request.
        headers: BTreeMap<String, String>,
        /// The dialect of HTTP that the server speaks, if the file tells it.
        dialect: Option<HttpDialect>,
        /// Our settings for the authorization server that issues tokens.
        oauth: ClientSettings,
    },
}

impl Transport {
    /// Returns the word for the transport in lists.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { dialect: Some(HttpDialect::Sse), .. } => "sse",
            Transport::Http { .. } => "http",
        }
    }
}

/// Limits that a file, the environment or the command line has set. The others are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// See [`Limits`], which has the same names.
    pub start_timeout: Option<Duration>,
    /// See [`Limits`].
    pub request_timeout: Option<Duration>,
    /// See [`Limits`].
    pub call_timeout: Option<Duration>,
    /// See [`Limits`].
    pub promote_after: Option<Promotion>,
    /// See [`Limits`].
    pub job_timeout: Option<Duration>,
    /// See [`Limits`].
    pub busy_after: Option<Duration>,
    /// See [`Limits`].
    pub eof_grace: Option<Duration>,
    /// See [`Limits`].
    pub stop_grace: Option<Duration>,
    /// See [`Limits`].
    pub max_message: Option<u64>,
    /// See [`Limits`].
    pub max_in_flight: Option<u32>,
    /// See [`Limits`].
    pub max_waiting: Option<u32>,
    /// See [`Limits`].
    pub queue_bytes: Option<u64>,
    /// See [`Limits`].
    pub restart_delay: Option<Duration>,
    /// See [`Limits`].
    pub breaker_failures: Option<u32>,
    /// See [`Limits`].
    pub breaker_cooldown: Option<Duration>,
    /// See [`Limits`].
    pub health_interval: Option<Duration>,
    /// See [`Limits`].
    pub stderr_tail: Option<u64>,
    /// See [`Limits`].
    pub stderr_log: Option<u64>,
    /// See [`Limits`].
    pub quiet: Option<bool>,
    /// See [`Limits`]. A server's table cannot set this: `[jobs]` does, for all servers.
    pub join_same_call: Option<bool>,
}

impl LimitSettings {
    /// Replaces the limits that were set. The others stay.
    pub fn apply(&self, limits: &mut Limits) {
        fn put<T>(said: Option<T>, slot: &mut T) {
            if let Some(said) = said {
                *slot = said;
            }
        }
        let bytes = |size: Option<u64>| size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let count = |count: Option<u32>| count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        put(self.start_timeout, &mut limits.start_timeout);
        put(self.request_timeout, &mut limits.request_timeout);
        put(self.call_timeout, &mut limits.call_timeout);
        put(self.promote_after, &mut limits.promote_after);
        put(self.job_timeout, &mut limits.job_timeout);
        put(self.busy_after, &mut limits.busy_after);
        put(self.eof_grace, &mut limits.eof_grace);
        put(self.stop_grace, &mut limits.stop_grace);
        put(bytes(self.max_message), &mut limits.max_message);
        put(count(self.max_in_flight), &mut limits.max_in_flight);
        put(count(self.max_waiting), &mut limits.max_waiting);
        put(bytes(self.queue_bytes), &mut limits.queue_bytes);
        put(self.restart_delay, &mut limits.restart_delay);
        put(self.breaker_failures, &mut limits.breaker_failures);
        put(self.breaker_cooldown, &mut limits.breaker_cooldown);
        put(self.health_interval, &mut limits.health_interval);
        put(bytes(self.stderr_tail), &mut limits.stderr_tail);
        put(self.stderr_log, &mut limits.stderr_log);
        put(self.quiet, &mut limits.quiet);
        put(self.join_same_call, &mut limits.join_same_call);
    }

    fn read(section: &Section<'_>) -> Result<Self, Complaint> {
        let duration = |name| section.get(name).map(|field| field.duration()).transpose();
        let size = |name| section.get(name).map(|field| field.size()).transpose();
        let count = |name| section.get(name).map(|field| field.whole(COUNT)).transpose();
        Ok(LimitSettings {
            start_timeout: duration("start-timeout")?,
            request_timeout: duration("request-timeout")?,
            call_timeout: duration("call-timeout")?,
            promote_after: section.get("promote-after").map(|field| field.promotion()).transpose()?,
            job_timeout: duration("job-timeout")?,
            busy_after: duration("busy-after")?,
            eof_grace: duration("eof-grace")?,
            stop_grace: duration("stop-grace")?,
            max_message: size("max-message")?,
            max_in_flight: count("max-in-flight")?,
            max_waiting: count("max-waiting")?,
            queue_bytes: size("queue-bytes")?,
            restart_delay: duration("restart-delay")?,
            breaker_failures: count("breaker-failures")?,
            breaker_cooldown: duration("breaker-cooldown")?,
            health_interval: duration("health-interval")?,
            stderr_tail: size("stderr-tail")?,
            stderr_log: size("stderr-log")?,
            quiet: None,
            join_same_call: None,
        })
    }
}

/// Reads one server of our own file.
pub(super) fn read(name: &str, field: &SettingValue<'_>, folder: &Path) -> Result<ServerSettings, Complaint> {
    let section = field.section(SERVER)?;
    let mut limits = match section.get("limits") {
        Some(field) => LimitSettings::read(&field.section(LIMITS)?)?,
        None => LimitSettings::default(),
    };
    limits.quiet = section.get("quiet").map(|field| field.flag()).transpose()?;
    let transport = match (section.get("command"), section.get("url")) {
        (Some(_), Some(url)) => return Err(url.complaint("a server has a command or a URL, not both")),
        (None, None) => {
            let hint = section.meant(&["command", "url"]);
            return Err(field.complaint(format!("`command` or `url` is missing{hint}")));
        }
        (Some(command), None) => stdio(&section, &command, folder)?,
        (None, Some(url)) => http(&section, &url)?,
    };
    let prefix = section.get("prefix").map(|field| prefix(&field)).transpose()?;
    let tool_rules = tool_rules::read(&section)?;
    let idle_timeout = section.get("idle-timeout").map(|field| idle_timeout(&field)).transpose()?;
    let per_session = section.get("per-session").map_or(Ok(false), |field| field.flag())?;
    let instances = section.get("instances").map(|field| instances(&field, per_session)).transpose()?;
    let era = match section.get("era") {
        Some(field) if field.word(ERAS)? == 0 => EraPolicy::Only(Era::Legacy),
        Some(_) => EraPolicy::Only(Era::Modern),
        None => EraPolicy::OfClient,
    };
    let (name, instances) = (name.to_owned(), instances.unwrap_or(1));
    Ok(ServerSettings {
        name,
        transport,
        prefix,
        tool_rules,
        idle_timeout,
        per_session,
        instances,
        era,
        limits,
    })
}

fn instances(field: &SettingValue<'_>, per_session: bool) -> Result<u32, Complaint> {
    let instances = field.whole(INSTANCES)?;
    match per_session && instances > 1 {
        true => Err(field.complaint(
            "is for a server that all sessions share; with `per-session`, each session has its own instance",
        )),
        false => Ok(instances),
    }
}

fn idle_timeout(field: &SettingValue<'_>) -> Result<Duration, Complaint> {
    let idle = field.duration()?;
    if idle < IDLE_TIMEOUT_MIN {
        return Err(field.complaint(format!("must be at least {}", in_words(IDLE_TIMEOUT_MIN))));
    }
    Ok(idle)
}

fn prefix(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let prefix = field.plain()?;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    if prefix.len() > LONGEST_PREFIX || !prefix.chars().all(is_plain) {
        return Err(field.complaint(format!(
            "may have letters, digits, `_`, `-` and `.`, at most {LONGEST_PREFIX}, or be empty"
        )));
    }
    Ok(prefix)
}

fn stdio(section: &Section<'_>, command: &SettingValue<'_>, folder: &Path) -> Result<Transport, Complaint> {
    for only_http in ["headers", "oauth", "transport"] {
        if let Some(field) = section.get(only_http) {
            return Err(field.complaint("is for a server with a URL; this one has a command"));
        }
    }
    let cwd = section.get("cwd").map(|field| field.plain()).transpose()?;
    let program = command.plain()?;
    if program.is_empty() {
        return Err(command.complaint("is empty"));
    }
    Ok(Transport::Stdio {
        command: program,
        arguments: section.get("args").map(|field| texts(&field)).transpose()?.unwrap_or_default(),
        environment: section.get("env").map(|field| field.variables()).transpose()?.unwrap_or_default(),
        inherits_environment: section.get("inherit-env").map_or(Ok(false), |field| field.flag())?,
        folder: cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)),
    })
}

fn http(section: &Section<'_>, url: &SettingValue<'_>) -> Result<Transport, Complaint> {
    if let Some(field) = section.get("instances") {
        return Err(field.complaint(
            "is for a server with a command, which unhang can start more than once; this one has a URL, and \
             answers as many calls at a time as it can",
        ));
    }
    for only_stdio in ["args", "env", "inherit-env", "cwd"] {
        if let Some(field) = section.get(only_stdio) {
            return Err(field.complaint("is for a server with a command; this one has a URL"));
        }
    }
    let mut headers = BTreeMap::new();
    for (name, field) in section.get("headers").map_or(Ok(Vec::new()), |field| field.fields())? {
        headers.insert(name.to_owned(), header_value(&field)?);
    }
    let dialect = match section.get("transport") {
        Some(field) if field.word(TRANSPORTS)? == 0 => Some(HttpDialect::Streamable),
        Some(_) => Some(HttpDialect::Sse),
        None => None,
    };
    let oauth = match section.get("oauth") {
        Some(field) => client_settings(&field)?,
        None => ClientSettings::default(),
    };
    Ok(Transport::Http { url: checked_url(url)?, headers, dialect, oauth })
}

fn client_settings(field: &SettingValue<'_>) -> Result<ClientSettings, Complaint> {
    let section = field.section(OAUTH)?;
    let text = |name| section.get(name).map(|field| field.plain()).transpose();
    let (client_id, client_secret) = (text("client-id")?, text("client-secret")?);
    if client_id.is_none()
        && let Some(secret) = section.get("client-secret")
    {
        return Err(secret.complaint("is the secret of a client, but the `client-id` is missing"));
    }
    let document = section.get("client-metadata-url");
    let client_metadata_url = document.as_ref().map(checked_url).transpose()?;
    // The URL is the client's name. The path distinguishes it from other clients on the same host.
    let has_path = |url: &String| {
        url.strip_prefix("https://")
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(_, path)| !path.is_empty())
    };
    if let Some(field) = document.filter(|_| !client_metadata_url.as_ref().is_some_and(has_path)) {
        return Err(field.complaint("must be an https:// URL with a path"));
    }
    let scopes = section.get("scopes").map(|field| texts(&field)).transpose()?.unwrap_or_default();
    Ok(ClientSettings { client_id, client_secret, client_metadata_url, scopes })
}

pub(super) fn texts(field: &SettingValue<'_>) -> Result<Vec<String>, Complaint> {
    field.items()?.iter().map(SettingValue::plain).collect()
}

pub(super) fn header_value(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let value = field.plain()?;
    if value.contains(|character: char| character.is_control() && character != '\t') {
        return Err(field.complaint("has a character that a header cannot have"));
    }
    Ok(value)
}

/// Returns a URL for a sentence: as it stands in the file, without secrets of the file or of the environment.
pub(super) fn shown_url(field: &SettingValue<'_>) -> Result<String, Complaint> {
    field.text().map(without_secrets)
}

pub(super) fn checked_url(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let url = field.plain()?;
    let has_host =
        ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    if !has_host || url.contains(char::is_whitespace) {
        return Err(field.complaint(format!(
            "`{}` is not a URL that begins with http:// or https://",
            shown_url(field)?
        )));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_core::secrets::REDACTED;

    fn server(name: &str, transport: Transport) -> ServerSettings {
        ServerSettings::new(name, transport, LimitSettings::default())
    }

    fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Transport {
        let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Transport::Stdio {
            command: "serve".to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: pairs.collect(),
            inherits_environment: false,
            folder: "/srv".into(),
        }
    }

    fn of(transport: Transport) -> Secrets {
        server("a", transport).secrets()
    }

    #[test]
    fn whatever_makes_a_server_another_is_part_of_what_it_is() {
        let whole = |name: &str, transport| {
            let server = server(name, transport);
            server.parts().into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let remote = |url: &str, value: &str| Transport::Http {
            url: url.to_owned(),
            headers: BTreeMap::from([("authorization".to_owned(), value.to_owned())]),
            dialect: None,
            oauth: ClientSettings::default(),
        };
        let all = [
            whole("srv", command(&["a"], &[])),
            whole("srv", command(&["a", ""], &[])),
            whole("srv", command(&["=", "a"], &[])),
            whole("srv", command(&["a"], &[("A", "b")])),
            whole("srv", command(&["a"], &[("A", "c")])),
            whole("other", command(&["a"], &[])),
            whole("srv", remote("https://a/mcp", "x")),
            whole("srv", remote("https://a/mcp", "y")),
            whole("srv", remote("https://b/mcp", "x")),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{one:?}");
        }
    }

    #[test]
    fn what_is_configured_for_a_server_to_get_in_is_secret() {
        let variables = BTreeMap::from([("API_KEY".to_owned(), "k3y-of-the-server".to_owned())]);
        let stdio = of(Transport::Stdio {
            command: "server".to_owned(),
            arguments: Vec::new(),
            environment: variables,
            inherits_environment: false,
            folder: "/".into(),
        });
        assert_eq!(stdio.hide("k3y-of-the-server"), REDACTED);
        let http = of(Transport::Http {
            url: "https://ada%40home:pass%20word@example.org/mcp?key=a%2Bb%2Bc%2Bd%2Be&page=1".to_owned(),
            headers: BTreeMap::from([("X-Key".to_owned(), "Token 0123456789".to_owned())]),
            dialect: None,
            oauth: ClientSettings { client_secret: Some("client-secret".to_owned()), ..Default::default() },
        });
        for secret in ["ada@home", "ada%40home", "pass word", "a+b+c+d+e", "a%2Bb%2Bc%2Bd%2Be", "0123456789"]
        {
            assert_eq!(http.hide(&format!("<{secret}>")), "<[redacted]>");
        }
        assert_eq!(http.hide("client-secret of page=1"), "[redacted] of page=1");
    }
}
