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
/// Where Debian installs programs.
const PROGRAMS: &str = "usr/bin";

/// A program in a package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebianTool {
    name: &'static str,
    package: &'static str,
    /// The folder of the program below `/`.
    folder: &'static str,
    /// The argument with which it tells its version.
    probe: &'static str,
    /// Programs beside it that it is used with.
    beside: &'static [&'static str],
    /// The packages of its libraries, as far as not every machine has them.
    needs: &'static [&'static str],
}

/// A file of a package, such as a library that another program loads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebianFile {
    package: &'static str,
    /// The path of the file below the folder of libraries.
    path: &'static str,
}

/// Packages that have files, and no program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebianFiles {
    packages: &'static [&'static str],
}

/// It builds images of containers.
pub(crate) const BUILDAH: DebianTool = DebianTool {
    name: "buildah",
    package: "buildah",
    folder: PROGRAMS,
    probe: "--version",
    beside: &[],
    needs: &["libassuan0", "libdevmapper1.02.1", "libgpgme11", "libseccomp2"],
};
/// It runs programs for ARM64 on other processors.
pub(crate) const QEMU_ARM64: DebianTool = DebianTool {
    name: "qemu-aarch64-static",
    package: "qemu-user-static",
    folder: PROGRAMS,
    probe: "--version",
    beside: &[],
    needs: &[],
};
/// The server of a database, which the tests of the shared store start.
pub(crate) const POSTGRES: DebianTool = DebianTool {
    name: "postgres",
    package: "postgresql-15",
    folder: "usr/lib/postgresql/15/bin",
    probe: "--version",
    beside: &["initdb"],
    needs: &["libicu72", "libldap-2.5-0", "libpq5", "libsasl2-2", "libxml2"],
};
/// The pooler of connections through which the tests of the shared store go as well.
pub(crate) const PGBOUNCER: DebianTool = DebianTool {
    name: "pgbouncer",
    package: "pgbouncer",
    folder: "usr/sbin",
    probe: "--version",
    beside: &[],
    needs: &["libc-ares2", "libevent-2.1-7"],
};
/// It makes the network between the machines of `scale`.
pub(crate) const IP: DebianTool = DebianTool {
    name: "ip",
    package: "iproute2",
    folder: "bin",
    probe: "-V",
    beside: &[],
    needs: &["libbpf1", "libbsd0", "libcap2", "libelf1", "libmd0", "libmnl0", "libtirpc3", "libxtables12"],
};
/// It comes between a program and its clock.
pub(crate) const FAKETIME: DebianFile =
    DebianFile { package: "libfaketime", path: "faketime/libfaketimeMT.so.1" };
/// The C library for ARM64, below `usr/aarch64-linux-gnu`.
pub(crate) const ARM64_LIBRARIES: DebianFiles = DebianFiles { packages: &["libc6-arm64-cross"] };

impl DebianTool {
    /// Returns the program that is installed, or else unpacks it.
    ///
    /// # Errors
    /// Fails if the machine neither has the program nor apt, or if apt cannot fetch the packages.
    pub(crate) fn program(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        let installed = Path::new("/").join(self.folder).join(self.name);
        for program in [self.name.into(), installed] {
            let output = project.log(&format!("probe-{}", self.name));
            let probe = ProgramRun::new(&program, project.root(), output, VERSION_DEADLINE);
            if run::run(probe.arguments([self.probe])).is_ok() {
                return Ok(program);
            }
        }
        let packages: Vec<_> = [self.package].into_iter().chain(self.needs.iter().copied()).collect();
        let programs = || [self.name].into_iter().chain(self.beside.iter().copied());
        let unpacked = unpacked(project, &packages, |root| match self.needs {
            [] => Ok(()),
            _ => programs()
                .try_for_each(|name| name_libraries(project, root, &root.join(self.folder).join(name))),
        });
        unpacked.map(|root| root.join(self.folder).join(self.name)).map_err(|failure| {
            let told = format!(
                "{} is needed: install it (most distributions have the package {}); unpacking it from Debian's packages \
                 did not work either ({failure})",
                self.name, self.package
            );
            match failure.output() {
                Some(output) => ChoreFailure::new(told).with_output(output),
                None => ChoreFailure::new(told),
            }
        })
    }
}

