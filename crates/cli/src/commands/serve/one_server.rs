//! The one server of `unhang bridge URL` and of `unhang serve --http ADDRESS -- CMD`, which is in no file.
//!
//! Invariants: its tools keep their names. A command gets the whole environment and the folder of this process, as behind `unhang wrap`.

use std::{collections::BTreeMap, env, ffi::OsString};

use unhang::{
    oauth::ClientSettings,
    settings::{ServerSettings, Transport, without_secrets},
};
use unhang_terminal::text::escaped;

use crate::{near_misses::url_of_command, server_name::server_name};

/// Makes the settings of a server with this URL. Its name is the URL as people see it, so that `unhang login` takes the name.
pub(super) fn by_url(url: &str, headers: &[(String, String)]) -> ServerSettings {
    let transport = Transport::Http {
        url: url.to_owned(),
        headers: headers.iter().cloned().collect::<BTreeMap<_, _>>(),
        dialect: None,
        oauth: ClientSettings::default(),
    };
    ServerSettings::alone(&without_secrets(url), transport)
}

/// Makes the settings of a server with this command.
///
/// # Errors
/// Fails if the command is a URL, if a word is not UTF-8, or if this process has no folder.
pub(super) fn by_command(words: &[OsString]) -> Result<ServerSettings, String> {
    if let Some(url) = url_of_command(words) {
        return Err(format!(
            "`{url}` is a URL and no command; write it under [servers.NAME] of a file, and start `unhang serve --http ADDRESS \
             --config FILE`"
        ));
    }
    let name = server_name(words);
    let texts = words.iter().map(|word| {
        let lossy = || {
            format!("`{}` is not UTF-8, and unhang serves no such command", escaped(&word.to_string_lossy()))
        };
        word.to_str().map(str::to_owned).ok_or_else(lossy)
    });
    let mut texts = texts.collect::<Result<Vec<String>, String>>()?.into_iter();
    let folder = env::current_dir().map_err(|error| format!("the working folder cannot be used: {error}"))?;
    let transport = Transport::Stdio {
        command: texts.next().unwrap_or_default(),
        arguments: texts.collect(),
        environment: BTreeMap::new(),
        inherits_environment: true,
        folder,
    };
    Ok(ServerSettings::alone(&name, transport))
}
