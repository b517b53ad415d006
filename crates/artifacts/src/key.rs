//! The key of an object.
//!
//! Invariant: a key is made of a checked id, a number and a digest. It names a place below the store, whatever the database says.

use std::fmt::{self, Write as _};

use ring::digest::{Context, SHA256};
use unhang_jobs::id::JobId;

/// The number of bytes of a digest.
const DIGEST: usize = 32;

/// The key of an object: `<job>/<attempt>/<digest>`. The digest is the SHA-256 of the file's name, a zero byte and the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactKey {
    job: JobId,
    attempt: u32,
    digest: [u8; DIGEST],
}

impl ArtifactKey {
    /// Makes the key of a file with this name and content. The inputs of a job have attempt 0.
    #[must_use]
    pub fn of(job: JobId, attempt: u32, name: &str, content: &[u8]) -> Self {
        Self { job, attempt, digest: digest(name, content) }
    }

    /// Makes the key of an object that the store of jobs knows; `None` if `digest` is not one.
    #[must_use]
    pub fn stored(job: JobId, attempt: u32, digest: &[u8]) -> Option<Self> {
        Some(Self { job, attempt, digest: digest.try_into().ok()? })
    }

    /// Returns the digest.
    #[must_use]
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// Returns the same key for another attempt.
    #[must_use]
    pub fn with_attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    /// Returns whether an object with this key has this name and content.
    #[must_use]
    pub fn fits(&self, name: &str, content: &[u8]) -> bool {
        self.digest == digest(name, content)
    }

    /// Returns the parts of the key as parts of a path.
    pub(crate) fn parts(&self) -> [String; 3] {
        let hexadecimal = self.digest.iter().fold(String::new(), |mut text, byte| {
            // Writing into a text does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        [self.job.as_str().to_owned(), self.attempt.to_string(), hexadecimal]
    }
}

impl fmt::Display for ArtifactKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.parts().join("/"))
    }
}

fn digest(name: &str, content: &[u8]) -> [u8; DIGEST] {
    let mut context = Context::new(&SHA256);
    context.update(name.as_bytes());
    context.update(&[0]);
    context.update(content);
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_that_of_one_name_and_one_content() {
        let job: JobId = "abcdefghij23".parse().unwrap();
        let key = ArtifactKey::of(job, 2, "results.json", b"{}");
        assert_eq!(
            key.to_string(),
            // printf 'results.json\0{}' | sha256sum
            "abcdefghij23/2/f479b0652735bc5aefe0e67d98bb6f1828ac94634503c68266482639562c85f6"
        );
        assert!(key.fits("results.json", b"{}"));
        assert!(!key.fits("results.jso", b"n{}") && !key.fits("results.json", b"{ }"));
        assert_eq!(ArtifactKey::stored(job, 2, key.digest()), Some(key));
        assert_eq!(ArtifactKey::stored(job, 2, b"../../etc/passwd"), None);
    }
}
