//! One file of a client, and the servers in it.
//!
//! Invariant: a server is found by the keys of the tables that it stands in, its place. The place stays the same when other parts of the file
//! are edited.

use std::{collections::BTreeMap, ops::Range};

use unhang::settings::{OwnCommand, own_command};

use crate::{
    patch::{TextEdit, in_order},
    syntax::{FileSyntax, PlacedMember, PlacedNode, PlacedValue, SyntaxError, parse},
};

mod edits;

/// The keys under which clients keep their servers: Cursor and most others, VS Code, Codex, Zed, Amp.
const CONTAINERS: [&str; 5] = ["mcpServers", "servers", "mcp_servers", "context_servers", "amp.mcpServers"];
/// The key under which opencode keeps its servers. Gemini keeps settings about its servers there.
const MIXED_CONTAINER: &str = "mcp";
/// The keys of variables and headers.
const SECRET_TABLES: [&str; 6] = ["env", "environment", "envs", "headers", "http_headers", "settings"];
/// Parts of the keys of other secrets, in small letters.
const SECRET_KEYS: [&str; 6] = ["token", "secret", "password", "apikey", "api_key", "authorization"];

/// Places, or names, with a number for each. Every other type of map would add some kilobytes to the program.
pub(crate) type PlaceMap = BTreeMap<String, u64>;

/// The number of a place at which several tables stand.
const SEVERAL: u64 = u64::MAX;

/// Returns a place as the key of a map. Only names with a NUL in them could make two places one, and such servers get no guard.
pub(crate) fn place_key(place: &[String]) -> String {
    place.join("\0")
}

/// A client's file as it was read.
#[derive(Debug)]
pub struct ConfigDocument {
    text: String,
    syntax: FileSyntax,
    root: PlacedValue,
}

/// A server in the file.
#[derive(Clone, Debug)]
pub struct ConfiguredEntry<'d> {
    /// The keys of the tables that it stands in, and its own.
    pub place: Vec<String>,
    /// Its name.
    pub name: String,
    /// Whether the file switches it off.
    pub is_disabled: bool,
    /// Whether another one stands at the same place, or another table of servers.
    is_twofold: bool,
    /// The place in the text of the table of servers that it stands in.
    table_start: u64,
    value: &'d PlacedValue,
}

/// The guard that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardSeen {
    /// None.
    Nothing,
    /// The entry starts `unhang wrap`. `is_whole` says that its form is one that can be undone.
    Guard {
        /// The program, as it is written there.
        program: String,
        /// Whether the server's own command stands behind `--`.
        is_whole: bool,
    },
    /// The entry starts another program, and that starts `unhang wrap`.
    Inside(String),
    /// The entry starts the gateway: `unhang serve` or `unhang bridge`.
    Gateway,
}

