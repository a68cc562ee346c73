//! A fleet's certificates: one CA per fleet, and one identity per gateway, signed by that CA.
//!
//! The CA's private key is dropped when the command ends, so nobody can add a gateway to the fleet later. `--keep-ca`
//! writes the key (for fleets that grow), and a later call in the same folder signs with it. No file is ever
//! overwritten.

use crate::limits::{IDENTITY_CLOCK_SKEW, IDENTITY_DAYS_MAX};
use crate::names::check_node_name;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Why no identities were made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A name that no certificate can carry, or a repeated name.
    #[error("{0}")]
    Name(String),
    /// The requested validity is out of bounds.
    #[error("a fleet's certificates are valid for 1 to {IDENTITY_DAYS_MAX} days, not {0}")]
    Days(u32),
    /// Something with this path already exists.
    #[error("{} exists and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file or folder could not be written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The certificate library failed.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

impl IdentityError {
    /// One line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Name(_) => "a gateway's name has 1 to 63 characters of a-z, 0-9 and -, and is given once",
            Self::Days(_) => "short-lived certificates need no revocation; a fleet lives as long as its job",
            Self::Exists(_) => {
                "choose another folder; to add gateways to a fleet, its CA must have been made with --keep-ca"
            }
            Self::Io { .. } => "check that the folder is yours, and that the disk is not full",
            Self::Certificate(_) => "check that ca-key.pem is the file that --keep-ca wrote",
        }
    }
}

/// The identities to make.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Folder: `ca.pem`, and per gateway a folder with `ca.pem`, `cert.pem` and `key.pem`.
    pub out: &'a Path,
    /// Gateway names.
    pub names: &'a [String],
    /// Validity of a new CA and of all its certificates.
    pub days: u32,
    /// Also write `ca-key.pem`.
    pub keep_ca: bool,
}

/// A fleet's CA, with its key.
pub struct FleetCa {
    params: CertificateParams,
    key: KeyPair,
}

/// One gateway's certificate and key, as the files hold them.
pub struct NodeCertificate {
    /// The certificate.
    pub certificate: rcgen::Certificate,
    /// Its key.
    pub key: KeyPair,
}

impl NodeCertificate {
    /// The key in the form that TLS needs.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }
}

impl FleetCa {
    /// Makes a CA with a new key. Its certificates are valid from [`IDENTITY_CLOCK_SKEW`] before `now` until `life`
    /// after it.
    ///
    /// # Errors
    /// The certificate library failed.
    pub fn new(now: SystemTime, life: Duration) -> Result<Self, IdentityError> {
        Ok(Self::with_key(KeyPair::generate()?, now, life))
    }

    /// Makes the CA of a key. Its name is derived from the key. So a kept key is enough to sign for the same fleet
    /// again, and a peer of another fleet has an "unknown issuer" rather than a "bad signature".
    pub fn with_key(key: KeyPair, now: SystemTime, life: Duration) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = (now - IDENTITY_CLOCK_SKEW).into();
        params.not_after = (now + life).into();
        let key_id: String = params.key_identifier(&key).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name = common_name(&format!("Tradewind fleet {key_id}"));
        Self { params, key }
    }

    /// The CA's own certificate.
    ///
    /// # Errors
    /// The certificate library failed.
    pub fn certificate(&self) -> Result<rcgen::Certificate, IdentityError> {
        Ok(self.params.self_signed(&self.key)?)
    }

    /// Makes an identity for one gateway, for both sides of a connection.
    ///
    /// # Errors
    /// The certificate library refused the name.
    pub fn sign(&self, name: &str) -> Result<NodeCertificate, IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = node_params(name)?;
        params.not_before = self.params.not_before;
        params.not_after = self.params.not_after;
        let certificate = self.sign_params(&params, &key)?;
        Ok(NodeCertificate { certificate, key })
    }

    /// Certifies a key that stays with its gateway, from [`IDENTITY_CLOCK_SKEW`] before `now` until `life` after it.
    /// The contents are those of every identity of the fleet, whatever the gateway requested.
    ///
    /// # Errors
    /// The certificate library refused the name.
    pub fn certify(
        &self,
        name: &str,
        key: &impl PublicKeyData,
        now: SystemTime,
        life: Duration,
    ) -> Result<rcgen::Certificate, IdentityError> {
        let mut params = node_params(name)?;
        params.not_before = (now - IDENTITY_CLOCK_SKEW).into();
        params.not_after = (now + life).into();
        self.sign_params(&params, key)
    }

    fn sign_params(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<rcgen::Certificate, IdentityError> {
        Ok(params.signed_by(key, &Issuer::from_params(&self.params, &self.key))?)
    }
}

