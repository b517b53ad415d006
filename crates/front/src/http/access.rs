//! Decides who may ask over HTTP: a bearer of a configured token, or of a token that the authorization server has given for unhang. If
//! neither is configured, every client may ask.
//!
//! Invariants
//!
//! - A token is compared in full with every configured token, so that the time it takes reveals nothing of them.
//! - A token is in memory alone: errors, logs and `Debug` show nothing of it.
//! - The property of one caller is invisible to any other.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use unhang_net::{
    oauth::{
        AuthorizationError, RequestLimits, ResourceLimits, ResourceServer, ResourceSettings, TokenRefusal,
    },
    serve::axum::http::{HeaderMap, header},
};

use unhang_core::{
    config::{CLOCK_LEEWAY, KEYS_FIRST_PAUSE, KEYS_KEPT, KEYS_PAUSE, OAUTH_ANSWER, OAUTH_ANSWER_BYTES},
    fair::FairnessKey,
};
use unhang_tools::service::Caller as Owner;

/// The shortest token; a shorter one can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// The most characters of a subject's name in logs.
const LONGEST_TOLD: usize = 100;

/// A token that lets its bearer in.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    is_operator: bool,
}

impl Token {
    /// Checks that the text can stand in a header and cannot be guessed.
    ///
    /// # Errors
    /// Fails with the end of a sentence about the token if it has another character than visible ASCII, or is too short. The sentence shows
    /// nothing of the token.
    pub fn new(text: String) -> Result<Token, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "has a character that a token cannot have; use only letters, digits and signs of ASCII"
                    .to_owned(),
            );
        }
        if text.len() < SHORTEST_TOKEN {
            return Err(format!(
                "has only {} characters; use at least {SHORTEST_TOKEN}, so that it cannot be guessed, \
                 for example from `openssl rand -hex 32`",
                text.len()
            ));
        }
        Ok(Token { text, is_operator: false })
    }

    /// Makes it an operator's token. Its bearer sees the output of servers, and their failures.
    #[must_use]
    pub fn of_an_operator(self) -> Token {
        Token { is_operator: true, ..self }
    }

    /// Returns a name that tells this token from others, and with which no client can ask.
    fn digest(&self) -> String {
        let digest = digest(&SHA256, self.text.as_bytes());
        format!("token {}", HEXLOWER.encode(&digest.as_ref()[..8]))
    }
}

/// Shows nothing of the token.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

/// The rules of who may ask. By default every client may.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Each token with its number, which is never reused for another.
    tokens: Vec<(u64, Token)>,
    /// The next number.
    next: u64,
    resource: Option<ResourceServer>,
    /// The weight of each caller, by its name in the configuration.
    weights: Arc<BTreeMap<String, NonZeroU32>>,
}

