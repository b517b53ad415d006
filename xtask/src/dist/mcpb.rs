//! The bundle for desktop clients (`.mcpb`): the gateway as one server, which asks for the configuration file when it is installed.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::failure::ChoreFailure;
use crate::files;
use crate::run::ProgramRun;
use crate::{run, tools};

use super::archive::PAPERS;
use super::release::{BuiltProgram, Release};

pub(super) const MANIFEST: &str = "packaging/mcpb/manifest.json";
/// Where the bundle has the program, as its manifest says.
const PROGRAM: &str = "server/unhang";

/// Where the bundle of a program lies.
pub(super) fn path(release: &Release, program: &BuiltProgram) -> PathBuf {
    release.folder().join(format!("unhang-{}-{}.mcpb", release.version(), program.target.triple))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    let stage = release.stage("mcpb")?;
    for program in release.programs() {
        let folder = stage.join(program.target.triple);
        let mut manifest = files::read_json(&release.source(MANIFEST))?;
        manifest["version"] = json!(release.version());
        manifest["compatibility"]["platforms"] = json!([program.target.node.0]);
        if manifest["server"]["entry_point"] != PROGRAM {
            return Err(ChoreFailure::new(format!("{MANIFEST} does not start {PROGRAM}")));
        }
        files::write(&folder.join("manifest.json"), &format!("{manifest:#}\n"))?;
        files::copy_program(&program.path, &folder.join(PROGRAM))?;
        for paper in PAPERS {
            files::copy(&release.source(paper), &folder.join(paper))?;
        }
        run::run(mcpb(release, "mcpb-validate", &folder)?.arguments(["validate", "manifest.json"]))?;
        let task = mcpb(release, "mcpb-pack", &folder)?;
        run::run(task.arguments(["pack".as_ref(), ".".as_ref(), path(release, program).as_os_str()]))?;
    }
    Ok(())
}

/// A call of the packing tool, to which every time is the commit's.
pub(super) fn mcpb(release: &Release, name: &str, folder: &Path) -> Result<ProgramRun, ChoreFailure> {
    let program = tools::mcpb(release.project())?;
    let clock = release.source("packaging/mcpb/tool/commit_time.js");
    Ok(release
        .task(name, "node", folder)
        .arguments(["--require".as_ref(), clock.as_os_str(), program.as_os_str()])
        .variable("TZ", "UTC"))
}
