//! `cargo xtask mutants`: changes the code in one place after the other and demands that a test fails.
//!
//! cargo-mutants makes the changes, in a copy of the workspace. The results lie below `target/mutants/`, one folder a run.
//!
//! # Invariants
//!
//! - All places of `wire` and `bridge` are looked at. The rest is a sample that its seed and the code determine.
//! - The page is written from results alone. A part without results, or with those of some shards, is named as such.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::{custody, report, tools};

/// The places of the code that one run looks at.
struct MutatedPart {
    name: &'static str,
    packages: &'static [&'static str],
    /// The files; all of the packages if empty.
    files: &'static [&'static str],
    /// About how many places are looked at; all if `None`.
    sample: Option<u64>,
    about: &'static str,
}

const PARTS: [MutatedPart; 3] = [
    MutatedPart {
        name: "wire",
        packages: &["unhang-wire"],
        files: &[],
        sample: None,
        about: "all of `wire`",
    },
    MutatedPart {
        name: "bridge",
        packages: &["unhang-bridge"],
        files: &[],
        sample: None,
        about: "all of `bridge`",
    },
    MutatedPart {
        name: "sample",
        packages: &["unhang-core", "unhang-jobs", "unhang-front", "unhang-guard"],
        files: PURE_FILES,
        sample: Some(600),
        about: "a sample of `core` and of the pure files of `jobs`, `front` and `guard`",
    },
];

/// Files without input and output. Their unit tests decide in milliseconds; the end-to-end tests of the rest take minutes.
const PURE_FILES: &[&str] = &[
    "crates/core/src/**/*.rs",
    "crates/jobs/src/{id,judge,judge_call,limits,progress,record,timestamp,verdict,wait}.rs",
    "crates/jobs/src/engine/{clock,memory,options,prune_schedule,retention,state}.rs",
    "crates/jobs/src/shim/outcome.rs",
    "crates/front/src/{answers,asking,call_terms,client_request,mcp_session,outcomes,owners,parked_calls}.rs",
    "crates/front/src/{promotion,questions,requests,session_calls,session_catalog,session_context}.rs",
    "crates/front/src/{session_profile,session_watches,subscriptions,tally,tasks,urls}.rs",
    "crates/front/src/http/{access,asked,hosts,message_budget,stateless_clients}.rs",
    "crates/guard/src/{added_capabilities,answers,call_report,calls,client_profile,counters}.rs",
    "crates/guard/src/{deferred_notifications,from_client,from_server,held_input,own_requests,progress}.rs",
    "crates/guard/src/{promotion,questions,relays,server_breaker,session_phase,stray_answers,supervision}.rs",
    "crates/guard/src/wrap_session.rs",
];

/// Where the page is, below the folder of the workspace.
const PAGE: &str = "docs/reference/mutants.md";
/// The seed of the published sample.
const SEED: u64 = 22;
/// A run of all parts takes some hours on two processors.
const RUN_DEADLINE: Duration = Duration::from_hours(24);
/// A copy of the build has about a gigabyte.
const MOST_JOBS: usize = 4;
const LIST_DEADLINE: Duration = Duration::from_mins(2);
/// What cargo-mutants ends with when a change was not noticed, or made a test run for ever.
const NOT_ALL_CAUGHT: [i32; 2] = [2, 3];

/// Runs what the options ask for.
pub(crate) fn mutants(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let parts = chosen(&options.only)?;
    if options.write {
        let path = project.root().join(PAGE);
        let results: Vec<_> = PARTS.iter().map(|part| PartResult::read(project, part)).collect();
        let written = page(&results, &fs::read_to_string(&path).unwrap_or_default());
        return fs::write(path, written).map_err(|error| ChoreFailure::io(PAGE, &error));
    }
    let program = tools::CARGO_MUTANTS.program(project)?;
    for part in parts {
        let seed = options.seed.unwrap_or(SEED);
        let places = part.count(project, &program)?;
        let shard = shard(part, places, seed, options)?;
        let taken = shard.as_deref().unwrap_or("all of them");
        report::text(&format!("{}: {} has {places} places; this run takes {taken}\n", part.name, part.about));
        if !options.list {
            report::timed(part.name, || part.run(project, &program, shard.as_deref(), options))?;
        }
    }
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static MutatedPart>, ChoreFailure> {
    if let Some(unknown) = only.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        return Err(ChoreFailure::usage(format!("no part {unknown}; there are {}", names.join(", "))));
    }
    let is_chosen = |part: &&MutatedPart| only.is_empty() || only.iter().any(|name| name == part.name);
    Ok(PARTS.iter().filter(is_chosen).collect())
}

