//! `unhang tools`, `resources` and `prompts`: the lists of one server, or of all.
//!
//! Invariants: servers are asked side by side. A server that fails is reported on stderr and keeps no other from being listed.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use comfy_table::ContentArrangement;
use serde_json::{Map, Value, value::RawValue};
use tokio::task::JoinSet;
use unhang::{
    client::{Client, Error, RequestOptions, ServerList},
    exit,
};
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::{ClientContext, ServerTarget, call::one_of, no_server, one_tool, run};
use crate::{
    arguments::client::{ListArguments, Tools},
    commands::engine::{CommandOutcome, lines, table, wrapped_in},
};

/// The number of characters of a URI that leave room for its description beside it.
const LONGEST_IN_TABLE: usize = 40;

impl ServerTarget {
    /// Returns the server whose list is wanted, or `None` for all servers.
    pub(super) fn of(listing: &ListArguments) -> Option<ServerTarget> {
        match &listing.server {
            Some(name) => Some(ServerTarget::Named(name.clone())),
            None if listing.command.is_empty() => None,
            None => Some(ServerTarget::Command(listing.command.clone())),
        }
    }
}

/// Lists the items of one server, or of all.
pub(in crate::commands) fn list(list: ServerList, listing: &ListArguments, verbose: bool) -> ExitCode {
    run(&listing.common, &listing.ad_hoc, verbose, async |context| {
        listed(context, list, ServerTarget::of(listing)).await
    })
}

/// Lists the tools of one server, or of all, or shows one.
pub(in crate::commands) fn tools(tools: &Tools, verbose: bool) -> ExitCode {
    let Tools { server, tool, command, ad_hoc, common } = tools;
    run(common, ad_hoc, verbose, async |context| match (server, tool, &command[..]) {
        (Some(tool), _, [_, ..]) => shown(context, &ServerTarget::Command(command.clone()), tool).await,
        (Some(server), Some(tool), []) => shown(context, &ServerTarget::Named(server.clone()), tool).await,
        (Some(server), None, []) => {
            listed(context, ServerList::Tools, Some(ServerTarget::Named(server.clone()))).await
        }
        (None, _, [_, ..]) => {
            listed(context, ServerList::Tools, Some(ServerTarget::Command(command.clone()))).await
        }
        (None, _, []) => listed(context, ServerList::Tools, None).await,
    })
}

/// Shows one tool.
async fn shown(context: &ClientContext<'_>, target: &ServerTarget, tool: &str) -> CommandOutcome {
    let client = context.client(target).await?;
    let found = one_of(&client, ServerList::Tools, "tool", tool, &RequestOptions::default()).await?;
    let server = match target {
        ServerTarget::Named(name) => Some(name.as_str()),
        ServerTarget::Command(_) => None,
    };
    Ok(match context.format() {
        Format::Json => context.print_json(&found).await,
        Format::Text => context.print(one_tool::page(&found, server).into_bytes()).await,
    })
}

async fn listed(
    context: &ClientContext<'_>,
    list: ServerList,
    target: Option<ServerTarget>,
) -> CommandOutcome {
    let fits = io::stdout().is_terminal();
    if let Some(target) = target {
        let client = context.client(&target).await?;
        let items = all_of(&client, list).await?;
        return Ok(match context.format() {
            Format::Json => context.print_raw_json(array(&items)).await,
            Format::Text => context.print(text(list, &parsed(&items), false, fits).into_bytes()).await,
        });
    }
    let (answers, code) = each(context, async move |client: Client| all_of(&client, list).await).await?;
    let mut items = Vec::new();
    for (server, found) in answers {
        for mut item in parsed(&found) {
            if let Some(members) = item.as_object_mut() {
                let mut with_server = Map::from_iter([("server".to_owned(), server.as_str().into())]);
                with_server.append(members);
                *members = with_server;
            }
            items.push(item);
        }
    }
    let printed = match context.format() {
        Format::Json => context.print_json(&items).await,
        Format::Text => context.print(text(list, &items, true, fits).into_bytes()).await,
    };
    Ok(if code == exit::DONE { printed } else { code })
}

