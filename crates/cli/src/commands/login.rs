//! `unhang login` and `unhang logout`: a person gives consent in a browser, and takes it back.
//!
//! Invariants
//!
//! - No token is printed. The address of the login page is useless without the secrets that stay in this process.
//! - Each wait has a limit, and a signal ends all of them.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use unhang::{
    exit,
    oauth::{
        Agent, Authorization, AuthorizationError, AuthorizationSpec, Browser, ClientSettings, LoggedIn,
        LoggedOut, NoAgent, RequestLimits, TokenStore,
    },
    settings::{ServerSettings, Transport, without_secrets},
};
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, output, text::escaped};

use super::{
    client::{find, no_such_server},
    engine::{CommandOutcome, json, to_its_end, wanted_data_folder},
};
use crate::{
    arguments::login::{LoginArguments, LoginCommon, Logout},
    signals::signals,
};

/// The report about a login.
#[derive(Serialize)]
struct LoginReport<'a> {
    server: &'a str,
    issuer: &'a str,
    scopes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Whether the login is renewed after that without a person.
    is_renewed: bool,
}

/// The report about a logout.
#[derive(Serialize)]
struct ToldOut<'a> {
    server: &'a str,
    was_logged_in: bool,
    /// Whether the authorization server was told.
    is_revoked: bool,
}

/// Logs in to a server.
pub(super) fn login(arguments: &LoginArguments, verbose: bool) -> ExitCode {
    run(&arguments.common, verbose, async || logged_in(arguments).await)
}

/// Forgets the login to a server.
pub(super) fn logout(arguments: &Logout, verbose: bool) -> ExitCode {
    run(&arguments.common, verbose, async || logged_out(&arguments.common).await)
}

fn run(common: &LoginCommon, verbose: bool, work: impl AsyncFnOnce() -> CommandOutcome) -> ExitCode {
    to_its_end(common.output, verbose, async || {
        let mut stops =
            signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
        tokio::select! {
            outcome = work() => outcome,
            Some(stop) = stops.recv() => Ok(stop.exit_code()),
        }
    })
}

async fn logged_in(arguments: &LoginArguments) -> CommandOutcome {
    let common = &arguments.common;
    let server = Remote::find(common).await?;
    let name = escaped(&server.name);
    let show =
        move |page: &str| output::note(&format!("to log in to {name}, open this page in a browser:\n{page}"));
    let browser = Browser::new(arguments.login_timeout, show).await.map_err(|error| failure(&error))?;
    let name = escaped(&server.name);
    let authorization = server.authorization(common.request_timeout, Arc::new(browser))?;
    tracing::debug!("waiting for {name} to name its authorization server");
    let LoggedIn { issuer, scopes, expires, is_renewed } =
        authorization.log_in().await.map_err(|error| failure(&error))?;
    let expires = expires.map(moment);
    Ok(match format(common) {
        Format::Json => {
            json(&LoginReport { server: &name, issuer: &issuer, scopes: &scopes, expires, is_renewed })
        }
        Format::Text => {
            let until = expires.map_or_else(String::new, |end| format!(" until {end}"));
            let after = if is_renewed { ", renewed when it ends" } else { "" };
            output::bytes(format!("logged in to {name} at {issuer}{until}{after}\n").as_bytes())
        }
    })
}

async fn logged_out(common: &LoginCommon) -> CommandOutcome {
    let server = Remote::find(common).await?;
    let name = escaped(&server.name);
    let nobody = NoAgent { server: name.clone() };
    let authorization = server.authorization(common.request_timeout, Arc::new(nobody))?;
    let (was_logged_in, is_revoked) = match authorization.log_out().await.map_err(|error| failure(&error))? {
        LoggedOut::WasNot => (false, false),
        LoggedOut::Here { revoked } => {
            if let Err(error) = &revoked {
                output::note(&format!(
                    "the tokens were removed here, but they may still be valid at the authorization \
                    server: {error}"
                ));
            }
            (true, revoked == Ok(true))
        }
    };
    Ok(match format(common) {
        Format::Json => json(&ToldOut { server: &name, was_logged_in, is_revoked }),
        Format::Text if was_logged_in => output::bytes(format!("logged out of {name}\n").as_bytes()),
        Format::Text => output::bytes(format!("there was no login to {name}\n").as_bytes()),
    })
}

