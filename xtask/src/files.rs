//! Files and folders that are written for packages: their modes do not depend on the umask, and a failure names the path.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest;
use serde_json::Value;

use crate::failure::ChoreFailure;

/// The mode of a file that is read.
const READ: u32 = 0o644;
/// The mode of a program.
const RUN: u32 = 0o755;

/// Makes a folder that has nothing in it.
pub(crate) fn empty(folder: &Path) -> Result<(), ChoreFailure> {
    let remove = || if folder.exists() { fs::remove_dir_all(folder) } else { Ok(()) };
    remove()
        .and_then(|()| fs::create_dir_all(folder))
        .map_err(|error| ChoreFailure::io(format!("cannot empty {}", folder.display()), &error))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), ChoreFailure> {
    put(path, READ, |path| fs::write(path, text))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), ChoreFailure> {
    put(to, READ, |to| fs::copy(from, to).map(drop)).map_err(|failure| copying(from, &failure))
}

/// Copies a program or a script that is started by its name.
pub(crate) fn copy_program(from: &Path, to: &Path) -> Result<(), ChoreFailure> {
    put(to, RUN, |to| fs::copy(from, to).map(drop)).map_err(|failure| copying(from, &failure))
}

fn copying(from: &Path, failure: &ChoreFailure) -> ChoreFailure {
    ChoreFailure::new(format!("cannot copy {}: {failure}", from.display()))
}

fn put(path: &Path, mode: u32, work: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), ChoreFailure> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
        .and_then(|()| work(path))
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(|error| ChoreFailure::io(path.display(), &error))
}

pub(crate) fn read(path: &Path) -> Result<String, ChoreFailure> {
    fs::read_to_string(path).map_err(|error| ChoreFailure::io(path.display(), &error))
}

pub(crate) fn read_json(path: &Path) -> Result<Value, ChoreFailure> {
    serde_json::from_str(&read(path)?)
        .map_err(|error| ChoreFailure::new(format!("{} is not JSON: {error}", path.display())))
}

/// The paths in a folder, sorted.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, ChoreFailure> {
    let entries = fs::read_dir(folder).map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    paths.sort();
    Ok(paths)
}

/// All files below a folder, sorted. Folders get the mode that they have in packages.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>, ChoreFailure> {
    fs::set_permissions(folder, Permissions::from_mode(RUN))
        .map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    let mut files = Vec::new();
    for path in list(folder)? {
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sha256(path: &Path) -> Result<String, ChoreFailure> {
    let bytes = fs::read(path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    Ok(HEXLOWER.encode(digest::digest(&digest::SHA256, &bytes).as_ref()))
}
