//! Changes of a text as insertions and replacements, and how a person sees them.
//!
//! Invariants: edits do not overlap, and their order is that of the text. A shown line never has the values that the caller names as secret.

use std::ops::Range;

/// The text that stands for a secret value.
const HIDDEN: &str = "\"…\"";
/// The longest line that is shown whole, in characters.
const LONGEST_LINE: usize = 240;
/// The number of characters that are shown of a longer line before and behind each change.
const AROUND: usize = 40;

/// One change: this range of the old text becomes this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// The bytes of the old text. An insertion has an empty range.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

impl TextEdit {
    pub(crate) fn insert(at: usize, text: String) -> TextEdit {
        TextEdit { range: at..at, text }
    }

    pub(crate) fn remove(range: Range<usize>) -> TextEdit {
        TextEdit { range, text: String::new() }
    }
}

/// The changes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePatch(Vec<TextEdit>);

/// Lines that change, as a person sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchHunk {
    /// The number of the first old line, from 1.
    pub line: usize,
    /// The old lines.
    pub removed: Vec<String>,
    /// The new lines.
    pub added: Vec<String>,
}

impl FilePatch {
    /// Makes a patch of edits that do not overlap.
    pub(crate) fn new(edits: Vec<TextEdit>) -> FilePatch {
        FilePatch(in_order(edits, |edit| edit.range.start))
    }

    /// Returns whether the patch changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text with the changes.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        rendered(text, 0..text.len(), &self.0.iter().collect::<Vec<_>>())
    }

    /// Returns the lines that change, without the values at the `secrets`.
    #[must_use]
    pub fn hunks(&self, text: &str, secrets: &[Range<usize>]) -> Vec<PatchHunk> {
        let masks: Vec<TextEdit> = secrets
            .iter()
            .filter(|secret| !self.0.iter().any(|edit| overlap(&edit.range, secret)))
            .map(|secret| TextEdit { range: secret.clone(), text: HIDDEN.to_owned() })
            .collect();
        let mut groups: Vec<Range<usize>> = Vec::new();
        for edit in &self.0 {
            let lines = whole_lines(text, &edit.range);
            match groups.last_mut() {
                Some(last) if lines.start <= last.end => last.end = last.end.max(lines.end),
                _ => groups.push(lines),
            }
        }
        groups.into_iter().map(|group| self.hunk(text, group, &masks)).collect()
    }

    fn hunk(&self, text: &str, group: Range<usize>, masks: &[TextEdit]) -> PatchHunk {
        let inside = |edit: &&TextEdit| group.start <= edit.range.start && edit.range.end <= group.end;
        let hidden = in_order(masks.iter().filter(inside).collect(), |edit: &&TextEdit| edit.range.start);
        let changed: Vec<&TextEdit> = self.0.iter().filter(inside).chain(hidden.iter().copied()).collect();
        let changed = in_order(changed, |edit: &&TextEdit| edit.range.start);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let mut removed = lines(&rendered(text, group.clone(), &hidden));
        let mut added = lines(&rendered(text, group.clone(), &changed));
        let alike = removed.iter().zip(&added).take_while(|(old, new)| old == new).count();
        removed.drain(..alike);
        added.drain(..alike);
        while !removed.is_empty() && removed.last() == added.last() {
            removed.pop();
            added.pop();
        }
        let line = 1 + text[..group.start].matches('\n').count() + alike;
        let is_long = |line: &String| line.chars().count() > LONGEST_LINE;
        if removed.len() == 1 && added.len() == 1 && (is_long(&removed[0]) || is_long(&added[0])) {
            (removed, added) = self.parts(text, &group, &hidden, &changed);
        }
        PatchHunk { line, removed, added }
    }

    /// Shows each change of a long line with a few characters around it. Changes whose surroundings meet are shown together. `changed` has
    /// the edits of the line besides the hidden values.
    fn parts(
        &self,
        text: &str,
        group: &Range<usize>,
        hidden: &[&TextEdit],
        changed: &[&TextEdit],
    ) -> (Vec<String>, Vec<String>) {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for edit in changed.iter().filter(|edit| self.0.contains(edit)) {
            let part = surroundings(text, &edit.range, group, hidden);
            match parts.last_mut() {
                Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
                _ => parts.push(part),
            }
        }
        let shown = |part: &Range<usize>, edits: &[&TextEdit]| {
            let mut edits = edits.to_vec();
            edits.retain(|edit| part.start <= edit.range.start && edit.range.end <= part.end);
            let cut = |is_cut: bool| if is_cut { "…" } else { "" };
            let line = rendered(text, part.clone(), &edits);
            format!("{}{}{}", cut(part.start > group.start), line.trim_end(), cut(part.end < group.end))
        };
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for part in &parts {
            removed.push(shown(part, hidden));
            added.push(shown(part, changed));
        }
        (removed, added)
    }
}

