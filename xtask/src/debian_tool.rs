//! Programs of Debian's packages, for machines that do not have them: unpacked below `target/`, and not installed.
//!
//! apt keeps its lists and its cache below `target/` too, so this needs no rights and changes nothing of the machine. The packages are
//! those of the machine's release of Debian: its mirrors have no older ones that could be pinned.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

/// Lists and packages are 35 MB.
const FETCH_DEADLINE: Duration = Duration::from_mins(5);
const VERSION_DEADLINE: Duration = Duration::from_secs(60);

/// A program, which is also the name of its package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebianTool {
    name: &'static str,
    /// The packages of its libraries, as far as not every machine has them.
    needs: &'static [&'static str],
}

/// It builds images of containers.
pub(crate) const BUILDAH: DebianTool =
    DebianTool { name: "buildah", needs: &["libassuan0", "libdevmapper1.02.1", "libgpgme11", "libseccomp2"] };

impl DebianTool {
    /// Returns the program that is installed, or else unpacks it.
    ///
    /// # Errors
    /// Fails if the machine neither has the program nor apt, or if apt cannot fetch the packages.
    pub(crate) fn program(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        let output = project.log(&format!("probe-{}", self.name));
        let probe = ProgramRun::new(self.name, project.root(), output, VERSION_DEADLINE);
        if run::run(probe.arguments(["--version"])).is_ok() {
            return Ok(self.name.into());
        }
        let folder = project.below_target("tools/debian").join(self.name);
        let root = folder.join("root");
        tools::once(&folder, &[], || self.unpack(project, &folder, &root)).map_err(|failure| {
            let told = format!(
                "{0} is needed: install it (most distributions have the package {0}); unpacking it from Debian's packages \
                 did not work either ({failure})",
                self.name
            );
            match failure.output() {
                Some(output) => ChoreFailure::new(told).with_output(output),
                None => ChoreFailure::new(told),
            }
        })?;
        Ok(root.join("usr/bin").join(self.name))
    }

    fn unpack(&self, project: &Project, folder: &Path, root: &Path) -> Result<(), ChoreFailure> {
        let (lists, cache, packages) = (folder.join("lists"), folder.join("cache"), folder.join("packages"));
        for made in [lists.join("partial"), cache.join("archives/partial"), packages.clone()] {
            fs::create_dir_all(&made).map_err(|error| ChoreFailure::io(made.display(), &error))?;
        }
        let task = |program: &str, name: &str| {
            let output = project.log(&format!("{name}-{}", self.name));
            ProgramRun::new(program, &packages, output, FETCH_DEADLINE)
        };
        let apt = |name: &str| {
            let places = [("Dir::State::Lists", &lists), ("Dir::Cache", &cache)];
            let places = places.map(|(option, place)| format!("--option={option}={}", place.display()));
            task("apt-get", name).arguments(places).arguments(["--quiet", "--option=APT::Sandbox::User=root"])
        };
        run::run(apt("apt-update").arguments(["update"]))?;
        run::run(apt("apt-download").arguments(["download", self.name]).arguments(self.needs))?;
        let entries =
            fs::read_dir(&packages).map_err(|error| ChoreFailure::io(packages.display(), &error))?;
        for package in entries.flatten() {
            let unpack = task("dpkg-deb", "dpkg-unpack").arguments(["--extract"]);
            run::run(unpack.arguments([package.path(), root.to_owned()]))?;
        }
        // Variables do not reach the processes that it starts of itself, so it gets the place of its libraries written into it.
        let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
        let libraries = ["usr/lib", "lib"].map(|below| root.join(below).join(&triple).display().to_string());
        let patchelf = tools::PATCHELF.program(project)?;
        let output = project.log(&format!("patchelf-{}", self.name));
        let task = ProgramRun::new(patchelf, root, output, VERSION_DEADLINE);
        let flags = ["--force-rpath".to_owned(), "--set-rpath".to_owned(), libraries.join(":")];
        run::run(task.arguments(flags).arguments([root.join("usr/bin").join(self.name)]))
    }
}
