//! What is to be started: `launch.json`, which is for the shim alone, and the part of it that may be shown.
//!
//! Invariants
//!
//! - What goes in comes out: arguments and variables that are no text keep their bytes.
//! - The shown command never holds the value of an option, and never the value of an assignment, whose name says that it is a
//!   secret.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use unhang_switches::stands;

use crate::{
    folder::{ARGUMENTS, FileError, JobFolder, LAUNCH, RECORD},
    record::JobRecord,
};

/// One argument, or the name or value of a variable: text where it is text, bytes where it is not.
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
    /// The same with one path in the place of another, wherever that stands.
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

/// `launch.json`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchOrders {
    /// [`FORMAT`](crate::record::FORMAT).
    pub(crate) format: u32,
    /// The job as it was accepted: `job.json` is a copy for people, and may be gone after a power failure.
    pub(crate) record: JobRecord,
    /// The program, which is looked for in the `PATH` of `environment`, and its arguments.
    pub(crate) command: Vec<TextOrBytes>,
    /// The folder that it works in.
    pub(crate) folder: TextOrBytes,
    /// All of its environment.
    pub(crate) environment: Vec<(TextOrBytes, TextOrBytes)>,
    /// Whether something of it may be secret, so that no copy of this is made.
    #[serde(default)]
    pub(crate) is_private: bool,
    /// What the shim writes to `input.json` before the work starts, where the submitter has not written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// The boot in which it was submitted, for as long as the file is marked as its submitter's (`submitting.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
}

impl LaunchOrders {
    pub(crate) fn command(&self) -> Vec<OsString> {
        self.command.iter().cloned().map(Into::into).collect()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        OsString::from(self.folder.clone()).into()
    }

    /// The same for work that was told of the job's folder, and is given one of its own in it, wherever the old one is named.
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

/// What a job's folder has in it before it starts, word for word, besides inputs and the record.
pub(crate) struct LaunchFiles {
    /// `launch.json`.
    pub(crate) launch: String,
    /// `input.json`, where it is not among the orders: an older unhang wrote it apart from them.
    pub(crate) arguments: Option<String>,
}

impl LaunchFiles {
    /// Bytes up to which they stand in the database too. What is longer would make its log long, and takes its time in any case.
    const SMALL: usize = 64 << 10;

    /// Them, if they are small enough for the database.
    pub(crate) fn if_small(self) -> Option<Self> {
        let bytes = self.launch.len() + self.arguments.as_ref().map_or(0, String::len);
        (bytes <= Self::SMALL).then_some(self)
    }

    /// Those of a folder whose record has this format, if they are small.
    pub(crate) fn read(folder: &JobFolder, format: u32) -> Option<Self> {
        let work = folder.work(format);
        let (launch, arguments) = (folder.text(LAUNCH, Self::SMALL)?, work.text(ARGUMENTS, Self::SMALL));
        // What cannot be read is not known to be free of secrets.
        let orders: LaunchOrders = serde_json::from_str(&launch).ok()?;
        if orders.is_private {
            return None;
        }
        let is_whole = arguments.is_some() || !work.has(ARGUMENTS);
        is_whole.then_some(Self { launch, arguments }).and_then(Self::if_small)
    }

    /// Writes what a power failure has taken of them.
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

/// Parts of names whose values are not shown.
const SECRET: [&str; 8] =
    ["password", "passwd", "secret", "token", "apikey", "credential", "authorization", "privatekey"];

/// What stands for a value that is not shown.
const HIDDEN: &str = "***";

/// A command as it may be shown.
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
    stands("job-secrets-hidden") && SECRET.iter().any(|part| letters.contains(part))
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
