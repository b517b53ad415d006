//! Whether what a command printed is what the page shows.
//!
//! In a page `…` stands for anything, and a line of it alone for any lines. Moments, lengths of time, percentages, bars
//! and the room between columns may be others than those of the page.

/// What a person sees at the end of it: what was written over is gone.
pub(super) fn seen(printed: &str) -> String {
    printed.lines().map(seen_of_line).collect::<Vec<_>>().join("\n")
}

fn seen_of_line(line: &str) -> String {
    let mut shown: Vec<char> = Vec::new();
    let mut at = 0;
    let mut rest = line;
    loop {
        if let Some(behind) = rest.strip_prefix('\r') {
            (at, rest) = (0, behind);
        } else if let Some(behind) = rest.strip_prefix("\u{1b}[K") {
            shown.truncate(at);
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("\u{1b}[2K") {
            shown.fill(' ');
            rest = behind;
        } else if let Some(sign) = rest.chars().next() {
            if shown.len() == at {
                shown.push(sign);
            } else {
                shown[at] = sign;
            }
            at += 1;
            rest = &rest[sign.len_utf8()..];
        } else {
            return shown.into_iter().collect::<String>().trim_end().to_owned();
        }
    }
}

/// Whether a text is one that a pattern stands for.
pub(super) fn fits(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["…", rest @ ..] => (0..=lines.len()).any(|from| fits(rest, &lines[from..])),
        [first, rest @ ..] => {
            lines.first().is_some_and(|line| line_fits(first, line)) && fits(rest, &lines[1..])
        }
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    same(pattern, line) || same(&timeless(pattern), &timeless(line))
}

fn same(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        if index + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

/// A line without what differs from run to run.
fn timeless(line: &str) -> String {
    let mut line = line.to_owned();
    let bar = |inner: &str| inner.len() == 24 && inner.chars().all(|sign| "=> ".contains(sign));
    if let Some((before, rest)) = line.split_once('[')
        && let Some((inner, behind)) = rest.split_once(']')
        && bar(inner)
    {
        line = format!("{before}[bar]{behind}");
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |(index, word): (usize, &&str)| {
        let core = word.trim_matches(|sign: char| !sign.is_ascii_alphanumeric() && sign != '…');
        let number = !core.is_empty() && core.bytes().all(|sign| sign.is_ascii_digit());
        let percent = number && words.get(index + 1) == Some(&"%");
        let elapsed = index > 0 && words[index - 1] == "\"elapsed_time_seconds\":";
        if is_moment(core) {
            word.replace(core, "MOMENT")
        } else if is_length(core) {
            word.replace(core, "TIME")
        } else if percent || elapsed {
            word.replace(core, "NUMBER")
        } else {
            (*word).to_owned()
        }
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

fn is_moment(word: &str) -> bool {
    let form: String = word.chars().map(|sign| if sign.is_ascii_digit() { '0' } else { sign }).collect();
    let seconds =
        form.strip_suffix('Z').map(|form| form.split_once('.').map_or(form, |(seconds, _)| seconds));
    seconds == Some("0000-00-00T00:00:00")
}

fn is_length(word: &str) -> bool {
    let number = word.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    ["ms", "s", "m", "h", "d"].contains(&&word[number.len()..])
        && number.starts_with(|sign: char| sign.is_ascii_digit())
        && number.parse::<f64>().is_ok()
}

/// The words of a line that may be ids of jobs.
pub(super) fn ids(line: &str) -> impl Iterator<Item = &str> {
    let is_id =
        |word: &&str| word.len() == 12 && word.bytes().all(|sign| matches!(sign, b'a'..=b'z' | b'2'..=b'7'));
    line.split(|sign: char| !sign.is_ascii_alphanumeric()).filter(is_id)
}

#[test]
fn a_pattern_stands_for_what_it_says_and_nothing_else() {
    for (pattern, line, expect) in [
        ("demo: … ms", "demo: 0.4 ms", true),
        ("demo: … ms", "demo: 0.4 s", false),
        ("{…}", "{}", true),
        ("a…b…c", "a1b2c", true),
        ("a…b…c", "a1c", false),
        ("same", "same", true),
        ("same", "same ", true),
        ("same", "other", false),
        ("sleep  lost  3s  1.3s  its …", "sleep   lost    12s    46ms  its end", true),
        ("ended after 46ms (sh)", "ended after 2s (sh)", true),
        ("ended after 46ms (sh)", "ended after 2s (ls)", false),
        ("created  2026-11-21T18:45:43.107Z", "created  2027-01-01T00:00:00Z", true),
        ("created  2026-11-21T18:45:43.107Z", "created  yesterday", false),
        ("[=>                      ]  4 % 1s", "[====>                   ]  20 % 2s", true),
        ("exit code 3", "exit code 4", false),
    ] {
        assert_eq!(line_fits(pattern, line), expect, "{pattern}: {line}");
    }
    assert!(fits(&["a", "…", "c"], &["a", "b", "b", "c"]) && !fits(&["a", "…", "c"], &["a", "b"]));
    assert_eq!(seen("\r\u{1b}[K1 %\r\u{1b}[K\r\u{1b}[Kdone\r\nnext\r\n"), "done\nnext");
    assert_eq!(seen("\r\u{1b}[2K1 %  \r\u{1b}[2K2 %  \r{}\r\n"), "{}%");
    assert_eq!(
        ids("job pwwjmcy47n6x: a, Bcdefghijklm, \"abcdefghijkl\"").collect::<Vec<_>>(),
        ["pwwjmcy47n6x", "abcdefghijkl"]
    );
}
