//! The step `alone`: each crate builds with the features that its own manifest asks for, and the program without its own features.
//!
//! A build of the whole workspace gives a dependency the features that any crate asks for, so a manifest may lack one unnoticed. A build of
//! one crate shows that, but it also builds the crates below. So it stands for a crate below whose own features and direct dependencies are
//! the same in both builds: the code of a crate sees no others. `cargo tree` tells that in a moment, and most builds fall away.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::{report, run};

/// The program, which also builds without its own features.
const PROGRAM: &str = "unhang-cli";

const DEADLINE: Duration = Duration::from_mins(10);

/// A build of one crate, and everything that it builds: names, versions and features.
#[derive(Debug, PartialEq, Eq)]
struct LoneBuild {
    /// What tells cargo which build this is.
    options: Vec<String>,
    /// The crate itself and its direct dependencies.
    nearest: BTreeSet<String>,
    all: BTreeSet<String>,
}

/// Builds every crate, or one above it that stands for it.
pub(crate) fn check(project: &Project) -> Result<(), ChoreFailure> {
    let mut builds = Vec::new();
    for name in project.crates() {
        builds.push(look_up(project, vec!["-p".to_owned(), name.clone()])?);
    }
    let program = ["-p", PROGRAM, "--no-default-features"];
    builds.push(look_up(project, program.map(ToOwned::to_owned).into())?);
    let count = builds.len();
    let needed = needed(builds);
    report::text(&format!("{} builds stand for {count}\n", needed.len()));
    for build in needed {
        let name = build.options.iter().skip(1).cloned().collect::<String>();
        let task = project.cargo(&format!("alone-{name}"), DEADLINE);
        run::run(task.arguments(["check", "--locked", "--offline"]).arguments(build.options))?;
    }
    Ok(())
}

fn look_up(project: &Project, options: Vec<String>) -> Result<LoneBuild, ChoreFailure> {
    let task = project.cargo("alone-tree", Duration::from_secs(60));
    let task = task.arguments(["tree", "--locked", "--offline", "--edges", "normal,build"]);
    let task = task.arguments(["--prefix", "depth", "--format", "{p} [{f}]"]).arguments(&options);
    let text = run::run_for_text(task.answer(project.log("alone-tree").with_extension("txt")))?;
    Ok(read(options, &text))
}

/// Reads what `cargo tree` says: a number, which is the distance from the crate, and a package.
fn read(options: Vec<String>, text: &str) -> LoneBuild {
    let mut build = LoneBuild { options, nearest: BTreeSet::new(), all: BTreeSet::new() };
    for line in text.lines() {
        let package = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let depth = line.strip_suffix(package).unwrap_or_default();
        // What was listed before has a mark.
        let package = package.trim_end_matches(" (*)");
        if ["0", "1"].contains(&depth) {
            build.nearest.insert(package.to_owned());
        }
        build.all.insert(package.to_owned());
    }
    build
}

/// Returns builds that stand for all others, the largest first.
fn needed(mut builds: Vec<LoneBuild>) -> Vec<LoneBuild> {
    builds.sort_by_key(|build| usize::MAX - build.all.len());
    let mut needed: Vec<LoneBuild> = Vec::new();
    for build in builds {
        if !needed.iter().any(|other| build.nearest.is_subset(&other.all)) {
            needed.push(build);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(name: &str, text: &str) -> LoneBuild {
        read(vec![name.to_owned()], text)
    }

    fn names(builds: Vec<LoneBuild>) -> Vec<String> {
        needed(builds).into_iter().map(|build| build.options.concat()).collect()
    }

    #[test]
    fn a_crate_is_built_alone_unless_a_larger_build_shows_it_the_same() {
        let below = || build("below", "0below v1 []\n1json v1 [std]\n2memchr v2 [std]\n");
        let above = |json: &str| {
            build(
                "above",
                &format!("0above v1 []\n1below v1 []\n2json v1 [{json}]\n3memchr v2 [alloc,std]\n"),
            )
        };
        assert_eq!(names(vec![below(), above("std")]), ["above"]);
        assert_eq!(names(vec![below(), above("raw,std")]), ["above", "below"], "it may need `raw`");
        let with_own = build("own", "0below v1 [more]\n1json v1 [std]\n");
        assert_eq!(names(vec![with_own, above("std")]), ["above", "own"]);
    }

    #[test]
    fn what_was_listed_before_is_the_same_package() {
        let read = build("a", "0a v1 []\n1b v1 [std]\n12c v1 []\n1c v1 [] (*)\n");
        let texts = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(texts(&read.nearest), ["a v1 []", "b v1 [std]", "c v1 []"]);
        assert_eq!(read.all.len(), 3);
    }
}
