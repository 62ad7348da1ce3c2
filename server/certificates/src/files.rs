//! Files with credentials of a client, of a server or of etcd.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls_pki_types::CertificateDer;

use super::pem::{items, private_key};
use super::x509::{Certificate, seconds_since_1970};

/// The certificate of a server or a client, and behind it those between it and its CA.
pub const CERTIFICATE: &str = "tls.crt";
/// The key of the certificate.
pub const KEY: &str = "tls.key";
/// The CAs of clients, in the folder of a server. Several: while one takes the place of another.
pub const CLIENT_CAS: &str = "client-ca.crt";
/// The revocation lists of these CAs.
pub const REVOCATION_LISTS: &str = "client-ca.crl";
/// The public keys of tokens, if the server has a listener for tokens.
pub const TOKEN_KEYS: &str = "token-keys.json";
/// The CAs of which a client trusts the server's certificate, in the folder of a client.
pub const SERVER_CAS: &str = "ca.crt";
/// The longest time for which a token may be valid, in seconds.
pub const MAX_TOKEN_LIFETIME: u64 = 24 * 3600;

/// The reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub what: String,
}

/// Reads a file, or the target of a link. Reading another object, such as a pipe, could block for ever.
///
/// # Errors
/// If it cannot be read, or is no file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    fs::read(path)
}

/// The roots of trust in a file, as PEM. A root that has expired, or is not valid yet, causes a warning as
/// long as there is another.
///
/// # Errors
/// If one of them cannot be a root, or none is valid now.
pub fn roots(path: &Path) -> Result<Vec<u8>, FileError> {
    let text = bytes(path)?;
    let check = || {
        let (now, mut wrong, mut valid) = (seconds_since_1970(), Vec::new(), 0);
        for der in &items::<CertificateDer<'_>>(&text, "CERTIFICATE")? {
            let certificate = Certificate::read(der)?;
            certificate.check_ca()?;
            match certificate.check_time(now) {
                Ok(()) => valid += 1,
                Err(error) => wrong.push(error),
            }
        }
        if valid == 0 {
            return Err(wrong.swap_remove(0));
        }
        wrong.iter().for_each(|error| tracing::warn!(file = %path.display(), error, "a root of trust"));
        Ok(())
    };
    check().map_err(|what| FileError { path: path.to_owned(), what })?;
    Ok(text)
}

/// A certificate, with those between it and its CA, and its private key, both as PEM.
///
/// # Errors
/// If one of them cannot be used, or is not valid now.
pub fn identity(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), FileError> {
    let (chain, private) = (bytes(certificate)?, bytes(key)?);
    let check = || {
        let now = seconds_since_1970();
        let chain = items::<CertificateDer<'_>>(&chain, "CERTIFICATE")?;
        chain.iter().try_for_each(|der| Certificate::read(der)?.check_time(now))
    };
    check().map_err(|what| FileError { path: certificate.to_owned(), what })?;
    private_key(&private).map_err(|what| FileError { path: key.to_owned(), what })?;
    Ok((chain, private))
}

/// The message that a folder has no file of this name, with the folder in it that may be meant: one that has
/// the file. `None`: it has it.
#[must_use]
pub fn missing(folder: &Path, name: &str) -> Option<String> {
    if folder.join(name).exists() {
        return None;
    }
    let inside = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut meant: Vec<_> = inside.filter(|inside| inside.join(name).exists()).collect();
    meant.sort();
    let hint = meant.first().map_or_else(String::new, |first| {
        let how_many = if meant.len() > 1 { format!(" ({} folders)", meant.len()) } else { String::new() };
        format!(": did you mean {}{how_many}?", first.display())
    });
    let lacks = if folder.is_dir() { "has no" } else { "is no folder with" };
    Some(format!("{} {lacks} {name}{hint}", folder.display()))
}

fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    read(path).map_err(|error| FileError { path: path.to_owned(), what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
    use time::{Duration, OffsetDateTime};

    use super::*;

    /// A certificate that has signed itself, with something changed, and its key.
    fn signed(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn expired(params: &mut CertificateParams) {
        params.not_after = OffsetDateTime::now_utc() - Duration::HOUR;
    }

    fn early(params: &mut CertificateParams) {
        params.not_before = OffsetDateTime::now_utc() + Duration::HOUR;
    }

    #[test]
    fn a_folder_without_the_file_is_told_with_the_folder_that_is_meant() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path();
        let told =
            |name: &str| missing(folder, name).map(|told| told.replace(&*folder.to_string_lossy(), "creds"));
        assert_eq!(told("ca.crt").unwrap(), "creds has no ca.crt");
        for name in ["bob", "ann"] {
            fs::create_dir(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("ca.crt"), "").unwrap();
        }
        assert_eq!(told("ca.crt").unwrap(), "creds has no ca.crt: did you mean creds/ann (2 folders)?");
        assert_eq!(missing(&folder.join("ann"), "ca.crt"), None);
        assert_eq!(told("tls.crt").unwrap(), "creds has no tls.crt");
        assert!(missing(&folder.join("eve"), "ca.crt").unwrap().ends_with("eve is no folder with ca.crt"));
    }

    #[test]
    fn a_root_that_nobody_could_rely_on_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            roots(&path).map(|pem| assert_eq!(pem, text.as_bytes())).map_err(|error| error.to_string())
        };
        let good = signed(|_| ()).0;
        read(&good).unwrap();
        read(&signed(|params| params.key_usages.clear()).0).unwrap();
        // Whether it does no harm beside a good one.
        for (root, expected, is_harmless) in [
            (signed(expired).0, "has expired, on ", true),
            (signed(early).0, "is not valid before ", true),
            (signed(|params| params.is_ca = IsCa::ExplicitNoCa).0, "is no CA: ", false),
            (signed(|params| params.is_ca = IsCa::NoCa).0, "is no CA: ", false),
            (
                signed(|params| params.key_usages = vec![KeyUsagePurpose::CrlSign]).0,
                "has no keyCertSign",
                false,
            ),
            (signed(|_| ()).1, "but PRIVATE KEY", true),
        ] {
            let refused = read(&root).unwrap_err();
            assert!(
                refused.starts_with(&path.display().to_string()) && refused.contains(expected),
                "{refused}"
            );
            assert_eq!(read(&format!("{good}{root}")).is_ok(), is_harmless, "{expected}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let read = |(certified, private): (String, String)| {
            fs::write(&certificate, certified).unwrap();
            fs::write(&key, private).unwrap();
            identity(&certificate, &key).map(drop).map_err(|error| error.to_string())
        };
        let good = signed(|_| ());
        read(good.clone()).unwrap();
        assert!(read(signed(expired)).unwrap_err().contains("tls.crt: "));
        assert!(read(signed(early)).unwrap_err().contains("is not valid before "));
        let of_two = (format!("{}{}", good.0, signed(expired).0), good.1.clone());
        assert!(read(of_two).unwrap_err().contains("has expired"), "one behind it");
        assert!(read((good.0.clone(), good.0)).unwrap_err().contains("tls.key: there is no PRIVATE KEY"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(roots(&path).unwrap_err().to_string().contains("it is no regular file"));
        assert!(roots(folder.path()).unwrap_err().to_string().contains("it is no regular file"));
    }
}
