//! The configuration files of MCP clients, read as they are: `mcpServers` of Cursor, Claude Desktop, Claude Code, Windsurf, Gemini and
//! others, `servers` of VS Code, `mcp` of opencode, `mcp_servers` of Codex (peers.md 5).
//!
//! # Theory of operation
//!
//! Whatever the syntax, JSON with comments or TOML, the file becomes the same tree with places that our own file is read from. So
//! complaints name line and key here too. The key that the servers stand under tells which client the file is from.
//!
//! Invariants
//!
//! - Settings that only the client understands are ignored, because it is the client's file.
//! - A server that cannot be understood does not affect the others: each has its own outcome.
//! - A timeout is read only if its name tells the unit.
//! - A server behind `unhang wrap -- CMD` is the server CMD: nobody here gets two guards, or examines the guard in place of the server.

use std::{borrow::Cow, cell::RefCell, collections::BTreeMap, path::Path, time::Duration};

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Object, Value},
    common::Ranged,
};
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use unhang_net::oauth::ClientSettings;

use super::{
    HttpDialect, LimitSettings, ServerSettings, Transport,
    env_file::variables,
    expand::input_variable,
    guarded::{OwnCommand, own_command},
    section::{Complaint, Section, SettingValue, SettingsFile},
    server::{checked_url, header_value, texts},
};
use unhang_core::insertion::InsertEach;

/// A server of a client's file.
#[derive(Clone, Debug)]
pub struct ForeignServer {
    /// The server's name in the file.
    pub name: String,
    /// How the server is reached, or why it cannot be.
    pub settings: Result<ServerSettings, Complaint>,
    /// Whether the server is switched off in the file.
    pub is_disabled: bool,
}

/// Reads the text of a file of variables (`envFile`), or returns why it cannot be read.
pub type FileText<'a> = dyn Fn(&Path) -> Result<String, String> + 'a;

/// The place of a client's file, for the paths in it.
#[derive(Clone, Copy)]
pub struct ForeignFile<'a> {
    /// The name of the file in complaints.
    pub file: &'a str,
    /// The project that the file belongs to, or the one that is worked in. Relative paths begin there.
    pub project: &'a Path,
    /// Reads the files of variables that servers name. It is called once per server, whatever else is wrong with that server.
    pub env_file: &'a FileText<'a>,
}

/// Reads a client's file.
///
/// # Errors
/// Fails if the text is neither JSON nor TOML, if it is not a known client's file, or if a list of servers is malformed.
pub fn read_foreign(
    text: &str,
    at: ForeignFile<'_>,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<ForeignServer>, Complaint> {
    let inputs = RefCell::new(BTreeMap::new());
    let lookup = |name: &str| match name {
        "workspaceFolder" => Some(at.project.to_string_lossy().into_owned()),
        "userHome" => lookup("HOME"),
        "pathSeparator" | "/" => Some("/".to_owned()),
        _ => match name.strip_prefix("input:") {
            Some(id) => lookup(&input_variable(id)).or_else(|| inputs.borrow().get(id).cloned()),
            None => lookup(name),
        },
    };
    let source = SettingsFile { file: at.file, text, lookup: &lookup, warnings: RefCell::default() };
    let table = table(&source)?;
    let top = Section::any(&source, &table);
    if let Some(field) = top.find("inputs") {
        *inputs.borrow_mut() = defaults(&field);
    }
    let mut servers = Vec::new();
    let mut is_known = false;
    for (key, below) in
        [("mcpServers", None), ("servers", None), ("mcp_servers", None), ("mcp", Some("servers"))]
    {
        let Some(field) = top.find(key) else { continue };
        is_known = true;
        let inner = below.and_then(|below| field.member(below));
        servers.extend(all(inner.as_ref().unwrap_or(&field), at)?);
    }
    // Claude Code keeps the servers of one project in the user's file.
    let project = at.project.to_string_lossy();
    let of_project = top.find("projects").and_then(|field| field.member(&project)?.member("mcpServers"));
    if let Some(field) = of_project {
        is_known = true;
        servers.extend(all(&field, at)?);
    }
    if is_known {
        return Ok(servers);
    }
    let hint = top.meant(&["mcpServers", "servers", "mcp_servers"]);
    Err(source.complaint(0, "", format!("has none of the keys under which MCP clients keep their servers: mcpServers, servers, mcp_servers, mcp{hint}")))
}

