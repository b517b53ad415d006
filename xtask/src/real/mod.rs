//! `cargo xtask real`: real clients use real servers through `unhang wrap`, and see what they would see without it.
//!
//! # Theory of operation
//!
//! Each case starts a client on `tee, guard, tee, server`. The tees log the bytes of both directions on both sides of
//! the guard, and the logs must be equal, line by line. So one session is compared with itself, not with a second one
//! that may differ for its own reasons. The client walks through the server's scenario (`real/scenarios/`) and writes
//! down what it got; that must be what the scenario expects, so that a case cannot pass by doing nothing. At the end no
//! process of the case may be left.
//!
//! Two cases let `unhang adopt` put a guard in front of all servers in the file of a client, and start what stands there then.
//! One case more lets `unhang doctor` examine five of the servers, and compares its report with what is known of them.
//! The official conformance suite examines our client, and the gateway in front of a server of the zoo. Its scenarios for tasks examine
//! a server of the zoo, and the gateway in front of several. It also examines servers that are written with the official SDKs, directly and
//! through the gateway, and a case compares both runs check by check.
//!
//! A gateway answers for its servers and is no pipe, so its cases compare what clients got: directly and through it, or with what the
//! scenarios expect ([`gateway`]).
//!
//! # Invariants
//!
//! - Servers and clients are pinned and live in `target/real/`; once they are there, nothing uses the network.
//! - Every case has a folder of its own that is also its home folder, so nothing is written elsewhere.

mod adopted;
mod bench;
mod conformance;
mod doctor;
mod gateway;
mod guard_killed;
mod inspector;
mod install;
mod observed;
mod scenario;
mod sdk_client;
mod server_script;
mod servers;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::report;
use crate::run;

use bench::CaseContext;
use sdk_client::{Language, SdkEra};
use servers::PublicServer;

/// One session, or one family of them, that is checked.
struct RealCase {
    /// Client, server and kind, separated by slashes.
    name: String,
    kind: RealCaseKind,
}

enum RealCaseKind {
    Sdk(Language, PublicServer, SdkEra),
    Inspector(inspector::ObservedRequest),
    InspectorEveryTool,
    GuardKilled,
    Conformance(conformance::Requirements),
    ConformanceTasks(conformance::tasks::Giver),
    ConformanceCompared(conformance::compared::ComparedServer),
    GatewayAsking(Language, gateway::asking::AskingServer),
    GatewayDirect(Language),
    GatewaySix(Language),
    GatewayInspector,
    GatewayServerKilled,
    Tasks(gateway::tasks::Between, gateway::tasks::Driver),
    Doctor,
    Adopted(Language),
}

/// Installs the pinned servers and clients.
pub(crate) fn install(project: &Project) -> Result<(), ChoreFailure> {
    install::install(project).map(drop)
}

/// Runs every case, on the program that the step `dist` of `ci` has built.
pub(crate) fn every(project: &Project) -> Result<(), ChoreFailure> {
    perform(project, &cases(), project.shipped())
}

/// Runs the cases that the options ask for, on the binary they name or else on a release build.
pub(crate) fn real(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let filter =
        |case: &RealCase| options.only.is_empty() || options.only.iter().any(|part| case.name.contains(part));
    let cases: Vec<_> = cases().into_iter().filter(filter).collect();
    if cases.is_empty() {
        return Err(ChoreFailure::usage(format!("no case has {} in its name", options.only.join(" or "))));
    }
    if options.list {
        let names: Vec<_> = cases.iter().map(|case| format!("{}\n", case.name)).collect();
        report::text(&names.concat());
        return Ok(());
    }
    let binary = match &options.binary {
        Some(path) => std::path::absolute(path).map_err(|error| ChoreFailure::io(path, &error))?,
        None => release_build(project)?,
    };
    perform(project, &cases, binary)
}

fn release_build(project: &Project) -> Result<PathBuf, ChoreFailure> {
    report::timed("release", || {
        let arguments = ["build", "--release", "--locked", "-p", "unhang-cli"];
        run::run(project.cargo("release", Duration::from_mins(20)).arguments(arguments))
    })?;
    Ok(project.below_target("release/unhang"))
}

