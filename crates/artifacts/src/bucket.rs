//! An object store that is a bucket of S3, or of a store that is asked in the same way.
//!
//! Theory of operation. The library is asynchronous, and the callers block. So each operation has a runtime of its own, and its connections
//! end with it. The operations are few and large, so that this costs nothing that anybody notices.
//!
//! Invariants
//!
//! - An operation has a time limit, retries included.
//! - Of the words of the store, an error has its code and its message alone: an answer may repeat what was signed, the id of the key among
//!   it.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{Uri, uri::Scheme};
use object_store::{
    BackoffConfig, Error, ObjectStoreExt as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path,
};
use tokio::{runtime::Builder, time::timeout};

use crate::{access::ObjectAccess, connector::BucketConnector, error::ArtifactError, key::ArtifactKey};

/// The time that an operation may take: 64 MiB at a megabyte a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The rules of repetition for a store that is busy. A store that is away is told within seconds.
const RETRIES: usize = 2;
const RETRY_LIMIT: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The region of a bucket, unless the environment names another.
const REGION: &str = "us-east-1";

/// The code in the answer of a store that has no such bucket.
const NO_BUCKET: &str = "NoSuchBucket";

/// A bucket.
pub(crate) struct Bucket {
    shown: String,
    name: String,
    prefix: String,
    access: ObjectAccess,
}

/// Leaves out the credentials.
impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bucket").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Bucket {
    pub(crate) fn new(shown: String, name: &str, prefix: &str, access: ObjectAccess) -> Self {
        Self { shown, name: name.to_owned(), prefix: prefix.to_owned(), access }
    }

    pub(crate) fn check_access(&self) -> Result<(), ArtifactError> {
        self.open(0).map(drop)
    }

    /// Makes the client for one operation that reads at most so many bytes.
    fn open(&self, largest: usize) -> Result<AmazonS3, ArtifactError> {
        let (access, store) = (&self.access, self.shown.clone());
        if access.key_id.is_none() || access.secret.is_none() {
            return Err(ArtifactError::NoCredentials { store });
        }
        if let Some(endpoint) = &access.endpoint {
            let scheme = scheme(endpoint).ok_or_else(|| ArtifactError::Unusable {
                store: store.clone(),
                detail: "AWS_ENDPOINT_URL is not an address such as https://HOST:PORT".to_owned(),
            })?;
            if scheme != Scheme::HTTPS && !access.allows_http {
                return Err(ArtifactError::NotEncrypted { store });
            }
        }
        let retry = RetryConfig {
            backoff: BackoffConfig { max_backoff: LONGEST_PAUSE, ..BackoffConfig::default() },
            max_retries: RETRIES,
            retry_timeout: RETRY_LIMIT,
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.name)
            .with_region(access.region.as_deref().unwrap_or(REGION))
            .with_access_key_id(access.key_id.as_deref().unwrap_or_default())
            .with_secret_access_key(access.secret.as_deref().unwrap_or_default())
            .with_allow_http(access.allows_http)
            .with_retry(retry)
            .with_http_connector(BucketConnector { allows_http: access.allows_http, largest });
        if let Some(token) = &access.session_token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder.build().map_err(|error| ArtifactError::Unusable {
            store: self.shown.clone(),
            detail: self.words(&error),
        })
    }

    pub(crate) fn put(&self, key: &ArtifactKey, content: Bytes) -> Result<(), ArtifactError> {
        self.run("the writing of an object", 0, async |store| {
            store.put(&self.path(key), content.into()).await.map(drop)
        })?
        .map_err(|error| self.explain("the writing of an object", &error))
    }

    pub(crate) fn get(&self, key: &ArtifactKey, bytes: u64) -> Result<Vec<u8>, ArtifactError> {
        const DOING: &str = "the reading of an object";
        let largest = usize::try_from(bytes).unwrap_or(usize::MAX);
        let got = self.run(DOING, largest, async |store| {
            let object = store.get(&self.path(key)).await?;
            // The library would make room for all that the store announces.
            if object.meta.size > bytes { Ok(None) } else { object.bytes().await.map(Some) }
        })?;
        match got {
            Ok(Some(content)) => Ok(content.into()),
            Ok(None) => Err(ArtifactError::Damaged {
                store: self.shown.clone(),
                object: key.to_string(),
                detail: format!("it has more than the {bytes} bytes that were written"),
            }),
            Err(error) => Err(match self.explain(DOING, &error) {
                // A store that has no such bucket is told apart there.
                ArtifactError::Failed { store, .. } if matches!(error, Error::NotFound { .. }) => {
                    ArtifactError::Missing { store, object: key.to_string() }
                }
                error => error,
            }),
        }
    }

    pub(crate) fn remove(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        const DOING: &str = "the removal of an object";
        let removed = self.run(DOING, 0, async |store| store.delete(&self.path(key)).await)?;
        match removed.map_err(|error| (self.explain(DOING, &error), error)) {
            Err((ArtifactError::Failed { .. }, Error::NotFound { .. })) | Ok(()) => Ok(()),
            Err((error, _)) => Err(error),
        }
    }

    fn path(&self, key: &ArtifactKey) -> Path {
        Path::from_iter(self.prefix.split('/').map(str::to_owned).chain(key.parts()))
    }

    /// Runs an operation to its end, and blocks.
    fn run<T>(
        &self,
        doing: &'static str,
        largest: usize,
        work: impl AsyncFnOnce(AmazonS3) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, ArtifactError> {
        let failed = |error: std::io::Error| {
            let detail = format!("unhang cannot wait for the network: {error}");
            ArtifactError::Failed { store: self.shown.clone(), doing, detail }
        };
        let store = self.open(largest)?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let done = runtime.block_on(async { timeout(LIMIT, work(store)).await });
        // A look-up of a name that still runs must not delay the caller.
        runtime.shutdown_background();
        done.map_err(|_| ArtifactError::TimedOut { store: self.shown.clone(), doing, waited: LIMIT })
    }

    fn explain(&self, doing: &'static str, error: &Error) -> ArtifactError {
        let (store, detail) = (self.shown.clone(), self.words(error));
        match error {
            Error::NotFound { .. } if detail.contains(NO_BUCKET) => ArtifactError::NoStore { store, detail },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                ArtifactError::Refused { store, doing, detail }
            }
            _ => ArtifactError::Failed { store, doing, detail },
        }
    }

    /// Returns the code and the message of the store, or else the innermost cause.
    fn words(&self, error: &Error) -> String {
        let whole = error.to_string();
        let said = said(&whole).unwrap_or_else(|| {
            let mut cause: &dyn std::error::Error = error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            cause.to_string()
        });
        self.access.cleaned(&said)
    }
}

