//! The archive of each target: the program, its manual pages, completions, licences and README, in one folder.

use std::path::{Path, PathBuf};

use crate::failure::ChoreFailure;
use crate::files;
use crate::{run, tools};

use super::release::{BuiltProgram, Release};

/// What every package says of the project.
pub(super) const PAPERS: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Each shell with the file that its completions go to.
pub(super) const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "unhang.bash"),
    ("elvish", "unhang.elv"),
    ("fish", "unhang.fish"),
    ("powershell", "_unhang.ps1"),
    ("zsh", "_unhang"),
];

/// The archive's name without its ending, which is also its only folder.
pub(super) fn name(release: &Release, program: &BuiltProgram) -> String {
    format!("unhang-{}-{}", release.version(), program.target.triple)
}

/// Where the archive of a program lies.
pub(super) fn path(release: &Release, program: &BuiltProgram) -> PathBuf {
    release.folder().join(format!("{}.tar.gz", name(release, program)))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    for tool in [tools::TAR, tools::GZIP] {
        tool.require(release.project())?;
    }
    let stage = release.stage("archive")?;
    for program in release.programs() {
        let name = name(release, program);
        let folder = stage.join(&name);
        files::copy_program(&program.path, &folder.join("unhang"))?;
        for paper in PAPERS {
            files::copy(&release.source(paper), &folder.join(paper))?;
        }
        write_manual(release, &folder.join("man"))?;
        for (shell, file) in COMPLETIONS {
            write_completions(release, shell, &folder.join("completions").join(file))?;
        }
        compress(release, program, &stage)?;
    }
    Ok(())
}

/// Has the program write its manual pages into a folder.
pub(super) fn write_manual(release: &Release, folder: &Path) -> Result<(), ChoreFailure> {
    let task = release.task("man", &release.own().path, release.project().root());
    run::run(task.arguments(["man".as_ref(), folder.as_os_str()]))
}

/// Has the program write its completions for a shell into a file.
pub(super) fn write_completions(release: &Release, shell: &str, to: &Path) -> Result<(), ChoreFailure> {
    let name = format!("completions-{shell}");
    let task = release.task(&name, &release.own().path, release.project().root());
    let text = run::run_for_text(task.arguments(["completions", shell]))?;
    files::write(to, &text)
}

fn compress(release: &Release, program: &BuiltProgram, stage: &Path) -> Result<(), ChoreFailure> {
    let task = release.task("archive", "tar", stage).arguments([
        "--create",
        "--format=ustar",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u+rwX,go=rX",
        "--use-compress-program=gzip -9 --no-name",
    ]);
    run::run(task.arguments([
        format!("--mtime=@{}", release.time()).as_ref(),
        "--file".as_ref(),
        path(release, program).as_os_str(),
        name(release, program).as_ref(),
    ]))
}
