//! Small things that sentences for people need.
//!
//! Invariants: pure; work and length are bounded, whatever was written; nothing is proposed that has little to do with what
//! was written.

use std::borrow::Cow;

/// A longer name is nobody's misspelling.
const LONGEST_NAME: usize = 100;

/// The candidate that is nearest to `name`, if one is near enough to be meant.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let least_alike = 0.7;
    if name.len() > LONGEST_NAME {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(alike, _)| *alike >= least_alike)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate)
}

/// The same as the end of a sentence: `; did you mean ...?`, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |candidate| format!("; did you mean `{candidate}`?"))
}

/// Whether what has happened so many times is told: the first time, and then each time that it has come to ten times as many.
#[must_use]
pub fn is_round(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| count == 10_u64.pow(digits))
}

/// At most so many characters of a text, the last of which says that there were more.
pub fn shortened(text: &str, characters: usize) -> Cow<'_, str> {
    if text.chars().nth(characters).is_none() {
        return Cow::Borrowed(text);
    }
    let end = text.char_indices().nth(characters.saturating_sub(1)).map_or(text.len(), |(end, _)| end);
    Cow::Owned(format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_proposed() {
        let names = ["command", "timeout", "log-limit", "inputs"];
        for (written, expect) in [
            ("comand", Some("command")),
            ("time-out", Some("timeout")),
            ("log_limit", Some("log-limit")),
            ("Inputs", Some("inputs")),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), expect, "{written}");
        }
        assert_eq!(did_you_mean("input", names), "; did you mean `inputs`?");
    }

    #[test]
    fn a_long_text_is_cut_and_shows_it() {
        for (text, expect) in [("", ""), ("äöü", "äöü"), ("äöüß", "äö…")] {
            assert_eq!(shortened(text, 3), expect);
        }
        assert_eq!(nearest(&"timeout".repeat(1_000_000), ["timeout"]), None);
    }
}
