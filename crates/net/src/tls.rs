//! TLS: the one way in which this crate comes by an HTTP client.
//!
//! Invariants
//!
//! - Cryptography is ring's, handed in with each client: no default of the process is set, and none is needed.
//! - Certificates are verified, by the system's own roots. A system that has none can still speak plain HTTP; TLS is then refused.
//! - The roots are read once.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore, crypto::ring, version};
use rustls_platform_verifier::BuilderVerifierExt;

/// The beginning of every HTTP client: timeouts, redirects and the rest are the caller's to set.
pub fn client_builder() -> reqwest::ClientBuilder {
    static CONFIG: OnceLock<Option<ClientConfig>> = OnceLock::new();
    let builder = reqwest::Client::builder();
    match CONFIG.get_or_init(config) {
        Some(config) => builder.tls_backend_preconfigured(config.clone()),
        // Not reached with the versions below; building the client then fails with an error, and nothing else does.
        None => builder.tls_backend_preconfigured(()),
    }
}

fn config() -> Option<ClientConfig> {
    let versions = &[&version::TLS13, &version::TLS12];
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .ok()
    };
    let mut config = match builder()?.with_platform_verifier() {
        Ok(verified) => verified.with_no_client_auth(),
        Err(error) => {
            tracing::warn!(
                "no certificate of any authority was found, so that every TLS connection is refused: {error}"
            );
            builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    // reqwest leaves this to whoever hands a configuration in.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_be_built_without_a_default_of_the_process() {
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
        client_builder().build().expect("a client");
        assert!(config().is_some());
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
