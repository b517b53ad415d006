//! Command lines that mean another command: a URL or a server's command in a place where unhang takes none.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use unhang::settings::without_secrets;
use unhang_terminal::text::escaped;

use crate::server_name::is_launcher;

/// The hint for a command in the place of a URL.
pub(crate) const URL_HINT: &str =
    "a URL begins with http:// or https://; `unhang wrap -- CMD` guards a command";

/// Returns whether somebody has typed the URL of a server.
pub(crate) fn is_url(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.starts_with("http://") || word.starts_with("https://")
}

/// Returns the URL in the place of a command, as a person may see it: the parts behind its path may be secret. Returns `None` for a command.
pub(crate) fn url_of_command(words: &[OsString]) -> Option<String> {
    let url = words.first()?.to_str().filter(|word| is_url(word))?;
    Some(escaped(&without_secrets(url.split(['?', '#']).next().unwrap_or_default())))
}

/// Tells the right command for a command or a URL in a place where unhang takes none. Returns `None` for any other error.
pub(crate) fn near_miss(error: &clap::Error, command: &str, words: &[OsString]) -> Option<&'static str> {
    let refused = match error.get(ContextKind::InvalidSubcommand).or(error.get(ContextKind::InvalidArg)) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    let has_command = words.iter().any(|word| word == "--");
    match (command, error.kind()) {
        ("unhang", ErrorKind::InvalidSubcommand) if is_launcher(refused) => {
            Some("write `unhang wrap --` in front of the server's command")
        }
        ("unhang", ErrorKind::InvalidSubcommand) | ("unhang serve", ErrorKind::UnknownArgument)
            if is_url(refused) =>
        {
            Some("`unhang bridge URL` offers a server on the network as a stdio server")
        }
        ("unhang serve", ErrorKind::MissingRequiredArgument) if has_command => Some(
            "`unhang wrap -- CMD` serves the client that starts it; `unhang serve --http ADDRESS -- CMD` \
             serves clients over HTTP",
        ),
        ("unhang serve", ErrorKind::UnknownArgument) if !refused.starts_with('-') => {
            Some("write `--` before a server's command: `unhang serve --http ADDRESS -- CMD`")
        }
        ("unhang bridge", ErrorKind::UnknownArgument)
            if !words.iter().filter_map(|word| word.to_str()).any(is_url) =>
        {
            Some(URL_HINT)
        }
        _ => None,
    }
}
