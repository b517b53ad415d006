//! The commands that ask servers: what they share.
//!
//! Invariants
//!
//! - A command comes home by itself, whatever the servers do: each wait has a limit, and so has the end (C-74).
//! - However it ends, every server that it started is ended, and the exit code is that of the outcome.
//! - Data goes to stdout, everything else to stderr; nobody reading it is a quiet end.

mod ask;
mod batch;
mod call;
mod content;
pub(super) mod files;
mod form;
mod list;
mod ping;
mod servers;
mod typed;

use std::{
    cell::OnceCell,
    ffi::OsString,
    fmt::Display,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use serde::Serialize;
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};
use unhang::{
    client::{Address, Client, ClientSpec, Endpoint, Error, HttpServer, Pool},
    config::{EXIT_LIMIT, Limits},
    exit,
    guard::Stop,
    oauth::{ClientSettings, Nobody},
    process::{server::ServerSpec, spawn::Environment},
    settings::{HttpDialect, LimitSettings, ServerSettings, Transport},
};

use self::ask::Person;
pub(super) use self::{
    batch::batch, call::call, call::prompt, call::read, list::list, list::no_server, ping::ping,
    servers::servers,
};
use super::{
    engine::{Outcome, to_its_end},
    login::authorization,
};
use crate::{
    arguments::client::{Request, ServerCommon},
    commands::client::files::{Found, Known},
    inherited::inherited,
    job_arguments::Format,
    output::{self, Failure},
    own_program::lifeline_command,
    server_name::server_name,
    signals::signals,
    terminal_text::escaped,
};

/// One command at work.
pub(super) struct Desk {
    pool: Pool,
    /// The file that was named.
    config: Option<PathBuf>,
    known: OnceCell<Known>,
    limits: LimitSettings,
    format: Option<Format>,
}

/// Lets a command work to its end, ends its servers, and tells what went wrong.
pub(super) fn run(
    common: &ServerCommon,
    verbose: bool,
    work: impl AsyncFnOnce(&Desk) -> Outcome,
) -> ExitCode {
    to_its_end(common.output, verbose, async || {
        let desk = Desk::new(common);
        let mut stops = signals().map_err(|error| Failure::system("signals cannot be waited for", &error))?;
        let outcome = tokio::select! {
            outcome = work(&desk) => outcome,
            Some(stop) = stops.recv() => {
                let name = if stop == Stop::Interrupt { "interrupted" } else { "told to end" };
                output::error(&format!("{name}: ending the servers that were started"), None);
                Ok(stop.exit_code())
            }
        };
        desk.end(&mut stops).await;
        outcome
    })
}

/// Which server is meant.
pub(super) enum Target {
    /// One that is configured, or a URL.
    Named(String),
    /// This command.
    Command(Vec<OsString>),
}

impl Target {
    /// Takes it from the words of a command line, with what is asked of it and the words behind that: it is the first word, where no
    /// command follows.
    fn take<'a>(request: &'a Request, what: &str) -> Result<(Target, &'a str, &'a [String]), Failure> {
        match (&request.command[..], &request.words[..]) {
            ([], [server, first, rest @ ..]) => Ok((Target::Named(server.clone()), first, rest)),
            ([_, ..], [first, rest @ ..]) => Ok((Target::Command(request.command.clone()), first, rest)),
            _ => Err(Failure::usage(
                format!("the {what} is missing: which server, and which {what}?"),
                Some("give both, or a server's command after `--`"),
            )),
        }
    }
}

impl Desk {
    fn new(common: &ServerCommon) -> Desk {
        Desk {
            pool: Pool::default(),
            config: common.config.clone(),
            known: OnceCell::new(),
            limits: common.limits.settings(),
            format: common.output,
        }
    }

