//! The CAs of clients, and which of them count at a moment.
//!
//! TLS does not look at the time of a root. Here a CA counts between its two moments, as every certificate
//! does. If all of them have ended while they were in force, the last ones count on, with an alarm: a missing
//! renewal must not shut all clients out.

use rustls::pki_types::CertificateDer;
use stickycas_certificates::Certificate;

use super::folder::{CLIENT_CAS, CredentialsError, Files};

/// See the module.
#[derive(Debug)]
pub(crate) struct ClientCas {
    cas: Vec<CertificateDer<'static>>,
    /// The first and the last moment of each, in seconds since 1970.
    moments: Vec<(u64, u64)>,
    /// For each of them, whether it counts.
    count: Vec<bool>,
}

impl ClientCas {
    /// Reads the CAs. `last`: the same ones, if they are in force.
    ///
    /// # Errors
    /// If one is no CA, or none counts.
    pub(super) fn read(files: &Files, last: Option<&Self>, now: u64) -> Result<Self, CredentialsError> {
        let wrong = |error: String| files.wrong(CLIENT_CAS, &error);
        let cas: Vec<CertificateDer<'static>> = files.pem_items(CLIENT_CAS, "CERTIFICATE")?;
        let mut moments = Vec::new();
        for der in &cas {
            let ca = Certificate::read(der).map_err(wrong)?;
            ca.check_ca().map_err(wrong)?;
            moments.push((ca.not_before, ca.not_after));
        }
        let count = counting(&moments, now).or_else(|| last.map(|last| last.count.clone()));
        let this = Self { cas, moments, count: count.unwrap_or_default() };
        let why = this.late(now).next().filter(|_| this.count.is_empty());
        let is_early = this.moments.iter().any(|(first, _)| now < *first);
        why.map_or(Ok(this), |why| Err(files.not_valid(CLIENT_CAS, why, is_early)))
    }

    /// The errors of those that are not valid at this moment.
    pub(super) fn late(&self, now: u64) -> impl Iterator<Item = String> {
        self.cas.iter().filter_map(move |der| Certificate::read(der).ok()?.check_time(now).err())
    }

    /// All of them, and whether each counts.
    pub(super) fn all(&self) -> impl Iterator<Item = (&CertificateDer<'static>, bool)> {
        self.cas.iter().zip(self.count.iter().copied())
    }

    /// Whether at this moment the same ones count.
    pub(super) fn are_same_at(&self, now: u64) -> bool {
        counting(&self.moments, now).is_none_or(|count| count == self.count)
    }

    /// The last moment at which all of them are valid.
    pub(crate) fn not_after(&self) -> u64 {
        self.moments.iter().map(|(_, not_after)| *not_after).min().unwrap_or(u64::MAX)
    }
}

/// For each of them, whether it counts; `None`: none does.
fn counting(moments: &[(u64, u64)], now: u64) -> Option<Vec<bool>> {
    let count: Vec<bool> = moments.iter().map(|(first, last)| (first..=last).contains(&&now)).collect();
    count.contains(&true).then_some(count)
}
