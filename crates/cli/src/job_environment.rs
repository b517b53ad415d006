//! What a job inherits of our environment (design 6): a small set that is of use everywhere, and nothing that may be a secret.
//!
//! Invariant: the environment is read here alone for this; the libraries are handed what they may see (promise 4).

use std::{env, ffi::OsString};

/// The variables, besides those that begin with `LC_`.
const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// Those of our variables that a job inherits.
pub(crate) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    chosen(env::vars_os())
}

/// All of our variables: for whom the author of a file, or whoever types a command, wants it so.
pub(crate) fn all_variables() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os()
}

fn chosen(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    variables.filter(|(name, _)| {
        name.to_str().is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_4_only_the_small_set_is_inherited() {
        let names = ["PATH", "LC_ALL", "LC_", "AWS_SECRET", "UNHANG_HOME", "LANGUAGE", "TZ", "path"];
        let variables = names.map(|name| (OsString::from(name), OsString::from("value")));
        let kept: Vec<_> = chosen(variables.into_iter()).map(|(name, _)| name).collect();
        assert_eq!(kept, ["PATH", "LC_ALL", "LC_", "TZ"]);
    }
}
