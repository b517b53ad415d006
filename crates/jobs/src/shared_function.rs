//! Functions of the Python package, by the names under which workers know them, and the patterns by which a worker allows them.
//!
//! Invariants
//!
//! - A name has identifiers, dots and one colon, and nothing else. So no name is a path, an option or a piece of a program.
//! - A job names all patterns that would allow its function, and a worker has its own patterns. A match is an equal text, which the store
//!   finds. The worker compares again, since the store may have been changed by somebody else.

use std::{fmt, str::FromStr};

/// The longest name of a function.
const LONGEST: usize = 256;
/// The beginning of the labels that stand for patterns.
const LABEL: &str = "unhang:function:";
/// The end of a pattern for all modules below a package.
const BELOW: &str = ".*";
/// The pattern for all modules.
const EVERY: &str = "*";

/// The name of a function at the top of a Python module: `module:function`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    module: String,
    function: String,
}

/// Why a text is no name of a function, or no pattern, as the end of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAFunction(&'static str);

impl FunctionName {
    /// Returns the module, with dots.
    #[must_use]
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Returns the labels of all patterns that allow the function, the one for its very module last.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let packages = self.module.match_indices('.').map(|(at, _)| format!("{}{BELOW}", &self.module[..at]));
        let patterns = [EVERY.to_owned()].into_iter().chain(packages).chain([self.module.clone()]);
        patterns.map(|pattern| label(&pattern)).collect()
    }
}

impl FromStr for FunctionName {
    type Err = NotAFunction;

    fn from_str(text: &str) -> Result<Self, NotAFunction> {
        let wrong = NotAFunction(
            "is not a function: write `module:function` with the letters of ASCII, digits and `_`, and dots in \
             the module",
        );
        let (module, function) = text.split_once(':').ok_or(wrong)?;
        if text.len() > LONGEST || !is_module(module) || !is_identifier(function) {
            return Err(wrong);
        }
        Ok(Self { module: module.to_owned(), function: function.to_owned() })
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.module, self.function)
    }
}

/// The modules whose functions a worker runs: `models.design` is that module, `models.*` all modules below `models`, and `*` all modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionPattern(String);

impl FunctionPattern {
    /// Returns whether the worker runs this function.
    #[must_use]
    pub fn allows(&self, name: &FunctionName) -> bool {
        name.labels().contains(&self.label())
    }

    /// Returns the label of a worker with this pattern.
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.0)
    }
}

impl FromStr for FunctionPattern {
    type Err = NotAFunction;

    fn from_str(text: &str) -> Result<Self, NotAFunction> {
        if text == EVERY || is_module(text.strip_suffix(BELOW).unwrap_or(text)) {
            return Ok(Self(text.to_owned()));
        }
        Err(NotAFunction(
            "names no modules: write a module as `models.design`, all modules below a package as `models.*`, or \
             `*`",
        ))
    }
}

impl fmt::Display for FunctionPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the pattern that such a label stands for; `None` for any other label.
#[must_use]
pub fn pattern_of_label(label: &str) -> Option<&str> {
    label.strip_prefix(LABEL)
}

fn label(pattern: &str) -> String {
    format!("{LABEL}{pattern}")
}

fn is_module(text: &str) -> bool {
    text.split('.').all(is_identifier)
}

/// Returns whether the text is an identifier of ASCII that Python does not keep for itself, as `__main__`, whose import runs a program.
fn is_identifier(text: &str) -> bool {
    let is_begin = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    text.starts_with(is_begin)
        && !text.starts_with("__")
        && text.chars().all(|letter| is_begin(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_allows_its_module_or_those_below_its_package() {
        let allows = |pattern: &str, name: &str| {
            pattern.parse::<FunctionPattern>().unwrap().allows(&name.parse().unwrap())
        };
        for (pattern, name) in [
            ("models.*", "models.design:size"),
            ("models.*", "models.deep.er:size"),
            ("models.deep.*", "models.deep.er:size"),
            ("models.design", "models.design:size"),
            ("models", "models:_own"),
            ("*", "a.b:c"),
        ] {
            assert!(allows(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("models.*", "models:size"),
            ("models.*", "models2.design:size"),
            ("models.*", "os:system"),
            ("models.design", "models.design.deep:size"),
            ("models.design", "models.designs:size"),
            ("models.design", "models.desig:n"),
            ("mod_ls.*", "models.design:size"),
        ] {
            assert!(!allows(pattern, name), "{pattern} {name}");
        }
        assert_eq!(
            "a.b.c:d".parse::<FunctionName>().unwrap().labels(),
            ["*", "a.*", "a.b.*", "a.b.c"].map(|pattern| format!("unhang:function:{pattern}"))
        );
    }

    #[test]
    fn promise_4_a_name_is_no_path_no_option_and_no_program() {
        let long = format!("{}:f", "m".repeat(LONGEST));
        for text in [
            "",
            "models.x",
            ":f",
            "m:",
            "models.x:y; import os",
            "../x",
            "../x:f",
            "/etc/x.py:f",
            "-c:f",
            "m:-f",
            "m..n:f",
            ".m:f",
            "m.:f",
            "m:f.g",
            "m:f:g",
            "m:f\n",
            "m :f",
            "1m:f",
            "models.__main__:f",
            "m:__import__",
            "größe:f",
            long.as_str(),
        ] {
            assert!(text.parse::<FunctionName>().is_err(), "{text:?}");
        }
        for text in ["", "models.", ".*", "models*", "m*.x", "models/*", "*.*", "../*", "unhang:command"] {
            assert!(text.parse::<FunctionPattern>().is_err(), "{text:?}");
        }
    }
}
