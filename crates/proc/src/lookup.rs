//! Finds a program the way a shell does, and reports where it looked if there is none.
//!
//! Invariants: nothing is executed here, and the kernel checks the program again when it executes it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::spawn::{Environment, SpawnError};

/// The folders that the C library searches if there is no PATH at all.
const FALLBACK_PATH: &str = "/bin:/usr/bin";

/// Returns the path of this very program, which also plays the parts of the small processes that it starts.
#[must_use]
pub fn this_program() -> PathBuf {
    // The link still leads to this program after an upgrade has replaced the file.
    let program = PathBuf::from("/proc/self/exe");
    if program.exists() { program } else { std::env::current_exe().unwrap_or(program) }
}

/// Finds the file that would be executed for `program`, in this environment and working folder, if both can be used.
///
/// # Errors
/// Fails with [`SpawnError::WorkingFolder`] if the folder cannot be used. Fails with [`SpawnError::ProgramNotFound`] or
/// [`SpawnError::NotExecutable`] if the program cannot.
pub fn executable(
    program: &OsStr,
    environment: &Environment,
    folder: Option<&Path>,
) -> Result<PathBuf, SpawnError> {
    if let Some(folder) = folder {
        check_folder(folder)?;
    }
    find(program, environment, folder)
}

fn check_folder(folder: &Path) -> Result<(), SpawnError> {
    let check = || -> io::Result<()> {
        if !std::fs::metadata(folder)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(accessat(CWD, folder, Access::EXEC_OK, AtFlags::empty())?)
    };
    check().map_err(|source| SpawnError::WorkingFolder { folder: folder.to_owned(), source })
}

/// Finds the path that `program` stands for, in this environment and working folder.
fn find(program: &OsStr, environment: &Environment, folder: Option<&Path>) -> Result<PathBuf, SpawnError> {
    // The lifeline starts the program from inside the folder, so a relative path would be applied twice.
    let here = std::path::absolute(folder.unwrap_or(Path::new("."))).map_err(|source| {
        SpawnError::WorkingFolder { folder: folder.unwrap_or(Path::new(".")).to_owned(), source }
    })?;
    let here = here.as_path();
    if program.as_bytes().contains(&b'/') {
        let path = here.join(program);
        return match check(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let searched = path.parent().map(Path::to_owned).into_iter().collect();
                Err(SpawnError::ProgramNotFound { program: program.to_owned(), searched })
            }
            Err(source) => Err(SpawnError::NotExecutable { program: path, source }),
        };
    }
    search(program, &search_path(environment), here)
}

fn search(program: &OsStr, path: &OsStr, here: &Path) -> Result<PathBuf, SpawnError> {
    let mut refused = None;
    let mut searched = Vec::new();
    if program.is_empty() {
        return Err(SpawnError::ProgramNotFound { program: program.to_owned(), searched });
    }
    for folder in std::env::split_paths(path) {
        let candidate = here.join(&folder).join(program);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied && candidate.is_file() => {
                refused.get_or_insert(SpawnError::NotExecutable { program: candidate, source });
            }
            Err(_) => {}
        }
        searched.push(folder);
    }
    Err(refused.unwrap_or(SpawnError::ProgramNotFound { program: program.to_owned(), searched }))
}

fn check(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(accessat(CWD, path, Access::EXEC_OK, AtFlags::empty())?)
}

/// Returns the PATH that the server will have, because the author of its configuration means that one.
fn search_path(environment: &Environment) -> OsString {
    let path = match environment {
        // An inherited environment is by definition the one of this process; nothing else here reads it.
        Environment::Inherit => std::env::var_os("PATH"),
        Environment::Exactly(variables) => {
            variables.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone())
        }
    };
    path.unwrap_or_else(|| FALLBACK_PATH.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn with_path(path: &str) -> Environment {
        Environment::Exactly(vec![("PATH".into(), path.into())])
    }

    #[test]
    fn a_program_is_found_in_the_path_of_the_environment_given() {
        assert_eq!(find("sh".as_ref(), &with_path("/nonexistent:/bin"), None).unwrap(), Path::new("/bin/sh"));
        assert_eq!(
            find("sh".as_ref(), &Environment::Exactly(Vec::new()), None).unwrap(),
            Path::new("/bin/sh")
        );
    }

    #[test]
    fn a_missing_program_is_named_with_the_folders_searched() {
        let error = find("no-such-program".as_ref(), &with_path("/one:/two"), None).unwrap_err().to_string();
        for word in ["no-such-program", "/one", "/two"] {
            assert!(error.contains(word), "{error}");
        }
        let error =
            find("./absent".as_ref(), &with_path("/one"), Some(Path::new("/tmp"))).unwrap_err().to_string();
        assert!(error.contains("./absent") && error.contains("/tmp"), "{error}");
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_named_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plain");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = find("plain".as_ref(), &with_path(folder.path().to_str().unwrap()), None).unwrap_err();
        assert!(matches!(&error, SpawnError::NotExecutable { program, .. } if *program == file), "{error}");
        let error = find("./".as_ref(), &with_path("/bin"), Some(folder.path())).unwrap_err();
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{error}");
    }

    #[test]
    fn a_relative_program_belongs_to_the_working_folder() {
        assert_eq!(
            find("./sh".as_ref(), &with_path(""), Some(Path::new("/bin"))).unwrap(),
            Path::new("/bin/./sh")
        );
    }
}
