//! Compares what went into the guard with what came out of it.
//!
//! # Invariants
//!
//! - In both directions the lines are exactly equal and in the same order: nothing is added, lost, moved or rewritten.

use std::fs;

use crate::failure::ChoreFailure;

use super::bench::CaseFolder;

/// How much of a differing line is shown, from a little before the difference.
const SHOWN_LINE: usize = 300;
const SHOWN_BEFORE: usize = 60;

/// Compares both directions of a case; returns how many lines the client sent.
pub(crate) fn same_on_both_sides(case_folder: &CaseFolder) -> Result<usize, ChoreFailure> {
    let sent = compare(case_folder, "from-client", ["outside", "inside"], "client to server")?;
    compare(case_folder, "from-server", ["inside", "outside"], "server to client")?;
    Ok(sent)
}

fn compare(
    case_folder: &CaseFolder,
    direction: &str,
    sides: [&str; 2],
    title: &str,
) -> Result<usize, ChoreFailure> {
    let read = |side: &str| {
        let path = case_folder.path(&format!("{side}-{direction}"));
        fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))
    };
    let (before, after) = (read(sides[0])?, read(sides[1])?);
    match difference(&before, &after) {
        Some(difference) => Err(ChoreFailure::new(format!("{title}: {difference}"))),
        None if before.is_empty() => Err(ChoreFailure::new(format!("{title}: not a byte was seen"))),
        None => Ok(lines(&before).len()),
    }
}

/// Says where two sequences of lines differ first, `None` when they are equal.
fn difference(before: &[u8], after: &[u8]) -> Option<String> {
    if before == after {
        return None;
    }
    let (before, after) = (lines(before), lines(after));
    let equal = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let at = |lines: &[&[u8]], other: &[&[u8]]| match lines.get(equal) {
        Some(line) => excerpt(line, other.get(equal).copied().unwrap_or_default()),
        None => "nothing".to_owned(),
    };
    let (entered, left) = (at(&before, &after), at(&after, &before));
    let counts = format!("{} lines went into the guard and {} came out", before.len(), after.len());
    Some(format!("{counts}; line {} went in as\n  {entered}\nand came out as\n  {left}", equal + 1))
}

/// The lines with their ends, so that a changed end is a difference too.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn excerpt(line: &[u8], other: &[u8]) -> String {
    let equal = line.iter().zip(other).take_while(|(one, other)| one == other).count();
    let start = equal.saturating_sub(SHOWN_BEFORE);
    let end = line.len().min(start + SHOWN_LINE);
    format!("(from byte {start}) {:?}", String::from_utf8_lossy(&line[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_do_not_differ() {
        assert_eq!(difference(b"{\"a\":1}\n{}\n", b"{\"a\":1}\n{}\n"), None);
    }

    #[test]
    fn each_kind_of_change_is_found_with_its_line() {
        let before = b"{\"a\":1}\n{\"b\":2}\n";
        for (after, sign) in [
            (b"{\"a\":1}\n{\"b\": 2}\n".as_slice(), "line 2"),
            (b"{\"b\":2}\n{\"a\":1}\n", "line 1"),
            (b"{\"a\":1}\n", "came out as\n  nothing"),
            (b"{\"a\":1}\n{\"b\":2}\n{}\n", "went in as\n  nothing"),
            (b"{\"a\":1}\r\n{\"b\":2}\n", "line 1"),
            (b"{\"a\":1}\n{\"b\":2}", "line 2"),
        ] {
            let difference = difference(before, after).expect("they differ");
            assert!(difference.contains(sign), "{difference}");
        }
    }
}
