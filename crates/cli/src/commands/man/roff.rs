//! One command as a page for `man`.
//!
//! Invariants: a page has the content of `--help`, in the same words, and also names the environment variables.

use std::io;

use clap::{Command, builder::Resettable};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use super::notes::Notes;

/// Returns the page's name: `unhang-job-run`.
pub(super) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Makes the page.
pub(super) fn page(command: &Command) -> io::Result<Vec<u8>> {
    // The version stands in the page's foot, and the notes get sections with headings.
    let bare = command.clone().after_help(Resettable::Reset).version(Resettable::Reset);
    let bare = bare.mut_args(|argument| argument.hide_env(false));
    let source = concat!("unhang ", env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    Man::new(bare).source(source).manual("unhang").render(&mut page)?;
    page.extend(sections(&Notes::of(command)).as_bytes());
    Ok(page)
}

fn sections(notes: &Notes) -> String {
    let mut roff = Roff::new();
    if !notes.paragraphs.is_empty() {
        roff.control("SH", ["NOTES"]);
        for paragraph in &notes.paragraphs {
            roff.control("PP", []).text([roman(paragraph)]);
        }
    }
    if !notes.examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for example in &notes.examples {
            roff.text([roman(example)]);
        }
        roff.control("fi", []);
    }
    if !notes.exit_codes.is_empty() {
        roff.control("SH", ["EXIT STATUS"]);
        for code in &notes.exit_codes {
            roff.control("PP", []).text([roman(code)]);
        }
    }
    // The page has the definitions of the head already.
    let is_definition = |line: &&str| line.starts_with(".ie ") || line.starts_with(".el ");
    roff.render().lines().filter(|line| !is_definition(line)).map(|line| format!("{line}\n")).collect()
}
