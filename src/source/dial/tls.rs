//! TLS as libpq's `sslmode` means it: the request, the handshake, and how far the server's certificate is believed.
//!
//! | sslmode | encrypted | issuer checked | name checked |
//! |---|---|---|---|
//! | `allow`, `prefer`, `require` | yes, once TLS is on | with `sslrootcert` only | no |
//! | `verify-ca` | yes | yes | no |
//! | `verify-full` | yes | yes | yes |
//!
//! In every mode the server proves that it holds the certificate's key: SCRAM channel binding rests on that.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature};
use rustls::crypto::{verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Dialed, Socket, address, certificate};
use crate::config::{Connection, Host, SslMode};
use crate::error::{Error, Result};

/// The server's answer to `SSLRequest`.
pub(super) enum Answer {
    Accepted,
    Declined,
}

/// Asks the server for TLS.
pub(super) async fn request(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut question = BytesMut::new();
    frontend::ssl_request(&mut question);
    stream.write_all(&question).await?;
    // Room for one byte too many: a server waits for our ClientHello, so whatever comes with the answer was put there
    // by somebody in between (CVE-2021-23222) and must not be taken for the server's.
    let mut answer = [0; 2];
    let count = stream.read(&mut answer).await?;
    match &answer[..count] {
        b"S" => Ok(Answer::Accepted),
        b"N" => Ok(Answer::Declined),
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        [b'S' | b'N', ..] => Err(io::Error::other("bytes followed the answer that should stand alone")),
        // An ErrorResponse of a server that could not even fork; its text is not authenticated, so not shown.
        _ => Err(io::Error::other("the answer is neither yes nor no")),
    }
}

/// The TLS side of a connection's configuration.
pub(super) fn connector(connection: &Connection) -> Result<TlsConnector> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(connection, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &connection.client_cert {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("sslkey", key, error))?;
            builder.with_client_auth_cert(certificates("sslcert", chain)?, key_der).map_err(|error| {
                Error::definite(format!("sslcert {} and sslkey {} do not work", chain.display(), key.display()))
                    .because(error)
                    .hint("the key must belong to the first certificate of sslcert")
            })?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes the stream a TLS one.
pub(super) async fn handshake(connector: &TlsConnector, stream: TcpStream, host: &Host, name: &str) -> Result<Dialed> {
    let server = ServerName::try_from(name.to_owned()).map_err(|error| {
        Error::definite(format!("{}: TLS cannot ask for a host of this name", address(host))).because(error)
    })?;
    let stream = connector.connect(server, stream).await.map_err(|error| {
        refused(host, &error).unwrap_or_else(|| {
            Error::transient(format!("{}: the TLS handshake broke off", address(host))).because(error)
        })
    })?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let server_end_point = chain.first().and_then(|leaf| certificate::end_point(leaf));
    Ok(Dialed { socket: Socket::Tls(Box::new(stream)), server_end_point })
}

/// The definite failure inside an I/O error of a TLS stream: one side does not accept the other, and never will.
pub(super) fn refused(host: &Host, error: &io::Error) -> Option<Error> {
    let host = address(host);
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?.clone();
    match &error {
        rustls::Error::InvalidCertificate(reason) => {
            let (what, hint) = certificate_fault(reason);
            Some(Error::definite(format!("{host}: {what}")).hint(hint).because(error))
        }
        rustls::Error::AlertReceived(alert) if concerns_our_certificate(*alert) => Some(
            Error::definite(format!("{host}: the server does not accept our TLS client certificate"))
                .hint("set sslcert and sslkey in postgres.url to a pair whose issuer is in the server's ssl_ca_file")
                .because(error),
        ),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure)
        | rustls::Error::PeerIncompatible(_) => Some(
            Error::definite(format!("{host}: the server and this client have no version or cipher of TLS in common"))
                .hint("the server must allow TLS 1.2 or 1.3 (ssl_min_protocol_version, ssl_max_protocol_version)")
                .because(error),
        ),
        _ => None,
    }
}

