//! Signed tokens (RFC 7519) and the keys that prove them: right ones, and forged ones of every kind for whoever asks.
//!
//! # Invariants
//!
//! - A key is made at the start and after each change, and is gone with the faulty server.
//! - What is signed here is what was asked for, however wrong it is: who has to refuse it is somebody else.

use std::io;

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::digest::base64;

/// A pair of keys, and one of somebody else.
pub(super) struct Signer {
    own: EcdsaKeyPair,
    foreign_key: EcdsaKeyPair,
    /// How often the keys were changed.
    changes: u64,
    random: SystemRandom,
}

impl Signer {
    pub(super) fn new() -> io::Result<Self> {
        let random = SystemRandom::new();
        Ok(Self { own: pair(&random)?, foreign_key: pair(&random)?, changes: 0, random })
    }

    /// Signs with another key from now on, and knows the old one no more.
    pub(super) fn change(&mut self) -> io::Result<()> {
        self.own = pair(&self.random)?;
        self.changes += 1;
        Ok(())
    }

    fn name(&self) -> String {
        format!("key-{}", self.changes)
    }

    /// Returns the keys, for everybody.
    pub(super) fn keys(&self) -> Value {
        let (x, y) = self.own.public_key().as_ref()[1..].split_at(32);
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.name(),
            "x": base64(x), "y": base64(y),
        });
        json!({ "keys": [key] })
    }

    /// Returns a token with these claims. `head` is put over what its head would be; `by` says who signs it: `own`, `foreign_key`,
    /// `nobody`, or `published`, which takes what everybody may know for a secret.
    pub(super) fn token(&self, head: &Value, claims: &Value, by: &str) -> io::Result<String> {
        let mut whole = json!({ "alg": "ES256", "typ": "at+jwt", "kid": self.name() });
        for (name, value) in head.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        let message =
            format!("{}.{}", base64(whole.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let failed = |_| io::Error::other("it cannot be signed");
        let by_pair = |pair: &EcdsaKeyPair| {
            pair.sign(&self.random, message.as_bytes())
                .map(|signature| signature.as_ref().to_vec())
                .map_err(failed)
        };
        let signature = match by {
            "stranger" => by_pair(&self.foreign_key)?,
            "nobody" => Vec::new(),
            "published" => {
                let secret = hmac::Key::new(hmac::HMAC_SHA256, self.own.public_key().as_ref());
                hmac::sign(&secret, message.as_bytes()).as_ref().to_vec()
            }
            _ => by_pair(&self.own)?,
        };
        Ok(format!("{message}.{}", base64(&signature)))
    }
}

fn pair(random: &SystemRandom) -> io::Result<EcdsaKeyPair> {
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, random)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), random)
        .map_err(|error| io::Error::other(error.to_string()))
}
