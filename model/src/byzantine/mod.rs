//! Byzantine strategies: one small file each, behind the interface of [`crate::process::Behaviour`], so that
//! the same code runs in the simulator and over the network (SPEC section 8).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::{AccessNumber, Value};

/// A strategy with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Strategy {
    /// Never joins.
    Absent,
    /// Joins, then says nothing.
    Silent,
    /// Proof case (c): appends this value in its first access, as all who collude do.
    Collude {
        /// The common value.
        value: Value,
    },
    /// Proof case (b): appends a value of its own, different from every other process's.
    Distinct {
        /// Its own value.
        value: Value,
    },
    /// Reads in its first accesses, so as to be punctual and yet withhold, and appends in this one.
    LateAppend {
        /// The number of the access that appends; 2 or more.
        access: AccessNumber,
        /// What it appends.
        value: Value,
    },
}
impl fmt::Display for Strategy {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
impl From<Strategy> for String {
    fn from(strategy: Strategy) -> Self {
        strategy.to_string()
    }
}
impl TryFrom<String> for Strategy {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Err(text)
    }
}
