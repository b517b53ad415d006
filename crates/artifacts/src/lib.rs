//! Large files of jobs in an object store: a bucket of S3, or a folder that all machines share.
//!
//! Theory of operation. An object is written once, under a key that nobody but its job has, and read by whoever finds the key in the store
//! of jobs. This crate writes, reads and removes single objects. It lists nothing: the store of jobs knows every object, and writes an
//! object's key down before the object is made.
//!
//! Invariants
//!
//! - A key has the id of the job, the number of the attempt, and a digest. No text from outside becomes part of a path.
//! - The digest is that of the file's name and content. So no write replaces an object by another content, and each reader verifies it.
//! - Credentials are in memory alone: neither errors, logs nor `Debug` show them.
//! - Each operation has a time limit, and reads no more bytes than the caller expects.

mod access;
mod bucket;
mod connector;
mod error;
mod key;
mod location;
mod shared_folder;
mod store;

pub use self::{
    access::{ACCESS_VARIABLES, ObjectAccess},
    error::ArtifactError,
    key::ArtifactKey,
    location::{ArtifactLocation, NotALocation},
    store::ArtifactStore,
};
