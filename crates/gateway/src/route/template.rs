//! Matches a URI against a template (RFC 6570), as far as that tells which server has it.
//!
//! Invariants: text outside of braces stands in the URI as it is, in that order, and an expression stands for any text. Work is linear in
//! the length of both, but for texts that begin again and again as a literal does.

/// Returns whether a URI may come from this template.
pub(super) fn fits(template: &str, uri: &str) -> bool {
    let mut parts = parts(template);
    let Some((first, is_followed)) = parts.next() else { return uri.is_empty() };
    let Some(mut rest) = uri.strip_prefix(first) else { return false };
    if !is_followed {
        return rest.is_empty();
    }
    for (literal, is_followed) in parts {
        if !is_followed {
            return rest.ends_with(literal);
        }
        let Some(offset) = rest.find(literal) else { return false };
        rest = &rest[offset + literal.len()..];
    }
    true
}

/// Returns how many bytes of a template stand in every URI that comes from it.
pub(super) fn literals(template: &str) -> usize {
    parts(template).map(|(literal, _)| literal.len()).sum()
}

/// Returns the literals of a template, each with whether an expression follows it. A brace without its partner is a literal.
fn parts(template: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = Some(template);
    std::iter::from_fn(move || {
        let text = rest?;
        let expression = text.find('{').and_then(|open| Some((open, open + text[open..].find('}')?)));
        match expression {
            Some((open, close)) => {
                rest = Some(&text[close + 1..]);
                Some((&text[..open], true))
            }
            None => {
                rest = None;
                Some((text, false))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_fits_the_templates_that_it_may_come_from() {
        for (template, uri, expect) in [
            ("zoo://numbers/{number}", "zoo://numbers/7", true),
            ("zoo://numbers/{number}", "zoo://letters/7", false),
            ("db://{table}/{row}", "db://a/1", true),
            ("db://{table}/{row}", "db://a", false),
            ("db://{table}/row/{row}.json", "db://a/row/1.json", true),
            ("db://{table}/row/{row}.json", "db://a/row/1.xml", false),
            ("{+path}", "anything", true),
            ("a{?q}", "a", true),
            ("plain:x", "plain:x", true),
            ("plain:x", "plain:xy", false),
            ("{a}{b}", "x", true),
            ("odd{brace", "odd{brace", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(template, uri), expect, "{template} {uri}");
        }
        assert_eq!((literals("db://{table}/{row}"), literals("{x}")), (6, 0));
    }
}
