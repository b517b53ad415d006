//! The image: `buildah` reads it, runs its program as the image's user, and the gateway in it answers a client outside.
//!
//! The container has a root folder and a user of its own, and the network of this machine. Containers with more need rights that few
//! machines give to a check.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::clock;
use crate::dist::container::{self, ImageStorage};
use crate::dist::release::Release;
use crate::failure::ChoreFailure;
use crate::files;
use crate::gateway_address;
use crate::{report, run};

/// The name of the container while it is used.
const CONTAINER: &str = "unhang-used";
const CONFIGURATION: &str = "[tools.version]\ncommand = [\"/usr/bin/unhang\", \"--version\"]\n";
/// The time in which nothing of the gateway is left.
const END_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    let Some(package) = container::path(release) else { return Ok(()) };
    let stage = release.stage("container-used")?;
    let storage = ImageStorage::new(release, "container-used/storage")?;
    // Not every version of buildah decompresses what it reads.
    files::copy(&package, &stage.join("image.tar.gz"))?;
    run::run(release.task("container-gunzip", "gzip", &stage).arguments(["--decompress", "image.tar.gz"]))?;
    let from = storage.task("container-from", &["from", "--quiet", "--name", CONTAINER], &stage);
    run::run(from.arguments(["docker-archive:image.tar"]))?;
    let run = |name: &str| {
        let task = storage.task(name, &["run", "--isolation", "chroot", CONTAINER, "--"], &stage);
        task.arguments([format!("/{}", container::PROGRAM)])
    };
    let answer = match run::run_for_text(run("container-version").arguments(["--version"])) {
        Err(failure) if is_forbidden(&failure) => {
            report::text("the container was built and read, but NOT run: this machine does not permit it\n");
            return storage.remove();
        }
        answer => answer?,
    };
    super::demand_version(release, &answer)?;
    files::write(&stage.join("unhang.toml"), CONFIGURATION)?;
    let copy = storage.task("container-copy", &["copy", "--quiet", CONTAINER], &stage);
    run::run(copy.arguments(["unhang.toml", "/etc/unhang/unhang.toml"]))?;
    let log = release.project().log("packages-container-gateway");
    let words = ["serve", "--config", "/etc/unhang/unhang.toml", "--http", "127.0.0.1:0", "--log-file", "-"];
    let gateway = run::start(run("container-gateway").arguments(words))?;
    let outcome = gateway_address::until_named(&log).and_then(|url| ask(release, &url, &stage));
    // buildah passes no signal on. It ends what runs in the container, and says how that ended.
    gateway.ask_to_end();
    let ended = gateway.status();
    gateway.end();
    let address = outcome?;
    ended?;
    if clock::wait_until(END_LIMIT, || TcpStream::connect(&address).is_err()) {
        return storage.remove();
    }
    Err(ChoreFailure::new(format!("the gateway of the container is still at {address}")).with_output(log))
}

/// Returns whether the machine does not let `buildah` change its root folder or its mounts.
fn is_forbidden(failure: &ChoreFailure) -> bool {
    let said = failure.output().and_then(|path| std::fs::read_to_string(path).ok());
    said.is_some_and(|said| said.to_lowercase().contains("operation not permitted"))
}

/// Calls a tool of the gateway from outside the container. Returns the address of the gateway.
fn ask(release: &Release, url: &str, stage: &Path) -> Result<String, ChoreFailure> {
    let task = release.task("container-call", &release.own().path, stage);
    let task = task.variable("UNHANG_HOME", stage.join("home"));
    let answer = run::run_for_text(task.arguments(["call", url, "version", "--output", "json"]))?;
    let (expected, address) = (format!("unhang {}\\n", release.version()), url.trim_start_matches("http://"));
    match answer.contains(&expected) {
        true => Ok(address.trim_end_matches("/mcp").to_owned()),
        false => {
            Err(ChoreFailure::new(format!("the tool in the container answered {answer} and not {expected}")))
        }
    }
}
