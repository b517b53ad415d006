//! The commands, URLs and variables that a file declares, as its author wrote them. A person sees them before they consent to the file.
//!
//! Invariants
//!
//! - Nothing is expanded, except for inputs whose value stands in the same file. The text shows what is run, whatever the environment
//!   holds, and it contains no secret of the environment. Variables are shown by their names.
//! - The parts of URLs that may be secret are not shown. A change in them is still noticed.
//! - Everything that the readers of settings take is here, whatever its key. There may be more here than they take.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::{Map, Value};

use super::{
    expand::variables_of,
    foreign::{defaults, table},
    section::{Complaint, Section, SettingValue, SettingsFile},
    shown::without_secrets,
};

/// One entry that a file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The kind of the entry: `server`, `tool` or `settings`.
    pub kind: &'static str,
    /// The entry's name in the file. For settings it is the name of their table.
    pub name: String,
    /// The command line as it is written, or the URL without the parts that may be secret. For settings it is the names of their keys.
    pub how: String,
    /// Names of variables and headers, each with the text that is written for it. A name alone is a variable of ours that is handed on.
    pub environment: BTreeMap<String, String>,
    /// Everything else that is written there, as JSON.
    pub rest: String,
}

impl Declaration {
    /// Describes one name of the environment for a person, with the variables of ours that its value is made of.
    #[must_use]
    pub fn told(&self, name: &str) -> String {
        let variables = self.environment.get(name).map(|text| variables_of(text)).unwrap_or_default();
        if variables.is_empty() {
            return name.to_owned();
        }
        let variables: Vec<String> = variables.iter().map(|name| format!("${name}")).collect();
        let from = format!("from {}", variables.join(", "));
        match name.strip_suffix(')') {
            Some(name) => format!("{name}, {from})"),
            None => format!("{name} ({from})"),
        }
    }
}

/// Lists the entries that a file declares, in the order of its keys. The file may be ours or that of a client.
///
/// # Errors
/// Fails if the text is neither TOML nor JSON, or if it holds a number that JSON does not have.
pub fn declared(text: &str, file: &str) -> Result<Vec<Declaration>, Complaint> {
    let source = SettingsFile { file, text, lookup: &|_| None, warnings: RefCell::default() };
    let is_toml = || source.toml();
    let table = if file.ends_with(".json") || file.ends_with(".jsonc") {
        table(&source)?
    } else {
        is_toml().or_else(|_| table(&source))?
    };
    let top = Section::any(&source, &table);
    let inputs = top.find("inputs").map(|field| defaults(&field)).unwrap_or_default();
    let mut found = Vec::new();
    for (key, kind) in [
        ("servers", "server"),
        ("mcpServers", "server"),
        ("mcp_servers", "server"),
        ("mcp", "server"),
        ("tools", "tool"),
    ] {
        if let Some(field) = top.find(key) {
            members(&field, kind, &inputs, &mut found)?;
        }
    }
    if let Some(projects) = top.find("projects") {
        for (_, project) in projects.fields().unwrap_or_default() {
            if let Some(field) = project.member("mcpServers") {
                members(&field, "server", &inputs, &mut found)?;
            }
        }
    }
    for name in ["jobs", "http", "gateway", "telemetry", "clients"] {
        if let Some(field) = top.find(name) {
            found.push(settings(name, &field.json()?));
        }
    }
    Ok(found)
}

