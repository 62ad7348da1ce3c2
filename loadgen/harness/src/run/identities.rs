//! How the principals of a run prove who they are to servers.

use std::path::PathBuf;

use stickycas_client::{Client, ClientBuilder, Credentials, Error};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identities {
    /// Not at all: the server believes names.
    #[default]
    Names,
    /// A folder of credentials for each principal, of its name, in this folder.
    Folders(PathBuf),
    /// The folder of credentials of the one principal that there is.
    Own(PathBuf),
}

impl Identities {
    /// The settings of a client for this principal.
    ///
    /// # Errors
    /// If there are no credentials for it, or they cannot be used.
    pub fn client(&self, url: &str, principal: &str) -> Result<ClientBuilder, Error> {
        let builder = Client::builder(url).principal(principal);
        Ok(match self.folder(principal) {
            Some(folder) => builder.credentials(Credentials::read(&folder)?),
            None => builder,
        })
    }

    /// The folder of credentials of this principal.
    #[must_use]
    pub fn folder(&self, principal: &str) -> Option<PathBuf> {
        match self {
            Self::Names => None,
            Self::Folders(folder) => Some(folder.join(principal)),
            Self::Own(folder) => Some(folder.clone()),
        }
    }

    /// Whether one connection may carry several principals.
    #[must_use]
    pub fn may_share_connections(&self) -> bool {
        *self == Self::Names
    }
}