impl Access {
    /// Lets in the bearers of these tokens; anybody, if there are none.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Access {
        Access::default().numbering(tokens)
    }

    /// Makes these rules the successor of `before`: a caller that is still let in keeps its identity.
    #[must_use]
    pub fn after(self, before: &Access) -> Access {
        let resource = match (self.resource, &before.resource) {
            // The earlier one knows the keys already.
            (Some(now), Some(before)) if now.is_same(before) => Some(before.clone()),
            (now, _) => now,
        };
        let tokens = self.tokens.into_iter().map(|(_, token)| token).collect();
        Access { resource, weights: self.weights, ..before.clone().numbering(tokens) }
    }

    /// Replaces the tokens by these. A token that was there before keeps its number.
    fn numbering(self, tokens: Vec<Token>) -> Access {
        let mut next = self.next.max(1);
        let mut numbered: Vec<(u64, Token)> = Vec::new();
        for token in tokens {
            let known =
                self.tokens.iter().find(|(_, known)| known.text == token.text).map(|(number, _)| *number);
            let number = known.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            numbered.push((number, token));
        }
        Access { tokens: numbered, next, ..self }
    }

    /// Returns whether a caller that `before` knew is let in here with the same identity.
    pub(super) fn still_knows(&self, caller: &TokenOwner, before: &Access) -> bool {
        match caller {
            TokenOwner::Anybody => self.is_open(),
            TokenOwner::Token(number) => self.tokens.iter().any(|(known, _)| known == number),
            TokenOwner::Subject(_) => {
                let both = self.resource.as_ref().zip(before.resource.as_ref());
                both.is_some_and(|(now, before)| now.is_same(before))
            }
        }
    }

    /// Returns whether this caller is an operator, who may see the output of servers: a bearer of an operator's token. If no tokens are
    /// required, every caller is an operator.
    pub(super) fn is_operator(&self, caller: &TokenOwner) -> bool {
        match caller {
            TokenOwner::Anybody => self.is_open(),
            TokenOwner::Token(number) => {
                self.tokens.iter().any(|(known, token)| known == number && token.is_operator)
            }
            TokenOwner::Subject(_) => false,
        }
    }

    /// Returns the owner of the jobs that this caller starts. The owner is the same in the next run, where tokens may have other numbers.
    pub(super) fn owner_of(&self, caller: &TokenOwner) -> Owner {
        match caller {
            TokenOwner::Anybody => Owner::owner(),
            TokenOwner::Token(number) => {
                let token = self.tokens.iter().find(|(known, _)| known == number);
                let name = token.map_or_else(|| format!("token {number}"), |(_, token)| token.digest());
                Owner::called(&name)
            }
            TokenOwner::Subject(subject) => Owner::called(&format!("subject {subject}")),
        }
    }

    /// Lets in bearers of tokens that this authorization server has given for unhang, too. The server is asked when the first of them
    /// comes.
    ///
    /// # Errors
    /// Fails if a URL is invalid, or if the authorization server is neither on https nor on this machine.
    pub fn with_oauth(self, settings: ResourceSettings) -> Result<Access, AuthorizationError> {
        let limits = ResourceLimits {
            requests: RequestLimits { answer: OAUTH_ANSWER, body: OAUTH_ANSWER_BYTES },
            kept: KEYS_KEPT,
            pause: KEYS_PAUSE,
            first_pause: KEYS_FIRST_PAUSE,
            leeway: CLOCK_LEEWAY,
        };
        Ok(Access { resource: Some(ResourceServer::new(settings, limits)?), ..self })
    }

    /// Gives these clients a multiple of the others' share if clients wait for one another. `token 1` is the bearer of the first token,
    /// `subject NAME` the bearer whom the authorization server calls so.
    #[must_use]
    pub fn with_weights(self, weights: BTreeMap<String, NonZeroU32>) -> Access {
        Access { weights: weights.into(), ..self }
    }

    /// Returns the key by which a caller shares with others. A caller without an identity gets the key that `otherwise` makes.
    pub(super) fn fairness_key(
        &self,
        caller: &TokenOwner,
        otherwise: impl FnOnce() -> FairnessKey,
    ) -> FairnessKey {
        let (name, told) = match caller {
            TokenOwner::Anybody => return otherwise(),
            TokenOwner::Token(number) => {
                let position = self
                    .tokens
                    .iter()
                    .position(|(known, _)| known == number)
                    .map_or(0, |position| position + 1);
                (format!("token {number}"), format!("token {position}"))
            }
            TokenOwner::Subject(subject) => (format!("subject {subject}"), format!("subject {subject}")),
        };
        let weight = self.weights.get(&told).copied().unwrap_or(NonZeroU32::MIN);
        FairnessKey::new(&name).weighing(weight)
    }

    /// Returns whether anybody may ask without a token.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.resource.is_none()
    }

    /// Returns the role of unhang toward an authorization server, if there is one.
    pub(super) fn resource(&self) -> Option<&ResourceServer> {
        self.resource.as_ref()
    }

    /// Returns whether these rules are enough for listening at this address. An address that other machines reach requires tokens.
    #[must_use]
    pub fn suffices_at(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || !self.is_open()
    }

    /// Returns the caller that sends these headers. Fails if the caller is not let in.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<TokenOwner, AuthError> {
        if self.is_open() {
            return Ok(TokenOwner::Anybody);
        }
        let presented = bearer(headers)?;
        match (self.holder(presented), &self.resource) {
            (Some(caller), _) => Ok(caller),
            (None, None) => Err(AuthError::Unknown),
            (None, Some(resource)) => match resource.subject(presented).await {
                Ok(subject) => Ok(TokenOwner::Subject(subject.into())),
                Err(refusal) => Err(AuthError::Refused(refusal)),
            },
        }
    }

    /// Returns the holder of the presented token. It compares every token, even after a match.
    fn holder(&self, presented: &str) -> Option<TokenOwner> {
        let (mut is_known, mut number) = (Choice::from(0), 0u64);
        for (of_this, token) in &self.tokens {
            let is_this = token.text.as_bytes().ct_eq(presented.as_bytes());
            number.conditional_assign(of_this, is_this);
            is_known |= is_this;
        }
        bool::from(is_known).then_some(TokenOwner::Token(number))
    }
}

