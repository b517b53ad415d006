//! TLS towards the database, and how much of its certificate is checked.
//!
//! Invariants
//!
//! - Cryptography is ring's, handed in with each connection: no default of the process is set, and none is needed.
//! - The signatures of the handshake are verified in every mode.

use std::{fs, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    version,
};
use rustls_platform_verifier::Verifier;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::{CertificateCheck, TrustedAuthorities};

/// Makes what encrypts a connection with this check.
///
/// # Errors
/// Fails with the reason if the authorities cannot be read.
pub(crate) fn connector(check: &CertificateCheck) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match check {
        CertificateCheck::Nothing => Arc::new(LenientVerifier { provider: provider.clone(), chain: None }),
        CertificateCheck::Authority(trusted) => {
            let chain = Some(full_verifier(trusted, &provider)?);
            Arc::new(LenientVerifier { provider: provider.clone(), chain })
        }
        CertificateCheck::Full(trusted) => full_verifier(trusted, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Makes the verifier of chain, times and name.
fn full_verifier(
    trusted: &TrustedAuthorities,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let path = match trusted {
        TrustedAuthorities::System => {
            let verifier = Verifier::new(provider.clone()).map_err(|error| error.to_string())?;
            return Ok(Arc::new(verifier));
        }
        TrustedAuthorities::File(path) => path,
    };
    let unusable = |error: String| format!("the certificates in {} cannot be used: {error}", path.display());
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(unusable)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    Ok(verifier.map_err(|error| unusable(error.to_string()))?)
}

/// Accepts any name, and without a verifier of the chain also any certificate.
#[derive(Debug)]
struct LenientVerifier {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<dyn ServerCertVerifier>>,
}

impl ServerCertVerifier for LenientVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is looked at last, so everything else is in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
