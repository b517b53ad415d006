//! The orders for a job: `launch.json`, which is for the supervisor alone, and the part of it that may be shown.
//!
//! Invariants
//!
//! - Arguments and variables that are not text keep their bytes.
//! - The shown command never holds the value of an option, and never the value of an assignment, whose name says that it is a secret.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    folder::{ARGUMENTS, FileError, JobFolder, LAUNCH, RECORD},
    record::JobRecord,
    work_lease::WorkLease,
};

/// An argument, or the name or value of a variable: as text if it is text, and otherwise as bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum TextOrBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&OsStr> for TextOrBytes {
    fn from(word: &OsStr) -> Self {
        match word.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(word.as_bytes().to_owned()),
        }
    }
}

impl From<TextOrBytes> for OsString {
    fn from(word: TextOrBytes) -> Self {
        match word {
            TextOrBytes::Text(text) => text.into(),
            TextOrBytes::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

impl TextOrBytes {
    /// Returns the word with every occurrence of one path replaced by another.
    fn with(self, old: &[u8], new: &[u8]) -> Self {
        let word = OsString::from(self).into_vec();
        let (mut changed, mut rest) = (Vec::with_capacity(word.len()), &*word);
        while let Some(at) = rest.windows(old.len().max(1)).position(|window| window == old) {
            changed.extend_from_slice(&rest[..at]);
            changed.extend_from_slice(new);
            rest = &rest[at + old.len()..];
        }
        changed.extend_from_slice(rest);
        Self::from(OsStr::from_bytes(&changed))
    }
}

/// The content of `launch.json`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchOrders {
    /// [`FORMAT`](crate::record::FORMAT).
    pub(crate) format: u32,
    /// The job as it was accepted: `job.json` is a copy for people, and may be gone after a power failure.
    pub(crate) record: JobRecord,
    /// The program, which is looked for in the `PATH` of `environment`, and its arguments.
    pub(crate) command: Vec<TextOrBytes>,
    /// The working folder.
    pub(crate) folder: TextOrBytes,
    /// The whole environment.
    pub(crate) environment: Vec<(TextOrBytes, TextOrBytes)>,
    /// Whether the orders may hold secrets, so that no copy of them is made.
    #[serde(default)]
    pub(crate) is_private: bool,
    /// The content that the supervisor writes to `input.json` before the work starts, if the submitter has not written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// The boot of the submission, for as long as the file is marked as its submitter's (`submitting.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
    /// The time until which the work may run; absent if it needs no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<WorkLease>,
}

impl LaunchOrders {
    pub(crate) fn command(&self) -> Vec<OsString> {
        self.command.iter().cloned().map(Into::into).collect()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        OsString::from(self.folder.clone()).into()
    }

    /// Returns the orders with the work's own folder in place of the job's folder, wherever the orders name it. For work that was told of
    /// the job's folder.
    pub(crate) fn with_own_folder(self, own: &Path) -> Self {
        let told =
            |(name, _): &&(TextOrBytes, TextOrBytes)| *name == TextOrBytes::Text("UNHANG_JOB_DIR".to_owned());
        let Some((_, old)) = self.environment.iter().find(told).cloned() else { return self };
        let old = OsString::from(old);
        let moved = |word: TextOrBytes| word.with(old.as_bytes(), own.as_os_str().as_bytes());
        Self {
            command: self.command.into_iter().map(moved).collect(),
            folder: moved(self.folder),
            environment: self.environment.into_iter().map(|(name, value)| (name, moved(value))).collect(),
            ..self
        }
    }

    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.iter().cloned().map(|(name, value)| (name.into(), value.into())).collect()
    }
}

/// The exact content of the files that a job's folder has before the job starts, besides inputs and the record.
pub(crate) struct LaunchFiles {
    /// The content of `launch.json`.
    pub(crate) launch: String,
    /// The content of `input.json`, if the orders do not have it: an older unhang wrote it apart from them.
    pub(crate) arguments: Option<String>,
}

impl LaunchFiles {
    /// The number of bytes up to which the database has the files too. Longer files would make its log long, and take their time in any
    /// case.
    const SMALL: usize = 64 << 10;

