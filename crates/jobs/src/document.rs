//! The named state: one JSON document for each field, `state/<field>.json`, which is the raw value.
//!
//! ```text
//! state/<field>.json                  of the data folder's owner, and shared documents
//! state/owners/<digest>/<field>.json  of one of several named owners, as jobs have them (`JobRecord::owner`)
//! ```
//!
//! Theory of operation. The file is the truth about a field. All writers of the state take one lock, so that a document
//! that a job's result replaces and a document that a person sets come one after the other. See `settle.rs` for how a result is
//! applied exactly once.
//!
//! Invariants
//!
//! - A field that exists has a name that is safe as a part of a path. No owner's folder has the name of a file of a field.
//! - A document of one owner is invisible to another. A shared document is a document of the data folder's owner.
//! - A text that is not JSON never replaces a document.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use ring::digest::{SHA256, digest};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use unhang_proc::lock::Lock;

use crate::{
    folder::{
        DataFolder, Durability, FileError, make_folder, read_at_most, remove_unfinished, replace, sync_all,
    },
    timestamp::JobTimestamp,
    wait::{WaitLimit, look_until},
};

/// The largest document, and the largest result from which a document is made.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// The longest time that a writer waits for its turn. Others hold the lock for the time of a few disk writes.
const TURN: Duration = Duration::from_secs(10);

/// The pause between two looks at the lock.
const LOOK: Duration = Duration::from_millis(2);

/// The folder in which the documents of owners are.
const OWNERS: &str = "owners";

const LOCK: &str = ".lock";
const EXTENSION: &str = ".json";

/// The name of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Field(String);

/// The error for a text that names no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a name of a state field: write a letter or `_`, then letters, digits, `_`, `-` and `.`, \
     at most {} characters",
    .0.escape_debug(), Field::LONGEST
)]
pub struct NotAField(String);

impl Field {
    /// The number of characters of the longest name.
    pub const LONGEST: usize = 64;

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Field {
    type Err = NotAField;

    fn from_str(text: &str) -> Result<Self, NotAField> {
        let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let goes_on = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if begins && goes_on && text.len() <= Self::LONGEST {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAField(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Field {
    type Error = NotAField;

    fn try_from(text: String) -> Result<Self, NotAField> {
        text.parse()
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.0
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// A JSON pointer (RFC 6901), which names a part of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

/// The error for a text that is not a JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a JSON pointer: a pointer is empty or begins with `/`, and has `~` only in `~0` and \
     `~1` (RFC 6901)"
)]
pub struct NotAPointer(String);

impl Pointer {
    /// Returns the part of `document` that the pointer names; `None` if the document has no such part.
    #[must_use]
    pub fn find<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        document.pointer(&self.0)
    }

    /// Returns the pointer as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pointer {
    type Err = NotAPointer;

    fn from_str(text: &str) -> Result<Self, NotAPointer> {
        let begins = text.is_empty() || text.starts_with('/');
        let escapes = text.split('~').skip(1).all(|behind| behind.starts_with(['0', '1']));
        if begins && escapes { Ok(Self(text.to_owned())) } else { Err(NotAPointer(text.to_owned())) }
    }
}

impl TryFrom<String> for Pointer {
    type Error = NotAPointer;

    fn try_from(text: String) -> Result<Self, NotAPointer> {
        text.parse()
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A document with the time of its last change.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The document's name.
    pub field: Field,
    /// The document's content.
    pub value: Value,
    /// The time when the document was last replaced.
    pub updated_at: JobTimestamp,
}

/// An entry of the list of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentEntry {
    /// The document's name.
    pub field: Field,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The time when the document was last replaced.
    pub updated_at: JobTimestamp,
}

/// All documents of a data folder that belong to one owner.
#[derive(Clone, Debug)]
pub struct Documents {
    state: PathBuf,
    folder: PathBuf,
}

/// The turn of one writer. Others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct DocumentTurn {
    state: PathBuf,
    _lock: Lock,
}

impl Documents {
    /// Returns the documents of the data folder's owner, and the shared ones.
    #[must_use]
    pub fn of(data: &DataFolder) -> Self {
        Self::owned(data, None)
    }

    /// Returns the documents of this owner; `None` means the same as [`Self::of`].
    #[must_use]
    pub fn owned(data: &DataFolder, owner: Option<&str>) -> Self {
        Self { state: data.state(), folder: folder_of(&data.state(), owner) }
    }

    /// Returns the path of the document with this name.
    #[must_use]
    pub fn path(&self, field: &Field) -> PathBuf {
        self.folder.join(file_name(field))
    }

    /// Reads a document; `None` if the field was never set.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not JSON, as when somebody edited it.
    pub fn get(&self, field: &Field) -> Result<Option<Document>, FileError> {
        let path = self.path(field);
        let Some(bytes) = read_at_most(&path, MAX_DOCUMENT)? else { return Ok(None) };
        let value = serde_json::from_slice(&bytes).map_err(|error| FileError::damaged(&path, error))?;
        let updated_at = changed_at(&path)?;
        Ok(Some(Document { field: field.clone(), value, updated_at }))
    }

    /// Reads the raw bytes of a document for a job's input, and checks that they are JSON.
    pub(crate) fn raw(&self, field: &Field) -> Result<Option<Vec<u8>>, FileError> {
        let path = self.path(field);
        let Some(bytes) = read_at_most(&path, MAX_DOCUMENT)? else { return Ok(None) };
        check(&bytes).map_err(|error| FileError::damaged(&path, error))?;
        Ok(Some(bytes))
    }

    /// Lists all documents, sorted by name.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<DocumentEntry>, FileError> {
        let failed = |error| FileError::system("cannot read", &self.folder, error);
        let mut listed = Vec::new();
        let entries = match std::fs::read_dir(&self.folder) {
            // An owner without documents has no folder.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.folder != self.state => {
                return Ok(listed);
            }
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let field = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.parse().ok());
            // Between the listing and the look the file may have been replaced, never removed.
            if let (Some(field), Ok(metadata)) = (field, entry.metadata()) {
                let updated_at = metadata.modified().map_err(failed)?.into();
                listed.push(DocumentEntry { field, bytes: metadata.len(), updated_at });
            }
        }
        listed.sort_unstable_by(|one, other| one.field.cmp(&other.field));
        Ok(listed)
    }