fn concerns_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::DecryptError // its signature, by an authority of the right name with another key
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

fn certificate_fault(reason: &CertificateError) -> (&'static str, &'static str) {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("the server's certificate has expired", "renew the server's certificate, or correct this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("the server's certificate is not valid yet", "correct this machine's clock, or the server's certificate")
        }
        // A bad signature: an authority of that name is trusted, but with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "the server's certificate comes from an issuer that is not trusted",
            "set sslrootcert in postgres.url to the PEM file of the authority that signed it",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "the server's certificate is for another name",
            "connect by a name in its subjectAltName (a common name alone does not count), or use sslmode=verify-ca",
        ),
        _ => (
            "the server's certificate is not acceptable",
            "verification needs an X.509 version 3 certificate with a subjectAltName, signed by the authority in \
             sslrootcert and not itself one; sslmode=require without sslrootcert does not verify",
        ),
    }
}

fn trusted_roots(connection: &Connection) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match &connection.sslrootcert {
        Some(file) if file.as_path() != Path::new("system") => {
            for root in certificates("sslrootcert", file)? {
                roots.add(root).map_err(|error| unreadable("sslrootcert", file, error))?;
            }
        }
        Some(_) | None => {
            // A machine's store may hold a few that rustls does not take; the others still count.
            let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(Error::definite("this machine's trust store has no certificate in it")
                    .hint("install ca-certificates, or set sslrootcert in postgres.url"));
            }
        }
    }
    Ok(roots)
}

fn certificates(parameter: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<std::result::Result<Vec<_>, _>>();
    match read() {
        Ok(found) if found.is_empty() => Err(unreadable(parameter, file, "it holds no PEM certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(parameter, file, error)),
    }
}

fn unreadable(parameter: &str, file: &Path, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::definite(format!("cannot use {parameter} {}", file.display()))
        .because(cause)
        .hint(format!("{parameter} in postgres.url must name a readable PEM file"))
}

/// How far the server's certificate is believed.
#[derive(Debug)]
enum Trust {
    Any,
    Chain(Arc<WebPkiServerVerifier>),
    ChainAndName(Arc<WebPkiServerVerifier>),
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(connection: &Connection, provider: &Arc<CryptoProvider>) -> Result<Verifier> {
        let chain = || {
            let roots = Arc::new(trusted_roots(connection)?);
            WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                .build()
                .map_err(|error| Error::definite("cannot verify certificates").because(error))
        };
        let trust = match connection.sslmode {
            SslMode::VerifyFull => Trust::ChainAndName(chain()?),
            SslMode::VerifyCa => Trust::Chain(chain()?),
            SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => match connection.sslrootcert {
                Some(_) => Trust::Chain(chain()?),
                None => Trust::Any,
            },
        };
        Ok(Verifier { trust, algorithms: provider.signature_verification_algorithms })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Any => Ok(ServerCertVerified::assertion()),
            Trust::ChainAndName(verifier) => verifier.verify_server_cert(leaf, intermediates, name, ocsp, now),
            // The name is looked at last, so its error means that everything else was in order.
            Trust::Chain(verifier) => match verifier.verify_server_cert(leaf, intermediates, name, ocsp, now) {
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )) => Ok(ServerCertVerified::assertion()),
                verdict => verdict,
            },
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        // The manual's own recipe for a server certificate makes X.509 version 1, which rustls does not parse. Where no
        // chain is verified, the key alone is enough to check the signature, so such servers can be reached at all.
        match (&self.trust, certificate::public_key(leaf)) {
            (Trust::Any, Some(key)) => {
                let key = SubjectPublicKeyInfoDer::from(key);
                verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
            }
            (Trust::Any, None) | (Trust::Chain(_) | Trust::ChainAndName(_), _) => {
                verify_tls13_signature(message, leaf, signed, &self.algorithms)
            }
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
