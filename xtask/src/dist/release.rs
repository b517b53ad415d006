//! What is packed: the programs, their version, and the time that every file gets.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::files;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

/// Something that is done with a release, and the package that it concerns.
pub(super) type PackageWork = (&'static str, fn(&Release) -> Result<(), ChoreFailure>);

/// The file with the sums of all others.
pub(super) const SUMS: &str = "SHA256SUMS";

/// Packing compresses 15 MiB, on a busy machine.
const DEADLINE: Duration = Duration::from_mins(5);

/// A system that packages are made for, by the names that it has in different places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DistTarget {
    pub(super) triple: &'static str,
    /// Debian's name for the processor, if there is a package for it.
    pub(super) debian: Option<&'static str>,
    /// Node.js' `process.platform` and `process.arch`.
    pub(super) node: (&'static str, &'static str),
}

/// The first that is this machine's is the one that the program is built for.
const TARGETS: [DistTarget; 5] = [
    DistTarget { triple: "x86_64-unknown-linux-gnu", debian: Some("amd64"), node: ("linux", "x64") },
    DistTarget { triple: "aarch64-unknown-linux-gnu", debian: Some("arm64"), node: ("linux", "arm64") },
    DistTarget { triple: "x86_64-unknown-linux-musl", debian: None, node: ("linux", "x64") },
    DistTarget { triple: "aarch64-apple-darwin", debian: None, node: ("darwin", "arm64") },
    DistTarget { triple: "x86_64-apple-darwin", debian: None, node: ("darwin", "x64") },
];

/// A program and the system that it runs on.
#[derive(Debug)]
pub(super) struct BuiltProgram {
    pub(super) target: DistTarget,
    pub(super) path: PathBuf,
}

/// One version of the program, on its way into packages.
#[derive(Debug)]
pub(super) struct Release<'a> {
    project: &'a Project,
    /// Seconds since 1970.
    time: String,
    /// The first runs here.
    programs: Vec<BuiltProgram>,
    /// The program with no shared libraries, for this machine's processor.
    static_program: Option<PathBuf>,
    /// Where packages go.
    folder: PathBuf,
}

impl<'a> Release<'a> {
    /// Takes the program of this machine, and the others as `TARGET=PATH`.
    pub(super) fn new(
        project: &'a Project,
        program: &Path,
        others: &[String],
        folder: PathBuf,
    ) -> Result<Self, ChoreFailure> {
        let mut programs = vec![built(this_machine()?, program)?];
        for other in others {
            let (triple, path) = other
                .split_once('=')
                .ok_or_else(|| ChoreFailure::usage(format!("--with wants TARGET=PATH, not {other}")))?;
            programs.push(built(target(triple)?, Path::new(path))?);
        }
        Ok(Self { project, time: commit_time(project)?, programs, static_program: None, folder })
    }

    /// Adds a program with no shared libraries, if there is one.
    pub(super) fn with_static(self, static_program: Option<PathBuf>) -> Self {
        Self { static_program, ..self }
    }

    pub(super) fn project(&self) -> &'a Project {
        self.project
    }

    /// That of all crates of the workspace.
    pub(super) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub(super) fn time(&self) -> &str {
        &self.time
    }

    pub(super) fn programs(&self) -> &[BuiltProgram] {
        &self.programs
    }

    /// The program that runs on this machine.
    pub(super) fn own(&self) -> &BuiltProgram {
        &self.programs[0]
    }

    /// The program with no shared libraries, for this machine's processor.
    pub(super) fn static_program(&self) -> Option<&Path> {
        self.static_program.as_deref()
    }

    /// Where packages go.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// An empty folder in which the files of a package are laid out.
    pub(super) fn stage(&self, name: &str) -> Result<PathBuf, ChoreFailure> {
        let stage = self.project.below_target("xtask/packages/stage").join(name);
        files::empty(&stage)?;
        Ok(stage)
    }

    /// The packages that were made so far, sorted.
    pub(super) fn packages(&self) -> Result<Vec<PathBuf>, ChoreFailure> {
        let mut paths = files::list(&self.folder)?;
        paths.retain(|path| path.file_name() != Some(OsStr::new(SUMS)));
        Ok(paths)
    }

    /// A program that packs or checks, in `folder`. Those that write times take the commit's.
    pub(super) fn task(&self, name: &str, program: impl AsRef<OsStr>, folder: &Path) -> ProgramRun {
        let output = self.project.log(&format!("packages-{name}"));
        ProgramRun::new(program, folder, output, DEADLINE).variable("SOURCE_DATE_EPOCH", &self.time)
    }

    pub(super) fn deadline(&self) -> Duration {
        DEADLINE
    }

    /// A file of the checkout.
    pub(super) fn source(&self, path: &str) -> PathBuf {
        self.project.root().join(path)
    }

    /// A sentence on the systems that nothing was packed for.
    pub(super) fn without(&self) -> String {
        let is_packed = |target: &&DistTarget| self.programs.iter().any(|built| built.target == **target);
        let missing: Vec<_> =
            TARGETS.iter().filter(|target| !is_packed(target)).map(|target| target.triple).collect();
        format!(
            "not packed, since no program was given (--with TARGET=PATH): {}\n",
            if missing.is_empty() { "nothing".to_owned() } else { missing.join(", ") }
        )
    }
}

fn built(target: DistTarget, path: &Path) -> Result<BuiltProgram, ChoreFailure> {
    let path = std::path::absolute(path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(BuiltProgram { target, path }),
        Ok(_) => Err(ChoreFailure::new(format!("{} is no program", path.display()))),
        Err(error) => Err(ChoreFailure::io(path.display(), &error)),
    }
}

fn target(triple: &str) -> Result<DistTarget, ChoreFailure> {
    let known: Vec<_> = TARGETS.iter().map(|target| target.triple).collect();
    TARGETS.into_iter().find(|target| target.triple == triple).ok_or_else(|| {
        ChoreFailure::usage(format!("no packages are made for {triple}, but for {}", known.join(", ")))
    })
}

fn this_machine() -> Result<DistTarget, ChoreFailure> {
    let (architecture, system) = (std::env::consts::ARCH, std::env::consts::OS);
    // Triples call the system of Apple's machines by its kernel.
    let system = if system == "macos" { "darwin" } else { system };
    let is_this =
        |target: &DistTarget| target.triple.starts_with(architecture) && target.triple.contains(system);
    TARGETS.into_iter().find(is_this).ok_or_else(|| {
        ChoreFailure::new(format!("no packages are made for programs of {architecture} {system}"))
    })
}

/// The time of the last commit, which all files get.
fn commit_time(project: &Project) -> Result<String, ChoreFailure> {
    tools::GIT.require(project)?;
    let task = ProgramRun::new("git", project.root(), project.log("packages-commit"), DEADLINE);
    let time = run::run_for_text(task.arguments(["log", "-1", "--format=%ct"]))?.trim().to_owned();
    match time.parse::<u64>() {
        Ok(_) => Ok(time),
        Err(_) => Err(ChoreFailure::new(format!("git gave no time of the last commit, but {time:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_known_by_its_whole_triple() {
        assert_eq!(target("aarch64-apple-darwin").expect("it is known").node, ("darwin", "arm64"));
        assert!(target("aarch64").expect_err("that is a part").is_usage());
    }
}
