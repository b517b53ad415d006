//! `unhang adopt` over the six real servers in one file of a client: an official client library starts each adopted entry and walks through
//! the scenario of its server. Then `--undo` gives the same bytes back.
//!
//! # Invariants
//!
//! - The client starts what stands in the file, word for word, and nothing else.
//! - `unhang adopt` looks for the files of all clients, as without arguments. The home folder of the case has one.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::failure::ChoreFailure;

use super::bench::{CaseContext, CaseFolder};
use super::scenario::Scenario;
use super::sdk_client::{ClientTransport, Language, SdkEra, Walk};
use super::servers::PublicServer;

/// Adopts the servers, uses each, and gives the file back.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
) -> Result<(), ChoreFailure> {
    let file = case_folder.path("home/.cursor/mcp.json");
    let before = written(bench, case_folder, &file)?;
    adopt(bench, case_folder, "adopt", &[])?;
    let adopted = read(&file)?;
    for server in PublicServer::ALL {
        use_entry(bench, case_folder, language, server, &adopted)?;
    }
    adopt(bench, case_folder, "adopt-again", &[])?;
    if read(&file)? != adopted {
        return Err(ChoreFailure::new("adopting twice changed the file again"));
    }
    adopt(bench, case_folder, "adopt-undo", &["--undo"])?;
    if read(&file)? == before {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("{} is not as it was", file.display())))
}

/// Writes the client's file with all servers. Returns its text.
fn written(bench: &CaseContext, case_folder: &CaseFolder, file: &Path) -> Result<String, ChoreFailure> {
    let mut servers = Map::new();
    for server in PublicServer::ALL {
        server.furnish(case_folder)?;
        servers.insert(server.name().to_owned(), server.entry(bench, case_folder));
    }
    let text = format!("{:#}\n", json!({ "mcpServers": servers }));
    let parent = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(file, &text))
        .map_err(|error| ChoreFailure::io(file.display(), &error))?;
    Ok(text)
}

fn read(file: &Path) -> Result<String, ChoreFailure> {
    fs::read_to_string(file).map_err(|error| ChoreFailure::io(file.display(), &error))
}

fn adopt(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    name: &str,
    words: &[&str],
) -> Result<(), ChoreFailure> {
    let task = case_folder.task(bench.binary(), &case_folder.work(), name);
    case_folder.run(task.arguments(["adopt", "--yes"]).arguments(words))
}

/// Starts what the file says for a server, and walks through its scenario.
fn use_entry(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
    server: PublicServer,
    adopted: &str,
) -> Result<(), ChoreFailure> {
    let command = command(adopted, server).ok_or_else(|| {
        ChoreFailure::new(format!("{} has no guard with its name in front: {adopted}", server.name()))
    })?;
    let scenario = Scenario::read(bench, case_folder, server)?;
    let (name, folder) = (format!("client-{}", server.name()), case_folder.work());
    let (era, way) = (SdkEra::Legacy, ClientTransport::Command(&command));
    let walk = Walk { name: &name, language, era, way, folder: &folder, steps: scenario.steps() };
    case_folder.run(walk.task(bench, case_folder)?)?;
    // The guard lists tools about jobs as well, which no scenario calls.
    scenario.judge(&walk.transcript(case_folder)?, era.revision(server.is_stateless_too()), false)
}

/// The command of an entry that starts its server through a guard of this name.
fn command(file: &str, server: PublicServer) -> Option<Vec<OsString>> {
    let file: Value = serde_json::from_str(file).ok()?;
    let entry = &file["mcpServers"][server.name()];
    let words = std::iter::once(&entry["command"]).chain(entry["args"].as_array()?);
    let words: Vec<_> = words.map(Value::as_str).collect::<Option<_>>()?;
    let is_guard = words.get(1..5)? == ["wrap", "--name", server.name(), "--"];
    is_guard.then(|| words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_only_with_a_guard_of_its_name() {
        let file = |args: &[&str]| json!({ "mcpServers": { "time": { "command": "unhang", "args": args } } });
        let command_of = |args: &[&str]| command(&file(args).to_string(), PublicServer::Time);
        let words = command_of(&["wrap", "--name", "time", "--", "server"]).expect("it has a guard");
        assert_eq!(words.last().expect("it has words"), "server");
        assert_eq!(command_of(&["server"]), None);
        assert_eq!(command_of(&["wrap", "--name", "git", "--", "server"]), None);
    }
}
