//! The bills of materials: each is CycloneDX, names the program and the crates in it, and says nothing of the machine that wrote it.

use serde_json::Value;

use crate::dist::release::{BuiltProgram, Release};
use crate::dist::sbom;
use crate::failure::ChoreFailure;
use crate::files;

/// Crates that every program has in it: one of the workspace, one with code in C, and one of Rust alone.
const SOME: [&str; 3] = ["unhang-proc", "libsqlite3-sys", "tokio"];

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    release.programs().iter().try_for_each(|program| check_one(release, program))
}

fn check_one(release: &Release, program: &BuiltProgram) -> Result<(), ChoreFailure> {
    let path = sbom::path(release, program);
    let fault = |what: String| ChoreFailure::new(format!("{}: {what}", path.display()));
    let bill = files::read_json(&path)?;
    if bill["bomFormat"] != "CycloneDX" || bill["metadata"]["component"]["name"] != "unhang" {
        return Err(fault("this is no bill of the program".to_owned()));
    }
    let components = bill["components"].as_array().map_or(&[][..], Vec::as_slice);
    for name in SOME {
        let component = components.iter().find(|component| component["name"] == name);
        let component = component.ok_or_else(|| fault(format!("it does not name {name}")))?;
        if component["version"].as_str().is_none()
            || component["licenses"].as_array().is_none_or(Vec::is_empty)
        {
            return Err(fault(format!("it has no version or licence of {name}")));
        }
    }
    let without_hash = |component: &&Value| {
        component["purl"].as_str().is_some_and(|url| !url.contains("download_url=file:"))
            && component["hashes"].as_array().is_none_or(Vec::is_empty)
    };
    if let Some(component) = components.iter().find(without_hash) {
        return Err(fault(format!("it has no hash of {}", component["name"])));
    }
    let root = release.project().root().display().to_string();
    if files::read(&path)?.contains(&root) {
        return Err(fault(format!("it names {root}, a folder of this machine")));
    }
    Ok(())
}