/// Returns which of the places a run looks at, as cargo-mutants wants it: every Nth, from the Kth on.
fn shard(
    part: &MutatedPart,
    places: u64,
    seed: u64,
    options: &Options,
) -> Result<Option<String>, ChoreFailure> {
    let (index, count) = match &options.shard {
        Some(text) => text
            .split_once('/')
            .and_then(|(index, count)| Some((index.parse::<u64>().ok()?, count.parse::<u64>().ok()?)))
            .filter(|(index, count)| index < count)
            .ok_or_else(|| ChoreFailure::usage(format!("--shard needs K/N with K below N, not {text}")))?,
        None => (0, 1),
    };
    let stride = match part.sample {
        Some(sample) if options.in_diff.is_none() => places.div_ceil(sample).max(1),
        _ => 1,
    };
    // The Kth share of the sample: of each N sampled places one.
    let (first, of) = (seed % stride + index * stride, stride * count);
    Ok((of > 1).then(|| format!("{first}/{of}")))
}

impl MutatedPart {
    /// The arguments that say what to look at.
    fn selection(&self) -> impl Iterator<Item = String> {
        let packages = self.packages.iter().flat_map(|package| ["--package", package]);
        let files = self.files.iter().flat_map(|file| ["--file", file]);
        packages.chain(files).map(str::to_owned)
    }

    fn task(&self, project: &Project, program: &Path, name: &str, deadline: Duration) -> ProgramRun {
        let output = project.log(&format!("mutants-{name}-{}", self.name));
        ProgramRun::new(program, project.root(), output, deadline).arguments(["mutants", "--no-shuffle"])
    }

    /// Returns how many places there are.
    fn count(&self, project: &Project, program: &Path) -> Result<u64, ChoreFailure> {
        let task = self.task(project, program, "list", LIST_DEADLINE);
        let listed = run::run_for_json(task.arguments(["--list", "--json"]).arguments(self.selection()))?;
        Ok(listed.as_array().map_or(0, Vec::len) as u64)
    }

    fn folder(&self, project: &Project) -> PathBuf {
        project.below_target("mutants").join(self.name)
    }

    /// Changes one place after the other, and keeps the outcomes.
    fn run(
        &self,
        project: &Project,
        program: &Path,
        shard: Option<&str>,
        options: &Options,
    ) -> Result<(), ChoreFailure> {
        let run = if options.in_diff.is_some() { "diff" } else { shard.unwrap_or("all") };
        let output = self.folder(project).join(run.replace('/', "-of-"));
        fs::create_dir_all(&output).map_err(|error| ChoreFailure::io(output.display(), &error))?;
        let mut task = self
            .task(project, program, "run", RUN_DEADLINE)
            .arguments(["--output".as_ref(), output.as_os_str()])
            .arguments(["--jobs".to_owned(), jobs().to_string()])
            .arguments(self.selection());
        if let Some(shard) = shard {
            task = task.arguments(["--sharding", "round-robin", "--shard", shard]);
        }
        if let Some(diff) = &options.in_diff {
            task = task.arguments(["--in-diff", diff]);
        }
        // The end-to-end tests of a crate start processes and take minutes.
        let running = run::start(task.arguments(["--", "--lib"]))?;
        let status = running.status();
        running.end();
        // A changed program may leave behind what the original never does.
        custody::end_the_rest();
        let code = status?.code();
        if code.is_some_and(|code| code == 0 || NOT_ALL_CAUGHT.contains(&code)) {
            report::text(&Tally::of(&outcomes(&output)?).summary(self.name));
            return Ok(());
        }
        let failure = ChoreFailure::new(format!("cargo-mutants ended with {code:?} for {}", self.name));
        Err(failure.with_output(project.log(&format!("mutants-run-{}", self.name))))
    }
}

/// Returns how many changes are built and tested at once. Each needs its own copy of the build.
fn jobs() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MOST_JOBS)
}

/// Reads the outcomes of one run.
fn outcomes(run: &Path) -> Result<Value, ChoreFailure> {
    let path = run.join("mutants.out/outcomes.json");
    let text = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    serde_json::from_slice(&text)
        .map_err(|error| ChoreFailure::new(format!("{} is not JSON: {error}", path.display())))
}

/// How the changes of one or several runs came out.
#[derive(Debug, Default)]
struct Tally {
    caught: usize,
    /// Those among the caught that made a test run for ever.
    timeout: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Tally {
    fn of(outcomes: &Value) -> Self {
        let mut tally = Self::default();
        for outcome in outcomes["outcomes"].as_array().into_iter().flatten() {
            let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
            match outcome["summary"].as_str() {
                Some("CaughtMutant") => tally.caught += 1,
                Some("Timeout") => {
                    tally.caught += 1;
                    tally.timeout += 1;
                }
                Some("Unviable") => tally.unviable += 1,
                Some("MissedMutant") => tally.missed.push(name.to_owned()),
                _ => {}
            }
        }
        tally
    }

    fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.timeout += other.timeout;
        self.unviable += other.unviable;
        self.missed.extend(other.missed);
    }

    fn total(&self) -> usize {
        self.caught + self.missed.len() + self.unviable
    }

    /// Returns the caught ones in percent of those that compile, rounded down.
    fn percent(&self) -> String {
        let percent = (100 * self.caught).checked_div(self.caught + self.missed.len());
        percent.map_or("-".to_owned(), |percent| format!("{percent} %"))
    }

