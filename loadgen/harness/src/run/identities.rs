//! How the principals of a run prove who they are to servers.

use std::path::{Path, PathBuf};

use stickycas_client::{Client, ClientBuilder, Credentials, Error, RetryPolicy};

/// See the module.
#[derive(Clone, Debug, Default)]
pub enum Identities {
    /// Not at all: the server believes names.
    #[default]
    Names,
    /// A folder of credentials for each principal, of its name, in this folder.
    Folders(PathBuf),
    /// One folder with the tokens of all principals. These credentials are those of any of them.
    Tokens(Credentials),
    /// The folder of credentials of the one principal that there is.
    Own(PathBuf),
}

impl Identities {
    /// Those in a folder: one with the tokens of all principals (`tokens`, `ca.crt`), or one with a folder
    /// for each.
    ///
    /// # Errors
    /// If the tokens cannot be read.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        if !folder.join("tokens").is_file() {
            return Ok(Self::Folders(folder.to_owned()));
        }
        Credentials::read(folder).map(Self::Tokens)
    }

    /// The settings of a client for this principal. `servers`: the address of a server; of a cluster, those
    /// of several of its servers, separated by commas.
    ///
    /// # Errors
    /// If there are no credentials for it, or they cannot be used.
    pub fn client(&self, servers: &str, principal: &str) -> Result<ClientBuilder, Error> {
        let mut urls = servers.split(',');
        let first = Client::builder(urls.next().unwrap_or_default());
        let builder = urls.fold(first, ClientBuilder::server).principal(principal);
        Ok(match self {
            Self::Names => builder,
            Self::Tokens(credentials) => builder.credentials(credentials.clone()),
            Self::Folders(folder) => builder.credentials(Credentials::read(&folder.join(principal))?),
            Self::Own(folder) => builder.credentials(Credentials::read(folder)?),
        })
    }

    /// The default retries of a client of these servers.
    #[must_use]
    pub fn retries(servers: &str) -> RetryPolicy {
        if servers.contains(',') { RetryPolicy::of_cluster() } else { RetryPolicy::default() }
    }

    /// The folder of credentials that a client of this principal reads, if it is told its name as well.
    #[must_use]
    pub fn folder(&self, principal: &str) -> Option<PathBuf> {
        match self {
            Self::Names => None,
            Self::Folders(folder) => Some(folder.join(principal)),
            Self::Tokens(credentials) => Some(credentials.folder().to_owned()),
            Self::Own(folder) => Some(folder.clone()),
        }
    }

    /// Whether one connection may carry several principals. Not with certificates: a connection is the
    /// principal that its handshake has proven. Tokens are shown with each call.
    #[must_use]
    pub const fn may_share_connections(&self) -> bool {
        matches!(self, Self::Names | Self::Tokens(_))
    }
}
