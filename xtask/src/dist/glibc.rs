//! How new the system has to be: the newest version of the GNU C library that a program asks for.

use crate::failure::ChoreFailure;
use crate::{run, tools};

use super::release::{BuiltProgram, Release};

/// Version numbers, the major one first.
pub(super) type GlibcVersion = (u32, u32);

/// The version that packages are built for where that is possible: no platform tag of a wheel is older, and Rust needs it.
pub(super) const OLDEST: GlibcVersion = (2, 17);

/// Returns the target of cargo-zigbuild for this triple, with that version.
pub(crate) fn oldest_target(triple: &str) -> String {
    let (major, minor) = OLDEST;
    format!("{triple}.{major}.{minor}")
}

/// The name under which a program asks for a loader that knows `DT_RELR`, and the first version that has one.
const PACKED_RELOCATIONS: &str = "GLIBC_ABI_DT_RELR";
const FIRST_WITH_PACKED_RELOCATIONS: GlibcVersion = (2, 36);

/// The newest version that a program asks for.
pub(super) fn needed(release: &Release, program: &BuiltProgram) -> Result<GlibcVersion, ChoreFailure> {
    tools::READELF.require(release.project())?;
    let task = release.task("readelf", "readelf", release.project().root());
    let told = run::run_for_text(task.arguments(["--wide", "--version-info"]).arguments([&program.path]))?;
    newest(&told).ok_or_else(|| {
        ChoreFailure::new(format!("{} asks for no version of the C library", program.path.display()))
    })
}

fn newest(told: &str) -> Option<GlibcVersion> {
    let versions = told.split_whitespace().filter_map(|word| {
        if word == PACKED_RELOCATIONS {
            return Some(FIRST_WITH_PACKED_RELOCATIONS);
        }
        let (major, minor) = word.strip_prefix("GLIBC_")?.split_once('.')?;
        // Some have a third number, which no distribution goes by.
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max()
}

/// Debian's packages, besides that of the C library, that have the libraries of a program, each behind a comma.
pub(super) fn other_packages(release: &Release, program: &BuiltProgram) -> Result<String, ChoreFailure> {
    let task = release.task("readelf-dynamic", "readelf", release.project().root());
    let told = run::run_for_text(task.arguments(["--wide", "--dynamic"]).arguments([&program.path]))?;
    let mut packages = String::new();
    for library in libraries(&told) {
        match library {
            "libc.so.6" | "libm.so.6" | "libdl.so.2" | "libpthread.so.0" => {}
            "libgcc_s.so.1" => packages.push_str(", libgcc-s1"),
            loader if loader.starts_with("ld-linux") => {}
            _ => return Err(ChoreFailure::new(format!("no package is known that has {library}"))),
        }
    }
    Ok(packages)
}

/// The shared libraries that a program is linked with.
fn libraries(told: &str) -> impl Iterator<Item = &str> {
    let needed = told.lines().filter(|line| line.contains("(NEEDED)"));
    needed.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_by_number_and_not_by_letters() {
        let told = "  0x0010:   Name: GLIBC_2.4  Flags: none  Version: 7\n  0x0020:   Name: GLIBC_2.35  Flags: none\n\
                    0x0030: Name: GLIBC_2.2.5 Flags: none\n 0x0040: Name: GCC_3.0 Flags: none";
        assert_eq!(newest(told), Some((2, 35)));
        assert_eq!(newest("No version information found in this file."), None);
    }

    #[test]
    fn packed_relocations_need_the_version_that_reads_them() {
        let told = "  0x0010:   Name: GLIBC_2.35  Flags: none  Version: 7\n  0x0020:   Name: GLIBC_ABI_DT_RELR  Flags: none";
        assert_eq!(newest(told), Some((2, 36)));
    }

    #[test]
    fn shared_libraries_are_read_from_their_entries() {
        let told = " 0x1 (NEEDED)  Shared library: [libgcc_s.so.1]\n 0x1 (NEEDED)  Shared library: [libc.so.6]\n 0xc (INIT) 0x1";
        assert_eq!(libraries(told).collect::<Vec<_>>(), ["libgcc_s.so.1", "libc.so.6"]);
    }
}
