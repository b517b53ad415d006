//! The archive: it unpacks into one folder with everything in it, and the program in it runs.

use crate::dist::archive::{self, COMPLETIONS, PAPERS};
use crate::dist::release::Release;
use crate::failure::ChoreFailure;
use crate::run;

use super::{has, says_version};

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    let folder = release.stage("archive-used")?;
    let task = release.task("archive-used", "tar", &folder).arguments(["--extract", "--gzip", "--file"]);
    run::run(task.arguments([archive::path(release, release.own())]))?;
    let inside = folder.join(archive::name(release, release.own()));
    for paper in PAPERS {
        has(&inside.join(paper))?;
    }
    for (_, file) in COMPLETIONS {
        has(&inside.join("completions").join(file))?;
    }
    has(&inside.join("man/unhang.1"))?;
    says_version(release, "archive-version", &inside.join("unhang"))
}
