//! The second binary, `unhang-lab`: the tests take their faulty servers from it, and the tests of the bench and of the corpus run it.
//!
//! Cargo hands a test the path of its own package's binaries alone. `cargo test` builds the lab beside them; only where somebody
//! tests one package, this file has cargo build it.
//!
//! Invariant: no test runs a lab that is older than its sources.

use std::{fs, path::Path, process::Command, sync::OnceLock, time::SystemTime};

/// Returns the path of a current `unhang-lab`.
pub(crate) fn lab_program() -> &'static str {
    static LAB: OnceLock<String> = OnceLock::new();
    LAB.get_or_init(|| {
        let lab = Path::new(env!("CARGO_BIN_EXE_unhang")).with_file_name("unhang-lab");
        if !is_current(&lab) {
            build(&lab);
        }
        lab.into_os_string().into_string().expect("the path is text")
    })
}

/// Whether no source that cargo lists beside the binary is younger than it.
fn is_current(lab: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let Some(built) = modified(lab) else { return false };
    let Ok(listed) = fs::read_to_string(lab.with_extension("d")) else { return false };
    let sources = listed.split_once(": ").map(|(_, sources)| sources).unwrap_or_default();
    let is_older = |source: &str| modified(Path::new(source)).is_some_and(|time: SystemTime| time <= built);
    sources.split_whitespace().all(is_older)
}

fn build(lab: &Path) {
    let folder = lab.parent().expect("the folder of a profile");
    let profile = match folder.file_name().and_then(|name| name.to_str()).expect("its name") {
        "debug" => "dev",
        other => other,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--offline",
            "--quiet",
            "--package",
            "unhang-lab",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(folder.parent().expect("the target folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "cargo builds unhang-lab: {status:?}");
}
