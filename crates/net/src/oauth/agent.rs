//! The agent that takes a person through the login page, if anything can.
//!
//! Invariants: an agent sends nothing but what it is given, and brings back what came. Its caller judges whether that is an answer to the
//! question.

use std::{fmt, future::Future, pin::Pin};

use reqwest::{Method, Request, Url, header::LOCATION};
use url::form_urlencoded;

use super::{
    error::{AuthorizationError, told, told_as_url, told_url},
    requests::{PlainHttp, RequestLimits, Requests},
};

/// The result of an agent's work.
pub type AgentResult<'a> = Pin<Box<dyn Future<Output = Result<Redirect, AuthorizationError>> + Send + 'a>>;

/// Takes a person through a login page.
pub trait Agent: Send + Sync {
    /// Returns the URI to which the authorization server is to send the browser at the end.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::LoginNeeded`] if nobody is there to log in.
    fn redirect_uri(&self) -> Result<String, AuthorizationError>;

    /// Opens the login page, and returns the parameters that the authorization server sent to the redirect URI.
    fn authorize(&self, url: String) -> AgentResult<'_>;
}

/// The parameters that the authorization server sent back.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The code for which a token is given.
    pub code: Option<String>,
    /// The state that the browser was sent with.
    pub state: Option<String>,
    /// The sender (RFC 9207).
    pub issuer: Option<String>,
    /// The reason why there is no code.
    pub error: Option<String>,
    /// The same reason in words.
    pub error_description: Option<String>,
}

/// Leaves out the code and the state.
impl fmt::Debug for Redirect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Redirect { issuer, error, error_description, .. } = self;
        let mut told = formatter.debug_struct("Redirect");
        told.field("issuer", issuer).field("error", error).field("error_description", error_description);
        told.finish_non_exhaustive()
    }
}

impl Redirect {
    /// Reads the query of a redirect. If a parameter comes twice, which is not allowed, the first counts.
    #[must_use]
    pub fn from_query(query: &str) -> Self {
        let mut redirect = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let member = match &*name {
                "code" => &mut redirect.code,
                "state" => &mut redirect.state,
                "iss" => &mut redirect.issuer,
                "error" => &mut redirect.error,
                "error_description" => &mut redirect.error_description,
                _ => continue,
            };
            member.get_or_insert_with(|| value.into_owned());
        }
        redirect
    }
}

/// The agent for work that must not wait for a person.
#[derive(Clone, Debug)]
pub struct NoAgent {
    /// The server's name in `unhang login`.
    pub server: String,
}

impl NoAgent {
    fn login_needed(&self) -> AuthorizationError {
        AuthorizationError::LoginNeeded { server: told(&self.server) }
    }
}

impl Agent for NoAgent {
    fn redirect_uri(&self) -> Result<String, AuthorizationError> {
        Err(self.login_needed())
    }

    fn authorize(&self, _: String) -> AgentResult<'_> {
        Box::pin(async { Err(self.login_needed()) })
    }
}

/// Requests the login page itself, for authorization servers that approve every client, as those of tests do.
pub struct Follower {
    requests: Requests,
    redirect_uri: String,
}

impl Follower {
    /// Makes a follower with this redirect URI. Nobody needs to listen there.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::System`] if there is no HTTP client to be had.
    pub fn new(redirect_uri: String, limits: RequestLimits) -> Result<Self, AuthorizationError> {
        // A follower asks no person, and is on the same machine as the authorization server, as in tests.
        Ok(Self { requests: Requests::new(limits, PlainHttp::Here)?, redirect_uri })
    }

    async fn follow(&self, url: String) -> Result<Redirect, AuthorizationError> {
        let parsed = Url::parse(&url).map_err(|_| AuthorizationError::NoUrl { url: told_as_url(&url) })?;
        let nothing = || AuthorizationError::EmptyRedirect { issuer: told_url(&parsed) };
        let answer = self.requests.send(Request::new(Method::GET, parsed.clone())).await?;
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.and_then(|location| parsed.join(location).ok()).ok_or_else(nothing)?;
        Ok(Redirect::from_query(location.query().unwrap_or_default()))
    }
}

impl Agent for Follower {
    fn redirect_uri(&self) -> Result<String, AuthorizationError> {
        Ok(self.redirect_uri.clone())
    }

    fn authorize(&self, url: String) -> AgentResult<'_> {
        Box::pin(self.follow(url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_read_and_told_without_its_secrets() {
        let redirect = Redirect::from_query("code=a%20b&state=s+t&iss=https%3A%2F%2Fas&code=second&other=x");
        assert_eq!(redirect.code.as_deref(), Some("a b"));
        assert_eq!(redirect.state.as_deref(), Some("s t"));
        assert_eq!(redirect.issuer.as_deref(), Some("https://as"));
        let told = format!("{redirect:?}");
        assert!(told.contains("https://as") && !told.contains("a b") && !told.contains("s t"), "{told}");
        assert_eq!(Redirect::from_query(""), Redirect::default());
        assert_eq!(
            Redirect::from_query("error=access_denied&error_description=No.").error_description.as_deref(),
            Some("No.")
        );
    }

    #[test]
    fn nobody_says_how_to_log_in() {
        let nobody = NoAgent { server: "search".to_owned() };
        let error = nobody.redirect_uri().expect_err("nobody is there");
        assert_eq!(error.to_string(), "search requires a login: run `unhang login search`");
    }
}
