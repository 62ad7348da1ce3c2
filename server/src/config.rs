//! What a server is started with.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::auth::AuthMode;
use crate::limits::Limits;

/// The configuration of one server.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the server tells who is calling.
    pub auth_mode: AuthMode,
    /// The principals that may create instances (F11).
    pub coordinators: BTreeSet<String>,
    /// The principals that may look at every instance (F13).
    pub observers: BTreeSet<String>,
    /// The bounds on what clients can fill.
    pub limits: Limits,
    /// How long a stopping server waits for its connections to end.
    pub drain: Duration,
    /// Whether tools may ask for the service definitions (gRPC reflection).
    pub reflection: bool,
}

impl Config {
    /// A server that believes the principal a caller names, with these coordinators and every default. Fit
    /// for tests and for runs on one machine.
    #[must_use]
    pub fn insecure(coordinators: impl IntoIterator<Item = String>) -> Self {
        Self {
            auth_mode: AuthMode::InsecurePrincipals,
            coordinators: coordinators.into_iter().collect(),
            observers: BTreeSet::new(),
            limits: Limits::default(),
            drain: Duration::from_secs(5),
            reflection: true,
        }
    }
}