/// A server that unhang reaches over HTTP.
struct Remote {
    /// The name in messages: a URL is without its secret parts.
    name: String,
    url: String,
    settings: ClientSettings,
}

impl Remote {
    async fn find(common: &LoginCommon) -> Result<Self, CommandFailure> {
        let name = &common.server;
        if name.contains("://") {
            let (name, url) = (without_secrets(name), name.clone());
            return Ok(Self { name, url, settings: ClientSettings::default() });
        }
        let known = find(common.files.choice()).await?;
        known.tell_warnings();
        let found = known.named(name).ok_or_else(|| no_such_server(&known, name))?;
        let settings = found.settings.as_ref();
        let ServerSettings { transport, .. } =
            settings.map_err(|complaint| CommandFailure::usage(complaint.to_string(), None))?;
        match transport {
            Transport::Http { url, oauth, .. } => {
                Ok(Self { name: name.clone(), url: url.clone(), settings: oauth.clone() })
            }
            Transport::Stdio { .. } => {
                let name = escaped(name);
                Err(CommandFailure::usage(
                    format!(
                        "`{name}` is a command on this machine, and only a server behind a URL has logins"
                    ),
                    Some(
                        "give it the variables that it needs as `env` in the file that `unhang servers` \
                        names",
                    ),
                ))
            }
        }
    }

    fn authorization(self, answer: Duration, agent: Arc<dyn Agent>) -> Result<Authorization, CommandFailure> {
        let Self { name, url, settings } = self;
        authorization(name, url, settings, answer, agent)
    }
}

/// Makes the authorization of a server, with the tokens that are kept on this machine.
pub(super) fn authorization(
    name: String,
    url: String,
    settings: ClientSettings,
    answer: Duration,
    agent: Arc<dyn Agent>,
) -> Result<Authorization, CommandFailure> {
    let store = TokenStore::new(wanted_data_folder("tokens")?.join("tokens"));
    let limits = RequestLimits { answer, ..RequestLimits::default() };
    Authorization::new(AuthorizationSpec { name, url, store, settings, limits, agent })
        .map_err(|error| failure(&error))
}

fn format(common: &LoginCommon) -> Format {
    let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
    common.output.unwrap_or(unsaid)
}

/// Formats a time to the second, as people and programs read it.
fn moment(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Makes the failure that reports an error of a login.
fn failure(error: &AuthorizationError) -> CommandFailure {
    let code = match error {
        AuthorizationError::NoUrl { .. } => exit::USAGE,
        AuthorizationError::LoginNeeded { .. }
        | AuthorizationError::NoMetadata { .. }
        | AuthorizationError::Unreachable { .. } => exit::UNREACHABLE,
        AuthorizationError::Deadline { .. } | AuthorizationError::NobodyCame { .. } => exit::DEADLINE,
        AuthorizationError::Metadata { .. }
        | AuthorizationError::WrongResource { .. }
        | AuthorizationError::WrongIssuer { .. }
        | AuthorizationError::MissingIssuer { .. }
        | AuthorizationError::WrongState
        | AuthorizationError::EmptyRedirect { .. }
        | AuthorizationError::NoPkce { .. }
        | AuthorizationError::Insecure { .. }
        | AuthorizationError::TooLarge { .. } => exit::PROTOCOL,
        AuthorizationError::NoClient { .. }
        | AuthorizationError::Moved { .. }
        | AuthorizationError::Refused { .. }
        | AuthorizationError::Store { .. }
        | AuthorizationError::System { .. } => exit::FAILED,
    };
    let hint = next_step(error).map(str::to_owned);
    CommandFailure { code, kind: error.kind(), message: error.to_string(), hint, data: None }
}

/// Returns the next step after an error of a login, or `None` if the error's text names it already.
fn next_step(error: &AuthorizationError) -> Option<&'static str> {
    match error {
        AuthorizationError::Deadline { .. } => {
            Some("check whether it runs, and raise --request-timeout if it needs longer")
        }
        AuthorizationError::Unreachable { .. } => {
            Some("check whether it runs, and whether the URL, its port and a proxy are right")
        }
        AuthorizationError::NobodyCame { .. } => Some(
            "run the command again and open its page on this machine; raise --login-timeout if you need longer",
        ),
        AuthorizationError::Refused { .. } => Some(
            "run `unhang login` again and consent; if you did, check at the authorization server the \
             rights of this account",
        ),
        _ => None,
    }
}
