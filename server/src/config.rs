//! The configuration of a server.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::Limits;

/// The credentials of a server with TLS: their folder and their trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFolder {
    /// The folder.
    pub path: PathBuf,
    /// The trust domain to which the CAs in it are bound.
    pub trust_domain: String,
    /// Whether a CA without a revocation list is trusted.
    pub allow_missing_revocation_list: bool,
}

/// The treatment of a request above a rate or a share of its principal. Bounds of the whole server hold in
/// every mode: its memory and its file descriptors depend on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// It is served.
    Off,
    /// It is served, counted and logged.
    Observe,
    /// It is refused.
    #[default]
    Enforce,
}

impl Admission {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Observe, Self::Enforce];

    /// The name, as in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The way in which the server identifies callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// By the certificate that the client shows in the handshake of TLS: one connection is one principal.
    Certificates(CredentialFolder),
    /// The principal is the one that the metadata key [`PRINCIPAL_KEY`](crate::PRINCIPAL_KEY) names. Proves
    /// nothing: any client can name any principal.
    InsecurePrincipals,
}

/// The claims of tokens that are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// The claim `iss` that they have.
    pub issuer: String,
    /// The value that their claim `aud` must contain.
    pub audience: String,
}

/// The cluster that a server belongs to (feature `cluster`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The addresses of etcd's members for clients.
    pub etcd: Vec<String>,
    /// The folder of the credentials of this server for etcd. `None`: it has none, and nothing is encrypted.
    pub etcd_credentials: Option<PathBuf>,
    /// etcd's quota, in bytes: its `--quota-backend-bytes`.
    pub etcd_quota: u64,
    /// The name of the cluster.
    pub name: String,
    /// The name of the server within it.
    pub server: String,
    /// Host and port at which clients reach the server.
    pub advertise: String,
    /// The time for which a server that is silent keeps its shards.
    pub lease: Duration,
    /// The number of shards. It never changes.
    pub shards: u32,
}

/// [`Config::reload_every`], unless a program has its reasons.
pub(crate) const RELOAD_EVERY: Duration = Duration::from_secs(5);

/// The configuration of one server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The way in which the server identifies callers.
    pub auth_mode: AuthMode,
    /// The principals that may create instances (F11).
    pub coordinators: BTreeSet<String>,
    /// The principals that may look at every instance (F13).
    pub observers: BTreeSet<String>,
    /// The principals that may see the counts of every principal.
    pub admins: BTreeSet<String>,
    /// The tokens that are taken, on a listener of their own, beside certificates. `None`: none are.
    pub tokens: Option<TokenConfig>,
    /// The interval at which the files of the credentials are checked for changes. A change is in force not
    /// much later than this.
    pub reload_every: Duration,
    /// The bounds on what clients can fill.
    pub limits: Limits,
    /// Whether rates and shares are enforced.
    pub admission: Admission,
    /// The time that a stopping server waits for its connections to end.
    pub drain: Duration,
    /// The folder of the log. `None`: everything is kept in memory, and lost when the server stops.
    pub data: Option<PathBuf>,
    /// The cluster whose etcd has the logs of this server, in place of a folder. `None`: the server is alone.
    pub cluster: Option<ClusterConfig>,
    /// The names that browsers may use for the operators' pages on a loopback address, beside `localhost` and
    /// addresses.
    pub http_hosts: Vec<String>,
    /// Whether tools may ask for the service definitions (gRPC reflection).
    pub reflection: bool,
}

impl Config {
    /// A server that takes the principal from the metadata unchecked, with these coordinators and every
    /// default. For tests and for runs on one machine.
    #[must_use]
    pub fn insecure(coordinators: impl IntoIterator<Item = String>) -> Self {
        Self {
            auth_mode: AuthMode::InsecurePrincipals,
            coordinators: coordinators.into_iter().collect(),
            observers: BTreeSet::new(),
            admins: BTreeSet::new(),
            tokens: None,
            reload_every: RELOAD_EVERY,
            limits: Limits::default(),
            admission: Admission::default(),
            drain: Duration::from_secs(5),
            data: None,
            cluster: None,
            http_hosts: Vec::new(),
            reflection: true,
        }
    }
}
