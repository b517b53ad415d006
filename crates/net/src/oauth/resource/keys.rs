//! The keys with which an authorization server signs tokens (RFC 7517), and the signatures that they prove. Pure.
//!
//! Invariants
//!
//! - A key is asymmetric, and good for the algorithms of its own kind alone: knowing a public key proves nothing by itself.
//! - An unusable key in a key set does not affect the others.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

/// The most keys that are kept; no authorization server has more.
const MOST_KEYS: usize = 100;

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm of this name; `None` for an unknown one, for `none`, and for algorithms whose verifying key could also sign.
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" | "Ed25519" => Algorithm::EdDsa,
            _ => return None,
        })
    }

    fn of_rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return None,
        })
    }
}

/// The public key that proves a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyMaterial {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SigningKey {
    id: Option<String>,
    /// The only algorithm that the key is for, if it names one.
    algorithm: Option<Algorithm>,
    material: KeyMaterial,
}

impl SigningKey {
    fn read(jwk: &Value) -> Option<SigningKey> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| BASE64URL_NOPAD.decode(text(name)?.as_bytes()).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let algorithm = match jwk.get("alg") {
            None => None,
            // A key for an unknown algorithm is of no use.
            Some(name) => Some(Algorithm::named(name.as_str()?)?),
        };
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => KeyMaterial::Rsa { modulus: number(bytes("n")?), exponent: number(bytes("e")?) },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x")?),
            _ => return None,
        };
        Some(SigningKey { id: text("kid").map(str::to_owned), algorithm, material })
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        let fits = match self.material {
            KeyMaterial::Rsa { .. } => algorithm.of_rsa().is_some(),
            KeyMaterial::P256(_) => algorithm == Algorithm::Es256,
            KeyMaterial::P384(_) => algorithm == Algorithm::Es384,
            KeyMaterial::Ed25519(_) => algorithm == Algorithm::EdDsa,
        };
        fits && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Returns whether this is the signature of the message by this key.
    pub(super) fn proves(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        let by = |how: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()
        };
        match (&self.material, algorithm.of_rsa()) {
            (KeyMaterial::Rsa { modulus, exponent }, Some(how)) => {
                let key = RsaPublicKeyComponents { n: &modulus[..], e: &exponent[..] };
                key.verify(how, message, signature).is_ok()
            }
            (KeyMaterial::Rsa { .. }, None) => false,
            (KeyMaterial::P256(point), _) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
            (KeyMaterial::P384(point), _) => by(&signature::ECDSA_P384_SHA384_FIXED, point),
            (KeyMaterial::Ed25519(key), _) => by(&signature::ED25519, key),
        }
    }
}

/// Removes zeros in front of a number, which some servers write.
fn number(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}

/// The keys of an authorization server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys(Vec<SigningKey>);

impl Keys {
    /// Reads a key set, and leaves out unusable keys. Returns `None` if the document is not a key set.
    pub(super) fn read(document: &[u8]) -> Option<Keys> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let keys = document.get("keys")?.as_array()?.iter();
        Some(Keys(keys.filter_map(SigningKey::read).take(MOST_KEYS).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the key of this name; without a name, the only key for the algorithm. Returns `None` if there is none, or more than one.
    pub(super) fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&SigningKey> {
        let mut fitting = self.0.iter().filter(|key| key.is_for(algorithm));
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}
