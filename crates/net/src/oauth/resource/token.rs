//! A token that an authorization server has signed (RFC 7515, RFC 7519, RFC 9068), and the conditions that it has to meet. Pure.
//!
//! Invariants
//!
//! - Nothing of a token is believed before its signature was proven, except for the name of the key.
//! - A claim that is missing, or of another kind than it has to be, is wrong; nothing is taken for granted.
//! - Errors contain nothing of a token but its fault.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value};

use super::{
    ResourceSettings,
    keys::{Algorithm, Keys},
};

/// The most bytes of a token: it is read before anything is known of its sender.
const LONGEST: usize = 16 << 10;

/// A token as it came: its head was read, and nothing else.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedToken<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key: Option<String>,
    /// The signed part.
    message: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl<'a> ParsedToken<'a> {
    /// Takes a token apart.
    pub(super) fn read(token: &'a str) -> Result<ParsedToken<'a>, &'static str> {
        if token.len() > LONGEST {
            return Err("it is too long");
        }
        let no_token = "it is not a signed JSON web token";
        let (message, signature) = token.rsplit_once('.').ok_or(no_token)?;
        let (head, claims) = message.split_once('.').ok_or(no_token)?;
        let head = object(head).ok_or(no_token)?;
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| no_token)?;
        let text = |name: &str| head.get(name).and_then(Value::as_str);
        let algorithm = text("alg").and_then(Algorithm::named);
        let algorithm = algorithm.ok_or("the algorithm of its signature is unsafe or unknown")?;
        // This module understands none of the extensions that `crit` demands.
        if head.contains_key("crit") {
            return Err("it requires an extension (`crit`) that unhang does not know");
        }
        let kind = text("typ").unwrap_or("JWT").to_ascii_lowercase();
        if !["jwt", "at+jwt", "application/at+jwt"].contains(&&*kind) {
            return Err("it is not an access token");
        }
        Ok(ParsedToken { algorithm, key: text("kid").map(str::to_owned), message, claims, signature })
    }

    /// Returns the claims of the token, once its signature was proven; `None` if the key is not in the set.
    pub(super) fn claims(&self, keys: &Keys) -> Option<Result<Claims, &'static str>> {
        let key = keys.key(self.key.as_deref(), self.algorithm)?;
        let is_proven = key.proves(self.algorithm, self.message.as_bytes(), &self.signature);
        if !is_proven {
            return Some(Err("its signature is not that of the authorization server"));
        }
        Some(object(self.claims).map(Claims).ok_or("it has no readable claims"))
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).ok()?).ok()
}

/// The claims of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims(Map<String, Value>);

impl Claims {
    /// Returns the subject of the token if the token is good here at `now`, which counts since 1970; else its fault.
    pub(super) fn subject(
        &self,
        settings: &ResourceSettings,
        now: Duration,
        leeway: Duration,
    ) -> Result<&str, &'static str> {
        if self.0.get("iss").and_then(Value::as_str) != Some(&settings.issuer) {
            return Err("it is from another authorization server");
        }
        if !self.is_for(&settings.resource) {
            return Err("it is for another resource");
        }
        let end = self.moment("exp").ok_or("it does not say when it expires (`exp`)")?;
        if now.as_secs_f64() >= end + leeway.as_secs_f64() {
            return Err("it has expired");
        }
        let beginning = match self.0.get("nbf") {
            None => 0.0,
            Some(_) => self.moment("nbf").ok_or("it does not say when it becomes valid (`nbf`)")?,
        };
        if now.as_secs_f64() + leeway.as_secs_f64() < beginning {
            return Err("it is not valid yet");
        }
        let subject = self.0.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        subject.ok_or("it does not name its subject (`sub`)")
    }

    /// Returns the first of these scopes that the token lacks; `None` if it has all of them.
    pub(super) fn lacks<'a>(&self, scopes: &'a [String]) -> Option<&'a str> {
        let granted = ["scope", "scp"].into_iter().filter_map(|name| self.0.get(name));
        let granted: Vec<&str> = granted
            .flat_map(|value| match value {
                Value::String(text) => text.split(' ').collect(),
                Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            })
            .collect();
        let lacking = scopes.iter().find(|scope| !granted.contains(&scope.as_str()));
        lacking.map(String::as_str)
    }

    fn is_for(&self, resource: &str) -> bool {
        match self.0.get("aud") {
            Some(Value::String(audience)) => audience == resource,
            Some(Value::Array(audiences)) => audiences.iter().any(|audience| audience == resource),
            _ => false,
        }
    }

    /// Returns a claim that is a moment, in seconds since 1970; `None` if it is absent or not a number.
    fn moment(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64().filter(|seconds| seconds.is_finite())
    }
}
