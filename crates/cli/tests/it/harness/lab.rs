//! The second binary, `unhang-lab`: the tests take their faulty servers from it, and the tests of the bench and of the corpus run it.
//!
//! Cargo hands a test the path of its own package's binaries alone. `cargo test --workspace` builds the lab beside them; only where somebody
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

/// Returns whether no source is younger than the lab. `cargo build` lists the sources beside the lab. `cargo test` writes no list: then the
/// sources of all crates count.
fn is_current(lab: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let Some(built) = modified(lab) else { return false };
    let is_older = |source: &Path| modified(source).is_some_and(|time: SystemTime| time <= built);
    match fs::read_to_string(lab.with_extension("d")) {
        Ok(listed) => {
            let sources = listed.split_once(": ").map(|(_, sources)| sources).unwrap_or_default();
            sources.split_whitespace().all(|source| is_older(Path::new(source)))
        }
        Err(_) => {
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
            let crates = fs::read_dir(crates).expect("the crates").flatten();
            crates.map(|one| one.path().join("src")).all(|sources| every_file(&sources, &is_older))
        }
    }
}

/// Returns whether every file below a folder meets a condition.
fn every_file(folder: &Path, is_so: &impl Fn(&Path) -> bool) -> bool {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    entries.flatten().all(|entry| match entry.file_type().expect("a kind").is_dir() {
        true => every_file(&entry.path(), is_so),
        false => is_so(&entry.path()),
    })
}

fn build(lab: &Path) {
    let folder = lab.parent().expect("the folder of a profile");
    let profile = match folder.file_name().and_then(|name| name.to_str()).expect("its name") {
        "debug" => "dev",
        other => other,
    };
    let mut command = Command::new(env!("CARGO"));
    // If these variables differ between two builds, the build script of ring runs again, and cargo builds everything that needs ring.
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    let status = command
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

/// Returns whether cargo describes the package of a program in this variable.
fn is_of_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}