    /// The servers that are configured. Read when somebody needs them: a command behind `--` does not, whatever is wrong in a file.
    pub(super) fn known(&self) -> Result<&Known, Failure> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let known = Known::find(self.config.as_deref()).map_err(|why| Failure::usage(why, None))?;
        for warning in &known.warnings {
            output::error(warning, None);
        }
        Ok(self.known.get_or_init(|| known))
    }

    /// The server that is meant, which is started now.
    fn client(&self, target: &Target) -> Result<Client, Failure> {
        match target {
            Target::Command(command) => self.launch(self.of_command(command)),
            Target::Named(url) if url.contains("://") => self.launch(self.of_url(url)?),
            Target::Named(name) => self.start(self.named(name)?),
        }
    }

    /// A configured server, which is started now.
    fn start(&self, found: &Found) -> Result<Client, Failure> {
        self.launch(self.of_file(found)?)
    }

    /// The configured server of this name.
    pub(super) fn named(&self, name: &str) -> Result<&Found, Failure> {
        let known = self.known()?;
        known.named(name).ok_or_else(|| no_such_server(known, name))
    }

    /// How a server is reached whose command was typed.
    pub(super) fn of_command(&self, command: &[OsString]) -> ClientSpec {
        let arguments = command[1..].to_vec();
        let server = spec(command[0].clone(), arguments, Environment::Inherit, None);
        self.client_spec(&server_name(command), Endpoint::Stdio(server), &LimitSettings::default())
    }

    /// How a configured server is reached.
    pub(super) fn of_file(&self, found: &Found) -> Result<ClientSpec, Failure> {
        let settings = found.settings.as_ref();
        let ServerSettings { name, transport, limits } =
            settings.map_err(|complaint| Failure::usage(complaint.to_string(), None))?;
        match transport {
            Transport::Stdio { command, arguments, environment, inherits_environment, folder } => {
                let mut variables: Vec<(OsString, OsString)> = match inherits_environment {
                    true => std::env::vars_os().collect(),
                    false => inherited().collect(),
                };
                // Of two with the same name the later counts.
                variables.extend(environment.iter().map(|(name, value)| (name.into(), value.into())));
                let arguments = arguments.iter().map(OsString::from).collect();
                let environment = Environment::Exactly(variables);
                let server = spec(command.into(), arguments, environment, Some(folder.clone()));
                Ok(self.client_spec(name, Endpoint::Stdio(server), limits))
            }
            Transport::Http { url, headers, dialect, oauth } => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let address = address(url.clone(), headers);
                address.check().map_err(|error| unusable(&format!("`{name}`"), &error))?;
                let server = self.remote(name, address, *dialect, oauth.clone());
                Ok(self.client_spec(name, Endpoint::Http(server), limits))
            }
        }
    }

    /// How a server is reached whose URL was typed.
    pub(super) fn of_url(&self, url: &str) -> Result<ClientSpec, Failure> {
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            // The rest may be secret.
            let scheme = url.split("://").next().unwrap_or_default();
            let message = format!("`{}://` is no URL of http:// or https://", escaped(scheme));
            return Err(Failure::usage(message, None));
        }
        let address = address(url.to_owned(), Vec::new());
        address.check().map_err(|error| unusable("what was given", &error))?;
        let mut name = address.shown();
        while self.pool.names().contains(&name) {
            // It differs in what is not shown.
            name.push('\'');
        }
        let server = self.remote(url, address, None, ClientSettings::default());
        Ok(self.client_spec(&name, Endpoint::Http(server), &LimitSettings::default()))
    }

    /// A server somewhere, with the login that there may be. Nobody is asked to log in here.
    fn remote(
        &self,
        name: &str,
        address: Address,
        dialect: Option<HttpDialect>,
        oauth: ClientSettings,
    ) -> HttpServer {
        let has_token = address.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let authorization = (!has_token).then(|| {
            let answer = self.limits.request_timeout.unwrap_or(Limits::default().request_timeout);
            let nobody = Arc::new(Nobody { server: name.to_owned() });
            authorization(name.to_owned(), address.url.clone(), oauth, answer, nobody)
        });
        // Without a home there are no logins, and servers that want none all the same.
        HttpServer { address, dialect, authorization: authorization.and_then(Result::ok) }
    }

    fn client_spec(&self, name: &str, endpoint: Endpoint, of_file: &LimitSettings) -> ClientSpec {
        let mut limits = Limits::default();
        of_file.apply(&mut limits);
        self.limits.apply(&mut limits);
        let endpoint = match endpoint {
            Endpoint::Stdio(server) => {
                let (grace, stop_limit) = (limits.stop_grace, limits.stop_limit());
                Endpoint::Stdio(ServerSpec { grace, stop_limit, ..server })
            }
            remote => remote,
        };
        ClientSpec { name: name.to_owned(), endpoint, limits, listener: Arc::new(Person::new(name)) }
    }

    fn launch(&self, spec: ClientSpec) -> Result<Client, Failure> {
        let name = spec.name.clone();
        self.pool.register(spec);
        self.pool.client(&name).map_err(Failure::from)
    }

    /// Ends every server. A second signal ends us at once; their lifelines go on without us.
    async fn end(&self, stops: &mut mpsc::Receiver<Stop>) {
        tracing::debug!("waiting for the servers to end");
        tokio::select! {
            ended = timeout(EXIT_LIMIT, self.pool.dispose()) => match ended {
                Ok(disposed) => tracing::debug!("{} servers have ended", disposed.gone.len()),
                Err(_) => tracing::warn!("the end was forced: the servers had not ended within {} s", EXIT_LIMIT.as_secs()),
            },
            Some(_) = stops.recv() => {}
        }
    }

    pub(super) fn format(&self) -> Format {
        let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
        self.format.unwrap_or(unsaid)
    }

    /// Prints data, beside everything else: a reader that stops reading does not keep us from ending.
    pub(super) async fn print(&self, data: Vec<u8>) -> u8 {
        // A panic has been told.
        spawn_blocking(move || output::bytes(&data)).await.unwrap_or(exit::BUG)
    }

    /// Prints a document.
    pub(super) async fn print_json(&self, document: &impl Serialize) -> u8 {
        // Nothing that is printed has keys that are no text.
        let text = serde_json::to_string_pretty(document).unwrap_or_default();
        self.print(format!("{text}\n").into_bytes()).await
    }
}

