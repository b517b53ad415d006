//! `unhang servers`: the configured servers and their files. The command starts none of them.

use std::{env, path::Path, process::ExitCode};

use serde::Serialize;
use unhang::settings::{ServerSettings, Transport};
use unhang_terminal::failure::Format;
use unhang_terminal::text::escaped;

use super::{ClientContext, no_server, run, server_launch::address};
use crate::{
    arguments::client::{AdHoc, ServersArguments},
    commands::{
        client::files::FoundServer,
        engine::{lines, shortened, table},
    },
};

/// A server in the list.
#[derive(Serialize)]
struct ServerRow {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    source: String,
    /// The reason why the server is not used, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused: Option<String>,
}

/// The number of characters that the table shows of a name, a command or a source. JSON has them whole.
const NAME: usize = 40;
const CELL: usize = 400;

/// Lists the servers.
pub(in crate::commands) fn servers(servers: &ServersArguments, verbose: bool) -> ExitCode {
    run(&servers.common, &AdHoc::default(), verbose, async |context: &ClientContext<'_>| {
        let known = context.known().await?;
        if known.unread_alone().is_some() {
            // An empty list would say that no server is configured.
            return Err(no_server(known));
        }
        let listed: Vec<ServerRow> = known.servers.iter().map(ServerRow::new).collect();
        Ok(match context.format() {
            Format::Json => context.print_json(&listed).await,
            Format::Text => context.print(text(&listed).into_bytes()).await,
        })
    })
}

impl ServerRow {
    fn new(found: &FoundServer) -> Self {
        let unused = match &found.settings {
            Err(complaint) => Some(complaint.to_string()),
            Ok(_) if found.is_disabled => Some("disabled".to_owned()),
            Ok(_) if found.is_shadowed => Some("another server of this name comes first".to_owned()),
            Ok(_) => None,
        };
        let settings: Option<&ServerSettings> = found.settings.as_ref().ok();
        let transport = settings.map(|settings| &settings.transport);
        // Variables, headers and queries may hold secrets, so the list leaves them out. The file has them.
        let (command, args, url) = match transport {
            Some(Transport::Stdio { command, arguments, .. }) => {
                (Some(command.clone()), arguments.clone(), None)
            }
            Some(Transport::Http { url, .. }) => {
                (None, Vec::new(), Some(address(url.clone(), Vec::new()).shown()))
            }
            None => (None, Vec::new(), None),
        };
        Self {
            name: found.name.clone(),
            transport: transport.map(Transport::word),
            command,
            args,
            url,
            source: found.source.clone(),
            unused,
        }
    }
}

fn text(listed: &[ServerRow]) -> String {
    if listed.is_empty() {
        return "No server is configured. Write unhang.toml, or see `unhang servers --help` for the files\n\
            of MCP clients that are read.\n"
            .to_owned();
    }
    let (here, home) = (env::current_dir().ok(), env::home_dir());
    let mut table = table(["SERVER", "KIND", "COMMAND OR URL", "SOURCE"], 2);
    for server in listed {
        let how = match (&server.command, &server.url) {
            (Some(command), _) => [std::slice::from_ref(command), &server.args].concat().join(" "),
            (None, Some(url)) => url.clone(),
            (None, None) => String::new(),
        };
        let how = match &server.unused {
            Some(unused) if how.is_empty() => format!("({unused})"),
            Some(unused) => format!("{how} ({unused})"),
            None => how,
        };
        let source = short(&server.source, here.as_deref(), home.as_deref());
        let cell = |text: &str, most| shortened(&escaped(text), most);
        table.add_row([
            cell(&server.name, NAME),
            server.transport.unwrap_or("-").to_owned(),
            cell(&how, CELL),
            cell(&source, CELL),
        ]);
    }
    lines(&table)
}

/// Shortens the path of a file, relative to the current folder or to the home folder.
fn short(source: &str, here: Option<&Path>, home: Option<&Path>) -> String {
    let below = |folder: Option<&Path>| Path::new(source).strip_prefix(folder?).ok();
    match (below(here), below(home)) {
        (Some(rest), _) => rest.display().to_string(),
        (None, Some(rest)) => format!("~/{}", rest.display()),
        (None, None) => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_what_people_call_them() {
        let (here, home) = (Some(Path::new("/home/a/project")), Some(Path::new("/home/a")));
        for (source, expect) in [
            ("/home/a/project/.mcp.json", ".mcp.json"),
            ("/home/a/.claude.json", "~/.claude.json"),
            ("/home/ab/x", "/home/ab/x"),
            ("unhang.toml", "unhang.toml"),
        ] {
            assert_eq!(short(source, here, home), expect);
        }
        assert_eq!(short("/x", None, None), "/x");
    }
}
