//! How the program is linked, so that its small processes are small.
//!
//! A guard comes with a lifeline and a job with a shim, all of them this one program, and what the loader does before `main`
//! costs each of them memory, whatever it uses of the rest. On a system where both are known to work, a release build
//!
//! - packs its relative relocations (`DT_RELR`), of which there are sixteen thousand: 0.35 MiB less for each process to read;
//! - brings the unwinder along instead of loading a library for it: 0.15 MiB less for each.
//!
//! Anywhere else the program is linked as usual: it does the same and needs more (`docs/performance.md`).

#![expect(clippy::disallowed_macros, reason = "what a build script prints is for cargo")]

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_known = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("PROFILE", "release")
        && env::var("HOST").is_ok_and(|host| is("TARGET", &host))
        // A linker of one's own is for another C library than that of this system.
        && env::var_os("RUSTC_LINKER").is_none();
    if !is_known {
        return;
    }
    if c_library().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if let Some(unwinder) = said_by("cc", &["-print-file-name=libgcc_eh.a"])
        && let Some(folder) = Path::new(unwinder.trim()).parent().filter(|folder| folder.is_absolute())
    {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// The version of the C library here, which is the one that the program will meet.
fn c_library() -> Option<(u32, u32)> {
    let said = said_by("getconf", &["GNU_LIBC_VERSION"])?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// What a program says, if it is there and content.
#[expect(clippy::disallowed_methods, reason = "a build has no server whose pipes it could hold")]
fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}
