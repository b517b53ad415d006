//! The ways to reach servers: by the command or the URL that was typed, or by the settings in a file.
//!
//! Invariants: flags override the file, and the file overrides the defaults. If a server's specification is wrong before any request, the
//! error blames the configuration.

use std::{ffi::OsString, fmt::Display, path::PathBuf, sync::Arc};

use unhang::{
    client::{Address, ClientSpec, Endpoint, HttpServer, ServerListener},
    limits::Limits,
    oauth::{ClientSettings, NoAgent},
    process::{server::ServerSpec, spawn::Environment},
    settings::{HttpDialect, LimitSettings, ServerSettings, Transport, without_secrets},
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use crate::{
    arguments::client::AdHoc, commands::login::authorization, data_folder::UNSAFE,
    job_environment::inherited, near_misses::URL_HINT, own_program::lifeline_command,
};

/// Makes the specification of a server with this command. The server gets this process's environment and folder, apart from those that were
/// typed.
pub(super) fn by_command(
    name: &str,
    command: &[OsString],
    ad_hoc: &AdHoc,
    flags: &LimitSettings,
    listener: Arc<dyn ServerListener>,
) -> Result<ClientSpec, CommandFailure> {
    if !ad_hoc.header.is_empty() {
        let message = "--header is for a URL, but this server is a command".to_owned();
        return Err(CommandFailure::usage(message, Some("--env hands a variable to a command")));
    }
    let folder = ad_hoc.cwd.as_ref().map(|folder| {
        folder.canonicalize().ok().filter(|folder| folder.is_dir()).ok_or_else(|| {
            CommandFailure::usage(format!("--cwd: unhang cannot enter the folder {}", folder.display()), None)
        })
    });
    let environment = if ad_hoc.env.is_empty() {
        Environment::Inherit
    } else {
        // Of two variables with the same name, the later one counts.
        let typed = ad_hoc.env.iter().map(|(name, value)| (name.into(), value.into()));
        Environment::Exactly(std::env::vars_os().chain(typed).collect())
    };
    let server = process(command[0].clone(), command[1..].to_vec(), environment, folder.transpose()?);
    Ok(spec(name, Endpoint::Stdio(server), &LimitSettings::default(), flags, listener))
}

/// Makes the specification of a configured server.
pub(in crate::commands) fn by_settings(
    settings: &ServerSettings,
    flags: &LimitSettings,
    listener: Arc<dyn ServerListener>,
) -> Result<ClientSpec, CommandFailure> {
    let ServerSettings { name, transport, limits, .. } = settings;
    let endpoint = match transport {
        Transport::Stdio { command, arguments, environment, inherits_environment, folder } => {
            let mut variables: Vec<(OsString, OsString)> = match inherits_environment {
                true => std::env::vars_os().collect(),
                false => inherited().collect(),
            };
            // Of two variables with the same name, the later one counts.
            variables.extend(environment.iter().map(|(name, value)| (name.into(), value.into())));
            let arguments = arguments.iter().map(OsString::from).collect();
            let environment = Environment::Exactly(variables);
            Endpoint::Stdio(process(command.into(), arguments, environment, Some(folder.clone())))
        }
        Transport::Http { url, headers, dialect, oauth } => {
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            let address = address(url.clone(), headers);
            address.check().map_err(|error| unusable(&format!("`{name}`"), &error))?;
            Endpoint::Http(remote(name, address, *dialect, oauth.clone(), flags)?)
        }
    };
    Ok(spec(name, endpoint, limits, flags, listener))
}

/// Makes the specification of a server with this URL.
pub(super) fn by_url(
    name: &str,
    url: &str,
    ad_hoc: &AdHoc,
    flags: &LimitSettings,
    listener: Arc<dyn ServerListener>,
) -> Result<ClientSpec, CommandFailure> {
    if !ad_hoc.env.is_empty() || ad_hoc.cwd.is_some() {
        let message = "--env and --cwd are for a command after `--`, but this server is a URL".to_owned();
        return Err(CommandFailure::usage(message, Some("--header sends a header to a URL")));
    }
    let address = checked(url, &ad_hoc.header)?;
    // Errors show the URL in this form, so that a person who has to log in sees which part of it to add.
    let server = remote(&without_secrets(url), address, None, ClientSettings::default(), flags)?;
    Ok(spec(name, Endpoint::Http(server), &LimitSettings::default(), flags, listener))
}

/// Returns the name of a server of which only the URL is known.
pub(in crate::commands) fn url_name(url: &str) -> Result<String, CommandFailure> {
    Ok(checked(url, &[])?.shown())
}

fn checked(url: &str, headers: &[(String, String)]) -> Result<Address, CommandFailure> {
    // The rest of the URL may be secret. Schemes may be in upper case.
    let scheme = url.split("://").next().unwrap_or_default();
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        let (sign, hint) = match url.contains("://") {
            true => ("://", None),
            false => ("", Some(URL_HINT)),
        };
        let message = format!("`{}{sign}` is not http:// or https://", escaped(scheme));
        return Err(CommandFailure::usage(message, hint));
    }
    let address = address(url.to_owned(), headers.to_vec());
    address.check().map_err(|error| unusable("this text", &error))?;
    Ok(address)
}

/// Makes a server over HTTP, with the login that there may be. Nobody is asked to log in here.
fn remote(
    name: &str,
    address: Address,
    dialect: Option<HttpDialect>,
    oauth: ClientSettings,
    flags: &LimitSettings,
) -> Result<HttpServer, CommandFailure> {
    let has_token = address.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let authorization = (!has_token).then(|| {
        let answer = flags.request_timeout.unwrap_or(Limits::default().request_timeout);
        let nobody = Arc::new(NoAgent { server: name.to_owned() });
        authorization(name.to_owned(), address.url.clone(), oauth, answer, nobody)
    });
    let authorization = match authorization {
        // Tokens are not used if another user could have put them there.
        Some(Err(failure)) if failure.kind == UNSAFE => return Err(failure),
        // Without a home there are no logins, but a server may not want one.
        other => other.and_then(Result::ok),
    };
    Ok(HttpServer { address, dialect, authorization })
}

fn spec(
    name: &str,
    endpoint: Endpoint,
    of_file: &LimitSettings,
    flags: &LimitSettings,
    listener: Arc<dyn ServerListener>,
) -> ClientSpec {
    let mut limits = Limits::default();
    of_file.apply(&mut limits);
    flags.apply(&mut limits);
    let endpoint = match endpoint {
        Endpoint::Stdio(server) => {
            let (grace, stop_limit) = (limits.stop_grace, limits.stop_limit());
            Endpoint::Stdio(ServerSpec { grace, stop_limit, ..server })
        }
        remote => remote,
    };
    ClientSpec { name: name.to_owned(), endpoint, limits, listener }
}

/// Makes the address of a server over HTTP. It uses the proxies of the environment, as other programs do.
pub(super) fn address(url: String, headers: Vec<(String, String)>) -> Address {
    Address { url, headers, uses_proxies: true, socket: None }
}

/// Makes the failure about an address that is wrong before any request.
fn unusable(what: &str, error: &impl Display) -> CommandFailure {
    CommandFailure::usage(format!("{what} cannot be used: {error}"), None)
}

/// Makes the specification of a server process. `spec` sets its limits, when all settings are known.
fn process(
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    folder: Option<PathBuf>,
) -> ServerSpec {
    let Limits { stop_grace: grace, .. } = Limits::default();
    let stop_limit = Limits::default().stop_limit();
    ServerSpec { program, arguments, environment, folder, grace, stop_limit, lifeline: lifeline_command() }
}
