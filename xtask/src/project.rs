//! Where things are, and which crates there are: what `cargo metadata` says.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

/// The binary with the faulty servers and the bench, which is not shipped.
const LAB: &str = "unhang-lab";

/// The checkout and its build folder.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    root: PathBuf,
    target: PathBuf,
    crates: Vec<String>,
    /// The root file of each crate's library, or else of its program.
    roots: Vec<(String, PathBuf)>,
}

/// The name of a package with the root file of its library, or else of its first program.
fn root_file(package: &Value) -> Option<(String, PathBuf)> {
    let targets = package["targets"].as_array()?;
    let of_kind = |kind: &str| {
        targets
            .iter()
            .find(|target| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&kind.into())))
    };
    let target = of_kind("lib").or_else(|| of_kind("bin"))?;
    Some((package["name"].as_str()?.to_owned(), PathBuf::from(target["src_path"].as_str()?)))
}

/// Returns when cargo has built a program; `None` if it is not there.
pub(crate) fn built_at(program: &Path) -> Option<SystemTime> {
    program.metadata().ok()?.modified().ok()
}

impl Project {
    /// Asks cargo; the folder of this crate's sources tells where to ask.
    pub(crate) fn find() -> Result<Self, ChoreFailure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or_else(|| ChoreFailure::new("the xtask folder has no parent"))?
            .to_owned();
        let answer = root.join("target/xtask/metadata.json");
        let task = ProgramRun::new("cargo", &root, answer, Duration::from_secs(60)).arguments([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]);
        let metadata = run::run_for_json(task)?;
        let name = |package: &Value| package["name"].as_str().map(str::to_owned);
        let crates = metadata["packages"].as_array().into_iter().flatten().filter_map(name).collect();
        let roots = metadata["packages"].as_array().into_iter().flatten().filter_map(root_file).collect();
        let target = metadata["target_directory"].as_str().unwrap_or("target");
        Ok(Self { target: root.join(target), root, crates, roots })
    }

    /// The folder of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the lab, from which the chores take their faulty servers: the newest of the one beside this `unhang` and those in
    /// the build folder.
    pub(crate) fn lab(&self, unhang: &Path) -> Result<PathBuf, ChoreFailure> {
        let beside = unhang.with_file_name(LAB);
        let built = ["debug", "release", "dist"].map(|profile| self.below_target(profile).join(LAB));
        let mut built: Vec<_> =
            built.into_iter().chain([beside]).filter_map(|lab| Some((built_at(&lab)?, lab))).collect();
        built.sort();
        let (_, newest) = built.pop().ok_or_else(|| {
            ChoreFailure::new(format!("there is no {LAB}: build it with `cargo build --package {LAB}`"))
        })?;
        Ok(newest)
    }

    /// A path below the build folder.
    pub(crate) fn below_target(&self, path: impl AsRef<Path>) -> PathBuf {
        self.target.join(path)
    }

    /// The program that packages ship, as the step `dist` builds it.
    pub(crate) fn shipped(&self) -> PathBuf {
        self.below_target("dist/unhang")
    }

    /// The names of the workspace's crates.
    pub(crate) fn crates(&self) -> &[String] {
        &self.crates
    }

    /// The crates with the root files of their sources.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.roots.iter().map(|(name, root)| (name.as_str(), root.as_path()))
    }

    /// A cargo call in the workspace, whose output goes to a file named after `name`.
    pub(crate) fn cargo(&self, name: &str, deadline: Duration) -> ProgramRun {
        // rustfmt colours by the terminal's name alone, even in a file.
        let task = ProgramRun::new("cargo", &self.root, self.log(name), deadline).variable("TERM", "dumb");
        task.variable("CARGO_TERM_COLOR", "never")
    }

    /// The file for the output of `name`.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.below_target(format!("xtask/{}.log", name.replace('/', "-")))
    }
}
