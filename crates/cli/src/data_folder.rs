//! Where unhang keeps its files (design 6): `$UNHANG_HOME`, else `$XDG_STATE_HOME/unhang`, else `~/.local/state/unhang`.

use std::path::PathBuf;

/// The data folder, if the environment names any.
pub(crate) fn data_folder() -> Option<PathBuf> {
    folder_from(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn folder_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("UNHANG_HOME")
        .or_else(|| {
            variable("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("unhang"))
        })
        .or_else(|| variable("HOME").map(|home| home.join(".local/state/unhang")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_wins() {
        let with = |pairs: &'static [(&str, &str)]| {
            folder_from(|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(with(&[("UNHANG_HOME", "/u"), ("HOME", "/h")]), Some("/u".into()));
        assert_eq!(with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/unhang".into()));
        assert_eq!(
            with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Some("/h/.local/state/unhang".into())
        );
        assert_eq!(with(&[]), None);
    }
}