/// The places of the words of a command.
enum CommandPlace<'d> {
    /// A key with the program, and perhaps one with the list of arguments, in this table.
    Word { table: &'d [PlacedMember], command: &'d PlacedMember, args: Option<&'d PlacedMember> },
    /// One list with all words.
    Words(&'d PlacedValue),
}

impl ConfigDocument {
    /// Reads a text.
    ///
    /// # Errors
    /// Fails with the place of the first mistake.
    pub fn parse(text: &str, syntax: FileSyntax) -> Result<ConfigDocument, SyntaxError> {
        Ok(ConfigDocument { text: text.to_owned(), syntax, root: parse(text, syntax)? })
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the syntax.
    #[must_use]
    pub fn syntax(&self) -> FileSyntax {
        self.syntax
    }

    /// Returns whether the file is unhang's own, whose servers need no guard.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.syntax == FileSyntax::Toml && self.root.member("mcp_servers").is_none()
    }

    /// Returns whether the file has a key under which clients keep servers.
    #[must_use]
    pub fn has_servers(&self) -> bool {
        CONTAINERS.iter().chain([&MIXED_CONTAINER]).any(|key| self.root.member(key).is_some())
            || !self.entries().is_empty()
    }

    /// Lists the servers, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> Vec<ConfiguredEntry<'_>> {
        let mut found = Vec::new();
        if self.is_own() {
            return found;
        }
        for key in CONTAINERS {
            self.root.members(key).for_each(|servers| self.collect(&[key], servers, &[], &mut found));
        }
        for mixed in self.root.members(MIXED_CONTAINER) {
            match mixed.value.member("servers") {
                // An entry may have this name as well.
                Some(servers) if servers.value.member("command").is_none() => {
                    self.collect(&[MIXED_CONTAINER, "servers"], servers, &[], &mut found);
                }
                _ => self.collect(&[MIXED_CONTAINER], mixed, &[], &mut found),
            }
        }
        // Claude Code keeps the servers of one project in the user's file.
        let projects = self.root.members("projects").filter_map(|projects| projects.value.table());
        for project in projects.flatten() {
            let switched_off = project.value.member("disabledMcpServers");
            let switched_off = switched_off.and_then(|names| names.value.list()).unwrap_or_default();
            for servers in project.value.members("mcpServers") {
                let place = ["projects", &project.name, "mcpServers"];
                self.collect(&place, servers, switched_off, &mut found);
            }
        }
        // Some clients take the last table of a name, and others the first.
        let mut tables = PlaceMap::new();
        for entry in &found {
            let start = entry.table_start;
            tables
                .entry(entry.above())
                .and_modify(|seen| *seen = if *seen == start { start } else { SEVERAL })
                .or_insert(start);
        }
        for entry in &mut found {
            entry.is_twofold |= tables.get(&entry.above()) == Some(&SEVERAL);
        }
        in_order(found, |entry: &ConfiguredEntry<'_>| entry.value.range.start)
    }

    fn collect<'d>(
        &'d self,
        place: &[&str],
        container: &'d PlacedMember,
        switched_off: &[PlacedValue],
        found: &mut Vec<ConfiguredEntry<'d>>,
    ) {
        let named: Vec<(&str, &PlacedValue)> = match &container.value.node {
            PlacedNode::Table(members) => {
                members.iter().map(|member| (member.name.as_str(), &member.value)).collect()
            }
            PlacedNode::List(items) => {
                items.iter().filter_map(|item| Some((item.member("name")?.value.text()?, item))).collect()
            }
            _ => Vec::new(),
        };
        let mut counts = PlaceMap::new();
        named.iter().for_each(|(name, _)| *counts.entry((*name).to_owned()).or_insert(0) += 1);
        for (name, value) in &named {
            if value.table().is_none() {
                continue;
            }
            let flag = |key: &str| match value.member(key).map(|member| &member.value.node) {
                Some(PlacedNode::Flag(flag)) => Some(*flag),
                _ => None,
            };
            found.push(ConfiguredEntry {
                place: place.iter().chain([name]).map(|key| (*key).to_owned()).collect(),
                name: (*name).to_owned(),
                is_disabled: flag("disabled") == Some(true)
                    || flag("enabled") == Some(false)
                    || self.is_excluded(name)
                    || switched_off.iter().any(|item| item.text() == Some(name)),
                is_twofold: counts.get(*name).is_some_and(|count| *count > 1),
                table_start: container.value.range.start as u64,
                value,
            });
        }
    }

    /// Returns whether Gemini's settings leave this server out.
    fn is_excluded(&self, name: &str) -> bool {
        let list = |key: &str| self.root.member(MIXED_CONTAINER)?.value.member(key)?.value.list();
        let has = |items: &[PlacedValue]| items.iter().any(|item| item.text() == Some(name));
        list("excluded").is_some_and(has) || list("allowed").is_some_and(|items| !has(items))
    }

    /// Returns the places of values that may be secret: variables and headers, also nested ones, and values whose keys sound so. A table
    /// of variables on one line is one place, with the comments in it.
    #[must_use]
    pub fn secrets(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for entry in self.entries() {
            self.find_secrets(entry.value, false, &mut found);
        }
        found
    }

    fn find_secrets(&self, value: &PlacedValue, is_secret: bool, found: &mut Vec<Range<usize>>) {
        match &value.node {
            PlacedNode::Table(_) | PlacedNode::List(_)
                if is_secret && !self.text[value.range.clone()].contains('\n') =>
            {
                found.push(value.range.clone());
            }
            PlacedNode::Table(members) => {
                for member in members {
                    let name = member.name.to_ascii_lowercase();
                    let is_secret = is_secret
                        || SECRET_TABLES.contains(&name.as_str())
                        || SECRET_KEYS.iter().any(|part| name.contains(part));
                    self.find_secrets(&member.value, is_secret, found);
                }
            }
            PlacedNode::List(items) if is_secret => {
                items.iter().for_each(|item| self.find_secrets(item, true, found));
            }
            PlacedNode::Text(_) | PlacedNode::Flag(_) | PlacedNode::Other if is_secret => {
                found.push(value.range.clone());
            }
            PlacedNode::List(_) | PlacedNode::Text(_) | PlacedNode::Flag(_) | PlacedNode::Other => {}
        }
    }

    /// Returns the edits that put the guard in front of a server.
    pub(crate) fn guard_edits(&self, entry: &ConfiguredEntry<'_>, program: &str) -> Vec<TextEdit> {
        entry
            .command()
            .map(|command| edits::guard(&self.text, self.syntax, &entry.name, &command, program))
            .unwrap_or_default()
    }

    /// Returns the edit that makes `program` the guard of a server that has a guard.
    pub(crate) fn program_edit(&self, entry: &ConfiguredEntry<'_>, program: &str) -> Option<TextEdit> {
        let command = entry.command()?;
        let old = command.words().first()?.range.clone();
        Some(edits::program(old, program))
    }

    /// Returns the edits that take the guard away from a server; `None` if it has none that can be taken away. `had_args` says whether the
    /// entry had a list of arguments before.
    pub(crate) fn unguard_edits(&self, entry: &ConfiguredEntry<'_>, had_args: bool) -> Option<Vec<TextEdit>> {
        edits::unguard(&self.text, self.syntax, &entry.command()?, had_args)
    }
}

