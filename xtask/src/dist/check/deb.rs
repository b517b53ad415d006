//! The package for Debian: dpkg installs it below a folder, with a database of its own there. The program runs, and nothing is left
//! after the removal.

use std::fs;
use std::path::Path;

use crate::dist::deb;
use crate::dist::release::Release;
use crate::failure::ChoreFailure;
use crate::files;
use crate::{run, tools};

use super::{has, says_version};

/// dpkg's database, below the folder in which it installs.
const DATABASE: &str = "var/lib/dpkg";

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    tools::DPKG.require(release.project())?;
    let package = deb::path(release, release.own())
        .ok_or_else(|| ChoreFailure::new("there is no package for this system"))?;
    owners_are_root(release, &package)?;
    let root = release.stage("deb-used")?;
    for folder in ["info", "updates"] {
        let path = root.join(DATABASE).join(folder);
        fs::create_dir_all(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    }
    files::write(&root.join(DATABASE).join("status"), "")?;
    dpkg(release, "deb-install", &root, &["--install".as_ref(), &package])?;
    says_version(release, "deb-version", &root.join(deb::PROGRAM))?;
    for (_, file) in deb::COMPLETIONS {
        has(&root.join(file))?;
    }
    has(&root.join(deb::MANUAL).join("unhang.1.gz"))?;
    has(&root.join(deb::COPYRIGHT))?;
    let service = files::read(&root.join(deb::SERVICE))?;
    if !service.lines().any(|line| line.starts_with(deb::FROM_PACKAGE)) {
        return Err(ChoreFailure::new("the service does not start the program of the package"));
    }
    dpkg(release, "deb-verify", &root, &["--verify".as_ref(), "unhang".as_ref()])?;
    dpkg(release, "deb-remove", &root, &["--purge".as_ref(), "unhang".as_ref()])?;
    let left = files::list(&root)?;
    if left == [root.join("var")] {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("after the removal there are {left:?}")))
}

/// Installs or removes below a folder. Its database has no other package, so dependencies are not looked at.
fn dpkg(release: &Release, name: &str, root: &Path, arguments: &[&Path]) -> Result<(), ChoreFailure> {
    let flags = ["--force-not-root", "--force-depends", "--force-bad-path"];
    let task = release.task(name, "dpkg", root).arguments(flags);
    let log = root.join("var/dpkg.log");
    let task = task.arguments([format!("--root={}", root.display()), format!("--log={}", log.display())]);
    run::run(task.arguments(arguments))
}

fn owners_are_root(release: &Release, package: &Path) -> Result<(), ChoreFailure> {
    let task = release.task("deb-contents", "dpkg-deb", release.folder());
    let contents = run::run_for_text(task.arguments(["--contents".as_ref(), package.as_os_str()]))?;
    let is_right = |line: &&str| line.contains(" root/root ") || line.contains(" 0/0 ");
    match contents.lines().find(|line| !is_right(line)) {
        Some(line) => Err(ChoreFailure::new(format!("a file of the package is not root's: {line}"))),
        None if contents.contains("./usr/bin/unhang\n") => Ok(()),
        None => Err(ChoreFailure::new("the package has no program")),
    }
}