fn cases() -> Vec<RealCase> {
    let mut cases = Vec::new();
    for language in [Language::Python, Language::Typescript] {
        for server in PublicServer::ALL {
            for era in [SdkEra::Legacy, SdkEra::Auto] {
                let name = format!("{}/{}/{}", language.name(), server.name(), era.name());
                cases.push(RealCase { name, kind: RealCaseKind::Sdk(language, server, era) });
            }
        }
    }
    for observed in inspector::OBSERVED_REQUESTS {
        cases.push(RealCase {
            name: format!("inspector/{}", observed.name),
            kind: RealCaseKind::Inspector(observed),
        });
    }
    cases.push(RealCase {
        name: "inspector/everything/npx".to_owned(),
        kind: RealCaseKind::InspectorEveryTool,
    });
    cases.push(RealCase { name: "guard-killed/everything/npx".to_owned(), kind: RealCaseKind::GuardKilled });
    for requirements in conformance::ALL {
        let name = format!("conformance/{}", requirements.name());
        cases.push(RealCase { name, kind: RealCaseKind::Conformance(requirements) });
    }
    cases.extend(conformance::tasks::ALL.map(RealCase::of_tasks));
    cases.extend(conformance::compared::ALL.map(RealCase::of_comparison));
    for language in [Language::Python, Language::TypescriptSdk, Language::Typescript] {
        let name = |what: &str| format!("gateway/{what}/{}", language.name());
        cases.push(RealCase { name: name("direct"), kind: RealCaseKind::GatewayDirect(language) });
        cases.push(RealCase { name: name("six"), kind: RealCaseKind::GatewaySix(language) });
    }
    cases.push(RealCase { name: "gateway/six/inspector".to_owned(), kind: RealCaseKind::GatewayInspector });
    cases
        .push(RealCase { name: "gateway/server-killed".to_owned(), kind: RealCaseKind::GatewayServerKilled });
    for language in [Language::Python, Language::Typescript, Language::TypescriptSdk] {
        for server in gateway::asking::AskingServer::ALL {
            let name = format!("gateway/asking/{}/{}", language.name(), server.name());
            cases.push(RealCase { name, kind: RealCaseKind::GatewayAsking(language, server) });
        }
    }
    for (between, driver) in gateway::tasks::all() {
        cases.push(RealCase { name: driver.name(between), kind: RealCaseKind::Tasks(between, driver) });
    }
    cases.push(RealCase { name: "doctor/five".to_owned(), kind: RealCaseKind::Doctor });
    for language in [Language::Python, Language::TypescriptSdk] {
        let name = format!("adopted/six/{}", language.name());
        cases.push(RealCase { name, kind: RealCaseKind::Adopted(language) });
    }
    cases
}

/// Runs all cases even when some fail: each failure names another difference. As many run at the same time as there are processors;
/// each has its own folder, ports and marker.
fn perform(project: &Project, cases: &[RealCase], binary: PathBuf) -> Result<(), ChoreFailure> {
    let installed = report::timed("  install", || install::install(project))?;
    let context = CaseContext::new(project, installed, binary)?;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failure) =
                report::timed_beside_others(&format!("  {}", case.name), || case.check(&context))
            {
                report::failure(&failure);
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(case.name.as_str());
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        return Ok(());
    }
    let again = format!("cargo xtask real --only {}", failed.join(","));
    Err(ChoreFailure::new(format!("{} of {} cases failed; again with: {again}", failed.len(), cases.len())))
}

impl RealCase {
    fn of_tasks(giver: conformance::tasks::Giver) -> Self {
        Self { name: format!("conformance/{}", giver.name()), kind: RealCaseKind::ConformanceTasks(giver) }
    }

    fn of_comparison(compared: conformance::compared::ComparedServer) -> Self {
        let name = format!("conformance/{}", compared.name());
        Self { name, kind: RealCaseKind::ConformanceCompared(compared) }
    }

    fn check(&self, bench: &CaseContext) -> Result<(), ChoreFailure> {
        let case_folder = bench.case_folder(&self.name)?;
        match &self.kind {
            RealCaseKind::Sdk(language, server, era) => {
                sdk_client::check(bench, &case_folder, *language, *server, *era)
            }
            RealCaseKind::Inspector(observed) => inspector::send_observed(bench, &case_folder, observed),
            RealCaseKind::InspectorEveryTool => inspector::every_tool(bench, &case_folder),
            RealCaseKind::GuardKilled => guard_killed::check(bench, &case_folder),
            RealCaseKind::Conformance(requirements) => conformance::check(bench, &case_folder, *requirements),
            RealCaseKind::ConformanceTasks(giver) => conformance::tasks::check(bench, &case_folder, *giver),
            RealCaseKind::ConformanceCompared(compared) => {
                conformance::compared::check(bench, &case_folder, *compared)
            }
            RealCaseKind::GatewayDirect(language) => gateway::direct::check(bench, &case_folder, *language),
            RealCaseKind::GatewayAsking(language, server) => {
                gateway::asking::check(bench, &case_folder, *language, *server)
            }
            RealCaseKind::GatewaySix(language) => gateway::six::sdk(bench, &case_folder, *language),
            RealCaseKind::GatewayInspector => gateway::six::inspector(bench, &case_folder),
            RealCaseKind::GatewayServerKilled => gateway::server_killed::check(bench, &case_folder),
            RealCaseKind::Tasks(between, driver) => {
                gateway::tasks::check(bench, &case_folder, *between, *driver)
            }
            RealCaseKind::Doctor => doctor::check(bench, &case_folder),
            RealCaseKind::Adopted(language) => adopted::check(bench, &case_folder, *language),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_three_clients_meets_server_everything_and_each_sdk_meets_every_server() {
        let names: Vec<_> = cases().into_iter().map(|case| case.name).collect();
        for client in ["python", "typescript", "inspector"] {
            assert!(
                names.iter().any(|name| name.starts_with(&format!("{client}/everything"))),
                "{client}: {names:?}"
            );
        }
        for server in PublicServer::ALL {
            assert!(names.contains(&format!("python/{}/legacy", server.name())), "{names:?}");
        }
    }

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<_> = cases().into_iter().map(|case| case.name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
