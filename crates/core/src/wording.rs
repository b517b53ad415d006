//! Small parts of sentences for people.
//!
//! Invariants: pure. Work and length are bounded, whatever the user wrote. Nothing is proposed that has little to do with it.

use std::borrow::Cow;

/// The longest name that can be a misspelling.
const LONGEST_NAME: usize = 100;

/// Finds the candidate that is nearest to `name`, if one is near enough to be meant.
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

/// Words the nearest candidate as the end of a sentence: `; did you mean ...?`. The text is empty if none is near enough.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |candidate| format!("; did you mean `{candidate}`?"))
}

/// Returns whether an event that has happened so many times is reported: the first time, and then each time that the count is ten times as
/// large.
#[must_use]
pub fn is_round(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| count == 10_u64.pow(digits))
}

/// Returns at most so many characters of a text. If there were more, the last one is an ellipsis.
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

    #[test]
    fn a_name_of_a_hundred_bytes_can_be_a_misspelling_and_a_longer_one_cannot() {
        let longest = "n".repeat(LONGEST_NAME);
        let longer = "n".repeat(LONGEST_NAME + 1);
        for (written, expect) in [(&longest[..99], true), (&longest, true), (&longer, false)] {
            assert_eq!(nearest(written, [longest.as_str()]).is_some(), expect, "{} bytes", written.len());
        }
        assert_eq!(nearest("timeou", ["timeline", "timeout", "time"]), Some("timeout"), "the most alike");
        assert_eq!(did_you_mean("xyz", ["timeout"]), "");
    }

    #[test]
    fn an_event_is_reported_the_first_time_and_then_ten_times_as_seldom() {
        let reported: Vec<u64> = (0..=2000).filter(|count| is_round(*count)).collect();
        assert_eq!(reported, [1, 10, 100, 1000]);
        assert!(is_round(10_u64.pow(19)) && !is_round(u64::MAX));
    }

    #[test]
    fn a_text_is_cut_to_so_many_characters_and_no_fewer() {
        for (characters, expect) in [(0, "…"), (1, "…"), (2, "ä…"), (4, "äöüß"), (5, "äöüß")] {
            assert_eq!(shortened("äöüß", characters), expect, "{characters}");
        }
    }
}