/// Returns the values of inputs that have a default.
pub(super) fn defaults(inputs: &SettingValue<'_>) -> BTreeMap<String, String> {
    let read =
        |input: &SettingValue<'_>| Some((input.member("id")?.loose()?, input.member("default")?.loose()?));
    inputs.items().unwrap_or_default().iter().filter_map(read).insert_each()
}

/// Reads the servers of a table, by name, or of a list whose items have names.
fn all(field: &SettingValue<'_>, at: ForeignFile<'_>) -> Result<Vec<ForeignServer>, Complaint> {
    if field.is_list() {
        let items = field.items()?;
        if items.is_empty() {
            return Err(field.complaint("is an empty list; write a table of servers by their names, as in {\"NAME\": {\"command\": \"...\"}}"));
        }
        let named = items.into_iter().filter_map(|item| Some((item.member("name")?.loose()?, item)));
        return Ok(named.map(|(name, item)| server(&name, &item, at)).collect());
    }
    Ok(field.fields()?.into_iter().map(|(name, field)| server(name, &field, at)).collect())
}

fn server(name: &str, field: &SettingValue<'_>, at: ForeignFile<'_>) -> ForeignServer {
    let flag = |key: &str| field.member(key).and_then(|field| field.flag().ok());
    let is_disabled = flag("disabled") == Some(true) || flag("enabled") == Some(false);
    ForeignServer { name: name.to_owned(), settings: read(name, field, at), is_disabled }
}

fn read(name: &str, field: &SettingValue<'_>, at: ForeignFile<'_>) -> Result<ServerSettings, Complaint> {
    let member = |keys: &[&str]| keys.iter().find_map(|key| field.member(key));
    // This comes first: the files that a server needs must not depend on other mistakes in its settings.
    let of_file = match field.member("envFile") {
        Some(field) => env_file(&field, at)?,
        None => BTreeMap::new(),
    };
    let kind = member(&["type", "transport"]).and_then(|field| field.loose()).unwrap_or_default();
    let url = member(&["url", "httpUrl", "serverUrl"]);
    let seconds = |key: &str| {
        let text = field.member(key)?.loose()?;
        Duration::try_from_secs_f64(text.parse().ok()?).ok().filter(|length| !length.is_zero())
    };
    let limits = LimitSettings {
        start_timeout: seconds("startup_timeout_sec"),
        call_timeout: seconds("tool_timeout_sec"),
        ..LimitSettings::default()
    };
    let transport = match (member(&["command", "cmd"]), url) {
        (Some(command), _) if kind.is_empty() || kind == "stdio" || kind == "local" => {
            let mut words = if command.is_list() { texts(&command)? } else { vec![command.plain()?] };
            if words.is_empty() || words[0].is_empty() {
                return Err(command.complaint("is empty"));
            }
            words.extend(field.member("args").map(|field| texts(&field)).transpose()?.unwrap_or_default());
            if let Some(OwnCommand::Guard { at: 0, server: Some(server) }) = own_command(&words) {
                // The client's entry has a guard. Here, the server is reached and examined itself.
                words.drain(..server);
            }
            let program = words.remove(0);
            let mut environment = of_file;
            if let Some(field) = member(&["env", "environment", "envs"]) {
                environment.extend(field.variables()?);
            }
            for name in field.member("env_vars").map(|field| texts(&field)).transpose()?.unwrap_or_default() {
                environment.extend(field.look_up(&name).map(|value| (name, value)));
            }
            let cwd = member(&["cwd", "workingDirectory"]).map(|field| field.plain()).transpose()?;
            Transport::Stdio {
                command: program,
                arguments: words,
                environment,
                inherits_environment: false,
                folder: cwd.map_or_else(|| at.project.to_owned(), |cwd| at.project.join(cwd)),
            }
        }
        (_, Some(url)) => {
            let mut headers = BTreeMap::new();
            for (name, field) in
                member(&["headers", "http_headers"]).map_or(Ok(Vec::new()), |field| field.fields())?
            {
                headers.insert(name.to_owned(), header_value(&field)?);
            }
            for (name, field) in
                field.member("env_http_headers").map_or(Ok(Vec::new()), |field| field.fields())?
            {
                headers.insert(name.to_owned(), variable(&field)?);
            }
            if let Some(field) = field.member("bearer_token_env_var") {
                headers.insert("Authorization".to_owned(), format!("Bearer {}", variable(&field)?));
            }
            let dialect = match kind.to_ascii_lowercase().as_str() {
                "sse" => Some(HttpDialect::Sse),
                "http" | "streamable-http" | "streamablehttp" | "streamable_http" => {
                    Some(HttpDialect::Streamable)
                }
                _ if field.member("httpUrl").is_some() => Some(HttpDialect::Streamable),
                _ => None,
            };
            Transport::Http { url: checked_url(&url)?, headers, dialect, oauth: ClientSettings::default() }
        }
        (Some(command), None) => {
            return Err(command.complaint(format!("a server of type `{kind}` has a URL and not a command")));
        }
        (None, None) => {
            let hint = field.meant(&["command", "url", "httpUrl", "serverUrl"]);
            return Err(field.complaint(format!("has neither a command nor a URL{hint}")));
        }
    };
    Ok(ServerSettings::new(name, transport, limits))
}