/// Returns whether a file with these rights (`st_mode`) is accessible to its owner alone, as a file with secrets must be.
#[must_use]
pub fn is_of_its_owner_alone(mode: u32) -> bool {
    mode & 0o077 == 0
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (all.next().ok_or(AuthError::Silent)?, all.next());
    let text = first.to_str().ok().filter(|_| second.is_none()).ok_or(AuthError::Unknown)?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthError::Unknown)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::Silent);
    }
    Ok(token.trim())
}

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TokenOwner {
    /// Any caller that reaches unhang.
    Anybody,
    /// The bearer of the token of this number. The configuration's tokens count from 1, and later ones continue that.
    Token(u64),
    /// The bearer whom the authorization server calls so.
    Subject(Arc<str>),
}

impl fmt::Display for TokenOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenOwner::Anybody => formatter.write_str("anybody"),
            TokenOwner::Token(number) => write!(formatter, "token {number}"),
            // The authorization server has chosen the name.
            TokenOwner::Subject(subject) => {
                let told: String = subject.chars().take(LONGEST_TOLD).collect();
                write!(formatter, "subject {}", told.escape_debug())
            }
        }
    }
}

/// The reason why a caller is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AuthError {
    /// The request carries no token.
    Silent,
    /// The token is not known.
    Unknown,
    /// The authorization server's token is refused, or cannot be checked.
    Refused(TokenRefusal),
}

/// Bounds how much of something each caller has, so that no caller has all of it. Callers without an identity are not bounded.
#[derive(Clone)]
pub(super) struct Shares {
    limit: usize,
    taken: Arc<Mutex<HashMap<TokenOwner, usize>>>,
}

impl Shares {
    pub(super) fn new(limit: usize) -> Shares {
        Shares { limit, taken: Arc::default() }
    }

    /// Takes one more for this caller. Returns `None` if the caller has its share.
    pub(super) fn take(&self, caller: &TokenOwner) -> Option<Share> {
        if *caller != TokenOwner::Anybody {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let count = taken.entry(caller.clone()).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        Some(Share { taken: Arc::clone(&self.taken), caller: caller.clone() })
    }
}

/// One unit of a caller's share, which it has until this is dropped.
pub(super) struct Share {
    taken: Arc<Mutex<HashMap<TokenOwner, usize>>>,
    caller: TokenOwner,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use unhang_net::serve::axum::http::HeaderValue;

    use super::*;

    const ONE: &str = "one-0123456789abcdef";
    const THREE: &str = "three-0123456789abcd";
    const TWO: &str = "two-0123456789abcdef";

