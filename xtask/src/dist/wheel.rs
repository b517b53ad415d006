//! The wheel for PyPI: the Python package `unhang`, and the program as its script, for Linux with the C library that it was built for.
//!
//! maturin builds what it packs, in a profile of its own. The program is built already, so its files are laid out by the specification,
//! and `wheel pack` writes the list of them and compresses.

use std::path::PathBuf;

use crate::failure::ChoreFailure;
use crate::files;
use crate::{run, tools};

use super::archive::PAPERS;
use super::glibc;
use super::release::{BuiltProgram, Release};

/// The sources of the Python package.
const PYTHON: &str = "sdk/python/src/unhang";

/// Where the wheel of a program lies.
pub(super) fn path(release: &Release, program: &BuiltProgram) -> Result<PathBuf, ChoreFailure> {
    let platforms = platforms(release, program)?.join(".");
    Ok(release.folder().join(format!("unhang-{}-py3-none-{platforms}.whl", release.version())))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    let stage = release.stage("wheel")?;
    for program in release.programs().iter().filter(|program| program.target.triple.ends_with("-linux-gnu")) {
        let folder = stage.join(program.target.triple);
        let package = format!("unhang-{}", release.version());
        let about = folder.join(format!("{package}.dist-info"));
        files::copy_program(&program.path, &folder.join(format!("{package}.data/scripts/unhang")))?;
        for source in files::list(&release.source(PYTHON))? {
            if source.is_file() {
                files::copy(&source, &folder.join("unhang").join(source.file_name().unwrap_or_default()))?;
            }
        }
        for licence in PAPERS.into_iter().filter(|paper| paper.starts_with("LICENSE")) {
            files::copy(&release.source(licence), &about.join("licenses").join(licence))?;
        }
        let readme = files::read(&release.source("README.md"))?;
        files::write(&about.join("METADATA"), &metadata(release.version(), &readme))?;
        files::write(&about.join("WHEEL"), &description(&platforms(release, program)?))?;
        let task = release.task("wheel", tools::WHEEL.program(release.project())?, &stage);
        let (to, folder) = (release.folder().as_os_str(), folder.as_os_str());
        run::run(task.arguments(["pack".as_ref(), "--dest-dir".as_ref(), to, folder]))?;
    }
    Ok(())
}

/// The names of the platform, in the order in which a wheel's name has them.
fn platforms(release: &Release, program: &BuiltProgram) -> Result<Vec<String>, ChoreFailure> {
    let version = glibc::needed(release, program)?.max(glibc::OLDEST);
    let architecture = program.target.triple.split('-').next().unwrap_or_default();
    let (major, minor) = version;
    let mut platforms = vec![format!("manylinux_{major}_{minor}_{architecture}")];
    if version == glibc::OLDEST {
        // pip before 20.3 knows this name alone.
        platforms.insert(0, format!("manylinux2014_{architecture}"));
    }
    Ok(platforms)
}

fn description(platforms: &[String]) -> String {
    let tags: String = platforms.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    format!("Wheel-Version: 1.0\nGenerator: unhang-xtask\nRoot-Is-Purelib: false\n{tags}")
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: unhang\nVersion: {version}\n\
         Summary: Slow functions of MCP servers as durable jobs, and a guard between MCP clients and MCP servers\n\
         License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\n\
         Requires-Python: >=3.10\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
}
