//! The variables that a job inherits from this process (design 6): a small set that is useful everywhere, without anything that may be a
//! secret.
//!
//! Invariant: this module alone reads the environment for this. The libraries get the variables that they may see (promise 4).

use std::{env, ffi::OsString};

/// The inherited variables, besides those that begin with `LC_`.
const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// Returns the variables of this process that a job inherits.
pub(crate) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    chosen(env::vars_os())
}

/// Returns all variables of this process, for jobs of which the author of a file, or the person who types a command, wants it so.
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
