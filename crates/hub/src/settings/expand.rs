//! `${NAME}`, `${env:NAME}` and `${NAME:-default}` in the values of configuration files, and `${input:ID}` in those of VS Code.
//!
//! Invariants: the environment is the caller's, handed in as a function; what a variable holds is never expanded again; a
//! variable that is not set and has no default is an error, never an empty text.

/// Puts values in the place of variables. `$${` stands for `${` itself; any other `$` stands for itself.
///
/// # Errors
/// A sentence that names the variable that is not set, or the reference that is none.
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
        // VS Code and Cursor write the first; the second is asked for in VS Code.
        let name = name.strip_prefix("env:").unwrap_or(name);
        let (asked, plain) = match name.strip_prefix("input:") {
            Some(id) => (Some(id), id),
            None => (None, name),
        };
        if !is_name(plain) && (asked.is_none() || plain.is_empty()) {
            return Err(format!(
                "`${{{inside}}}` names no variable; write `$${{` where `${{` is to stand for itself"
            ));
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

/// The variable that gives an input for which VS Code would ask.
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
