//! The name of a job: short enough to be read out, and safe as a part of a path.
//!
//! Invariants
//!
//! - A [`JobId`] that exists has exactly [`JobId::LENGTH`] characters of the alphabet, so it can name no other folder
//!   than its own.
//! - New ids come from the system's random source. The folder excludes clashes: it is made with "must not exist".

use std::{fmt, io, str::FromStr};

use serde::{Deserialize, Serialize};

/// Base32 without digits that look like letters (RFC 4648, in lower case).
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The name of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId([u8; JobId::LENGTH]);

/// The error for a text that is not a job id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job id has {} characters from a-z and 2-7", JobId::LENGTH)]
pub struct NotAJobId;

impl JobId {
    /// The number of characters of an id: 60 random bits.
    pub const LENGTH: usize = 12;

    /// Draws a new id.
    ///
    /// # Errors
    /// Fails if the system has no random source.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::LENGTH];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.map(|byte| ALPHABET[usize::from(byte % 32)])))
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The alphabet is ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<Self, NotAJobId> {
        let bytes: [u8; Self::LENGTH] = text.as_bytes().try_into().map_err(|_| NotAJobId)?;
        let known = bytes.iter().all(|byte| ALPHABET.contains(byte));
        if known { Ok(Self(bytes)) } else { Err(NotAJobId) }
    }
}

impl TryFrom<String> for JobId {
    type Error = NotAJobId;

    fn try_from(text: String) -> Result<Self, NotAJobId> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.as_str().to_owned()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn x_10_only_the_alphabet_and_the_length_make_an_id() {
        assert_eq!("abcdefgh2345".parse::<JobId>().unwrap().to_string(), "abcdefgh2345");
        let bad = [
            "",
            "abc",
            "abcdefgh23456",
            "../../../../e",
            "abcdefgh234/",
            "ABCDEFGH2345",
            "abcdefgh2341",
            "äbcdefgh23",
        ];
        for text in bad {
            assert_eq!(text.parse::<JobId>(), Err(NotAJobId), "{text}");
        }
    }

    #[test]
    fn new_ids_are_ids_and_differ() {
        let ids: HashSet<JobId> = (0..1000).map(|_| JobId::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.as_str().parse() == Ok(*id)));
    }
}
