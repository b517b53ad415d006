//! Files without a name, for bytes that shall not stay in memory.
//!
//! Invariants
//! - Nobody else can open such a file, and it ends with its last descriptor, however the process ends.
//! - What was written is never written again, so a mapping never changes.

use std::{
    fs::File,
    io::{self, Write},
    ops::{Deref, Range},
    os::unix::fs::FileExt,
    path::Path,
    ptr::NonNull,
    sync::Arc,
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::system;

/// The bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// A file without a name that is being written.
#[derive(Debug)]
pub struct UnnamedFile {
    file: File,
    length: u64,
}

impl UnnamedFile {
    /// Makes an empty file on the file system of this folder.
    ///
    /// # Errors
    /// Fails if the file system has no files without names, and as the system does.
    pub fn create(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: system::unnamed_file(folder)?.into(), length: 0 })
    }

    /// Returns how many bytes were appended.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends all these bytes or none.
    ///
    /// # Errors
    /// Fails if the disk is full, and as the system does.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Bytes of an append that failed lie behind the end.
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Returns everything that was appended. Nothing can be appended from then on.
    #[must_use]
    pub fn finish(self) -> FilePart {
        FilePart { file: Arc::new(self.file), range: 0..self.length }
    }
}

/// A part of a file without a name. Clones share the file.
#[derive(Clone, Debug)]
pub struct FilePart {
    file: Arc<File>,
    range: Range<u64>,
}

impl PartialEq for FilePart {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.range == other.range
    }
}

impl Eq for FilePart {}

impl FilePart {
    /// Returns the part of this part that the range names.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let at = |place: usize| (self.range.start + place as u64).min(self.range.end);
        Self { file: Arc::clone(&self.file), range: at(range.start)..at(range.end) }
    }

    /// Copies the bytes, a piece at a time.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn copy_to(&self, to: &mut impl Write) -> io::Result<()> {
        let (mut piece, mut at) = (vec![0; PIECE], self.range.start);
        while at < self.range.end {
            let length = usize::try_from(self.range.end - at).unwrap_or(PIECE).min(PIECE);
            let piece = piece.get_mut(..length).unwrap_or_default();
            self.file.read_exact_at(piece, at)?;
            to.write_all(piece)?;
            at += length as u64;
        }
        Ok(())
    }

    /// Maps the file into memory, up to the end of this part. The system reads the bytes when they are looked at, and can forget them again.
    ///
    /// # Errors
    /// Fails if the part is empty, and as the system does.
    #[expect(unsafe_code, reason = "a mapping of a file has no safe interface")]
    pub fn map(&self) -> io::Result<MappedPart> {
        let length = usize::try_from(self.range.end).map_err(io::Error::other)?;
        let start = usize::try_from(self.range.start).map_err(io::Error::other)?;
        // SAFETY: the system chooses a free address, and refuses a length of zero.
        let address =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &*self.file, 0)? };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedPart { address, length, start, _file: Arc::clone(&self.file) })
    }
}

/// The bytes of a part of a file, mapped into memory.
#[derive(Debug)]
pub struct MappedPart {
    address: NonNull<u8>,
    length: usize,
    /// The place at which the part begins.
    start: usize,
    _file: Arc<File>,
}

impl Deref for MappedPart {
    type Target = [u8];

    #[expect(unsafe_code, reason = "a mapping of a file has no safe interface")]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped for reading until `self` is dropped. The file is at least that long, for it only grew. It has no
        // name, its descriptor is ours alone, and a file with parts is written no more, so the bytes do not change.
        let bytes = unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length) };
        bytes.get(self.start..).unwrap_or_default()
    }
}

impl Drop for MappedPart {
    #[expect(unsafe_code, reason = "a mapping of a file has no safe interface")]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        let _unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = UnnamedFile::create(folder.path()).unwrap();
        let text: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 7).collect();
        for piece in text.chunks(PIECE - 1) {
            file.append(piece).unwrap();
        }
        assert_eq!(file.length(), text.len() as u64);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let whole = file.finish();
        for range in [0..text.len(), 5..text.len() - 5, PIECE..2 * PIECE, 9..9] {
            let (part, mut copied) = (whole.part(range.clone()), Vec::new());
            part.copy_to(&mut copied).unwrap();
            assert_eq!(copied, text[range.clone()]);
            assert_eq!(&*part.map().unwrap(), &text[range]);
        }
        assert!(whole.part(0..0).map().is_err());
        assert!(whole.part(0..5) == whole.part(0..5) && whole.part(0..5) != whole.part(0..6));
    }
}
