//! `${NAME}`, `${env:NAME}` and `${NAME:-default}` in the values of configuration files, and `${input:ID}` in those of VS Code.
//!
//! Invariants: the caller hands in the environment as a function. The value of a variable is never expanded again. A variable that is not
//! set and has no default is an error, never an empty text.

use std::ops::Range;

/// Replaces variables by their values. `$${` stands for `${` itself. Any other `$` stands for itself.
///
/// # Errors
/// Fails with a sentence that names the variable that is not set, or the reference that is malformed.
pub(super) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &reference[2..];
            continue;
        }
        expanded.push_str(before);
        let Some((inside, behind)) = reference[2..].split_once('}') else {
            return Err(format!("`{reference}` has no closing brace; write `$${{` for a plain `${{`"));
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        // VS Code and Cursor write the prefix `env:`. VS Code also has `input:`, and asks the user for the value.
        let name = name.strip_prefix("env:").unwrap_or(name);
        let (asked, plain) = match name.strip_prefix("input:") {
            Some(id) => (Some(id), id),
            None => (None, name),
        };
        if !is_name(plain) && (asked.is_none() || plain.is_empty()) {
            return Err(format!("`${{{inside}}}` names no variable; write `$${{` for a plain `${{`"));
        }
        match (lookup(name).filter(|value| !value.is_empty() || default.is_none()), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => {
                return Err(match asked {
                    Some(id) => format!("the input {id} is not known; set {}", input_variable(id)),
                    None => {
                        format!("the variable {name} is not set; set it, or write `${{{name}:-default}}`")
                    }
                });
            }
        }
        rest = behind;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// A reference to a variable in a text, as [`expand`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference<'t> {
    /// The place of the reference, with its braces.
    pub at: Range<usize>,
    /// The name of the variable, without `env:`.
    pub name: &'t str,
    /// The default, for a variable that is not set.
    pub default: Option<&'t str>,
}

/// Lists the references in a text, up to the first one without an end.
pub(super) fn references(text: &str) -> Vec<Reference<'_>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(at) = text[from..].find("${").map(|at| from + at) {
        if text[from..at].ends_with('$') {
            from = at + 2;
            continue;
        }
        let Some(length) = text[at..].find('}') else { break };
        let end = at + length + 1;
        let inside = &text[at + 2..end - 1];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        found.push(Reference { at: at..end, name, default });
        from = end;
    }
    found
}

/// Lists the variables of the environment that a text is expanded with, each once.
pub(super) fn variables_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for Reference { name, .. } in references(text) {
        let name = match name.strip_prefix("input:") {
            Some(id) => input_variable(id),
            None if ["workspaceFolder", "pathSeparator", "/"].contains(&name) => continue,
            None => name.to_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the name of the variable for an input that VS Code would ask for.
pub(super) fn input_variable(id: &str) -> String {
    let letters = id
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' });
    format!("UNHANG_INPUT_{}", letters.collect::<String>())
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOME}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_expanded_once() {
        for (text, expect) in [
            ("plain $HOME", "plain $HOME"),
            ("${HOME}/a and ${HOME}", "/home/me/a and /home/me"),
            ("${NONE:-b}", "b"),
            ("${NONE:-}", ""),
            ("${EMPTY:-c}", "c"),
            ("${EMPTY}", ""),
            ("${TRICK}", "${HOME}"),
            ("$${HOME}", "${HOME}"),
            ("a$", "a$"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expect), "{text}");
        }
    }

    #[test]
    fn f_22_the_variables_of_a_text_are_those_that_are_expanded() {
        for (text, expect) in [
            ("plain", &[][..]),
            ("${HOME} and ${env:A:-b} and ${HOME}", &["HOME", "A"]),
            ("$${NONE} $$${NONE}", &[]),
            ("${input:my key}", &["UNHANG_INPUT_MY_KEY"]),
            ("${A} ${B", &["A"]),
        ] {
            assert_eq!(variables_of(text), expect, "{text}");
            // What is named is what is asked for.
            let asked = std::cell::RefCell::new(Vec::new());
            let _told = expand(text, &|name| {
                asked.borrow_mut().push(name.to_owned());
                Some(String::new())
            });
            let named: Vec<String> = references(text).iter().map(|found| found.name.to_owned()).collect();
            assert_eq!(asked.into_inner(), named, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_expanded_is_named() {
        for (text, expect) in [
            ("${NONE}", "the variable NONE is not set"),
            ("${NONE", "no closing brace"),
            ("${}", "names no variable"),
            ("${a b}", "names no variable"),
        ] {
            let told = expand(text, &lookup).expect_err("cannot be expanded");
            assert!(told.contains(expect), "{told}");
        }
    }
}
