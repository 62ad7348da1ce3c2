//! Items in a PEM text, and errors for other contents.

use std::fmt::Write as _;

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::{Error, PemObject};

const BEGIN: &[u8] = b"-----BEGIN ";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// All items with this label, such as CERTIFICATE; there is at least one.
///
/// # Errors
/// The reason. An item that would be skipped is an error too.
pub fn items<T: PemObject>(text: &[u8], label: &str) -> Result<Vec<T>, String> {
    let labels = labels(text);
    if let Some(other) = labels.iter().find(|other| *other != label && other.ends_with(label)) {
        return Err(format!("it has a section {other}: give {label} in its place, as openssl writes it"));
    }
    let items: Result<Vec<T>, Error> = T::pem_slice_iter(text).collect();
    let items = items.map_err(|error| format!("{error}, as in a file that is not whole"))?;
    let last = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if last.starts_with(b"-") && !(last.starts_with(b"-----END ") && last.ends_with(b"-----")) {
        return Err("it ends within a line, as a file does that is not whole".to_owned());
    }
    if items.len() != labels.iter().filter(|other| *other == label).count() {
        return Err(format!("something stands before a -----BEGIN {label}-----: let it begin its line"));
    }
    if items.is_empty() { Err(missing(text, label, &labels)) } else { Ok(items) }
}

/// The first private key.
///
/// # Errors
/// The reason.
pub fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        Error::NoItemsFound => missing(text, "PRIVATE KEY without a password", &labels(text)),
        error => format!("{error}, as in a file that is not whole"),
    })
}

fn missing(text: &[u8], label: &str, labels: &[String]) -> String {
    let mut what = format!("there is no {label} in PEM in it");
    match text {
        [] => what.push_str(": it is empty"),
        // A sequence, in two bytes of length.
        [0x30, 0x80..=0x84, ..] => what.push_str(": it is DER, so convert it by openssl"),
        _ if !labels.is_empty() => {
            let _ = write!(what, ", but {}", labels.join(", "));
        }
        _ => {}
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        what.push_str(": it begins with a byte order mark, so save it without");
    }
    what
}

/// The labels of all sections, wherever in a line they begin.
fn labels(text: &[u8]) -> Vec<String> {
    let begins = text.windows(BEGIN.len()).enumerate().filter(|(_, window)| *window == BEGIN);
    let label = |(place, _): (usize, _)| {
        let rest = &text[place + BEGIN.len()..];
        let end = rest.iter().position(|byte| matches!(byte, b'-' | b'\n' | b'\r')).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    begins.map(label).collect()
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;

    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn read(text: impl AsRef<[u8]>) -> Result<usize, String> {
        items::<CertificateDer<'_>>(text.as_ref(), "CERTIFICATE").map(|items| items.len())
    }

    #[test]
    fn whatever_else_stands_in_a_file_all_certificates_count() {
        assert_eq!(read(ONE.repeat(3)), Ok(3));
        assert_eq!(read(format!("# of us\r\n{}", ONE.replace('\n', "\r\n"))), Ok(1));
        let key = ONE.replace("CERTIFICATE", "PRIVATE KEY");
        assert_eq!(read(format!("{key}{ONE}{key}")), Ok(1));
    }

    #[test]
    fn what_is_no_certificate_in_pem_is_named() {
        for (text, expected) in [
            (String::new(), "it is empty"),
            ("nothing".to_owned(), "there is no CERTIFICATE in PEM in it"),
            (ONE.replace("CERTIFICATE", "PRIVATE KEY"), "but PRIVATE KEY"),
            (ONE.replace("CERTIFICATE", "TRUSTED CERTIFICATE"), "it has a section TRUSTED CERTIFICATE"),
            (
                format!("{ONE}{}", ONE.replace("CERTIFICATE", "X509 CERTIFICATE")),
                "a section X509 CERTIFICATE",
            ),
            (format!("\u{feff}{ONE}"), "something stands before a -----BEGIN CERTIFICATE-----"),
            (format!("{ONE}\u{feff}{ONE}"), "something stands before"),
            (format!("{ONE} {ONE}"), "something stands before"),
            (format!("{ONE}{}", &ONE[..40]), "as in a file that is not whole"),
            (format!("{ONE}{}", &ONE[..5]), "as a file does that is not whole"),
            (format!("{ONE}{}", &ONE[..9]), "as a file does that is not whole"),
        ] {
            let refused = read(&text).unwrap_err();
            assert!(refused.contains(expected), "{text:?}: {refused}");
        }
        let refused = read(b"\x30\x82\x01\x00-").unwrap_err();
        assert!(refused.contains("it is DER"), "{refused}");
        let refused = read(b"\xef\xbb\xbf").unwrap_err();
        assert!(refused.contains("byte order mark"), "{refused}");
    }

    #[test]
    fn a_key_with_a_password_is_no_key() {
        let key = |label: &str| private_key(ONE.replace("CERTIFICATE", label).as_bytes()).map(drop);
        assert_eq!(key("PRIVATE KEY"), Ok(()));
        assert!(key("ENCRYPTED PRIVATE KEY").unwrap_err().contains("but ENCRYPTED PRIVATE KEY"));
        assert!(key("CERTIFICATE").unwrap_err().contains("but CERTIFICATE"));
    }
}