/// A server somewhere. The proxies of the environment are for it, as for other programs.
fn address(url: String, headers: Vec<(String, String)>) -> Address {
    Address { url, headers, uses_proxies: true }
}

/// Wrong before anybody was asked.
fn unusable(what: &str, error: &impl Display) -> Failure {
    Failure::usage(format!("{what} cannot be asked: {error}"), None)
}

/// Its limits come with the rest of what is known of it.
fn spec(
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    folder: Option<PathBuf>,
) -> ServerSpec {
    let Limits { stop_grace: grace, .. } = Limits::default();
    let stop_limit = Limits::default().stop_limit();
    ServerSpec { program, arguments, environment, folder, grace, stop_limit, lifeline: lifeline_command() }
}

pub(super) fn no_such_server(known: &Known, name: &str) -> Failure {
    let names: Vec<&str> = known.in_use().map(|found| found.name.as_str()).collect();
    let hint = match (unhang::wording::nearest(name, names.iter().copied()), names.len()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, 0) => "no server is configured; write unhang.toml, or give the command after `--`".to_owned(),
        (None, _) => format!("there are {}; `unhang servers` tells where", names.join(", ")),
    };
    Failure {
        code: exit::NOT_FOUND,
        kind: "no_such_server",
        message: format!("there is no server `{}`", escaped(name)),
        hint: Some(hint),
        data: None,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            code: error.exit_code(),
            kind: error.kind(),
            message: error.to_string(),
            hint: None,
            data: Some(error.data()),
        }
    }
}
