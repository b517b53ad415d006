//! `cargo xtask picture`: runs the demo of the release binary and draws its table as `docs/demo.svg`, for the README.
//!
//! Invariant: every character of the picture comes from the run. The chore adds colours alone, a column each.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::report;
use crate::run::{self, ProgramRun};

/// Where the picture lies.
const PICTURE: &str = "docs/demo.svg";
/// The command whose output the picture shows.
const COMMAND: &str = "$ unhang demo";
const BUILD_DEADLINE: Duration = Duration::from_mins(20);
const DEMO_DEADLINE: Duration = Duration::from_mins(1);

/// Size of a character cell, in pixels: the usual proportions of a monospaced font of 13 pixels.
const CELL: (usize, usize) = (8, 17);
/// Room around the text, in pixels.
const MARGIN: usize = 16;

const BACKGROUND: &str = "#14181f";
const PLAIN: &str = "#c9d1d9";
const RULE: &str = "#3b434e";
/// The columns of the table, each from its first character on, with its colour.
const COLUMNS: [(usize, &str); 4] = [(0, "#79b8ff"), (16, PLAIN), (36, "#ff8f88"), (58, "#7ee2a0")];

/// Builds, runs and draws.
pub(crate) fn picture(project: &Project, _options: &Options) -> Result<(), ChoreFailure> {
    let build = ["build", "--release", "--locked", "--bin", "unhang"];
    run::run(
        ProgramRun::new("cargo", project.root(), project.log("picture-build"), BUILD_DEADLINE)
            .arguments(build),
    )?;
    let (demo, text) = (project.below_target("release/unhang"), project.log("picture").with_extension("txt"));
    let task = ProgramRun::new(demo, project.root(), project.log("picture"), DEMO_DEADLINE);
    run::run(task.answer(text.clone()).arguments(["demo"]))?;
    let table = fs::read_to_string(&text).map_err(|error| ChoreFailure::io(text.display(), &error))?;
    let picture = project.root().join(PICTURE);
    fs::write(&picture, draw(&table)).map_err(|error| ChoreFailure::io(picture.display(), &error))?;
    report::text(&format!("{PICTURE} shows this run\n"));
    Ok(())
}

/// Draws lines of text, as a terminal shows them.
fn draw(table: &str) -> String {
    let lines: Vec<&str> =
        [COMMAND, ""].into_iter().chain(table.trim_end().lines().map(str::trim_end)).collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, lines.len() * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"The output of unhang demo: each promise, with and without unhang\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\" xml:space=\"preserve\">\n"
    );
    for (row, line) in lines.iter().enumerate() {
        for (column, text, colour) in pieces(line) {
            let (x, y) = (MARGIN + column * CELL.0, MARGIN + row * CELL.1 + CELL.1 * 3 / 4);
            let length = text.chars().count() * CELL.0;
            // The length keeps the columns straight, whatever font there is.
            let _a_text_takes_all = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" fill=\"{colour}\">{}</text>",
                escaped(&text)
            );
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Cuts a line into its columns: where each begins, its text and its colour.
fn pieces(line: &str) -> Vec<(usize, String, &'static str)> {
    let characters: Vec<char> = line.chars().collect();
    if characters.iter().all(|character| "─═".contains(*character)) {
        return if line.is_empty() { Vec::new() } else { vec![(0, line.to_owned(), RULE)] };
    }
    let is_row = line.starts_with(' ');
    if !is_row {
        return vec![(0, line.to_owned(), PLAIN)];
    }
    let ends = COLUMNS[1..].iter().map(|(begin, _)| *begin).chain([characters.len()]);
    let cut = |((begin, colour), end): (&(usize, &'static str), usize)| {
        let text: String = characters.get(*begin..end.min(characters.len()))?.iter().collect();
        let indent = text.chars().take_while(|character| *character == ' ').count();
        let text = text.trim();
        (!text.is_empty()).then(|| (begin + indent, text.to_owned(), *colour))
    };
    COLUMNS.iter().zip(ends).filter_map(cut).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_cut_into_its_columns() {
        let row = " 3 Drained      writes 1 MiB        hangs: stderr is      answered <12ms";
        let cut: Vec<_> = pieces(row).into_iter().map(|(column, text, _)| (column, text)).collect();
        let expect =
            [(1, "3 Drained"), (16, "writes 1 MiB"), (36, "hangs: stderr is"), (58, "answered <12ms")];
        assert_eq!(cut, expect.map(|(column, text)| (column, text.to_owned())));
        let svg = draw(row);
        assert!(svg.contains("answered &lt;12ms</text>") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn rules_and_sentences_are_one_piece() {
        assert_eq!(pieces("──══"), [(0, "──══".to_owned(), RULE)]);
        assert_eq!(pieces("Every promise was kept."), [(0, "Every promise was kept.".to_owned(), PLAIN)]);
        assert_eq!(pieces(""), []);
    }
}