/// Returns the scheme of an endpoint; `None` if it cannot be the beginning of a URL. The library below takes any text, and panics later.
fn scheme(endpoint: &str) -> Option<Scheme> {
    let parts = endpoint.parse::<Uri>().ok()?.into_parts();
    let has_path_alone = parts.path_and_query.is_none_or(|path| path.query().is_none());
    parts.authority.filter(|authority| has_path_alone && !authority.as_str().contains('@'))?;
    parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))
}

/// Returns the code and the message in the answer of a store, from a text that has the answer in it.
fn said(text: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(content, _)| content.trim())
    };
    let code = element("Code")?;
    Some(match element("Message").filter(|message| !message.is_empty()) {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_the_code_and_the_message_are_told_and_no_key() {
        let answer = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error>\
                      <Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message>\
                      <AWSAccessKeyId>AKIDGEHEIM</AWSAccessKeyId></Error>";
        let told = said(answer).unwrap();
        assert_eq!(told, "SignatureDoesNotMatch: The signature does not match.");
        assert_eq!(said("<Error><Code>SlowDown</Code></Error>").as_deref(), Some("SlowDown"));
        assert_eq!(said("connection refused"), None);
    }

    fn access() -> ObjectAccess {
        let text = |text: &str| Some(text.to_owned());
        ObjectAccess { key_id: text("id"), secret: text("secret"), ..ObjectAccess::default() }
    }

    #[test]
    fn a_bucket_needs_a_key_and_tls_unless_somebody_says_otherwise() {
        let open = |access| Bucket::new("s3://jobs".to_owned(), "jobs", "", access).check_access();
        let no_secret = ObjectAccess { secret: None, ..access() };
        assert!(matches!(open(no_secret), Err(ArtifactError::NoCredentials { .. })));
        for endpoint in
            ["127.0.0.1:9", "http://not a url", "https://me:geheim@host", "ftp://host", "/x", "https://h?a"]
        {
            let access = ObjectAccess { endpoint: Some(endpoint.to_owned()), allows_http: true, ..access() };
            let error = open(access).unwrap_err();
            assert!(matches!(error, ArtifactError::Unusable { .. }), "{endpoint}: {error:?}");
            assert!(!error.to_string().contains("geheim"), "{error}");
        }
        let plain = ObjectAccess { endpoint: Some("http://127.0.0.1:9".to_owned()), ..access() };
        assert!(matches!(open(plain), Err(ArtifactError::NotEncrypted { .. })));
        let endpoint = Some("http://127.0.0.1:9".to_owned());
        open(ObjectAccess { endpoint, allows_http: true, ..access() }).unwrap();
        open(access()).unwrap();
    }

    #[test]
    fn the_prefix_comes_before_the_key() {
        let job = "abcdefghij23".parse().unwrap();
        let key = ArtifactKey::of(job, 1, "a", b"b");
        for (prefix, expect) in [("", String::new()), ("unhang/a b", "unhang/a b/".to_owned())] {
            let bucket = Bucket::new("s3://jobs".to_owned(), "jobs", prefix, access());
            assert_eq!(bucket.path(&key).as_ref(), format!("{expect}{key}"));
        }
    }
}
