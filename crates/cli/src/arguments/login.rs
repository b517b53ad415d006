//! The arguments of `login` and `logout`.

use std::time::Duration;

use clap::Args;
use unhang::units::parse_duration;
use unhang_terminal::failure::Format;

use super::files::Files;

/// What both take.
#[derive(Debug, Args)]
pub(crate) struct LoginCommon {
    /// The server: a configured name, or its URL
    #[arg(value_name = "S")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Limit of one answer of the server, or of its authorization server [default: 30s]
    #[arg(long, env = "UNHANG_REQUEST_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "30s", hide_default_value = true)]
    pub(crate) request_timeout: Duration,
}

/// `unhang login`.
#[derive(Debug, Args)]
#[command(after_help = "unhang prints the URL of the login page to stderr. Open it in a browser on this\n\
    machine. unhang keeps the tokens in the folder `tokens` below UNHANG_HOME, which only\n\
    you can read, and renews them if the server allows it.\n\n\
    Exit codes: 0 logged in; 1 refused; 2 wrong usage or configuration, also a server that\n\
    is a command; 3 the server could not be reached or names no authorization\n\
    server; 4 no login or no answer in time; 5 unhang could not trust an answer;\n\
    6 no such server; 130 and 143 ended by SIGINT and SIGTERM.")]
pub(crate) struct LoginArguments {
    #[command(flatten)]
    pub(crate) common: LoginCommon,
    /// Time for the login, until the browser returns [default: 5m]
    #[arg(long, env = "UNHANG_LOGIN_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "5m", hide_default_value = true)]
    pub(crate) login_timeout: Duration,
}

/// `unhang logout`.
#[derive(Debug, Args)]
#[command(
    after_help = "unhang also revokes the tokens at the authorization server, if that server supports\n\
    it. The command succeeds if there was no login.\n\n\
    Exit codes: 0 logged out; 1 the tokens could not be removed; 2 wrong usage or\n\
    configuration; 6 no such server; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct Logout {
    #[command(flatten)]
    pub(crate) common: LoginCommon,
}
