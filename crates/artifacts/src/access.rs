//! The credentials for a bucket, and the other facts that the environment has about it.
//!
//! Invariant: no output has a credential.

use std::fmt;

/// The variables of the environment from which [`ObjectAccess::of_variables`] reads, by AWS's own names. Jobs of a worker with a bucket get
/// none of them: an endpoint may have credentials, too.
pub const ACCESS_VARIABLES: [&str; 8] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
];

/// The access to a bucket, besides its name. For a folder, all members are `None` or false.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ObjectAccess {
    /// The id of the key.
    pub key_id: Option<String>,
    /// The secret of the key.
    pub secret: Option<String>,
    /// The token of a session, for a key that is valid for some hours.
    pub session_token: Option<String>,
    /// The region of the bucket; `us-east-1` if it is `None`.
    pub region: Option<String>,
    /// The URL of a store that is not AWS's own.
    pub endpoint: Option<String>,
    /// Whether the store may be asked without TLS.
    pub allows_http: bool,
}

impl ObjectAccess {
    /// Takes the access from variables of the environment, which `lookup` returns by their names. An empty variable counts as none.
    #[must_use]
    pub fn of_variables(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let of = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Self {
            key_id: of("AWS_ACCESS_KEY_ID"),
            secret: of("AWS_SECRET_ACCESS_KEY"),
            session_token: of("AWS_SESSION_TOKEN"),
            region: of("AWS_REGION").or_else(|| of("AWS_DEFAULT_REGION")),
            endpoint: of("AWS_ENDPOINT_URL_S3").or_else(|| of("AWS_ENDPOINT_URL")),
            allows_http: of("AWS_ALLOW_HTTP").is_some_and(|value| is_true(&value)),
        }
    }

    /// Removes every credential from a text, however it came to be there.
    pub(crate) fn cleaned(&self, text: &str) -> String {
        let secrets = [&self.key_id, &self.secret, &self.session_token];
        let mut cleaned = text.to_owned();
        for secret in secrets.into_iter().flatten() {
            cleaned = cleaned.replace(secret.as_str(), "…");
        }
        cleaned
    }
}

/// Leaves out all credentials, and the endpoint, which could have some.
impl fmt::Debug for ObjectAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ObjectAccess").field("region", &self.region).finish_non_exhaustive()
    }
}

fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_read_by_the_names_of_aws_and_never_shown() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "AKIDGEHEIM"),
            ("AWS_SECRET_ACCESS_KEY", "sehrgeheim"),
            ("AWS_SESSION_TOKEN", ""),
            ("AWS_DEFAULT_REGION", "eu-central-1"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            ("AWS_ALLOW_HTTP", "true"),
        ];
        let lookup = |name: &str| {
            assert!(ACCESS_VARIABLES.contains(&name), "{name} is among the variables");
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let access = ObjectAccess::of_variables(lookup);
        let expected = ObjectAccess {
            key_id: Some("AKIDGEHEIM".to_owned()),
            secret: Some("sehrgeheim".to_owned()),
            session_token: None,
            region: Some("eu-central-1".to_owned()),
            endpoint: Some("http://127.0.0.1:9".to_owned()),
            allows_http: true,
        };
        assert!(access == expected, "{access:?}");
        assert!(!format!("{access:?}").contains("eheim"), "{access:?}");
        assert_eq!(access.cleaned("key AKIDGEHEIM and sehrgeheim"), "key … and …");
    }
}