/// Returns a list. The templates of resources follow the resources.
async fn all_of(client: &Client, list: ServerList) -> Result<Vec<Box<RawValue>>, Error> {
    let options = RequestOptions::default();
    let mut items = client.list(list, &options).await?;
    if list == ServerList::Resources {
        // Servers that have resources may not know templates.
        match client.list(ServerList::ResourceTemplates, &options).await {
            Ok(templates) => items.extend(templates),
            Err(Error::Server(error)) => tracing::debug!("{error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(items)
}

/// Asks every configured server the same, side by side. Failures are printed on the way, and the code says whether there were any.
pub(super) async fn each<T: Send + 'static>(
    context: &ClientContext<'_>,
    ask: impl AsyncFn(Client) -> Result<T, Error> + Clone + 'static,
) -> Result<(Vec<(String, T)>, u8), CommandFailure> {
    let mut code = exit::DONE;
    let mut clients = Vec::new();
    for found in context.known().await?.in_use() {
        match context.start(found) {
            Ok(client) => clients.push(client),
            Err(failure) => {
                failure.print(context.format);
                code = exit::UNREACHABLE;
            }
        }
    }
    if clients.is_empty() && code == exit::DONE {
        return Err(no_server(context.known().await?));
    }
    let local = tokio::task::LocalSet::new();
    let answers = local
        .run_until(async {
            let mut asking = JoinSet::new();
            for (index, client) in clients.into_iter().enumerate() {
                let ask = ask.clone();
                asking.spawn_local(async move { (index, client.name().to_owned(), ask(client).await) });
            }
            asking.join_all().await
        })
        .await;
    let mut found: Vec<(usize, String, T)> = Vec::new();
    for (index, name, answer) in answers {
        match answer {
            Ok(answer) => found.push((index, name, answer)),
            Err(error) => {
                CommandFailure::from(error).print(context.format);
                code = exit::UNREACHABLE;
            }
        }
    }
    found.sort_unstable_by_key(|(index, ..)| *index);
    Ok((found.into_iter().map(|(_, name, answer)| (name, answer)).collect(), code))
}

/// Joins items as the server gave them.
fn array(items: &[Box<RawValue>]) -> String {
    let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
    format!("[{}]\n", items.join(",\n"))
}

fn parsed(items: &[Box<RawValue>]) -> Vec<Value> {
    items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect()
}

/// Makes the list for a person. On a terminal, a URI that is too long for the table gets lines of its own. A program gets one line for each
/// item.
fn text(list: ServerList, items: &[Value], with_server: bool, fits: bool) -> String {
    let what = match list {
        ServerList::Tools => "tools",
        ServerList::Prompts => "prompts",
        _ => "resources",
    };
    if items.is_empty() {
        return format!("There are no {what}.\n");
    }
    let title = if what == "resources" { "URI" } else { "NAME" };
    let rows: Vec<[String; 3]> = items.iter().map(|item| row(list, item)).collect();
    let longest = rows.iter().map(|[_, name, _]| name.chars().count()).max().unwrap_or_default();
    if fits && what == "resources" && longest > LONGEST_IN_TABLE {
        // A URI that is broken across lines cannot be copied.
        return rows.iter().map(|row| below_each_other(row, with_server)).collect();
    }
    let header = with_server.then_some("SERVER").into_iter().chain([title, "DESCRIPTION"]);
    let mut table = table(header.collect::<Vec<_>>(), usize::from(with_server));
    if !fits {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    for [server, name, described] in rows {
        table.add_row(with_server.then_some(server).into_iter().chain([name, described]));
    }
    lines(&table)
}

fn below_each_other([server, uri, described]: &[String; 3], with_server: bool) -> String {
    let server = if with_server { format!(" ({server})") } else { String::new() };
    format!("{uri}{server}\n{}", wrapped_in("    ", described))
}

/// Returns the server, the name and the description of one item.
fn row(list: ServerList, item: &Value) -> [String; 3] {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let name = match list {
        ServerList::Tools => format!("{}{}", text("name"), signature(&item["inputSchema"])),
        ServerList::Prompts => format!("{}{}", text("name"), prompt_signature(&item["arguments"])),
        _ => [text("uri"), text("uriTemplate")].concat(),
    };
    let described =
        [text("description"), text("title"), text("name")].into_iter().find(|text| !text.is_empty());
    let described = described
        .filter(|_| list != ServerList::Tools || !text("description").is_empty())
        .unwrap_or_default();
    // A table has room for one paragraph.
    let first = described.trim().split("\n\n").next().unwrap_or_default().split_whitespace();
    [escaped(text("server")), escaped(&name), escaped(&first.collect::<Vec<_>>().join(" "))]
}

/// Returns the arguments of a tool: first the required ones, then the others in brackets.
fn signature(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    let is_needed = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    let (needed, others): (Vec<&String>, Vec<&String>) = properties.keys().partition(|name| is_needed(name));
    words(needed.into_iter().cloned(), others.into_iter().cloned())
}

fn prompt_signature(arguments: &Value) -> String {
    let arguments = arguments.as_array().map(Vec::as_slice).unwrap_or_default();
    let (needed, others): (Vec<&Value>, Vec<&Value>) =
        arguments.iter().partition(|argument| argument["required"] == true);
    let name = |argument: &Value| argument["name"].as_str().unwrap_or_default().to_owned();
    words(needed.into_iter().map(name), others.into_iter().map(name))
}

fn words(needed: impl Iterator<Item = String>, others: impl Iterator<Item = String>) -> String {
    let needed = needed.map(|name| format!(" {name}="));
    needed.chain(others.map(|name| format!(" [{name}=]"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f_77_a_uri_stays_whole() {
        let uri = format!("https://example.org/{}", "part/".repeat(30));
        let items = [json!({ "uri": uri, "name": "far", "description": "away ".repeat(30), "server": "s" })];
        for (with_server, fits) in [(false, true), (true, true), (false, false), (true, false)] {
            let text = text(ServerList::Resources, &items, with_server, fits);
            assert!(text.lines().any(|line| line.contains(&uri)), "{text}");
        }
        let piped = text(ServerList::Resources, &items, false, false);
        assert_eq!(piped.lines().count(), 2, "one line each: {piped}");
    }
}
