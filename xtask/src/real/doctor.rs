//! `unhang doctor` over five real servers at once: it finds nothing with them but what is known, and sees what they are like.
//!
//! # Invariants
//!
//! - A report is judged by what was measured as well, so that a doctor that looks at nothing does not pass.

use std::fs;

use serde_json::{Map, Value, json};

use crate::failure::ChoreFailure;
use crate::run;

use super::bench::{CaseContext, CaseFolder};
use super::servers::PublicServer;

/// The servers that were measured by hand (contract.md part 4).
const SERVERS: [PublicServer; 5] = [
    PublicServer::Everything,
    PublicServer::Filesystem,
    PublicServer::Time,
    PublicServer::Git,
    PublicServer::Gms,
];

/// Findings that say more of the machine than of the server.
const OF_THE_MACHINE: &[&str] = &["slow-start"];

/// Examines all of them by one configuration file, as a client has it.
pub(crate) fn check(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let file = case_folder.work().join("mcp.json");
    let mut servers = Map::new();
    for server in SERVERS {
        server.furnish(case_folder)?;
        let variables = case_folder.environment().into_iter();
        let variables: Map<String, Value> =
            variables.map(|(name, value)| (name.to_owned(), value.to_string_lossy().into())).collect();
        let mut entry = server.entry(bench, case_folder);
        entry["env"] = variables.into();
        servers.insert(server.name().to_owned(), entry);
    }
    let text = json!({ "mcpServers": servers }).to_string();
    fs::write(&file, text).map_err(|error| ChoreFailure::io(file.display(), &error))?;
    let task = case_folder
        .task(bench.binary(), &case_folder.work(), "report")
        .arguments(["doctor", "--json", "--config"]);
    let status = case_folder.finish_in_any_way(&run::start(task.arguments([&file]))?)?;
    let path = case_folder.path("report");
    let report = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    let reports: Vec<Value> = serde_json::from_slice(&report)
        .map_err(|error| ChoreFailure::new(format!("no report but {error} ({status})")).with_output(path))?;
    SERVERS.into_iter().try_for_each(|server| {
        let report = reports.iter().find(|report| report["server"] == server.name());
        let missing = || ChoreFailure::new(format!("{} was not examined", server.name()));
        judge(server, report.ok_or_else(missing)?)
    })
}

/// What is known of the server is what was seen, and no more.
fn judge(server: PublicServer, report: &Value) -> Result<(), ChoreFailure> {
    let facts = &report["facts"];
    let known = [
        (facts["revision"] == "2025-11-25", "it agrees on the newest revision with a handshake"),
        (facts["stateless"] == server.is_stateless_too(), "it speaks 2026-07-28, or not, as was measured"),
        (facts["coldStartMs"].is_u64() && facts["warmStartMs"].is_u64(), "it starts twice"),
        (facts["lists"][0]["items"].as_u64() > Some(1), "it has tools"),
        (facts["stdinEnd"]["exit"] == "exit code 0", "it ends well when its stdin does"),
        (facts["sigterm"]["ms"].is_u64(), "it ends on SIGTERM"),
    ];
    if let Some((_, what)) = known.iter().find(|(is_so, _)| !is_so) {
        return Err(ChoreFailure::new(format!("{}: not seen that {what}: {report:#}", server.name())));
    }
    let findings = report["findings"].as_array().into_iter().flatten();
    let counted = findings.filter(|finding| finding["severity"] != "note");
    let strange: Vec<&str> = counted
        .filter_map(|finding| finding["id"].as_str())
        .filter(|id| !OF_THE_MACHINE.contains(id))
        .collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("{}: found {}: {report:#}", server.name(), strange.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: &Value) -> Value {
        json!({
            "server": "time",
            "facts": {
                "revision": "2025-11-25", "stateless": true, "coldStartMs": 550, "warmStartMs": 460,
                "lists": [{ "method": "tools/list", "items": 2, "bytes": 2319 }],
                "stdinEnd": { "ms": 315, "exit": "exit code 0", "leaked": 0 },
                "sigterm": { "ms": 16, "exit": "signal 15", "leaked": 0 },
            },
            "findings": findings,
        })
    }

    #[test]
    fn what_is_known_passes_and_anything_else_does_not() {
        let findings = json!([{ "id": "era-locked", "severity": "note" }, { "id": "slow-start", "severity": "warning" }]);
        assert!(judge(PublicServer::Time, &report(&findings)).is_ok());
        let junk = json!([{ "id": "stdout-junk", "severity": "error" }]);
        assert!(judge(PublicServer::Time, &report(&junk)).is_err());
        assert!(judge(PublicServer::Everything, &report(&json!([]))).is_err(), "it is not stateless");
        assert!(
            judge(PublicServer::Time, &json!({ "server": "time", "findings": [] })).is_err(),
            "nothing was seen"
        );
    }
}
