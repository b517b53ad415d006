//! The place of an object store: a bucket with a prefix, or a folder.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

/// The beginning of the text that names a bucket.
const BUCKET: &str = "s3://";

/// The place of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactLocation {
    /// A folder that all machines have at the same path.
    Folder(PathBuf),
    /// A bucket of S3, or of a store that is asked in the same way.
    Bucket {
        /// The name of the bucket.
        name: String,
        /// The beginning of each key, without a slash at its ends. It may be empty.
        prefix: String,
    },
}

/// The error for a text that names no object store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no object store: write s3://BUCKET, s3://BUCKET/PREFIX, or the absolute path of a folder that \
     all machines share, without `..`; keys come from the environment"
)]
pub struct NotALocation(String);

impl ArtifactLocation {
    /// Reads the text of a setting.
    ///
    /// # Errors
    /// Fails with [`NotALocation`] if the text is neither a bucket nor an absolute path, or has `.` or `..` among its parts.
    pub fn parse(text: &str) -> Result<Self, NotALocation> {
        // Before an `@` there may be a key.
        let refused = || NotALocation(text.rsplit_once('@').map_or(text, |(_, rest)| rest).to_owned());
        let Some(rest) = text.strip_prefix(BUCKET) else {
            let path = Path::new(text);
            let is_plain = path.components().all(|part| part != Component::ParentDir);
            // A path that is collected from its parts has no `.` and no doubled slash.
            return (path.is_absolute() && is_plain)
                .then(|| Self::Folder(path.components().collect()))
                .ok_or_else(refused);
        };
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.chars().any(char::is_control);
        let are_parts = prefix.is_empty() || prefix.split('/').all(is_part);
        if !is_bucket(name) || !are_parts {
            return Err(refused());
        }
        Ok(Self::Bucket { name: name.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for ArtifactLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(formatter, "{}", path.display()),
            Self::Bucket { name, prefix } if prefix.is_empty() => write!(formatter, "{BUCKET}{name}"),
            Self::Bucket { name, prefix } => write!(formatter, "{BUCKET}{name}/{prefix}"),
        }
    }
}

/// Returns whether a bucket may have this name: it becomes a part of a URL.
fn is_bucket(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter))
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_a_folder_are_told_apart_and_written_in_one_way() {
        for (text, shown) in [
            ("s3://jobs", "s3://jobs"),
            ("s3://jobs/", "s3://jobs"),
            ("s3://my.jobs-1/unhang/a b/", "s3://my.jobs-1/unhang/a b"),
            ("/mnt/shared//unhang/./x/", "/mnt/shared/unhang/x"),
        ] {
            let location = ArtifactLocation::parse(text).unwrap();
            assert_eq!(location.to_string(), shown);
            assert_eq!(ArtifactLocation::parse(shown).unwrap(), location);
        }
        for text in [
            "",
            "shared",
            "./shared",
            "/mnt/../etc",
            "s3://",
            "s3://ab",
            "s3:///x",
            "s3://jobs/a//b",
            "s3://jobs/../other",
            "s3://user:password@host/x",
            "http://host/x",
            "s3://-jobs",
        ] {
            let told = ArtifactLocation::parse(text).unwrap_err().to_string();
            assert!(told.contains("names no object store") && !told.contains("password"), "{told}");
        }
    }
}
