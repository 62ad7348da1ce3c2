//! One certificate: when it counts, and whether it can sign others.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The clock of certificates and tokens. It may step.
#[must_use]
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// See the module. Moments are in seconds since 1970.
#[derive(Debug)]
pub struct Certificate<'a> {
    /// The whole of it.
    pub x509: X509Certificate<'a>,
    /// The first moment at which it is valid.
    pub not_before: u64,
    /// The last one.
    pub not_after: u64,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(der: &'a CertificateDer<'_>) -> Result<Self, String> {
        let (rest, x509) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("bytes stand behind a certificate".to_owned());
        }
        let moment = |moment: i64| u64::try_from(moment).unwrap_or(0);
        let validity = x509.validity();
        let (not_before, not_after) =
            (moment(validity.not_before.timestamp()), moment(validity.not_after.timestamp()));
        Ok(Self { x509, not_before, not_after })
    }

    /// Checks that it counts at this moment.
    ///
    /// # Errors
    /// If it does not: from when on, or until when.
    pub fn check_time(&self, now: u64) -> Result<(), String> {
        let (subject, validity) = (self.x509.subject(), self.x509.validity());
        if now > self.not_after {
            return Err(format!("{subject} has expired, on {}: give a new one", validity.not_after));
        }
        if now < self.not_before {
            return Err(format!(
                "{subject} is not valid before {}: give it then, or look at the clock of this machine",
                validity.not_before
            ));
        }
        Ok(())
    }

    /// Checks that it can sign certificates.
    ///
    /// # Errors
    /// It cannot; with the reason.
    pub fn check_ca(&self) -> Result<(), String> {
        let subject = self.x509.subject();
        let unreadable = |error| format!("{subject}: {error}");
        let constraints = self.x509.basic_constraints().map_err(unreadable)?;
        if !constraints.is_some_and(|constraints| constraints.value.ca) {
            return Err(format!("{subject} is no CA: its basic constraints have no CA:TRUE"));
        }
        let usage = self.x509.key_usage().map_err(unreadable)?;
        if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
            return Err(format!("{subject} may sign no certificates: its key usage has no keyCertSign"));
        }
        Ok(())
    }
}
