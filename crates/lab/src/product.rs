//! Finds the two binaries of a run: the `unhang` that is measured, and the lab itself, which plays the servers.
//!
//! Invariant: a stale `unhang` is never measured unasked. If cargo runs the lab, cargo builds `unhang` first: for a measurement of an
//! optimised lab with the profile `dist`, which packages ship, and else with the lab's own profile.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use unhang_zoo::load::LoadPrograms;

use crate::arguments::ProductArguments;

/// What the lab wants to know about `unhang`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredQuality {
    /// How fast and how large it is: only the shipped build has the answer.
    Cost,
    /// What it does: every build does the same.
    Behavior,
}

/// The paths of both binaries.
#[derive(Debug)]
pub(crate) struct MeasuredPrograms {
    unhang: String,
    lab: String,
}

impl MeasuredPrograms {
    /// Finds both binaries. Under cargo, it builds `unhang` first.
    ///
    /// # Errors
    /// Fails with one sentence for a person: which binary is missing, or why cargo did not build it.
    pub(crate) fn find(arguments: &ProductArguments, quality: MeasuredQuality) -> Result<Self, String> {
        let lab =
            env::current_exe().map_err(|error| format!("the path of unhang-lab is unknown: {error}"))?;
        let unhang = match &arguments.unhang {
            Some(path) => path.clone(),
            None => {
                let beside = lab.with_file_name(format!("unhang{}", env::consts::EXE_SUFFIX));
                match env::var_os("CARGO") {
                    Some(cargo) => {
                        let unhang = built_path(beside, quality);
                        build(Path::new(&cargo), &unhang)?;
                        unhang
                    }
                    None => beside,
                }
            }
        };
        let unhang = unhang.canonicalize().map_err(|error| {
            format!("there is no unhang at {}: {error}; name one with --unhang", unhang.display())
        })?;
        Ok(Self { unhang: text(unhang)?, lab: text(lab)? })
    }

    /// Returns both paths, for the load generators.
    pub(crate) fn of_load(&self) -> LoadPrograms<'_> {
        LoadPrograms { unhang: &self.unhang, zoo: &self.lab }
    }

    /// Returns the path of `unhang`.
    pub(crate) fn unhang(&self) -> &str {
        &self.unhang
    }

    /// Returns the path of the lab.
    pub(crate) fn lab(&self) -> &str {
        &self.lab
    }
}

/// Returns where cargo puts the `unhang` to measure, from the path beside the lab.
fn built_path(beside: PathBuf, quality: MeasuredQuality) -> PathBuf {
    let Some(folder) = beside.parent().filter(|folder| folder.ends_with("release")) else { return beside };
    match (quality, beside.file_name()) {
        (MeasuredQuality::Cost, Some(name)) => folder.with_file_name("dist").join(name),
        _ => beside,
    }
}

fn text(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|path| format!("{} is not text", path.display()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo builds for as long as it takes, in the person's own session, so that Ctrl-C ends both"
)]
/// Builds the `unhang` at this path with cargo. The folder's name is the profile's, but for `debug`.
fn build(cargo: &Path, unhang: &Path) -> Result<(), String> {
    let folder = unhang.parent().ok_or("unhang-lab is in no folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/Cargo.toml");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--bin", "unhang", "--profile", profile, "--manifest-path"])
        .arg(manifest);
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo did not build unhang ({status}); name one with --unhang")),
        Err(error) => {
            Err(format!("cargo cannot be started to build unhang: {error}; name one with --unhang"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_packages_ship_is_measured_unless_the_lab_is_a_debug_build() {
        let built = |beside: &str, quality| built_path(PathBuf::from(beside), quality);
        assert_eq!(built("t/release/unhang", MeasuredQuality::Cost), Path::new("t/dist/unhang"));
        assert_eq!(built("t/release/unhang", MeasuredQuality::Behavior), Path::new("t/release/unhang"));
        assert_eq!(built("t/debug/unhang", MeasuredQuality::Cost), Path::new("t/debug/unhang"));
    }
}
