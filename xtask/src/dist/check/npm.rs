//! The packages for npm: installed from the files in an empty folder, the program stands in the place of the script. Where scripts of
//! packages do not run, the script passes signals and the exit code on.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dist::npm::{self, npm};
use crate::dist::release::Release;
use crate::failure::ChoreFailure;
use crate::files;
use crate::leftovers::Marker;
use crate::run::ProgramRun;
use crate::{clock, run, sdk, tools};

use super::demand_version;

/// What programs for Linux begin with.
const ELF: [u8; 4] = *b"\x7fELF";
/// What a shell calls an end by SIGTERM, and unhang's own exit code after it.
const TERMINATED: i32 = 143;
/// Node.js and the guard start within a second, and later on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(1);
/// The lifeline of the guard ends after it.
const SETTLED: Duration = Duration::from_secs(5);
/// The server behind the guard of the check. It waits for longer than the check may take.
const SERVER: [&str; 2] = ["sleep", "86399"];

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    tools::NODE.require(release.project())?;
    with_scripts(release)?;
    for_servers(release)?;
    without_scripts(release)?;
    without_program(release)
}

/// The usual installation.
fn with_scripts(release: &Release) -> Result<(), ChoreFailure> {
    let folder = install(release, "npm-used", &[])?;
    if !is_native(&command(&folder))? {
        return Err(ChoreFailure::new(format!(
            "{} is a script, and not the program",
            command(&folder).display()
        )));
    }
    npx_says_version(release, "npx-version", &folder)?;
    run::run(release.task("npx-demo", "npx", &folder).arguments(["--offline", "unhang", "demo"]))
}

/// The package for servers finds the program beside it, without the script. The schemas come from zod, which npm brings with an SDK.
fn for_servers(release: &Release) -> Result<(), ChoreFailure> {
    let folder = release.stage("npm-for-servers")?;
    let platform = npm::platform_path(release, release.own())
        .ok_or_else(|| ChoreFailure::new("there is no package for this system"))?;
    let packages = [npm::main_path(release), platform, npm::jobs_path(release)];
    install_packages(release, &folder, &packages, &["--legacy-peer-deps"])?;
    let zod = sdk::typescript_module(release.project(), "zod");
    let link = folder.join("node_modules/zod");
    symlink(zod, &link).map_err(|error| ChoreFailure::io(link.display(), &error))?;
    let script =
        "import { binary, version } from '@unhang/jobs'; process.stdout.write(`${version} ${binary()}`)";
    let task = release.task("npm-jobs", "node", &folder).arguments(["--input-type=module", "-e", script]);
    let answer = run::run_for_text(task)?;
    let beginning = format!("{} {}", release.version(), folder.join("node_modules/@unhang").display());
    if answer.starts_with(&beginning) && answer.ends_with("/bin/unhang") {
        return Ok(());
    }
    Err(ChoreFailure::new(format!(
        "the package @unhang/jobs says {answer:?}, which does not begin with {beginning:?}"
    )))
}

fn without_scripts(release: &Release) -> Result<(), ChoreFailure> {
    let folder = install(release, "npm-without-scripts", &["--ignore-scripts"])?;
    if is_native(&command(&folder))? {
        return Err(ChoreFailure::new("a script of a package ran in spite of --ignore-scripts"));
    }
    npx_says_version(release, "npx-script-version", &folder)?;
    exit_code_is_passed_on(release, &folder)?;
    signal_is_passed_on(release, &folder)
}

/// Without the package of this system, nothing is there to start, and the script says so.
fn without_program(release: &Release) -> Result<(), ChoreFailure> {
    let folder = release.stage("npm-without-program")?;
    install_packages(release, &folder, &[npm::main_path(release)], &["--omit=optional"])?;
    let task = release.task("npm-without-program-run", command(&folder), &folder).arguments(["--version"]);
    let story = release.project().log("packages-npm-without-program-run");
    let running = run::start(task)?;
    let status = running.status();
    running.end();
    let told = files::read(&story)?;
    if status?.code() == Some(1) && told.contains("is not installed") && told.lines().count() == 1 {
        return Ok(());
    }
    Err(ChoreFailure::new("without the program, the script does not say what is missing").with_output(story))
}

fn install(release: &Release, name: &str, flags: &[&str]) -> Result<PathBuf, ChoreFailure> {
    let folder = release.stage(name)?;
    let platform = npm::platform_path(release, release.own())
        .ok_or_else(|| ChoreFailure::new("there is no package for this system"))?;
    install_packages(release, &folder, &[npm::main_path(release), platform], flags)?;
    Ok(folder)
}

fn install_packages(
    release: &Release,
    folder: &Path,
    packages: &[PathBuf],
    flags: &[&str],
) -> Result<(), ChoreFailure> {
    // Otherwise npm would look for a project in the folders above.
    files::write(&folder.join("package.json"), "{ \"private\": true }\n")?;
    let task = npm(release, "npm-install", folder).arguments(["install", "--no-fund", "--loglevel=error"]);
    run::run(task.arguments(flags).arguments(packages))
}

/// What npm has put into the folder of commands.
fn command(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/unhang")
}

fn is_native(path: &Path) -> Result<bool, ChoreFailure> {
    let mut beginning = [0; ELF.len()];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut beginning))
        .map_err(|error| ChoreFailure::io(path.display(), &error))?;
    Ok(beginning == ELF)
}

fn npx_says_version(release: &Release, name: &str, folder: &Path) -> Result<(), ChoreFailure> {
    let task = release.task(name, "npx", folder).arguments(["--offline", "unhang", "--version"]);
    demand_version(release, &run::run_for_text(task)?)
}

/// Wrong usage is code 2.
fn exit_code_is_passed_on(release: &Release, folder: &Path) -> Result<(), ChoreFailure> {
    let task = release.task("npm-exit-code", command(folder), folder).arguments(["no-such-command"]);
    let running = run::start(task)?;
    let status = running.status();
    running.end();
    match status?.code() {
        Some(2) => Ok(()),
        code => {
            Err(ChoreFailure::new(format!("the script ends with {code:?} where the program does with 2")))
        }
    }
}

/// The guard ends its server and itself when the script gets SIGTERM.
fn signal_is_passed_on(release: &Release, folder: &Path) -> Result<(), ChoreFailure> {
    let marker = Marker::unique();
    let log = release.project().log("packages-npm-signal");
    let task = ProgramRun::new(command(folder), folder, log, START_LIMIT)
        .arguments(["wrap", "--"])
        .arguments(SERVER)
        .open_stdin()
        .marked(&marker);
    let running = run::start(task)?;
    let server = SERVER.join(" ");
    let has_started = || marker.processes().iter().any(|process| process.command == server);
    let outcome = if clock::wait_until(START_LIMIT, has_started) {
        running.ask_to_end();
        running.status()
    } else {
        Err(ChoreFailure::new("the server behind the script did not start"))
    };
    let is_left = !clock::wait_until(SETTLED, || marker.processes().is_empty());
    running.end();
    let code = outcome?.code();
    if code == Some(TERMINATED) && !is_left {
        return Ok(());
    }
    let story = release.project().log("packages-npm-signal");
    Err(ChoreFailure::new(format!(
        "after SIGTERM the script ended with {code:?}, and {} of the guard was left",
        if is_left { "something" } else { "nothing" }
    ))
    .with_output(story))
}
