//! Files of variables, as `envFile` names them: one variable a line, `NAME=VALUE`.
//!
//! Invariants: nothing in them is expanded or run. An error names the number of the wrong line.

use std::collections::BTreeMap;

/// Reads the variables of such a file. If a name occurs twice, the last one counts.
///
/// # Errors
/// Fails if a line is not a variable. The error is `:LINE: ` and the reason, to stand behind the name of the file. It does not repeat the
/// line, which may be secret.
pub(super) fn variables(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut variables = BTreeMap::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let variable = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_whitespace);
        let Some((name, value)) = variable.filter(|(name, _)| is_name(name)) else {
            return Err(format!(":{number}: is not a line of the form NAME=VALUE"));
        };
        let value = value_of(value).ok_or_else(|| format!(":{number}: the quotes do not end"))?;
        if name.contains('\0') || value.contains('\0') {
            return Err(format!(":{number}: has a zero byte, which a command cannot take"));
        }
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// Removes the quotes of a value, or the comment behind it. Returns `None` if its quotes do not end.
fn value_of(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        return Some(rest.split_once('\'')?.0.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        let comment = value.find(" #").unwrap_or(value.len());
        return Some(value[..comment].trim_end().to_owned());
    };
    let (mut plain, mut characters) = (String::new(), rest.chars());
    loop {
        match characters.next()? {
            '"' => return Some(plain),
            '\\' => plain.push(match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            other => plain.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_variable_is_named_by_its_line_and_never_shown() {
        for (text, expect) in [
            ("A=1\nsecret", ":2: is not a line of the form NAME=VALUE"),
            ("A B=1", ":1: is not a line of the form NAME=VALUE"),
            ("=1", ":1: is not a line of the form NAME=VALUE"),
            ("A='secret", ":1: the quotes do not end"),
            ("A=\"secret\\", ":1: the quotes do not end"),
            ("A=\0", ":1: has a zero byte, which a command cannot take"),
        ] {
            assert_eq!(variables(text).expect_err("no variable"), expect);
        }
        let read = variables("\u{feff}A=1 # one\nA=2\nB=a#b\nC=\"x\\\"y\"").expect("variables");
        let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(read, [("A", "2"), ("B", "a#b"), ("C", "x\"y")]);
    }
}
