//! `cargo xtask fuzz`: every target of `fuzz/` under libFuzzer, for minutes, with the stable compiler.
//!
//! # Theory of operation
//!
//! libFuzzer is guided by counters that LLVM puts on every edge; [`COVERAGE`] asks for them by the flags that cargo-fuzz
//! uses, without a sanitizer, which would want nightly. `--target` keeps the flags away from build scripts and macros.
//! What is found goes to a working copy of the corpus below `target/`; `--merge` brings the little that adds coverage back.
//!
//! # Invariants
//!
//! - Nothing below `fuzz/` is written but by `--merge`.
//! - An input that breaks an invariant is named, with the commands that show it and keep it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::run::{self, ProgramRun, RunningProgram};
use crate::{clock, report, tools};

/// A target, and the longest input that is tried.
struct FuzzRun {
    name: &'static str,
    longest: u32,
}

const TARGETS: [FuzzRun; 3] = [
    FuzzRun { name: "framing", longest: 4096 },
    FuzzRun { name: "envelope", longest: 4096 },
    FuzzRun { name: "guard", longest: 1500 },
];

/// What a target gets, unless it is said otherwise.
const SECONDS: u64 = 5 * 60;
/// A core for each, on the smallest machine there is.
const AT_ONCE: usize = 2;
/// Two minutes on two idle cores.
const BUILD_DEADLINE: Duration = Duration::from_mins(30);
/// For loading the corpus and writing the last of it, on a busy machine.
const SLACK: Duration = Duration::from_mins(5);
/// One input must not take longer: work is linear in its length.
const INPUT_SECONDS: u64 = 30;
/// What making an input smaller may take.
const SMALLER_SECONDS: u64 = 30;
const MERGE_DEADLINE: Duration = Duration::from_mins(15);

const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Fuzzes the targets that the options ask for.
pub(crate) fn fuzz(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let targets = chosen(&options.only)?;
    if options.list {
        targets.iter().for_each(|target| report::text(&format!("{}\n", target.name)));
        return Ok(());
    }
    let fuzzers = build(project)?;
    if options.merge {
        return targets.iter().try_for_each(|target| merge(project, &fuzzers, target));
    }
    // To libFuzzer no time at all means for ever.
    let length = Duration::from_secs(options.seconds.unwrap_or(SECONDS).max(1));
    let mut failed = Vec::new();
    for pair in targets.chunks(AT_ONCE) {
        let running: Vec<_> = pair
            .iter()
            .map(|target| start(project, &fuzzers, target, length).map(|running| (*target, running)))
            .collect();
        let began = clock::now();
        for running in running {
            let (target, running) = running?;
            if let Err(failure) = finish(project, &fuzzers, target, running, began) {
                report::failure(&failure);
                failed.push(target.name);
            }
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(ChoreFailure::new(format!("failed: {}", failed.join(", ")))),
    }
}

fn chosen(only: &[String]) -> Result<Vec<&'static FuzzRun>, ChoreFailure> {
    if let Some(unknown) = only.iter().find(|name| TARGETS.iter().all(|target| target.name != **name)) {
        let names = TARGETS.map(|target| target.name).join(", ");
        return Err(ChoreFailure::usage(format!("no target {unknown}; there are {names}")));
    }
    let filter = |target: &&FuzzRun| only.is_empty() || only.iter().any(|name| name == target.name);
    Ok(TARGETS.iter().filter(filter).collect())
}

/// Builds the fuzzers and returns the folder that they are in.
fn build(project: &Project) -> Result<PathBuf, ChoreFailure> {
    tools::CPP.require(project)?;
    let host = project.log("fuzz-host");
    let ask =
        ProgramRun::new("rustc", project.root(), host.clone(), SLACK).arguments(["--print", "host-tuple"]);
    run::run(ask)?;
    let host = fs::read_to_string(&host).map_err(|error| ChoreFailure::io(host.display(), &error))?;
    let folder = project.below_target("fuzz/build");
    let task = project
        .cargo("fuzz-build", BUILD_DEADLINE)
        .arguments(["build", "--locked", "--offline", "--package", "unhang-fuzz", "--features", "libfuzzer"])
        .arguments(["--profile", "fuzz", "--target", host.trim()])
        .variable("CARGO_TARGET_DIR", &folder)
        .variable("RUSTFLAGS", COVERAGE);
    let start = clock::now();
    let outcome = run::run(task);
    report::ended("build", outcome.is_ok(), start.elapsed());
    outcome.map(|()| folder.join(host.trim()).join("fuzz"))
}

