//! The place, the time and the mode of a run: they can explain a different result elsewhere.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::ExecutionMode;

pub use stickycas_program::VERSION;

/// This program and the machine that it runs on: the first fields of each record of an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Platform {
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// The commit it was built from, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether it was built with debug assertions.
    pub debug_assertions: bool,
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub architecture: String,
    /// Processors that this process may use.
    pub cpus: u64,
}

impl Platform {
    /// This program, here.
    #[must_use]
    pub fn here() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: stickycas_program::commit().map(str::to_owned),
            debug_assertions: cfg!(debug_assertions),
            os: std::env::consts::OS.to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
        }
    }
}

/// The environment of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The program and the machine.
    #[serde(flatten)]
    pub platform: Platform,
    /// When the run ended, in UTC, RFC 3339.
    pub time: String,
    /// The command line, with the program first.
    pub arguments: Vec<String>,
    /// How the scenario was run.
    pub how: ExecutionMode,
    /// The server, if it was not started by the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn here(how: ExecutionMode, server: Option<String>) -> Self {
        Self {
            platform: Platform::here(),
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            arguments: std::env::args().collect(),
            how,
            server,
        }
    }
}