/// Sorts items by a place in the text, and leaves those at the same place in their order. The standard library's sort has some kilobytes of
/// code for each type; here, all types share one.
pub(crate) fn in_order<T>(items: Vec<T>, place: impl Fn(&T) -> usize) -> Vec<T> {
    let mut order: Vec<(usize, usize)> = items.iter().map(place).zip(0..).collect();
    order.sort_unstable();
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(_, index)| items[index].take()).collect()
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns this part of the text with the edits in it.
fn rendered(text: &str, part: Range<usize>, edits: &[&TextEdit]) -> String {
    let (mut result, mut at) = (String::with_capacity(part.len() + 256), part.start);
    for edit in edits {
        result.push_str(&text[at..edit.range.start]);
        result.push_str(&edit.text);
        at = edit.range.end;
    }
    result.push_str(&text[at..part.end]);
    result
}

/// Returns the lines in which a range lies, with the break of the last one.
fn whole_lines(text: &str, range: &Range<usize>) -> Range<usize> {
    let start = text[..range.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at + 1);
    start..end
}

/// Returns a range with some characters before and behind it, in the group. No hidden value is cut: a part of one would be shown.
fn surroundings(
    text: &str,
    range: &Range<usize>,
    group: &Range<usize>,
    hidden: &[&TextEdit],
) -> Range<usize> {
    let before = text[group.start..range.start].char_indices().rev().nth(AROUND - 1);
    let behind = text[range.end..group.end].char_indices().nth(AROUND);
    let mut part = before.map_or(group.start, |(at, _)| group.start + at)
        ..behind.map_or(group.end, |(at, _)| range.end + at);
    for secret in hidden {
        if secret.range.start < part.start && part.start < secret.range.end {
            part.start = secret.range.end.min(range.start);
        }
        if secret.range.start < part.end && part.end < secret.range.end {
            part.end = secret.range.start.max(range.end);
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_change_are_shown_and_no_secret() {
        let text = "{\n  \"a\": \"npx\",\n  \"k\": \"hidden\", \"b\": []\n}\n";
        let place = |what: &str| {
            let at = text.find(what).expect("it is there");
            at..at + what.len()
        };
        let patch = FilePatch::new(vec![
            TextEdit::insert(place("[]").start + 1, "1".to_owned()),
            TextEdit { range: place("\"npx\""), text: "\"unhang\"".to_owned() },
        ]);
        assert_eq!(patch.apply(text), "{\n  \"a\": \"unhang\",\n  \"k\": \"hidden\", \"b\": [1]\n}\n");
        let hunks = patch.hunks(text, &[place("\"hidden\"")]);
        assert_eq!(
            hunks,
            [PatchHunk {
                line: 2,
                removed: vec!["  \"a\": \"npx\",".to_owned(), "  \"k\": \"…\", \"b\": []".to_owned()],
                added: vec!["  \"a\": \"unhang\",".to_owned(), "  \"k\": \"…\", \"b\": [1]".to_owned()],
            }]
        );
    }

    #[test]
    fn of_a_line_without_end_the_part_with_the_change_is_shown() {
        let text = format!("{}X{}", "a".repeat(5_000), "b".repeat(5_000));
        let hunks =
            FilePatch::new(vec![TextEdit { range: 5_000..5_001, text: "Y".to_owned() }]).hunks(&text, &[]);
        let shown = &hunks[0].added[0];
        assert!(shown.contains("aaaYbbb") && shown.chars().count() < 300, "{shown}");
    }

    #[test]
    fn each_change_of_a_long_line_is_shown_and_no_part_of_a_secret() {
        let secret = format!("\"{}\"", "SECRET".repeat(20));
        let text = format!("{}X{secret}{}X{}", "a".repeat(500), "b".repeat(500), "c".repeat(500));
        let second = 501 + secret.len() + 500;
        let edit = |at: usize| TextEdit { range: at..at + 1, text: "Y".to_owned() };
        let hunks = FilePatch::new(vec![edit(500), edit(second)])
            .hunks(&text, std::slice::from_ref(&(501..501 + secret.len())));
        let PatchHunk { removed, added, .. } = &hunks[0];
        assert_eq!((removed.len(), added.len()), (2, 2), "{removed:?} {added:?}");
        assert!(removed[0].contains("aaX") && added[0].contains("aaY"), "{removed:?} {added:?}");
        assert!(removed[1].contains("bbXcc") && added[1].contains("bbYcc"), "{removed:?} {added:?}");
        assert!(!format!("{hunks:?}").contains("SECRET"), "{hunks:?}");
    }
}
