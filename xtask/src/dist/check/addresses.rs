//! What `cargo binstall` and Homebrew are told: names and hashes are those of the archives that were made.

use std::path::Path;

use crate::dist::addresses::ArchiveAddresses;
use crate::dist::release::{Release, SUMS};
use crate::dist::{archive, homebrew, name_of};
use crate::failure::ChoreFailure;
use crate::files;
use crate::run;

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    binstall(release)?;
    let formula = files::read(&homebrew::path(release))?;
    let sums = files::read(&release.folder().join(SUMS))?;
    if let Some(word) = ["VERSION", "ARCHIVES"].into_iter().find(|word| formula.contains(word)) {
        return Err(ChoreFailure::new(format!("the formula still has {word} in it")));
    }
    let named = named_archives(&formula);
    if named.len() != release.programs().len() {
        return Err(ChoreFailure::new(format!("the formula names {named:?}")));
    }
    match named.iter().find(|(name, sum)| !sums.lines().any(|line| line == format!("{sum}  {name}"))) {
        Some((name, sum)) => Err(ChoreFailure::new(format!("no archive {name} has the sum {sum}"))),
        None => Ok(()),
    }
}

/// The archive has the name, and the program in it the path, that `cargo binstall` is told.
fn binstall(release: &Release) -> Result<(), ChoreFailure> {
    let addresses = ArchiveAddresses::read(release)?;
    for program in release.programs() {
        let archive = archive::path(release, program);
        let url = addresses.archive(release, program);
        if name_of(Path::new(&url)) != name_of(&archive) {
            return Err(ChoreFailure::new(format!("{url} is not the address of {}", archive.display())));
        }
        let task = release.task("archive-list", "tar", release.folder());
        let arguments = ["--list".as_ref(), "--gzip".as_ref(), "--file".as_ref(), archive.as_os_str()];
        let list = run::run_for_text(task.arguments(arguments))?;
        let path = addresses.program(release, program);
        if !list.lines().any(|line| line == path) {
            return Err(ChoreFailure::new(format!("{} has no {path}", archive.display())));
        }
    }
    Ok(())
}

/// Names and hashes of a formula's archives.
fn named_archives(formula: &str) -> Vec<(String, String)> {
    let quoted = |line: &str, word: &str| {
        let value = line.trim().strip_prefix(word)?.trim().strip_prefix('"')?.strip_suffix('"')?;
        Some(value.to_owned())
    };
    let urls = formula.lines().filter_map(|line| quoted(line, "url "));
    let sums = formula.lines().filter_map(|line| quoted(line, "sha256 "));
    urls.map(|url| name_of(Path::new(&url))).zip(sums).collect()
}