/// Reads the variables of the file that is named here.
fn env_file(field: &SettingValue<'_>, at: ForeignFile<'_>) -> Result<BTreeMap<String, String>, Complaint> {
    let path = at.project.join(field.plain()?);
    let text = (at.env_file)(&path);
    let text = text.map_err(|why| field.complaint(format!("{} cannot be read: {why}", path.display())))?;
    variables(&text).map_err(|why| field.complaint(format!("{}{why}", path.display())))
}

/// Returns the value of the variable that is named here.
fn variable(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let name = field.plain()?;
    field.look_up(&name).ok_or_else(|| field.complaint(format!("the variable {name} is not set")))
}

/// Parses the file into a tree, in whichever syntax it is written.
pub(super) fn table<'a>(source: &SettingsFile<'a>) -> Result<DeTable<'a>, Complaint> {
    if source.file.ends_with(".toml") {
        return source.toml();
    }
    let options = ParseOptions {
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        ..ParseOptions::default()
    };
    let parsed =
        jsonc_parser::parse_to_ast(source.text, &CollectOptions::default(), &options).map_err(|error| {
            source.complaint(error.range().start, "", format!("is not valid JSON: {}", error.kind()))
        })?;
    match parsed.value {
        Some(Value::Object(object)) => Ok(members(object)),
        Some(other) => Err(source.complaint(other.range().start, "", "is JSON, but not an object")),
        None => Err(source.complaint(0, "", "is empty")),
    }
}

fn members(object: Object<'_>) -> DeTable<'_> {
    let mut table = DeTable::new();
    for property in object.properties {
        let at = property.range.start..property.range.end;
        let key = Spanned::new(at, Cow::Owned(property.name.into_string()));
        if let Some(value) = value(property.value) {
            table.insert(key, value);
        }
    }
    table
}

/// Converts a JSON value. Returns `None` for `null`, and for numbers that TOML does not have.
fn value(json: Value<'_>) -> Option<Spanned<DeValue<'_>>> {
    let range = json.range();
    let value = match json {
        Value::StringLit(text) => DeValue::String(text.value),
        Value::NumberLit(number) => DeValue::parse(number.value).ok()?.into_inner(),
        Value::BooleanLit(flag) => DeValue::Boolean(flag.value),
        Value::Object(object) => DeValue::Table(members(object)),
        Value::Array(array) => {
            DeValue::Array(array.elements.into_iter().filter_map(value).collect::<DeArray<'_>>())
        }
        Value::NullKeyword(_) => return None,
    };
    Some(Spanned::new(range.start..range.end, value))
}