    /// Removes the unfinished files of killed writers, of every owner. Every writer holds the lock, so nobody writes meanwhile.
    ///
    /// If another process holds the lock, the next process that opens the data folder removes them. Without a lock file nobody has written.
    pub(crate) fn remove_unfinished(&self) {
        let lock = self.state.join(LOCK);
        if !lock.is_file() {
            return;
        }
        if let Ok(Some(_lock)) = Lock::try_take(&lock) {
            remove_unfinished(&self.state, Duration::ZERO);
            for owner in std::fs::read_dir(self.state.join(OWNERS)).into_iter().flatten().flatten() {
                remove_unfinished(&owner.path(), Duration::ZERO);
            }
        }
    }

    /// Waits for the turn to write.
    pub(crate) fn turn(&self) -> Result<DocumentTurn, FileError> {
        let path = self.state.join(LOCK);
        let failed = |error| FileError::system("cannot lock", &path, error);
        let taken = look_until(WaitLimit::after(TURN), LOOK, || Lock::try_take(&path)).map_err(failed)?;
        let lock = taken.ok_or_else(|| {
            let text = format!("another process has held it for {} s", TURN.as_secs());
            failed(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
        })?;
        Ok(DocumentTurn { state: self.state.clone(), _lock: lock })
    }
}

impl DocumentTurn {
    /// Replaces a document of this owner.
    pub(crate) fn write(&self, owner: Option<&str>, field: &Field, value: &Value) -> Result<(), FileError> {
        let mut text = value.to_string().into_bytes();
        text.push(b'\n');
        let folder = folder_of(&self.state, owner);
        if !folder.is_dir() {
            make_folder(&folder, true)?;
            sync_all(&[self.state.clone(), self.state.join(OWNERS)])?;
        }
        replace(&folder, &file_name(field), &text, Durability::Disk)
    }

    /// Returns when a document of this owner was last changed.
    pub(crate) fn changed_at(&self, owner: Option<&str>, field: &Field) -> Result<JobTimestamp, FileError> {
        changed_at(&folder_of(&self.state, owner).join(file_name(field)))
    }
}

/// Returns when a document was last changed.
fn changed_at(path: &Path) -> Result<JobTimestamp, FileError> {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    Ok(changed.map_err(|error| FileError::system("cannot read", path, error))?.into())
}

/// Checks that the bytes are one JSON value and nothing else, and that it can be read later: it is not nested too deep, and no number is
/// out of range. Keeps nothing of the value.
pub(crate) fn check(bytes: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Readable>(bytes).map(drop)
}

/// Any value that [`Value`] can hold, without holding it. Values that serde ignores would not be checked as closely.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Readable)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Readable;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Readable>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Readable, Readable>()?.is_some() {}
        Ok(self)
    }
}

