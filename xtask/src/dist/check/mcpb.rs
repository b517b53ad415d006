//! The bundle: unpacked, its command starts the gateway with a configuration file, as a desktop client does.

use std::path::Path;

use serde_json::Value;

use crate::dist::mcpb::{self, mcpb};
use crate::dist::release::Release;
use crate::failure::ChoreFailure;
use crate::files;
use crate::run;

const CONFIGURATION: &str = "[tools.greet]\ncommand = [\"echo\", \"hello\"]\n";

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    let stage = release.stage("mcpb-used")?;
    let (bundle, home, configuration) = (stage.join("bundle"), stage.join("home"), stage.join("unhang.toml"));
    let package = mcpb::path(release, release.own());
    let task = mcpb(release, "mcpb-unpack", &stage)?;
    run::run(task.arguments(["unpack".as_ref(), package.as_os_str(), bundle.as_os_str()]))?;
    files::write(&configuration, CONFIGURATION)?;
    let manifest = files::read_json(&bundle.join("manifest.json"))?;
    let command = command(&manifest, &bundle, &configuration)
        .ok_or_else(|| ChoreFailure::new(format!("{} has no command", mcpb::MANIFEST)))?;
    // Without a client, the gateway has nothing to do and ends well.
    let (program, arguments) = command.split_first().ok_or_else(|| ChoreFailure::new("no command"))?;
    let task = release.task("mcpb-gateway", program, &stage).variable("UNHANG_HOME", &home);
    run::run(task.arguments(arguments))?;
    super::says_version(release, "mcpb-version", Path::new(program))
}

/// The command of a manifest, with the places of this machine.
fn command(manifest: &Value, bundle: &Path, configuration: &Path) -> Option<Vec<String>> {
    let start = &manifest["server"]["mcp_config"];
    let words = [&start["command"]].into_iter().chain(start["args"].as_array()?);
    let filled = |word: &Value| {
        let word = word.as_str()?.replace("${__dirname}", &bundle.to_string_lossy());
        Some(word.replace("${user_config.configuration}", &configuration.to_string_lossy()))
    };
    words.map(filled).collect()
}