/// The contents of every identity of a fleet, without the validity.
fn node_params(name: &str) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = common_name(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The CA of a fleet that outlives its owner's process: the one whose key is in the folder, or a new one, which is
/// written there. The certificate stays the one that was written first.
///
/// # Errors
/// A file cannot be read or written, or is not a key.
pub fn kept_or_new(folder: &Path, now: SystemTime, life: Duration) -> Result<(FleetCa, String), IdentityError> {
    let ca_path = folder.join("ca.pem");
    if ca_path.exists() {
        return Ok((kept_ca(folder, now, life)?, read(&ca_path)?));
    }
    let ca = FleetCa::new(now, life)?;
    let pem = ca.certificate()?.pem();
    create_folder(folder)?;
    // The key first: a certificate alone would look like a CA whose key was dropped.
    write_new(&folder.join(CA_KEY_FILE), &ca.key.serialize_pem(), MODE_SECRET)?;
    write_new(&ca_path, &pem, MODE_PUBLIC)?;
    Ok((ca, pem))
}

/// Makes the requested identities. In a folder with a kept CA, adds gateways to that fleet.
///
/// # Errors
/// A bad name or an existing path (nothing is written then), or a file that cannot be written.
pub fn make(request: &Request<'_>, now: SystemTime) -> Result<(), IdentityError> {
    check_request(request)?;
    create_folder(request.out)?;
    let life = Duration::from_secs(u64::from(request.days) * 86_400);
    let ca_path = request.out.join("ca.pem");
    let (ca, ca_pem) = if ca_path.exists() {
        (kept_ca(request.out, now, life)?, read(&ca_path)?)
    } else {
        let ca = FleetCa::new(now, life)?;
        let pem = ca.certificate()?.pem();
        write_new(&ca_path, &pem, MODE_PUBLIC)?;
        if request.keep_ca {
            write_new(&request.out.join(CA_KEY_FILE), &ca.key.serialize_pem(), MODE_SECRET)?;
        }
        (ca, pem)
    };
    for name in request.names {
        let node = ca.sign(name)?;
        let folder = request.out.join(name);
        create_folder(&folder)?;
        write_new(&folder.join("ca.pem"), &ca_pem, MODE_PUBLIC)?;
        write_new(&folder.join("cert.pem"), &node.certificate.pem(), MODE_PUBLIC)?;
        write_new(&folder.join("key.pem"), &node.key.serialize_pem(), MODE_SECRET)?;
    }
    Ok(())
}

const CA_KEY_FILE: &str = "ca-key.pem";
const MODE_PUBLIC: u32 = 0o644;
const MODE_SECRET: u32 = 0o600;
const MODE_FOLDER: u32 = 0o700;

fn check_request(request: &Request<'_>) -> Result<(), IdentityError> {
    if !(1..=IDENTITY_DAYS_MAX).contains(&request.days) {
        return Err(IdentityError::Days(request.days));
    }
    if request.out.join("ca.pem").exists() && !request.out.join(CA_KEY_FILE).exists() {
        return Err(IdentityError::Exists(request.out.join("ca.pem")));
    }
    for (index, name) in request.names.iter().enumerate() {
        check_node_name(name).map_err(IdentityError::Name)?;
        if request.names[..index].contains(name) {
            return Err(IdentityError::Name(format!("gateway {name} is named twice")));
        }
        let folder = request.out.join(name);
        if folder.exists() {
            return Err(IdentityError::Exists(folder));
        }
    }
    Ok(())
}

fn kept_ca(folder: &Path, now: SystemTime, life: Duration) -> Result<FleetCa, IdentityError> {
    let key = KeyPair::from_pem(&read(&folder.join(CA_KEY_FILE))?)?;
    Ok(FleetCa::with_key(key, now, life))
}

fn read(path: &Path) -> Result<String, IdentityError> {
    std::fs::read_to_string(path).map_err(|source| IdentityError::Io { path: path.to_owned(), source })
}

fn create_folder(path: &Path) -> Result<(), IdentityError> {
    let made = DirBuilder::new().recursive(true).mode(MODE_FOLDER).create(path);
    made.map_err(|source| IdentityError::Io { path: path.to_owned(), source })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => IdentityError::Exists(path.to_owned()),
        _ => IdentityError::Io { path: path.to_owned(), source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Identity;
    use std::os::unix::fs::PermissionsExt;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn request<'a>(out: &'a Path, names: &'a [String], keep_ca: bool) -> Request<'a> {
        Request { out, names, days: 7, keep_ca }
    }

    #[test]
    fn a_fleet_gets_usable_identities_with_private_keys_and_no_ca_key() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("fleet");
        make(&request(&out, &names(&["lead", "source"]), false), SystemTime::now()).unwrap();
        for name in ["lead", "source"] {
            assert_eq!(Identity::load(&out.join(name)).unwrap().name(), name);
            let key = std::fs::metadata(out.join(name).join("key.pem")).unwrap();
            assert_eq!(key.permissions().mode() & 0o777, 0o600);
            assert_eq!(std::fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert!(!out.join("ca-key.pem").exists());
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let lead = names(&["lead"]);
        make(&request(folder.path(), &lead, false), SystemTime::now()).unwrap();
        let key = std::fs::read(folder.path().join("lead/key.pem")).unwrap();
        for again in [&lead, &names(&["other"])] {
            let error = make(&request(folder.path(), again, false), SystemTime::now()).unwrap_err();
            assert!(matches!(error, IdentityError::Exists(_)), "{error}");
        }
        assert_eq!(std::fs::read(folder.path().join("lead/key.pem")).unwrap(), key);
        assert!(!folder.path().join("other").exists());
    }

    #[test]
    fn a_kept_ca_signs_later_gateways_of_the_same_fleet() {
        let folder = tempfile::tempdir().unwrap();
        make(&request(folder.path(), &names(&["lead"]), true), SystemTime::now()).unwrap();
        make(&request(folder.path(), &names(&["late"]), false), SystemTime::now()).unwrap();
        let key = std::fs::metadata(folder.path().join("ca-key.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        // Loading checks the certificate against the CA's.
        assert_eq!(Identity::load(&folder.path().join("late")).unwrap().name(), "late");
        let ca = |path: &str| std::fs::read(folder.path().join(path)).unwrap();
        assert_eq!(ca("late/ca.pem"), ca("lead/ca.pem"));
    }

    #[test]
    fn bad_names_and_lives_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("fleet");
        for bad in [&["../x"][..], &[""], &["Upper"], &["twice", "twice"]] {
            assert!(matches!(make(&request(&out, &names(bad), false), SystemTime::now()), Err(IdentityError::Name(_))));
        }
        for days in [0, IDENTITY_DAYS_MAX + 1] {
            let request = Request { days, ..request(&out, &[], false) };
            assert!(matches!(make(&request, SystemTime::now()), Err(IdentityError::Days(_))));
        }
        assert!(!out.exists());
    }
}
