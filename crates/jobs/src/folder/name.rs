//! The names that files of a job's work may have, as far as they come from outside.
//!
//! Invariants: a name is one part of a path, and leads nowhere else.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use super::ERROR;

/// The number of bytes of the longest name that file systems of Linux have.
const LONGEST_NAME: usize = 255;

/// The names that inputs and results cannot have: the work's own account of its failure lies there.
const OURS: [&str; 1] = [ERROR];

/// The name of a file in a job's folder, as its record has it: one part of a path, and not a name of unhang.
/// [`ARGUMENTS`](super::ARGUMENTS) is allowed if a job has no arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(String);

/// The name of an input. It stands in no record, and so it need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputName(OsString);

/// The error for a text that cannot be the name of a file in a job's folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be a file of a job: a name has 1 to {LONGEST_NAME} bytes, no `/` and no zero byte, and \
     is not one of ., .., {ours}",
    ours = OURS.join(", ")
)]
pub struct NotAFileName(String);

impl FileName {
    /// Checks a name.
    ///
    /// # Errors
    /// Fails with [`NotAFileName`], whose text says what a name is.
    pub fn new(name: &str) -> Result<Self, NotAFileName> {
        checked(name.as_bytes()).map(|()| Self(name.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl InputName {
    /// Checks a name.
    ///
    /// # Errors
    /// Fails with [`NotAFileName`], whose text says what a name is.
    pub fn new(name: &OsStr) -> Result<Self, NotAFileName> {
        checked(name.as_bytes()).map(|()| Self(name.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }
}

impl From<FileName> for InputName {
    fn from(name: FileName) -> Self {
        Self(name.0.into())
    }
}

fn checked(name: &[u8]) -> Result<(), NotAFileName> {
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
        && ![&b"."[..], b".."].contains(&name)
        && !OURS.iter().any(|ours| ours.as_bytes() == name);
    if is_name {
        return Ok(());
    }
    Err(NotAFileName(String::from_utf8_lossy(name).into_owned()))
}