impl DebianFile {
    /// Returns the file that is installed, or else unpacks it.
    ///
    /// # Errors
    /// Fails if the machine neither has the file nor apt, or if apt cannot fetch the package.
    pub(crate) fn file(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        let below = format!("usr/lib/{}-linux-gnu/{}", std::env::consts::ARCH, self.path);
        let installed = Path::new("/").join(&below);
        if installed.exists() {
            return Ok(installed);
        }
        let unpacked = unpacked(project, &[self.package], |_| Ok(()));
        unpacked.map(|root| root.join(below)).map_err(|failure| {
            let told = format!(
                "{} is needed: install the package {}; unpacking it from Debian's packages did not work either ({failure})",
                self.path, self.package
            );
            ChoreFailure::new(told)
        })
    }
}

impl DebianFiles {
    /// Returns the folder that stands for `/`, after unpacking the packages into it.
    ///
    /// # Errors
    /// Fails if the machine has no apt, or if apt cannot fetch the packages.
    pub(crate) fn root(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        unpacked(project, self.packages, |_| Ok(()))
    }
}

/// Returns the folder into which the packages were unpacked, which is named after the first of them; `finish` completes it.
fn unpacked(
    project: &Project,
    packages: &[&str],
    finish: impl FnOnce(&Path) -> Result<(), ChoreFailure>,
) -> Result<PathBuf, ChoreFailure> {
    let folder = project.below_target("tools/debian").join(packages[0]);
    let root = folder.join("root");
    tools::once(&folder, &[], || {
        unpack(project, packages, &folder, &root)?;
        finish(&root)
    })?;
    Ok(root)
}

fn unpack(project: &Project, names: &[&str], folder: &Path, root: &Path) -> Result<(), ChoreFailure> {
    let (lists, cache, packages) = (folder.join("lists"), folder.join("cache"), folder.join("packages"));
    for made in [lists.join("partial"), cache.join("archives/partial"), packages.clone()] {
        fs::create_dir_all(&made).map_err(|error| ChoreFailure::io(made.display(), &error))?;
    }
    let task = |program: &str, step: &str| {
        let output = project.log(&format!("{step}-{}", names[0]));
        ProgramRun::new(program, &packages, output, FETCH_DEADLINE)
    };
    let apt = |step: &str| {
        let places = [("Dir::State::Lists", &lists), ("Dir::Cache", &cache)];
        let places = places.map(|(option, place)| format!("--option={option}={}", place.display()));
        task("apt-get", step).arguments(places).arguments(["--quiet", "--option=APT::Sandbox::User=root"])
    };
    run::run(apt("apt-update").arguments(["update"]))?;
    run::run(apt("apt-download").arguments(["download"]).arguments(names))?;
    let entries = fs::read_dir(&packages).map_err(|error| ChoreFailure::io(packages.display(), &error))?;
    for package in entries.flatten() {
        let unpack = task("dpkg-deb", "dpkg-unpack").arguments(["--extract"]);
        run::run(unpack.arguments([package.path(), root.to_owned()]))?;
    }
    Ok(())
}

/// Writes into a program where its libraries are: variables do not reach the processes that it starts of itself.
fn name_libraries(project: &Project, root: &Path, program: &Path) -> Result<(), ChoreFailure> {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = ["usr/lib", "lib"].map(|below| root.join(below).join(&triple).display().to_string());
    let patchelf = tools::PATCHELF.program(project)?;
    let task = ProgramRun::new(patchelf, root, project.log("patchelf"), VERSION_DEADLINE);
    let flags = ["--force-rpath".to_owned(), "--set-rpath".to_owned(), libraries.join(":")];
    run::run(task.arguments(flags).arguments([program]))
}
