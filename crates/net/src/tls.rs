//! TLS: the HTTP client of this crate, and the certificate that a server shows to its clients.
//!
//! Invariants
//!
//! - Cryptography is ring's, handed in with each client and each server: no default of the process is set, and none is needed.
//! - Certificates are verified, by the system's own roots. A system that has none can still speak plain HTTP; TLS is then refused.
//! - The roots are read once.
//! - A key is in memory alone: neither errors nor `Debug` show anything of it.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version,
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The reason why a certificate and its key are of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The text of the certificates cannot be read.
    #[error("the certificate is not a certificate in PEM form: {0}")]
    Certificate(String),
    /// The text of the key cannot be read.
    #[error("the key is not a private key in PEM form: {0}")]
    Key(String),
    /// The two do not belong together, or cannot be used.
    #[error("certificate and key cannot be used together: {0}")]
    Together(String),
}

/// Speaks TLS with clients, 1.2 or 1.3, and HTTP/1.1 in it. Clones are the same.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

impl Acceptor {
    /// Makes an acceptor with this key and these certificates: the server's own first, then those that lead to its authority; both as PEM.
    ///
    /// # Errors
    /// Fails with [`CertificateError`] if a text cannot be read, or the key is not that of the certificate.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Acceptor, CertificateError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| CertificateError::Certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(CertificateError::Certificate("it has no certificate".to_owned()));
        }
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| CertificateError::Key(error.to_string()))?;
        let together = |error: rustls::Error| CertificateError::Together(error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(together)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(together)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }

    /// Runs the handshake with a client. The caller sets the limit.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.0.accept(stream).await
    }
}

/// Leaves out the key.
impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

/// Begins to build an HTTP client: timeouts, redirects and the rest are the caller's to set.
pub fn client_builder() -> reqwest::ClientBuilder {
    static CONFIG: OnceLock<Option<ClientConfig>> = OnceLock::new();
    let builder = reqwest::Client::builder();
    match CONFIG.get_or_init(config) {
        Some(config) => builder.tls_backend_preconfigured(config.clone()),
        // Not reached with the versions below. If it were, building the client would fail with an error, and nothing else.
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
                "unhang found no certificate of an authority, so it refuses every TLS connection: {error}"
            );
            builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    // reqwest leaves this to the caller that hands a configuration in.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../cli/tests/certificates/server.pem");
    const KEY: &[u8] = include_bytes!("../../cli/tests/certificates/server.key");

    #[test]
    fn a_server_has_a_certificate_and_the_key_for_it() {
        assert_eq!(format!("{:?}", Acceptor::new(CERTIFICATE, KEY).expect("they fit")), "Acceptor { .. }");
        for (certificate, key, expect) in [
            (&b""[..], KEY, "the certificate is not a certificate in PEM form: it has no certificate"),
            (KEY, KEY, "the certificate is not a certificate in PEM form: it has no certificate"),
            (CERTIFICATE, b"", "the key is not a private key in PEM form: "),
            (CERTIFICATE, CERTIFICATE, "the key is not a private key in PEM form: "),
        ] {
            let told = Acceptor::new(certificate, key).expect_err("they do not fit").to_string();
            assert!(told.starts_with(expect), "{told}");
        }
    }

    #[test]
    fn a_client_can_be_built_without_a_default_of_the_process() {
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
        client_builder().build().expect("a client");
        assert!(config().is_some());
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
