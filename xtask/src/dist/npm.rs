//! The packages for npm: `unhang`, one for each system with the program for it, as optional dependencies of the first, and `@unhang/jobs`
//! for servers in TypeScript.
//!
//! npm installs the one that fits the machine. The `postinstall` of `unhang` then puts the program in the place of the script
//! `bin/unhang`. Where scripts of packages do not run, that script starts the program.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::failure::ChoreFailure;
use crate::files;
use crate::run::ProgramRun;
use crate::{run, sdk, tools};

use super::archive::PAPERS;
use super::release::{BuiltProgram, DistTarget, Release};

const SOURCES: &str = "packaging/npm";
/// The package with the command.
const MAIN: &str = "unhang";
const MAIN_FILES: [&str; 2] = ["install.js", "native.js"];

/// The system as npm and Node.js name it. Programs with another C library have no package.
fn platform(target: DistTarget) -> Option<String> {
    let (system, processor) = target.node;
    (!target.triple.ends_with("-musl")).then(|| format!("{system}-{processor}"))
}

/// Where the package `unhang` lies.
pub(super) fn main_path(release: &Release) -> PathBuf {
    release.folder().join(format!("unhang-{}.tgz", release.version()))
}

/// Where the package of a program's system lies.
pub(super) fn platform_path(release: &Release, program: &BuiltProgram) -> Option<PathBuf> {
    let platform = platform(program.target)?;
    Some(release.folder().join(format!("unhang-{platform}-{}.tgz", release.version())))
}

/// Where the package for servers in TypeScript lies.
pub(super) fn jobs_path(release: &Release) -> PathBuf {
    release.folder().join(format!("unhang-jobs-{}.tgz", release.version()))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    tools::NPM.require(release.project())?;
    let stage = release.stage("npm")?;
    pack_jobs(release, &stage.join("jobs"))?;
    let mut dependencies = Map::new();
    for program in release.programs() {
        if let Some(platform) = platform(program.target) {
            pack_platform(release, program, &platform, &stage.join(&platform))?;
            dependencies.insert(format!("@unhang/{platform}"), json!(release.version()));
        }
    }
    let (sources, folder) = (release.source(SOURCES).join(MAIN), stage.join(MAIN));
    let mut manifest = manifest(release, &sources)?;
    manifest["optionalDependencies"] = Value::Object(dependencies);
    files::copy_program(&sources.join("bin/unhang"), &folder.join("bin/unhang"))?;
    for file in MAIN_FILES {
        files::copy(&sources.join(file), &folder.join(file))?;
    }
    for paper in PAPERS {
        files::copy(&release.source(paper), &folder.join(paper))?;
    }
    finish(release, &manifest, &folder)
}

fn pack_jobs(release: &Release, folder: &Path) -> Result<(), ChoreFailure> {
    let built = sdk::build_typescript(release.project())?;
    let mut manifest = manifest(release, &built)?;
    manifest["dependencies"][MAIN] = json!(release.version());
    for file in files::list(&built.join("dist"))? {
        files::copy(&file, &folder.join("dist").join(file.file_name().unwrap_or_default()))?;
    }
    files::copy(&built.join("README.md"), &folder.join("README.md"))?;
    copy_licences(release, folder)?;
    finish(release, &manifest, folder)
}

fn copy_licences(release: &Release, folder: &Path) -> Result<(), ChoreFailure> {
    for paper in PAPERS.into_iter().filter(|paper| paper.starts_with("LICENSE")) {
        files::copy(&release.source(paper), &folder.join(paper))?;
    }
    Ok(())
}

fn pack_platform(
    release: &Release,
    program: &BuiltProgram,
    platform: &str,
    folder: &Path,
) -> Result<(), ChoreFailure> {
    let sources = release.source(SOURCES).join("platform");
    let (system, processor) = program.target.node;
    let mut manifest = manifest(release, &sources)?;
    manifest["name"] = json!(format!("@unhang/{platform}"));
    manifest["os"] = json!([system]);
    manifest["cpu"] = json!([processor]);
    if program.target.triple.ends_with("-gnu") {
        manifest["libc"] = json!(["glibc"]);
    }
    files::copy_program(&program.path, &folder.join("bin/unhang"))?;
    files::copy(&sources.join("README.md"), &folder.join("README.md"))?;
    copy_licences(release, folder)?;
    finish(release, &manifest, folder)
}

/// The manifest in a folder of sources, with the version of the release.
fn manifest(release: &Release, sources: &Path) -> Result<Value, ChoreFailure> {
    let mut manifest = files::read_json(&sources.join("package.json"))?;
    manifest["version"] = json!(release.version());
    Ok(manifest)
}

fn finish(release: &Release, manifest: &Value, folder: &Path) -> Result<(), ChoreFailure> {
    files::write(&folder.join("package.json"), &format!("{manifest:#}\n"))?;
    let arguments = ["pack", "--ignore-scripts", "--loglevel=error", "--pack-destination"];
    let task = npm(release, "npm-pack", folder).arguments(arguments);
    run::run(task.arguments([release.folder().as_os_str(), folder.as_os_str()]))
}

/// A call of npm that asks no registry.
pub(super) fn npm(release: &Release, name: &str, folder: &Path) -> ProgramRun {
    release
        .task(name, "npm", folder)
        .variable("npm_config_offline", "true")
        .variable("npm_config_audit", "false")
}