    fn summary(&self, name: &str) -> String {
        format!(
            "{name}: {} changes, {} caught ({} by time), {} missed, {} unviable: {} of the viable caught\n",
            self.total(),
            self.caught,
            self.timeout,
            self.missed.len(),
            self.unviable,
            self.percent()
        )
    }
}

/// What is known about a part: the results of all its runs but those of a diff.
struct PartResult {
    part: &'static MutatedPart,
    tally: Tally,
    /// The runs, as `all` or `K-of-N`.
    runs: Vec<String>,
}

impl PartResult {
    fn read(project: &Project, part: &'static MutatedPart) -> Self {
        let (mut tally, mut runs) = (Tally::default(), Vec::new());
        for entry in fs::read_dir(part.folder(project)).into_iter().flatten().flatten() {
            let run = entry.file_name().to_string_lossy().into_owned();
            if run != "diff"
                && let Ok(outcomes) = outcomes(&entry.path())
            {
                tally.add(Tally::of(&outcomes));
                runs.push(run);
            }
        }
        runs.sort();
        tally.missed.sort();
        Self { part, tally, runs }
    }
}

const HEAD: &str = "\
# Mutants: what the tests notice

`cargo xtask mutants` changes the code in one place at a time: it replaces a condition, an operator or the body of a function. Then it
runs the unit tests of the crate. A change that no test notices is missed. A change that does not compile is unviable, and does not count.

<!-- not run: takes an hour -->
```sh
cargo xtask mutants --only wire
git diff main > change.diff && cargo xtask mutants --in-diff change.diff
```

`cargo xtask mutants --write` writes this page from the results below `target/mutants/`. The reasons for missed changes are in
[Reasons](#reasons), which `--write` keeps.

";

/// Where the part of the page begins that people write.
const REASONS: &str = "\n## Reasons\n";

/// Returns the page, with the reasons of the page before.
fn page(results: &[PartResult], before: &str) -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| part | runs | mutants | caught | of these by time | missed | unviable | caught of the viable |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for PartResult { part, tally, runs } in results {
        let runs = if runs.is_empty() { "none yet".to_owned() } else { runs.join(", ") };
        let _infallible = writeln!(
            page,
            "| {} | {runs} | {} | {} | {} | {} | {} | {} |",
            part.about,
            tally.total(),
            tally.caught,
            tally.timeout,
            tally.missed.len(),
            tally.unviable,
            tally.percent()
        );
    }
    let _infallible = write!(
        page,
        "\nThe sample has the seed {SEED}: with N as the number of all places divided by {}, it takes each Nth place, from place \
         {SEED} modulo N on. A run `K-of-N` is such a share.\n",
        PARTS[2].sample.unwrap_or_default()
    );
    for PartResult { part, tally, .. } in results {
        if !tally.missed.is_empty() {
            let _infallible = write!(page, "\n## Missed in {}\n\n", part.name);
            tally.missed.iter().for_each(|name| {
                let _infallible = writeln!(page, "- `{name}`");
            });
        }
    }
    page.push_str(REASONS);
    page.push_str(before.split_once(REASONS).map_or("", |(_, reasons)| reasons));
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sample_takes_every_nth_place_and_shards_share_it() {
        let (wire, sample) = (&PARTS[0], &PARTS[2]);
        let shard_of = |part, places, seed, share: Option<&str>| {
            let options = Options { shard: share.map(str::to_owned), ..Options::default() };
            shard(part, places, seed, &options).map_err(|failure| failure.to_string())
        };
        assert_eq!(shard_of(wire, 300, 22, None), Ok(None));
        assert_eq!(shard_of(wire, 300, 22, Some("1/4")), Ok(Some("1/4".to_owned())));
        assert_eq!(shard_of(sample, 6_000, 22, None), Ok(Some("2/10".to_owned())));
        assert_eq!(shard_of(sample, 6_000, 22, Some("1/3")), Ok(Some("12/30".to_owned())));
        assert!(shard_of(sample, 6_000, 22, Some("3/3")).is_err());
    }

    #[test]
    fn outcomes_are_counted_and_the_missed_are_named() {
        let mutant =
            |name: &str, summary: &str| json!({"scenario": {"Mutant": {"name": name}}, "summary": summary});
        let outcomes = json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            mutant("a", "CaughtMutant"), mutant("b", "Timeout"), mutant("c", "Unviable"), mutant("d", "MissedMutant"),
        ]});
        let tally = Tally::of(&outcomes);
        assert_eq!((tally.total(), tally.caught, tally.timeout, tally.unviable), (4, 2, 1, 1));
        assert_eq!((tally.percent(), &tally.missed), ("66 %".to_owned(), &vec!["d".to_owned()]));
        let results = [PartResult { part: &PARTS[0], tally, runs: vec!["all".to_owned()] }];
        let first = page(&results, "");
        assert!(
            first.contains("| all of `wire` | all | 4 | 2 | 1 | 1 | 1 | 66 % |") && first.contains("- `d`")
        );
        let again = page(&results, &format!("{first}\nWhy d is missed.\n"));
        assert!(again.ends_with("## Reasons\n\nWhy d is missed.\n"), "{again}");
    }
}