    /// Returns the files if they are small enough for the database; `None` otherwise.
    pub(crate) fn if_small(self) -> Option<Self> {
        let bytes = self.launch.len() + self.arguments.as_ref().map_or(0, String::len);
        (bytes <= Self::SMALL).then_some(self)
    }

    /// Reads the files of a folder whose record has this format; `None` if they are not small, may hold secrets, or cannot be read.
    pub(crate) fn read(folder: &JobFolder, format: u32) -> Option<Self> {
        let work = folder.work(format);
        let (launch, arguments) = (folder.text(LAUNCH, Self::SMALL)?, work.text(ARGUMENTS, Self::SMALL));
        // Orders that cannot be read may hold secrets.
        let orders: LaunchOrders = serde_json::from_str(&launch).ok()?;
        if orders.is_private {
            return None;
        }
        let is_whole = arguments.is_some() || !work.has(ARGUMENTS);
        is_whole.then_some(Self { launch, arguments }).and_then(Self::if_small)
    }

    /// Writes the files that a power failure has taken.
    pub(crate) fn restore(&self, folder: &JobFolder, record: &JobRecord) -> Result<(), FileError> {
        let work = folder.work(record.format);
        work.create_if_missing()?;
        folder.restore(LAUNCH, &self.launch)?;
        if let Some(arguments) = &self.arguments {
            work.restore(ARGUMENTS, arguments)?;
        }
        match folder.read::<JobRecord>(RECORD) {
            Ok(Some(_)) => Ok(()),
            _ => folder.write_lightly(RECORD, record),
        }
    }
}

/// The parts of names whose values are not shown.
const SECRET: [&str; 8] =
    ["password", "passwd", "secret", "token", "apikey", "credential", "authorization", "privatekey"];

/// The text that stands for a hidden value.
const HIDDEN: &str = "***";

/// Returns a command without the values that look like secrets.
pub(crate) fn shown(command: &[OsString]) -> Vec<String> {
    let mut hides_next = false;
    let show = |word: &OsString| {
        let word = word.to_string_lossy();
        let hidden = std::mem::take(&mut hides_next);
        if hidden && !word.starts_with('-') {
            return HIDDEN.to_owned();
        }
        match word.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
            Some(_) => word.into_owned(),
            None => {
                hides_next = word.starts_with('-') && is_secret(&word);
                word.into_owned()
            }
        }
    };
    command.iter().map(show).collect()
}

fn is_secret(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let letters = letters.to_ascii_lowercase();
    SECRET.iter().any(|part| letters.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    #[test]
    fn bytes_that_are_no_text_survive_the_file() {
        let odd = OsString::from_vec(vec![b'a', 0xff]);
        let record = include_str!("../tests/format-1/runningaaaaa/job.json");
        let launch = LaunchOrders {
            format: 1,
            record: serde_json::from_str(record).unwrap(),
            command: vec![OsStr::new("echo").into(), odd.as_os_str().into()],
            folder: OsStr::new("/tmp").into(),
            environment: vec![(OsStr::new("A").into(), odd.as_os_str().into())],
            is_private: true,
            arguments: None,
            boot: None,
            lease: None,
        };
        let text = serde_json::to_string(&launch).unwrap();
        let read: LaunchOrders = serde_json::from_str(&text).unwrap();
        assert_eq!(read.command(), [OsString::from("echo"), odd.clone()]);
        assert_eq!(read.environment(), [(OsString::from("A"), odd)]);
        assert_eq!(read.folder(), PathBuf::from("/tmp"));
    }

    #[test]
    fn what_looks_like_a_secret_is_not_shown() {
        let command = words(&[
            "curl",
            "--api-key",
            "k3y",
            "--API_TOKEN=abc",
            "PASSWORD=x",
            "-v",
            "--token",
            "--next",
            "y",
        ]);
        assert_eq!(
            shown(&command),
            ["curl", "--api-key", "***", "--API_TOKEN=***", "PASSWORD=***", "-v", "--token", "--next", "y"]
        );
        let plain = ["python", "simulate.py", "--cod", "12", "key=value", "tokens"];
        assert_eq!(shown(&words(&plain)), plain);
    }
}
