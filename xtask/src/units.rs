//! The units for systemd: that it understands them, and that they leave jobs what jobs need. No systemd has to run for that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

/// Where they are, and their names.
const FOLDER: &str = "packaging/systemd";
const SERVICE: &str = "unhang.service";
const SOCKET: &str = "unhang.socket";

const DEADLINE: Duration = Duration::from_mins(1);

/// What a stop and a restart are survived with, and what they would be taken for otherwise.
const NEEDED: [(&str, &str); 5] = [
    ("KillMode=process", "jobs end with the gateway"),
    ("Delegate=yes", "servers and jobs get no control groups"),
    ("SuccessExitStatus=143", "an end by SIGTERM is a failure"),
    ("Type=notify", "nobody knows when it can be asked"),
    ("UMask=0077", "others can read what servers and jobs write"),
];

/// Has systemd read the units as those of a user in whose home the program is installed.
pub(crate) fn check(project: &Project) -> Result<(), ChoreFailure> {
    tools::SYSTEMD_ANALYZE.require(project)?;
    let folder = project.below_target("xtask/units");
    let io = |what: &str, error: &std::io::Error| {
        ChoreFailure::io(format!("cannot {what} {}", folder.display()), error)
    };
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("empty", &error)),
        _ => {}
    }
    let (home, runtime) = (folder.join("home"), folder.join("runtime"));
    let binaries = home.join(".cargo/bin");
    let prepare = || {
        fs::create_dir_all(&binaries)?;
        fs::create_dir_all(&runtime)?;
        symlink(project.shipped(), binaries.join("unhang"))
    };
    prepare().map_err(|error| io("prepare", &error))?;
    let sources = project.root().join(FOLDER);
    // Without its own word for it, a unit that is wrong is told about and taken all the same.
    let task = ProgramRun::new("systemd-analyze", project.root(), project.log("units"), DEADLINE)
        .arguments(["--user", "verify", "--man=no", "--recursive-errors=yes"])
        .arguments([sources.join(SERVICE), sources.join(SOCKET)])
        .variable("HOME", &home)
        .variable("XDG_CONFIG_HOME", home.join(".config"))
        .variable("XDG_RUNTIME_DIR", &runtime);
    run::run(task)?;
    needed(&sources.join(SERVICE))
}

/// Looks for what systemd does not know to be needed.
fn needed(path: &Path) -> Result<(), ChoreFailure> {
    let text = fs::read_to_string(path)
        .map_err(|error| ChoreFailure::io(format!("cannot read {}", path.display()), &error))?;
    match NEEDED.iter().find(|(line, _)| !text.lines().any(|other| other == *line)) {
        Some((line, otherwise)) => {
            Err(ChoreFailure::new(format!("{} has no {line}: {otherwise}", path.display())))
        }
        None => Ok(()),
    }
}
