//! Where the archives of a release are to be: what `crates/cli/Cargo.toml` says to `cargo binstall`.

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::release::{BuiltProgram, Release};

/// Stands where the address of the repository is to be, as long as Cargo.toml has none.
const NO_REPOSITORY: &str = "REPOSITORY";

/// The templates of addresses.
#[derive(Debug)]
pub(super) struct ArchiveAddresses {
    pub(super) repository: String,
    archive: String,
    program: String,
}

impl ArchiveAddresses {
    /// Asks cargo.
    pub(super) fn read(release: &Release) -> Result<Self, ChoreFailure> {
        let answer = release.project().log("packages-metadata").with_extension("json");
        let task = ProgramRun::new("cargo", release.project().root(), answer, release.deadline());
        let metadata = run::run_for_json(task.arguments([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]))?;
        let packages = metadata["packages"].as_array();
        let package = packages.into_iter().flatten().find(|package| package["name"] == "unhang-cli");
        package.and_then(Self::of_package).ok_or_else(|| {
            ChoreFailure::new(
                "crates/cli/Cargo.toml has no pkg-url and bin-dir in [package.metadata.binstall]",
            )
        })
    }

    /// A sentence on what Cargo.toml does not say yet.
    pub(super) fn missing(&self) -> &'static str {
        if self.repository == NO_REPOSITORY {
            "no package has an address yet, since Cargo.toml names no repository\n"
        } else {
            ""
        }
    }

    fn of_package(package: &Value) -> Option<Self> {
        let templates = &package["metadata"]["binstall"];
        Some(Self {
            repository: package["repository"].as_str().unwrap_or(NO_REPOSITORY).to_owned(),
            archive: templates["pkg-url"].as_str()?.to_owned(),
            program: templates["bin-dir"].as_str()?.to_owned(),
        })
    }

    /// The address of a program's archive.
    pub(super) fn archive(&self, release: &Release, program: &BuiltProgram) -> String {
        self.filled(&self.archive, release, program)
    }

    /// The path of the program in its archive.
    pub(super) fn program(&self, release: &Release, program: &BuiltProgram) -> String {
        self.filled(&self.program, release, program)
    }

    fn filled(&self, template: &str, release: &Release, program: &BuiltProgram) -> String {
        let words = [
            ("{ repo }", self.repository.as_str()),
            ("{ version }", release.version()),
            ("{ target }", program.target.triple),
            ("{ bin }", "unhang"),
        ];
        words.iter().fold(template.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}
