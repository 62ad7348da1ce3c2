//! The name of a principal.

use std::borrow::Borrow;
use std::sync::Arc;

/// An identity that the server has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Principal {
    fn borrow(&self) -> &str {
        &self.0
    }
}