/// Returns the folder in which the documents of this owner lie. Its name is a digest, since owners have names of any length and letters;
/// the `owner` of jobs tells whose folder it is.
fn folder_of(state: &Path, owner: Option<&str>) -> PathBuf {
    let Some(owner) = owner else { return state.to_owned() };
    let digest = digest(&SHA256, owner.as_bytes());
    let name: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    state.join(OWNERS).join(name)
}

fn file_name(field: &Field) -> String {
    format!("{field}{EXTENSION}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_safe_as_a_part_of_a_path() {
        for name in ["a", "_x", "basis_of_design", "a.b-c", &"a".repeat(64)] {
            assert_eq!(name.parse::<Field>().unwrap().as_str(), name);
        }
        for name in ["", ".", "..", ".lock", "1a", "a/b", "../x", "a b", "ä", "a\n", &"a".repeat(65)] {
            assert!(name.parse::<Field>().is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_checked_is_what_can_be_read() {
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let texts = [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "1e308",
            "1e400",
            "-1e999",
            "\"a\"",
            "\"\\ud800\"",
            "[1, 2,]",
            "{}",
            "{\"a\": [1, {\"b\": null}], \"a\": 2}",
            "{\"a\": 1e400}",
            "{1: 2}",
            "1 2",
            "",
            " ",
            "[",
            "NaN",
        ];
        let texts = texts.map(str::to_owned).into_iter().chain([1, 100, 127, 128, 200].map(deep));
        for text in texts {
            let read = serde_json::from_str::<Value>(&text);
            assert_eq!(check(text.as_bytes()).is_ok(), read.is_ok(), "{text}: {read:?}");
        }
        assert!(check(b"\"\xff\"").is_err());
    }

    #[test]
    fn f_14_what_an_owner_has_is_nobody_elses_and_hides_no_field() {
        let root = tempfile::tempdir().unwrap();
        let data = DataFolder::open(root.path()).unwrap();
        let owners = [None, Some("token 1"), Some("token 2"), Some("../../x"), Some("")];
        let fields: [Field; 2] = ["owners", "a"].map(|name| name.parse().unwrap());
        for (number, owner) in owners.iter().enumerate() {
            let documents = Documents::owned(&data, *owner);
            assert_eq!(documents.list().unwrap(), [], "{owner:?}");
            for field in &fields {
                documents.turn().unwrap().write(*owner, field, &json!(number)).unwrap();
            }
        }
        for (number, owner) in owners.iter().enumerate() {
            let documents = Documents::owned(&data, *owner);
            assert_eq!(documents.list().unwrap().len(), 2, "{owner:?}");
            assert_eq!(documents.get(&fields[0]).unwrap().unwrap().value, json!(number), "{owner:?}");
            assert!(documents.path(&fields[0]).starts_with(data.state()), "{owner:?}");
            assert_eq!(documents.folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    /// The document and the pointers of RFC 6901, section 5, and what is none.
    #[test]
    fn j_43_pointers_are_those_of_rfc_6901() {
        let document = json!({
            "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8,
        });
        let find = |pointer: &str| pointer.parse::<Pointer>().unwrap().find(&document).cloned();
        assert_eq!(find(""), Some(document.clone()));
        for (pointer, value) in [
            ("/foo", json!(["bar", "baz"])),
            ("/foo/0", json!("bar")),
            ("/", json!(0)),
            ("/a~1b", json!(1)),
            ("/c%d", json!(2)),
            ("/e^f", json!(3)),
            ("/g|h", json!(4)),
            ("/i\\j", json!(5)),
            ("/k\"l", json!(6)),
            ("/ ", json!(7)),
            ("/m~0n", json!(8)),
        ] {
            assert_eq!(find(pointer), Some(value), "{pointer}");
        }
        for pointer in ["/foo/2", "/foo/-", "/foo/01", "/foo/+1", "/nothing", "/foo/0/x", "//"] {
            assert_eq!(find(pointer), None, "{pointer}");
        }
        for text in ["foo", "/m~n", "/~", "/~2"] {
            assert!(text.parse::<Pointer>().is_err(), "{text}");
        }
    }
}