impl<'d> ConfiguredEntry<'d> {
    /// Returns the place of the table of servers that it stands in.
    fn above(&self) -> String {
        place_key(&self.place[..self.place.len() - 1])
    }

    /// Returns whether another server stands at the same place, or another table of servers, so that it is unknown which of them counts.
    #[must_use]
    pub fn is_twofold(&self) -> bool {
        self.is_twofold
    }

    /// Returns whether the server is reached by a URL.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        ["url", "httpUrl", "serverUrl"].iter().any(|key| self.value.member(key).is_some())
            || self.value.member("type").and_then(|kind| kind.value.text()).is_some_and(|kind| {
                ["http", "sse", "streamable-http", "streamableHttp", "remote"].contains(&kind)
            })
    }

    /// Returns whether the entry has the key of a command, whatever its value is.
    #[must_use]
    pub fn has_command(&self) -> bool {
        self.value.member("command").is_some()
    }

    /// Returns whether the entry has a list of arguments, or all words in one list.
    #[must_use]
    pub fn has_args(&self) -> bool {
        match self.command() {
            Some(CommandPlace::Word { args, .. }) => args.is_some(),
            Some(CommandPlace::Words(_)) => true,
            None => false,
        }
    }

    /// Returns the program and its arguments; `None` if the entry has no usable command. An argument that is not a string becomes an empty one.
    #[must_use]
    pub fn words(&self) -> Option<Vec<String>> {
        Some(self.command()?.words().iter().map(|word| word.text().unwrap_or_default().to_owned()).collect())
    }

    /// Returns the guard of the server.
    #[must_use]
    pub fn guard(&self) -> GuardSeen {
        let words = self.words().unwrap_or_default();
        match own_command(&words) {
            None => GuardSeen::Nothing,
            Some(OwnCommand::Guard { at: 0, server }) => {
                GuardSeen::Guard { program: words[0].clone(), is_whole: server.is_some() }
            }
            Some(OwnCommand::Guard { .. }) => GuardSeen::Inside(words[0].clone()),
            Some(OwnCommand::Gateway) => GuardSeen::Gateway,
        }
    }

    /// Returns the name that the guard of the server has; `None` if it has none, or if it is not written there.
    #[must_use]
    pub fn guard_name(&self) -> Option<String> {
        let words = self.words()?;
        let options = words.iter().skip(2).take_while(|word| *word != "--");
        let joined = options.clone().find_map(|word| word.strip_prefix("--name=").map(str::to_owned));
        joined.or_else(|| options.clone().skip_while(|word| *word != "--name").nth(1).cloned())
    }

    /// Finds the words of the command. Returns `None` if the keys have other values than a program and its arguments.
    fn command(&self) -> Option<CommandPlace<'d>> {
        let word = |table: &'d [PlacedMember], key: &str| {
            let once = |name: &str| {
                let mut named = table.iter().filter(|member| member.name == name);
                match (named.next(), named.next()) {
                    (found, None) => Ok(found),
                    _ => Err(()),
                }
            };
            let (command, args) = (once(key).ok()??, once("args").ok()?);
            let is_whole = command.value.text().is_some_and(|command| !command.trim().is_empty())
                && args.is_none_or(|args| args.value.list().is_some());
            is_whole.then_some(CommandPlace::Word { table, command, args })
        };
        let table = self.value.table()?;
        let command = &self.value.member("command")?.value;
        match &command.node {
            PlacedNode::Text(_) => word(table, "command"),
            // Zed's older form has a table with the program under `path`.
            PlacedNode::Table(inner) => word(inner, "path"),
            PlacedNode::List(words) => {
                let is_program = |word: &PlacedValue| word.text().is_some_and(|text| !text.trim().is_empty());
                words.first().filter(|word| is_program(word)).map(|_| CommandPlace::Words(command))
            }
            PlacedNode::Flag(_) | PlacedNode::Other => None,
        }
    }
}

impl<'d> CommandPlace<'d> {
    /// Lists the words, the program first.
    fn words(&self) -> Vec<&'d PlacedValue> {
        match self {
            CommandPlace::Word { command, args, .. } => {
                let args = args.and_then(|args| args.value.list()).unwrap_or_default();
                std::iter::once(&command.value).chain(args).collect()
            }
            CommandPlace::Words(list) => list.list().unwrap_or_default().iter().collect(),
        }
    }
}
