//! Credentials that a server must refuse, for tests: changed before they are signed, or of other CAs with the same names.

use std::path::Path;

use rcgen::{CertificateParams, CertificateRevocationListParams};

use super::{Certified, DevelopmentCas, DevelopmentError};

/// See the module.
pub trait ChangedCredentials: Sized {
    /// Other CAs with the names of these.
    ///
    /// # Errors
    /// If no keys can be made.
    fn namesakes(&self) -> Result<Self, DevelopmentError>;

    /// A certificate of this principal with something changed before it is signed.
    ///
    /// # Errors
    /// If the name is none, or what is changed cannot be encoded.
    fn changed_client(
        &mut self,
        principal: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Certified, DevelopmentError>;

    /// Writes the revocation list with something changed before it is signed.
    ///
    /// # Errors
    /// If it cannot be written, or what is changed cannot be encoded.
    fn write_changed_revocation_list(
        &mut self,
        folder: &Path,
        change: impl FnOnce(&mut CertificateRevocationListParams),
    ) -> Result<(), DevelopmentError>;
}

impl ChangedCredentials for DevelopmentCas {
    fn namesakes(&self) -> Result<Self, DevelopmentError> {
        Self::marked(&self.trust_domain, self.not_after, self.mark)
    }

    fn changed_client(
        &mut self,
        principal: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Certified, DevelopmentError> {
        self.sign_client(principal, change)
    }

    fn write_changed_revocation_list(
        &mut self,
        folder: &Path,
        change: impl FnOnce(&mut CertificateRevocationListParams),
    ) -> Result<(), DevelopmentError> {
        self.sign_revocation_list(folder, change)
    }
}
