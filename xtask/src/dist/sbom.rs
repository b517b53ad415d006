//! The bills of materials: every crate that is in a program, with its version, licence and hash, as CycloneDX.
//!
//! cargo-cyclonedx writes them beside each manifest, so it gets a copy of the last commit.

use std::path::PathBuf;

use crate::failure::ChoreFailure;
use crate::files;
use crate::{run, tools};

use super::release::{BuiltProgram, Release};

/// The version of CycloneDX, the newest that the tool writes.
const SPECIFICATION: &str = "1.5";

/// Where the bill of a program lies.
pub(super) fn path(release: &Release, program: &BuiltProgram) -> PathBuf {
    release.folder().join(format!("unhang-{}-{}.cdx.json", release.version(), program.target.triple))
}

pub(super) fn write(release: &Release) -> Result<(), ChoreFailure> {
    let tool = tools::CARGO_CYCLONEDX.program(release.project())?;
    let source = copy_of_commit(release)?;
    for program in release.programs() {
        let flags = ["cyclonedx", "--format", "json", "--describe", "binaries", "--quiet"];
        let manifest = source.join("crates/cli/Cargo.toml");
        let task = release.task("sbom", &tool, &source).arguments(flags);
        let task = task.arguments(["--spec-version", SPECIFICATION, "--target", program.target.triple]);
        run::run(task.arguments(["--manifest-path".as_ref(), manifest.as_os_str()]))?;
        let bill = files::read(&source.join("crates/cli/unhang_bin.cdx.json"))?;
        // Crates of the workspace are named after the folder, which is another one on each machine.
        let bill = bill.replace(&format!("path+file://{}/", source.display()), "path+file:///");
        files::write(&path(release, program), &bill)?;
    }
    Ok(())
}

/// Lays the files of the last commit out in a folder.
fn copy_of_commit(release: &Release) -> Result<PathBuf, ChoreFailure> {
    for tool in [tools::GIT, tools::TAR] {
        tool.require(release.project())?;
    }
    let stage = release.stage("sbom")?;
    let (archive, source) = (stage.join("commit.tar"), stage.join("source"));
    files::empty(&source)?;
    let task = release.task("sbom-commit", "git", release.project().root());
    run::run(task.arguments([
        "archive".as_ref(),
        "--output".as_ref(),
        archive.as_os_str(),
        "HEAD".as_ref(),
    ]))?;
    let unpack = ["--extract".as_ref(), "--file".as_ref(), archive.as_os_str()];
    run::run(release.task("sbom-unpack", "tar", &source).arguments(unpack))?;
    Ok(source)
}