    fn token(text: &str) -> Token {
        Token::new(text.to_owned()).expect("a token")
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let value = |text: &&str| (header::AUTHORIZATION, HeaderValue::from_str(text).expect("a value"));
        let mut headers = HeaderMap::new();
        for (name, value) in values.iter().map(value) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_token_cannot_be_guessed_and_is_not_shown() {
        assert_eq!(format!("{:?}", token(ONE)), "Token(..)");
        for (text, expect) in [
            ("", "has only 0 characters"),
            ("fifteen-letters", "has only 15 characters"),
            ("sixteen letters and blanks", "a token cannot have"),
            ("sixteen-letters-äöü", "a token cannot have"),
            ("sixteen-letters-\n", "a token cannot have"),
        ] {
            let told = Token::new(text.to_owned()).expect_err("it is none");
            assert!(told.contains(expect) && (text.is_empty() || !told.contains(text)), "{told}");
        }
    }

    #[test]
    fn f_24_an_operator_is_whoever_has_such_a_token_or_comes_where_nobody_is_asked() {
        let all = || {
            [TokenOwner::Anybody, TokenOwner::Token(1), TokenOwner::Token(2), TokenOwner::Subject("s".into())]
        };
        let told = |access: &Access| all().map(|caller| access.is_operator(&caller));
        assert_eq!(told(&Access::default()), [true, false, false, false]);
        let access = Access::new(vec![token(ONE).of_an_operator(), token(TWO)]);
        assert_eq!(told(&access), [false, true, false, false]);
        // Whoever is one no more is known as who they were.
        let after = Access::new(vec![token(ONE), token(TWO).of_an_operator()]).after(&access);
        assert_eq!(told(&after), [false, false, true, false]);
    }

    #[tokio::test]
    async fn whoever_has_a_token_is_let_in() {
        let access = Access::new(vec![token(ONE), token(TWO)]);
        let asks = async |values: &[&str]| access.caller(&headers(values)).await;
        assert_eq!(asks(&[&format!("Bearer {ONE}")]).await, Ok(TokenOwner::Token(1)));
        assert_eq!(asks(&[&format!("bearer  {TWO}")]).await, Ok(TokenOwner::Token(2)));
        for (values, why) in [
            (vec![], AuthError::Silent),
            (vec!["Basic dXNlcjpwYXNz".to_owned()], AuthError::Silent),
            (vec!["Bearer".to_owned()], AuthError::Unknown),
            (vec!["Bearer ".to_owned()], AuthError::Unknown),
            (vec![ONE.to_owned()], AuthError::Unknown),
            (vec![format!("Bearer {ONE}x")], AuthError::Unknown),
            (vec![format!("Bearer {}", &ONE[1..])], AuthError::Unknown),
            (vec![format!("Bearer {}", ONE.to_uppercase())], AuthError::Unknown),
            (vec![format!("Bearer {ONE} {TWO}")], AuthError::Unknown),
            (vec![format!("Bearer {ONE}"), format!("Bearer {TWO}")], AuthError::Unknown),
        ] {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            assert_eq!(asks(&values).await, Err(why), "{values:?}");
        }
        assert_eq!(Access::default().caller(&headers(&["Bearer x"])).await, Ok(TokenOwner::Anybody));
    }

    #[tokio::test]
    async fn a_token_keeps_its_number_and_no_other_ever_has_it() {
        let first = Access::new(vec![token(ONE), token(TWO)]);
        let then = Access::new(vec![token(THREE), token(TWO)]).after(&first);
        let last = Access::new(vec![token(ONE)]).after(&then);
        let asks = async |access: &Access, text| access.caller(&headers(&[&format!("Bearer {text}")])).await;
        assert_eq!(asks(&then, TWO).await, Ok(TokenOwner::Token(2)));
        assert_eq!(asks(&then, THREE).await, Ok(TokenOwner::Token(3)));
        assert_eq!(asks(&then, ONE).await, Err(AuthError::Unknown));
        assert_eq!(
            asks(&last, ONE).await,
            Ok(TokenOwner::Token(4)),
            "what the first has begun is nobody's any more"
        );
        assert!(
            !then.still_knows(&TokenOwner::Token(1), &first)
                && then.still_knows(&TokenOwner::Token(2), &first)
        );
        assert!(!then.still_knows(&TokenOwner::Anybody, &first));
    }

    #[test]
    fn where_other_machines_come_somebody_asks_who_they_are() {
        let (open, closed) = (Access::default(), Access::new(vec![token(ONE)]));
        for (address, is_at_home) in [
            ("127.0.0.1", true),
            ("127.3.2.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(open.suffices_at(address), is_at_home, "{address}");
            assert!(closed.suffices_at(address), "{address}");
        }
    }

    #[test]
    fn secrets_lie_where_their_owner_alone_can_read_them() {
        for (mode, is_private) in [
            (0o600, true),
            (0o400, true),
            (0o100_600, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o777, false),
        ] {
            assert_eq!(is_of_its_owner_alone(mode), is_private, "{mode:o}");
        }
    }

    #[test]
    fn none_has_more_than_a_share() {
        let shares = Shares::new(1);
        let (one, two) = (TokenOwner::Token(1), TokenOwner::Token(2));
        let taken = shares.take(&one).expect("the first");
        assert!(shares.take(&one).is_none());
        assert!(shares.take(&two).is_some(), "another's share is another's");
        drop(taken);
        assert!(shares.take(&one).is_some(), "what was given back is free");
        let all: Vec<_> = (0..3).map(|_| shares.take(&TokenOwner::Anybody)).collect();
        assert!(all.iter().all(Option::is_some), "nobody is told from others");
    }
}
