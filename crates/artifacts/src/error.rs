//! The errors of an object store.
//!
//! Invariant: each error names the store and never its credentials.

use std::time::Duration;

/// The reason why an object store did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The environment has no key for the bucket.
    #[error(
        "the object store {store} needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of unhang"
    )]
    NoCredentials {
        /// The store.
        store: String,
    },
    /// The endpoint has no TLS.
    #[error(
        "the object store {store} has an endpoint without encryption (AWS_ENDPOINT_URL): use an https:// \
         endpoint, or set AWS_ALLOW_HTTP=true"
    )]
    NotEncrypted {
        /// The store.
        store: String,
    },
    /// The access cannot be used. For example, the endpoint is not a URL.
    #[error("the object store {store} cannot be used: {detail}")]
    Unusable {
        /// The store.
        store: String,
        /// The words of the library.
        detail: String,
    },
    /// The bucket, or the folder, does not exist.
    #[error("the object store {store} does not exist ({detail}); make it, or correct `artifacts` in [jobs]")]
    NoStore {
        /// The store.
        store: String,
        /// The words of the store.
        detail: String,
    },
    /// The store does not let this unhang do it.
    #[error(
        "the object store {store} refused {doing} ({detail}); check the rights there, and the credentials that \
         unhang has"
    )]
    Refused {
        /// The store.
        store: String,
        /// The operation, as a noun.
        doing: &'static str,
        /// The words of the store.
        detail: String,
    },
    /// The object is not there.
    #[error("the object store {store} has no object {object}: somebody else has removed it there")]
    Missing {
        /// The store.
        store: String,
        /// The key of the object.
        object: String,
    },
    /// The object is not what was written.
    #[error("the object {object} of the object store {store} is damaged: {detail}")]
    Damaged {
        /// The store.
        store: String,
        /// The key of the object.
        object: String,
        /// The difference.
        detail: String,
    },
    /// The store did not answer in time.
    #[error("the object store {store} did not complete {doing} within {} s", waited.as_secs())]
    TimedOut {
        /// The store.
        store: String,
        /// The operation, as a noun.
        doing: &'static str,
        /// The limit of the operation.
        waited: Duration,
    },
    /// The store cannot be reached, or returned another error.
    #[error("the object store {store} failed at {doing}: {detail}")]
    Failed {
        /// The store.
        store: String,
        /// The operation, as a noun.
        doing: &'static str,
        /// The words of the store or of the system.
        detail: String,
    },
}