/// Adds the entries of a table, by their names, or of a list whose items have names.
fn members(
    field: &SettingValue<'_>,
    kind: &'static str,
    inputs: &BTreeMap<String, String>,
    found: &mut Vec<Declaration>,
) -> Result<(), Complaint> {
    match field.json()? {
        Value::Object(table) => {
            for (name, value) in table {
                // opencode keeps its servers beside other things, or one level below.
                match (value, kind) {
                    (Value::Object(inner), "server") if name == "servers" && !reaches(&inner) => {
                        found.extend(
                            inner.into_iter().filter_map(|(name, value)| one(kind, name, value, inputs)),
                        );
                    }
                    (value, _) => found.extend(one(kind, name, value, inputs)),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item["name"].as_str().unwrap_or_default().to_owned();
                found.extend(one(kind, name, item, inputs));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Computes the SHA-256 of these bytes, in hexadecimal digits. It identifies a file that a person has consented to.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Describes settings by their keys. For a collector of traces it adds the URL and the headers.
fn settings(name: &str, table: &Value) -> Declaration {
    let mut environment = BTreeMap::new();
    let keys =
        table.as_object().into_iter().flatten().map(|(key, value)| match (name, key.as_str(), value) {
            ("telemetry", "otlp", Value::String(url)) => {
                environment.extend(secret_of(url));
                format!("{key} {}", quoted(&without_secrets(url)))
            }
            ("telemetry", "headers", Value::Object(headers)) => {
                environment
                    .extend(headers.iter().map(|(name, value)| (format!("{name}{HEADER}"), plain(value))));
                key.clone()
            }
            _ => {
                environment.extend(variables_in(key, value));
                key.clone()
            }
        });
    let how = keys.collect::<Vec<_>>().join(", ");
    let (name, rest) = (name.to_owned(), table.to_string());
    Declaration { kind: "settings", name, how, environment, rest }
}

/// The mark behind the name of a header.
const HEADER: &str = " (header)";

/// Returns the part of a URL that is not shown, under a name of its own, so that changes in it and its variables are noticed. Returns
/// `None` if everything is shown.
fn secret_of(url: &str) -> Option<(String, String)> {
    (without_secrets(url) != url).then(|| ("URL (user and query)".to_owned(), url.to_owned()))
}

/// Returns a setting with variables of ours in its value; `None` if it has none.
fn variables_in(key: &str, value: &Value) -> Option<(String, String)> {
    let text = plain(value);
    (!variables_of(&text).is_empty()).then(|| (key.to_owned(), text))
}

fn reaches(table: &Map<String, Value>) -> bool {
    ["command", "cmd", "url", "httpUrl", "serverUrl"]
        .iter()
        .any(|key| table.get(*key).is_some_and(|value| !value.is_object()))
}

fn one(
    kind: &'static str,
    name: String,
    value: Value,
    inputs: &BTreeMap<String, String>,
) -> Option<Declaration> {
    let Value::Object(mut table) = value else { return None };
    // A server may have several of these keys. All are shown, since a reader may take any of them.
    let mut take = |keys: &[&str]| keys.iter().filter_map(|key| table.remove(*key)).collect::<Vec<_>>();
    let mut words = Vec::new();
    for keys in [&["command", "cmd"][..], &["args"]] {
        words.extend(take(keys).iter().flat_map(texts));
    }
    let mut environment = BTreeMap::new();
    for url in take(&["url", "httpUrl", "serverUrl"]) {
        let url = with_inputs(&plain(&url), inputs);
        words.push(quoted(&without_secrets(&url)));
        environment.extend(secret_of(&url));
    }
    for (keys, mark) in [(&["env", "environment", "envs"][..], ""), (&["headers", "http_headers"], HEADER)] {
        for pairs in take(keys) {
            let pairs = pairs.as_object().into_iter().flatten();
            environment.extend(pairs.map(|(name, value)| (format!("{name}{mark}"), plain(value))));
        }
    }
    // These keys name variables. The values come from our environment.
    let value_of = |name: &Value| format!("${{{}}}", plain(name));
    for pairs in take(&["env_http_headers"]) {
        let pairs = pairs.as_object().into_iter().flatten();
        environment.extend(pairs.map(|(name, value)| (format!("{name}{HEADER}"), value_of(value))));
    }
    for name in take(&["bearer_token_env_var"]) {
        environment.insert(format!("bearer token{HEADER}"), value_of(&name));
    }
    for value in take(&["env_vars"]) {
        environment.extend(texts(&value).into_iter().map(|name| (name, String::new())));
    }
    for file in take(&["envFile"]) {
        environment.insert(format!("all of {}", plain(&file)), String::new());
    }
    if take(&["inherit-env"]).contains(&Value::Bool(true)) {
        environment.insert("all of your environment".to_owned(), String::new());
    }
    for folder in take(&["cwd", "workingDirectory"]) {
        words.push(format!("(in {})", plain(&folder)));
    }
    let words: Vec<String> = words.iter().map(|word| with_inputs(word, inputs)).collect();
    for (key, value) in &table {
        environment.extend(variables_in(key, value));
    }
    // The keys of the table are in alphabetical order.
    let rest = Value::Object(table).to_string();
    Some(Declaration { kind, name, how: words.join(" "), environment, rest })
}

/// Returns a text, or the texts of a list and of the lists in it.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        other => vec![quoted(&plain(other))],
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Quotes a word as a shell would want it, so that a word with a blank does not look like two.
fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && !word.contains(|letter: char| letter.is_whitespace() || "'\"\\;|&<>()*`".contains(letter));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Replaces the inputs in a text whose values stand in the file.
fn with_inputs(text: &str, inputs: &BTreeMap<String, String>) -> String {
    inputs.iter().fold(text.to_owned(), |text, (id, value)| text.replace(&format!("${{input:{id}}}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_22_what_is_shown_is_what_is_written() {
        let text = r#"{
            // A client's.
            "inputs": [{ "id": "what", "default": "rm" }],
            "servers": {
                "a": { "command": "npx", "args": ["-y", "two words", "${input:what}"], "env": { "KEY": "${TOKEN:-x}" }, "envFile": ".env" },
                "b": { "url": "https://${HOST}/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }
            },
            "mcp": { "servers": { "c": { "command": "c" } } },
            "projects": { "/p": { "mcpServers": { "d": { "command": "d" } } } }
        }"#;
        let found = declared(text, ".mcp.json").expect("JSON");
        let told: Vec<String> = found
            .iter()
            .map(|one| {
                format!(
                    "{} {}: {} {:?}",
                    one.kind,
                    one.name,
                    one.how,
                    one.environment.keys().collect::<Vec<_>>()
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "server a: npx -y 'two words' rm [\"KEY\", \"all of .env\"]",
                "server b: https://${HOST}/mcp [\"Authorization (header)\"]",
                "server c: c []",
                "server d: d []",
            ]
        );
        assert_eq!(found[0].environment["KEY"], "${TOKEN:-x}");
        let ours = declared(
            "[jobs]\nretention = '1d'\n[tools.t]\ncommand = ['sh', '-c', 'x; y']\ncwd = '/x'\n[servers.s]\ncommand = 's'\ninherit-env = true",
            "unhang.toml",
        );
        let told: Vec<String> =
            ours.expect("TOML").iter().map(|one| format!("{} {}: {}", one.kind, one.name, one.how)).collect();
        assert_eq!(told, ["server s: s", "tool t: sh -c 'x; y' (in /x)", "settings jobs: retention"]);
    }
}