/// A call of a target's fuzzer. Relative paths are the project's. Inputs are long from the beginning: a short one is
/// neither a line over a limit nor a life in which much can happen.
fn fuzzer(project: &Project, fuzzers: &Path, target: &FuzzRun, log: &str, deadline: Duration) -> ProgramRun {
    let program = fuzzers.join(format!("fuzz-{}", target.name));
    ProgramRun::new(program, project.root(), project.log(log), deadline)
        .arguments([format!("-max_len={}", target.longest), format!("-timeout={INPUT_SECONDS}")])
        .arguments(["-len_control=0", "-dict=fuzz/json.dict"])
}

/// Where a target's working corpus and its finds are.
fn working(project: &Project, kind: &str, target: &FuzzRun) -> Result<PathBuf, ChoreFailure> {
    let folder = project.below_target(format!("fuzz/{kind}/{}", target.name));
    fs::create_dir_all(&folder)
        .map_err(|error| ChoreFailure::io(format!("cannot create {}", folder.display()), &error))?;
    Ok(folder)
}

fn start(
    project: &Project,
    fuzzers: &Path,
    target: &FuzzRun,
    length: Duration,
) -> Result<RunningProgram, ChoreFailure> {
    let finds = working(project, "finds", target)?;
    let task = fuzzer(project, fuzzers, target, &log_name(target), length + SLACK)
        .arguments([format!("-max_total_time={}", length.as_secs()), "-print_final_stats=1".to_owned()])
        .arguments([format!("-artifact_prefix={}/", finds.display())])
        .arguments([working(project, "corpus", target)?])
        .arguments(["corpus", "regressions"].map(|kind| format!("fuzz/{kind}/{}", target.name)));
    run::start(task)
}

fn log_name(target: &FuzzRun) -> String {
    format!("fuzz-{}", target.name)
}

fn finish(
    project: &Project,
    fuzzers: &Path,
    target: &FuzzRun,
    running: RunningProgram,
    began: Instant,
) -> Result<(), ChoreFailure> {
    let outcome = running.finish();
    let log = project.log(&log_name(target));
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    report::ended(target.name, outcome.is_ok(), began.elapsed());
    report::text(&format!("  {}\n", Statistics::read(&text)));
    let Err(failure) = outcome else { return Ok(()) };
    let Some(find) = text.lines().find_map(|line| line.split_once("Test unit written to ")) else {
        return Err(failure);
    };
    let panic = text.split("panicked at ").nth(1).and_then(|rest| rest.split("\nstack backtrace").next());
    let find = PathBuf::from(find.1);
    let small = make_smaller(project, fuzzers, target, &find)?;
    let kept = format!("fuzz/regressions/{}/NAME", target.name);
    Err(ChoreFailure::new(format!(
        "{} breaks an invariant: {}\n  the input:  {}\n  its log:    {}\n  \
         see it:     cp {} {kept} && cargo test -p unhang-fuzz\n  \
         keep it:    give it a NAME that says what went wrong, mend that, and commit both",
        target.name,
        panic.unwrap_or("it took too long or too much memory"),
        find.display(),
        log.display(),
        small.display(),
    )))
}

/// A smaller input that fails too, where one is found soon.
fn make_smaller(
    project: &Project,
    fuzzers: &Path,
    target: &FuzzRun,
    find: &Path,
) -> Result<PathBuf, ChoreFailure> {
    let small = working(project, "finds", target)?.join("smaller");
    let begin_anew = || {
        fs::copy(find, &small)
            .map_err(|error| ChoreFailure::io(format!("cannot copy {}", find.display()), &error))
    };
    begin_anew()?;
    let task = fuzzer(project, fuzzers, target, "fuzz-smaller", SLACK)
        .arguments(["-minimize_crash=1".to_owned(), format!("-max_total_time={SMALLER_SECONDS}")])
        .arguments([format!("-exact_artifact_path={}", small.display()), find.display().to_string()]);
    // It ends with a failure when it cannot make it any smaller; the copy is as good as the find then.
    let _as_small_as_it_gets = run::run(task);
    // Cut short while it wrote, it leaves what does not fail any more.
    let again = fuzzer(project, fuzzers, target, "fuzz-smaller-again", SLACK).arguments([&small]);
    if run::run(again).is_ok() {
        begin_anew()?;
    }
    Ok(small)
}

