//! Authenticates an Azure client with a certificate (`AZURE_CLIENT_CERTIFICATE_PATH`).
//!
//! The assertion is a JWT signed with PS256 that carries the certificate's SHA-256 thumbprint, as in
//! <https://learn.microsoft.com/entra/identity-platform/certificate-credentials>.

use super::request::{Ask, form};
use super::{Token, TokenClient, TokenSource};
use crate::rest::unix_now_ms;
use async_trait::async_trait;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::{digest, rand, signature};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const PATH_VARIABLE: &str = "AZURE_CLIENT_CERTIFICATE_PATH";
const AUTHORITY: &str = "https://login.microsoftonline.com";
const SCOPE: &str = "https://storage.azure.com/.default";
/// Validity of one assertion, in seconds.
const ASSERTION_LIFETIME_S: i64 = 600;

/// A client of Entra ID with its certificate.
pub(crate) struct ClientCertificate {
    client: TokenClient,
    token_url: String,
    client_id: String,
    path: String,
    /// Send the whole chain, for clients registered by subject name and issuer.
    sends_chain: bool,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: u64,
}

impl ClientCertificate {
    /// Reads the settings `AZURE_CLIENT_CERTIFICATE_PATH` and its companions. `authority` is the host of Entra ID.
    ///
    /// # Errors
    /// One line that names the variable or the file, if the file does not hold a certificate and an RSA key.
    pub(crate) fn new(
        client: TokenClient,
        path: String,
        tenant: &str,
        client_id: &str,
        authority: Option<&str>,
    ) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        if !variable("AZURE_CLIENT_CERTIFICATE_PASSWORD").is_empty() {
            return Err(format!(
                "AZURE_CLIENT_CERTIFICATE_PASSWORD: encrypted certificate files are not supported; name a PEM file \
                 without password in {PATH_VARIABLE}"
            ));
        }
        let authority = authority.unwrap_or(AUTHORITY).trim_end_matches('/');
        let sends_chain =
            ["1", "true"].contains(&variable("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN").to_lowercase().as_str());
        let token_url = format!("{authority}/{tenant}/oauth2/v2.0/token");
        let new = Self { client, token_url, client_id: client_id.to_owned(), path, sends_chain };
        new.read()?;
        Ok(new)
    }

    /// Reads the file again for each token, because certificates are rotated.
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, KeyPair), String> {
        let wrong = |why: String| format!("{} (named by {PATH_VARIABLE}): {why}", self.path);
        let pem = std::fs::read(Path::new(&self.path)).map_err(|error| wrong(error.to_string()))?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
        if certificates.is_empty() {
            return Err(wrong("holds no PEM certificate (PKCS #12 files are not supported)".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| wrong("holds no private key in PEM without password".to_owned()))?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(wrong("the private key is not an RSA key".to_owned())),
        };
        Ok((certificates, key.map_err(|_| wrong("the private key is not a usable RSA key".to_owned()))?))
    }

    fn assertion(&self) -> Result<String, String> {
        let (certificates, key) = self.read()?;
        let thumbprint = digest::digest(&digest::SHA256, &certificates[0]);
        let mut header = json!({ "alg": "PS256", "typ": "JWT", "x5t#S256": URL_SAFE_NO_PAD.encode(thumbprint) });
        if self.sends_chain {
            header["x5c"] = certificates.iter().map(|certificate| STANDARD.encode(certificate)).collect();
        }
        let now = unix_now_ms() / 1000;
        let claims = json!({
            "aud": self.token_url,
            "iss": self.client_id,
            "sub": self.client_id,
            "jti": format!("{:032x}", ::rand::random::<u128>()),
            "nbf": now,
            "iat": now,
            "exp": now + ASSERTION_LIFETIME_S,
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let mut proof = vec![0; key.public_modulus_len()];
        key.sign(&signature::RSA_PSS_SHA256, &rand::SystemRandom::new(), signed.as_bytes(), &mut proof)
            .map_err(|_| format!("{} (named by {PATH_VARIABLE}): the key cannot sign", self.path))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(proof)))
    }
}

#[async_trait]
impl TokenSource for ClientCertificate {
    async fn fetch(&self) -> Result<Token, String> {
        let assertion = self.assertion()?;
        let fields = [
            ("grant_type", "client_credentials"),
            ("client_id", &self.client_id),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion),
            ("scope", SCOPE),
        ];
        let ask = Ask {
            place: PATH_VARIABLE,
            url: &self.token_url,
            headers: vec![],
            body: form(&fields),
            secrets: vec![&assertion],
            needs_tls: true,
        };
        let answer: Answer = self.client.json(&ask).await?;
        Ok(Token { secret: answer.access_token, lifetime: Duration::from_secs(answer.expires_in) })
    }
}
