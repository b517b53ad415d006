//! The package for Debian, Ubuntu and their descendants: the program, manual pages, completions and the units for systemd.
//!
//! cargo-deb packs what cargo has built, and takes minutes to build itself. The program is given here, so `dpkg-deb` packs a folder that
//! is laid out by Debian's rules. No script runs when the package is installed or removed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::ChoreFailure;
use crate::files;
use crate::{run, tools};

use super::archive::{write_completions, write_manual};
use super::glibc;
use super::release::{BuiltProgram, Release};

/// Where the program lies, once it is installed.
pub(super) const PROGRAM: &str = "usr/bin/unhang";
/// Where the service lies.
pub(super) const SERVICE: &str = "usr/lib/systemd/user/unhang.service";
const SOCKET: &str = "usr/lib/systemd/user/unhang.socket";
/// How the service of the checkout and that of the package start the program.
const FROM_HOME: &str = "ExecStart=%h/.cargo/bin/unhang ";
pub(super) const FROM_PACKAGE: &str = "ExecStart=/usr/bin/unhang ";

/// Each shell with the place of its completions.
pub(super) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/unhang"),
    ("fish", "usr/share/fish/vendor_completions.d/unhang.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_unhang"),
];
pub(super) const MANUAL: &str = "usr/share/man/man1";
pub(super) const COPYRIGHT: &str = "usr/share/doc/unhang/copyright";

/// Where the package of a program lies, if Debian has its system.
pub(super) fn path(release: &Release, program: &BuiltProgram) -> Option<PathBuf> {
    let architecture = program.target.debian?;
    Some(release.folder().join(format!("unhang_{}_{architecture}.deb", release.version())))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    for tool in [tools::DPKG_DEB, tools::GZIP] {
        tool.require(release.project())?;
    }
    let stage = release.stage("deb")?;
    for program in release.programs() {
        if let (Some(architecture), Some(path)) = (program.target.debian, path(release, program)) {
            let root = stage.join(architecture);
            lay_out(release, program, &root)?;
            describe(release, program, architecture, &root)?;
            let arguments = ["--build", "--root-owner-group", "-Zxz", "--threads-max=1"];
            let task = release.task("deb", "dpkg-deb", &stage).arguments(arguments);
            run::run(task.arguments([root, path]))?;
        }
    }
    Ok(())
}

fn lay_out(release: &Release, program: &BuiltProgram, root: &Path) -> Result<(), ChoreFailure> {
    files::copy_program(&program.path, &root.join(PROGRAM))?;
    for (shell, file) in COMPLETIONS {
        write_completions(release, shell, &root.join(file))?;
    }
    let manual = root.join(MANUAL);
    write_manual(release, &manual)?;
    // Debian wants pages compressed.
    let task = release.task("deb-manual", "gzip", &manual).arguments(["-9", "--no-name"]);
    run::run(task.arguments(files::list(&manual)?))?;
    let licences =
        [files::read(&release.source("LICENSE-APACHE"))?, files::read(&release.source("LICENSE-MIT"))?];
    let copyright = format!("Licence: MIT or Apache-2.0, at your option.\n\n{}", licences.join("\n\n"));
    files::write(&root.join(COPYRIGHT), &copyright)?;
    files::copy(&release.source("packaging/systemd/unhang.socket"), &root.join(SOCKET))?;
    let service = release.source("packaging/systemd/unhang.service");
    let text = files::read(&service)?;
    if text.matches(FROM_HOME).count() != 1 {
        return Err(ChoreFailure::new(format!("{} does not start the program once", service.display())));
    }
    files::write(&root.join(SERVICE), &text.replace(FROM_HOME, FROM_PACKAGE))
}

/// Writes what dpkg knows of the package.
fn describe(
    release: &Release,
    program: &BuiltProgram,
    architecture: &str,
    root: &Path,
) -> Result<(), ChoreFailure> {
    let paths = files::below(root)?;
    let mut bytes = 0;
    for path in &paths {
        bytes += fs::metadata(path).map_err(|error| ChoreFailure::io(path.display(), &error))?.len();
    }
    let relative = paths.iter().map(|path| path.strip_prefix(root).unwrap_or(path));
    let sums = run::run_for_text(release.task("deb-sums", "md5sum", root).arguments(relative))?;
    files::write(&root.join("DEBIAN/md5sums"), &sums)?;
    let (major, minor) = glibc::needed(release, program)?;
    let control = format!(
        "Package: unhang\nVersion: {}\nArchitecture: {architecture}\nMaintainer: The authors of unhang <unhang@localhost>\n\
         Installed-Size: {}\nDepends: libc6 (>= {major}.{minor}){}\nSection: net\nPriority: optional\n\
         Description: guard between MCP clients and MCP servers\n unhang runs between a client and its servers, so that no server can \
         make\n its client hang, and nothing of a server is left when it has ended.\n",
        release.version(),
        bytes.div_ceil(1024),
        glibc::other_packages(release, program)?,
    );
    files::write(&root.join("DEBIAN/control"), &control)?;
    files::below(root).map(drop)
}