/// Replaces the corpus by the least of it, and of what was found since, that covers as much.
fn merge(project: &Project, fuzzers: &Path, target: &FuzzRun) -> Result<(), ChoreFailure> {
    let fresh = working(project, "fresh", target)?;
    let corpus = project.root().join("fuzz/corpus").join(target.name);
    let failed =
        |error: &std::io::Error| ChoreFailure::io(format!("cannot renew {}", corpus.display()), error);
    fs::remove_dir_all(&fresh).and_then(|()| fs::create_dir(&fresh)).map_err(|error| failed(&error))?;
    // Which edges are covered counts here, not how often: the rest is for the working copy.
    let task = fuzzer(project, fuzzers, target, "fuzz-merge", MERGE_DEADLINE)
        .arguments(["-merge=1", "-set_cover_merge=1", "-use_counters=0"])
        .arguments([&fresh, &corpus, &working(project, "corpus", target)?]);
    run::run(task)?;
    replace_files(&corpus, &fresh).map_err(|error| failed(&error))
}

fn replace_files(corpus: &Path, fresh: &Path) -> std::io::Result<()> {
    for old in fs::read_dir(corpus)? {
        fs::remove_file(old?.path())?;
    }
    for new in fs::read_dir(fresh)? {
        let new = new?;
        fs::copy(new.path(), corpus.join(new.file_name()))?;
    }
    Ok(())
}

/// What libFuzzer says about a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Statistics {
    executions: String,
    coverage: String,
    features: String,
    corpus: String,
}

impl Statistics {
    fn read(log: &str) -> Self {
        let last = |before: &str| {
            let line = log.lines().rev().find_map(|line| line.split_once(before));
            line.and_then(|(_, after)| after.split_whitespace().next()).unwrap_or("?").to_owned()
        };
        Self {
            executions: last("stat::number_of_executed_units:"),
            coverage: last(" cov: "),
            features: last(" ft: "),
            corpus: last(" corp: "),
        }
    }
}

impl std::fmt::Display for Statistics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { executions, coverage, features, corpus } = self;
        write!(
            formatter,
            "{executions} executions, coverage {coverage}, features {features}, corpus {corpus}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_at_the_end() {
        let log = "#2\tINITED cov: 8 ft: 9 corp: 1/1b exec/s: 0 rss: 27Mb\n\
                   #36\tNEW    cov: 10 ft: 12 corp: 2/5b lim: 4 exec/s: 0 rss: 27Mb L: 4/4 MS: 4 CopyPart-\n\
                   Done 36 runs in 1 second(s)\nstat::number_of_executed_units: 36\n";
        let text = Statistics::read(log).to_string();
        assert_eq!(text, "36 executions, coverage 10, features 12, corpus 2/5b");
        assert_eq!(Statistics::read("").coverage, "?");
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_names_there_are() {
        let failure = chosen(&["gaurd".to_owned()]).err().expect("there is no such target");
        assert!(failure.is_usage() && failure.to_string().contains("guard"), "{failure}");
        assert_eq!(chosen(&["guard".to_owned()]).expect("there is one").len(), 1);
    }

    #[test]
    fn every_target_has_a_corpus_and_regressions() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        for kind in ["corpus", "regressions"] {
            let folders = fs::read_dir(root.join(kind)).expect("there is such a folder");
            let mut folders: Vec<_> =
                folders.map(|folder| folder.expect("it can be listed").file_name()).collect();
            folders.sort();
            let mut names = TARGETS.map(|target| target.name);
            names.sort_unstable();
            assert_eq!(folders, names, "{kind}");
        }
    }
}
