//! Who takes a person through the login page: nobody, or whoever can.
//!
//! Invariants: an agent sends nothing but what it is given, and brings back what came; whether that is an answer to what was asked
//! is judged by whoever asked.

use std::{fmt, future::Future, pin::Pin};

use reqwest::{Method, Request, Url, header::LOCATION};
use url::form_urlencoded;

use super::{
    error::{AuthorizationError, told, told_as_url, told_url},
    requests::{PlainHttp, RequestLimits, Requests},
};

/// What an agent comes back with.
pub type AgentResult<'a> = Pin<Box<dyn Future<Output = Result<Redirect, AuthorizationError>> + Send + 'a>>;

/// Takes a person through a login page.
pub trait Agent: Send + Sync {
    /// Where the authorization server is to send the browser at the end.
    ///
    /// # Errors
    /// Nobody is there to log in.
    fn redirect_uri(&self) -> Result<String, AuthorizationError>;

    /// Goes to the login page, and comes back with what the authorization server sent to the redirect URI.
    fn authorize(&self, url: String) -> AgentResult<'_>;
}

/// What the authorization server sent back.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redirect {
    /// What a token is given for.
    pub code: Option<String>,
    /// What the browser was sent with.
    pub state: Option<String>,
    /// Who sends it (RFC 9207).
    pub issuer: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The same in words.
    pub error_description: Option<String>,
}

/// Without the code and the state.
impl fmt::Debug for Redirect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Redirect { issuer, error, error_description, .. } = self;
        let mut told = formatter.debug_struct("Redirect");
        told.field("issuer", issuer).field("error", error).field("error_description", error_description);
        told.finish_non_exhaustive()
    }
}

impl Redirect {
    /// Reads what stands behind the `?` of a redirect. Of a parameter that comes twice, which must not be, the first counts.
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

/// For everything that must not wait for a person.
#[derive(Clone, Debug)]
pub struct NoAgent {
    /// What the server is called where a person would log in to it.
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

/// Asks for the login page itself, for authorization servers that approve whoever comes, as those of tests do.
pub struct Follower {
    requests: Requests,
    redirect_uri: String,
}

impl Follower {
    /// One that wants to be sent here. Nobody needs to listen there.
    ///
    /// # Errors
    /// Where there is no HTTP client to be had.
    pub fn new(redirect_uri: String, limits: RequestLimits) -> Result<Self, AuthorizationError> {
        // Whoever follows without asking a person is on the same machine as the authorization server, as in tests.
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
        assert_eq!(error.to_string(), "search wants you to be logged in: run `unhang login search`");
    }
}
