//! The formula for Homebrew, from the template in `packaging/homebrew/`, with the hashes of the archives.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::failure::ChoreFailure;
use crate::files;

use super::addresses::ArchiveAddresses;
use super::archive;
use super::release::{BuiltProgram, Release};

const TEMPLATE: &str = "packaging/homebrew/unhang.rb";

/// Where the formula lies.
pub(super) fn path(release: &Release) -> PathBuf {
    release.folder().join("unhang.rb")
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    let addresses = ArchiveAddresses::read(release)?;
    let template = files::read(&release.source(TEMPLATE))?;
    // The first line speaks of the template.
    let (_, formula) = template.split_once('\n').unwrap_or_default();
    let archives = archives(release, &addresses)?;
    let words = [
        ("\"REPOSITORY\"", format!("\"{}\"", addresses.repository)),
        ("\"VERSION\"", format!("\"{}\"", release.version())),
        ("  ARCHIVES", archives.trim_end().to_owned()),
    ];
    let mut text = formula.to_owned();
    for (word, value) in words {
        if text.matches(word).count() != 1 {
            return Err(ChoreFailure::new(format!("{TEMPLATE} does not have {word} once")));
        }
        text = text.replace(word, &value);
    }
    files::write(&path(release), &text)
}

/// The archives, by system and processor as Homebrew calls them.
fn archives(release: &Release, addresses: &ArchiveAddresses) -> Result<String, ChoreFailure> {
    let mut text = String::new();
    for (system, word) in [("linux", "on_linux"), ("darwin", "on_macos")] {
        let is_listed = |program: &&BuiltProgram| {
            program.target.node.0 == system && !program.target.triple.ends_with("-musl")
        };
        let mut blocks = String::new();
        for program in release.programs().iter().filter(is_listed) {
            let processor = if program.target.node.1 == "x64" { "on_intel" } else { "on_arm" };
            let (url, sum) =
                (addresses.archive(release, program), files::sha256(&archive::path(release, program))?);
            let _a_text_takes_all =
                write!(blocks, "    {processor} do\n      url \"{url}\"\n      sha256 \"{sum}\"\n    end\n");
        }
        if !blocks.is_empty() {
            let _a_text_takes_all = write!(text, "  {word} do\n{blocks}  end\n\n");
        }
    }
    Ok(text)
}
