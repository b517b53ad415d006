//! The folder in which unhang keeps its files (design 6): `$UNHANG_HOME`, else `$XDG_STATE_HOME/unhang`, else `~/.local/state/unhang`.
//!
//! Invariant: no command keeps anything in a folder that another user owns or can write to. Such a user could replace queued
//! jobs' commands, servers' tokens, consents to files of projects, and the socket at which windows meet. Nor does a command keep
//! anything in a place that depends on the working folder.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use unhang_terminal::{failure::CommandFailure, text::escaped};

/// The kind of the error for a folder that another user owns or can write to.
pub(crate) const UNSAFE: &str = "unsafe_data_folder";

/// The folders in the data folder. A user who can write to one of them is as dangerous as one who can write to the whole.
const INSIDE: [&str; 9] =
    ["adopted", "gateway", "jobs", "lists", "logs", "state", "tokens", "trust", "worker"];

/// The variable that names the data folder.
const VARIABLE: &str = "UNHANG_HOME";

/// The bits of a mode that let the group and all others write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the data folder, or `None` if the environment names none. Refuses a folder that another user owns or can write to, and one that
/// depends on the working folder. A folder that does not exist yet is later made for its owner alone.
pub(crate) fn check() -> Result<Option<PathBuf>, CommandFailure> {
    if let Some(relative) = variable(VARIABLE).filter(|path| !path.is_absolute()) {
        let message = format!(
            "{VARIABLE} is {}, which is not an absolute path: it would be another folder for each \
             working folder",
            escaped(&relative.display().to_string())
        );
        let hint = format!("set {VARIABLE} to a path that begins with `/`");
        return Err(CommandFailure { kind: UNSAFE, ..CommandFailure::usage(message, Some(&hint)) });
    }
    let folder = data_folder();
    folder.as_deref().map_or(Ok(()), check_folder).map(|()| folder)
}

/// Refuses this folder, or one in it, if another user owns it or can write to it.
fn check_folder(folder: &Path) -> Result<(), CommandFailure> {
    let inside = INSIDE.iter().map(|name| folder.join(name));
    std::iter::once(folder.to_owned()).chain(inside).try_for_each(|path| {
        match fs::metadata(&path) {
            // If a file of this user is there, the command that uses it reports that. Otherwise the error is not about the mode, because no
            // mode makes a folder of a file.
            Ok(found) if !found.is_dir() => {
                judge(&path, found.uid(), geteuid().as_raw(), found.mode()).map_err(|_| no_folder(&path))
            }
            Ok(found) => judge(&path, found.uid(), geteuid().as_raw(), found.mode()),
            // A missing folder is made later. If a folder cannot be examined, its use reports the error.
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!("{} cannot be examined: {error}", path.display());
                }
                Ok(())
            }
        }
    })
}

fn no_folder(path: &Path) -> CommandFailure {
    let message =
        format!("the data folder cannot be used: {} is not a folder", escaped(&path.display().to_string()));
    let hint = format!("set {VARIABLE} to a folder, or move that file away");
    CommandFailure { kind: "no_data_folder", ..CommandFailure::usage(message, Some(&hint)) }
}

/// Returns whether no user other than `own` could have written a file with this owner and this mode.
pub(crate) fn is_of(own: u32, owner: u32, mode: u32) -> bool {
    owner == own && mode & OTHERS_WRITE == 0
}

/// Judges a folder by its owner, by the user of this process, and by its mode.
fn judge(path: &Path, owner: u32, own: u32, mode: u32) -> Result<(), CommandFailure> {
    let (shown, quoted) = (escaped(&path.display().to_string()), quoted(path));
    let (why, hint) = if owner != own {
        (
            format!("it belongs to the user with the number {owner}, and unhang runs as {own}"),
            format!("set UNHANG_HOME to a folder of your own, or run `chown -R {own} {quoted}` as root"),
        )
    } else if mode & OTHERS_WRITE != 0 {
        (
            format!("other users can write to it (its mode is {:04o})", mode & 0o7777),
            format!("run `chmod go-w {quoted}`, or set UNHANG_HOME to another folder"),
        )
    } else {
        return Ok(());
    };
    let message = format!("the data folder {shown} is not used: {why}");
    Err(CommandFailure { kind: UNSAFE, ..CommandFailure::usage(message, Some(&hint)) })
}

/// Returns the path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = escaped(&path.display().to_string());
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Returns the data folder, or `None` if the environment names none. If the variable has a relative path, only [`check`] gives the reason.
pub(crate) fn data_folder() -> Option<PathBuf> {
    folder_from(variable)
}

/// Returns the reason why the environment names no data folder.
pub(crate) fn absence() -> String {
    absence_from(variable)
}

fn absence_from(variable: impl Fn(&str) -> Option<PathBuf>) -> String {
    let relative = |name| variable(name).filter(|path| !path.is_absolute()).map(|path| (name, path));
    match [VARIABLE, "HOME", "XDG_STATE_HOME"].into_iter().find_map(relative) {
        Some((name, path)) => {
            let path = escaped(&path.display().to_string());
            format!("{name} is `{path}`, which is not an absolute path: it does not begin with `/`")
        }
        None => "neither UNHANG_HOME nor HOME is set".to_owned(),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn folder_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let whole = |name| variable(name).filter(|path| path.is_absolute());
    if variable(VARIABLE).is_some() {
        return whole(VARIABLE);
    }
    whole("XDG_STATE_HOME")
        .map(|path| path.join("unhang"))
        .or_else(|| whole("HOME").map(|home| home.join(".local/state/unhang")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_23_a_folder_is_used_that_is_ours_and_that_nobody_else_can_write_to() {
        let path = Path::new("/data/it's");
        assert!(is_of(7, 7, 0o100_600) && !is_of(7, 8, 0o100_600) && !is_of(7, 7, 0o100_620));
        for mode in [0o40700, 0o40755, 0o40750, 0o42755] {
            assert!(judge(path, 7, 7, mode).is_ok(), "{mode:o}");
        }
        for mode in [0o40777, 0o40775, 0o40702, 0o41777] {
            let failure = judge(path, 7, 7, mode).expect_err("others can write");
            assert_eq!(failure.code, unhang::exit::USAGE);
            let hint = failure.hint.unwrap_or_default();
            assert!(hint.contains("`chmod go-w '/data/it'\\''s'`"), "{hint}");
        }
        let failure = judge(path, 8, 7, 0o40700).expect_err("it is another's");
        assert!(failure.message.contains("the number 8, and unhang runs as 7"), "{}", failure.message);
    }

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
        // What the working folder decides on is no place.
        assert_eq!(with(&[("UNHANG_HOME", "u"), ("HOME", "/h")]), None);
        assert_eq!(with(&[("HOME", ".")]), None);
    }

    #[test]
    fn a_variable_with_a_relative_path_is_named_and_not_called_unset() {
        let said = |pairs: &'static [(&str, &str)]| {
            absence_from(|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(said(&[]), "neither UNHANG_HOME nor HOME is set");
        assert!(said(&[("HOME", "rel")]).starts_with("HOME is `rel`, which is not an absolute path"));
        assert!(said(&[("UNHANG_HOME", "u"), ("HOME", "/h")]).starts_with("UNHANG_HOME is `u`"));
        assert!(said(&[("XDG_STATE_HOME", "s")]).starts_with("XDG_STATE_HOME is `s`"));
    }
}
