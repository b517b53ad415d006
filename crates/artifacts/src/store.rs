//! An object store, whichever kind it is.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    access::ObjectAccess, bucket::Bucket, error::ArtifactError, key::ArtifactKey, location::ArtifactLocation,
    shared_folder::SharedFolder,
};

/// An object store. Its methods block, and must not run on a thread that drives asynchronous tasks. Clones are the same store.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    shown: Arc<str>,
    kind: Arc<StoreKind>,
}

#[derive(Debug)]
enum StoreKind {
    Folder(SharedFolder),
    Bucket(Bucket),
}

impl ArtifactStore {
    /// Makes the store at this place. Nothing is asked there yet.
    #[must_use]
    pub fn new(location: &ArtifactLocation, access: ObjectAccess) -> Self {
        let kind = match location {
            ArtifactLocation::Folder(path) => StoreKind::Folder(SharedFolder::at(path)),
            ArtifactLocation::Bucket { name, prefix } => {
                StoreKind::Bucket(Bucket::new(location.to_string(), name, prefix, access))
            }
        };
        Self { shown: location.to_string().into(), kind: Arc::new(kind) }
    }

    /// Returns whether the store is asked with credentials.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        matches!(&*self.kind, StoreKind::Bucket(_))
    }

    /// Checks what can be checked without a question to the store. Every operation does the same.
    ///
    /// # Errors
    /// Fails if the store is a bucket, and its access is not enough or makes no sense.
    pub fn check_access(&self) -> Result<(), ArtifactError> {
        match &*self.kind {
            StoreKind::Folder(_) => Ok(()),
            StoreKind::Bucket(bucket) => bucket.check_access(),
        }
    }

    /// Returns the text that names the store. It has no credentials.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Writes an object durably. An object with this key that exists already has the same content.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or refuses. An object may have been written all the same.
    pub fn put(&self, key: &ArtifactKey, content: Bytes) -> Result<(), ArtifactError> {
        match &*self.kind {
            StoreKind::Folder(folder) => folder.put(key, &content),
            StoreKind::Bucket(bucket) => bucket.put(key, content),
        }
    }

    /// Reads the object of a file with this name, which has so many bytes.
    ///
    /// # Errors
    /// Fails if the store cannot be asked or refuses, and if the object is not there or is not the one that was written.
    pub fn get(&self, key: &ArtifactKey, name: &str, bytes: u64) -> Result<Vec<u8>, ArtifactError> {
        let content = match &*self.kind {
            StoreKind::Folder(folder) => folder.get(key, bytes),
            StoreKind::Bucket(bucket) => bucket.get(key, bytes),
        }?;
        let found = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let detail = if found > bytes {
            format!("it has more than the {bytes} bytes that were written")
        } else if found < bytes {
            format!("it has {found} bytes, and {bytes} were written")
        } else if !key.fits(name, &content) {
            format!("its {bytes} bytes are not those that were written")
        } else {
            return Ok(content);
        };
        Err(ArtifactError::Damaged { store: self.shown().to_owned(), object: key.to_string(), detail })
    }

    /// Removes an object. One that is not there counts as removed.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or refuses.
    pub fn remove(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        match &*self.kind {
            StoreKind::Folder(folder) => folder.remove(key),
            StoreKind::Bucket(bucket) => bucket.remove(key),
        }
    }
}
