//! URLs as people see them, without the parts that may be secret: the user, the values of the query, and the fragment.
//!
//! Invariants
//!
//! - The functions work on the text of the file, whether it is a URL or not, and whatever its variables hold. No value of a variable is
//!   shown.
//! - A mark shows that something is left out. A host is never left out, because the requests go there.

use std::ops::Range;

use super::expand::references;

/// The mark for a part that is left out.
const LEFT_OUT: char = '…';

/// Removes the parts of a URL that may be secret. A part that consists of variables alone shows their names.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let masked = masked(url);
    let start = masked.find("://").map_or(0, |at| at + 3);
    let find = |from: usize, marks: &[char]| masked[from..].find(marks).map_or(masked.len(), |at| from + at);
    let authority = find(start, &['/', '\\', '?', '#']);
    let fragment = find(start, &['#']);
    let query = find(start, &['?']).min(fragment);
    let mut shown = defaults_shown(&url[..start]);
    let mut host = start;
    // A text without the two slashes may still be a URL to its reader.
    let user_in = if start == 0 { query } else { authority };
    if let Some(at) = masked[start..user_in].rfind('@') {
        shown.push_str(&hidden(&url[start..start + at]));
        shown.push('@');
        host = start + at + 1;
    }
    shown.push_str(&defaults_shown(&url[host..query]));
    if query < fragment {
        let pairs = spans(&masked, query + 1..fragment).into_iter().map(|pair| {
            match masked[pair.clone()].find('=').map(|at| pair.start + at) {
                Some(at) => {
                    format!("{}={}", hidden_defaults(&url[pair.start..at]), hidden(&url[at + 1..pair.end]))
                }
                None => hidden(&url[pair]),
            }
        });
        shown.push('?');
        shown.push_str(&pairs.collect::<Vec<_>>().join("&"));
    }
    if fragment < masked.len() {
        shown.push('#');
        shown.push_str(&hidden(&url[fragment + 1..]));
    }
    shown
}

/// Masks the references in a text, byte for byte, so that no character in them is taken for a separator.
fn masked(url: &str) -> String {
    let (mut masked, mut from) = (String::with_capacity(url.len()), 0);
    for found in references(url) {
        masked.push_str(&url[from..found.at.start]);
        masked.extend(std::iter::repeat_n('x', found.at.len()));
        from = found.at.end;
    }
    masked.push_str(&url[from..]);
    masked
}

/// Finds the pairs of a query.
fn spans(masked: &str, query: Range<usize>) -> Vec<Range<usize>> {
    let mut from = query.start;
    let lengths = masked[query].split('&').map(str::len);
    lengths
        .map(|length| {
            let span = from..from + length;
            from = span.end + 1;
            span
        })
        .collect()
}

/// Hides a part that may be secret. An empty part stays empty, variables show their names, and anything else becomes a mark.
fn hidden(part: &str) -> String {
    let found = references(part);
    let length: usize = found.iter().map(|found| found.at.len()).sum();
    if length == part.len() && found.iter().all(|found| found.default.is_none()) {
        return part.to_owned();
    }
    LEFT_OUT.to_string()
}

/// Hides the defaults of the variables in a text.
fn hidden_defaults(part: &str) -> String {
    replaced(part, |name, default| match default {
        Some(_) => format!("${{{name}:-{LEFT_OUT}}}"),
        None => format!("${{{name}}}"),
    })
}

/// Removes secrets from the defaults of the variables in a text: a default may be a whole URL.
fn defaults_shown(part: &str) -> String {
    replaced(part, |name, default| match default {
        Some(default) => format!("${{{name}:-{}}}", without_secrets(default)),
        None => format!("${{{name}}}"),
    })
}

fn replaced(part: &str, with: impl Fn(&str, Option<&str>) -> String) -> String {
    let (mut text, mut from) = (String::with_capacity(part.len()), 0);
    for found in references(part) {
        text.push_str(&part[from..found.at.start]);
        text.push_str(&with(found.name, found.default));
        from = found.at.end;
    }
    text.push_str(&part[from..]);
    text
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn f_22_what_may_be_secret_is_left_out_and_the_host_never() {
        for (url, expect) in [
            ("https://h.example/mcp", "https://h.example/mcp"),
            ("https://ada:pw@h.example:1/mcp?key=s&b=&c#f", "https://…@h.example:1/mcp?key=…&b=&…#…"),
            ("https://unpkg.example/@scope/x", "https://unpkg.example/@scope/x"),
            ("https://good.example@evil.example/", "https://…@evil.example/"),
            ("https://evil.example\\@good.example/", "https://evil.example\\@good.example/"),
            (
                "https://${HOST:-h?x@y}/a?k=${KEY}&l=a${KEY}&m=${KEY:-s}",
                "https://${HOST:-h?…}/a?k=${KEY}&l=…&m=…",
            ),
            ("https://${USER}@h/", "https://${USER}@h/"),
            ("${URL:-https://ada:pw@h/?k=s}", "${URL:-https://…@h/?k=…}"),
            ("https:/ada:pw@h/?k", "…@h/?…"),
            ("ada:pw@h", "…@h"),
            ("a:4317", "a:4317"),
            ("?s", "?…"),
            ("#s?a=b", "#…"),
            ("https://h/?${A", "https://h/?…"),
            ("https://h/äö?ä=ö#ü", "https://h/äö?ä=…#…"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), expect, "{url}");
        }
    }
}
