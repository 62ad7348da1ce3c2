//! The machine of a load generator: it can explain a different result elsewhere.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::environment::Platform;

/// A machine and the load generator that ran on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The load generator, and where it ran.
    #[serde(flatten)]
    pub platform: Platform,
    /// Its command line.
    pub arguments: Vec<String>,
    /// The server's address; `None`: one of its own, in the same process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Release of its kernel, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Model of the processor, if the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Bytes of memory of the machine, if the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Host {
    /// This machine and this program.
    #[must_use]
    pub fn here(server: Option<String>) -> Self {
        Self {
            platform: Platform::here(),
            arguments: std::env::args().collect(),
            server,
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            processor: read("/proc/cpuinfo").and_then(|text| field(&text, "model name")),
            memory_bytes: read("/proc/meminfo").and_then(|text| kibibytes(&field(&text, "MemTotal")?)),
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Platform { cpus, os, architecture, version, debug_assertions, .. } = &self.platform;
        let processor = self.processor.as_deref().unwrap_or(architecture);
        let build = if *debug_assertions { ", built with debug assertions" } else { "" };
        format!("{cpus} x {processor}, {os}, version {version}{build}")
    }
}

/// How many files this process may have open, if the system tells.
#[must_use]
pub fn open_files() -> Option<u64> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of memory that programs may still take, if the system tells.
#[must_use]
pub fn memory_available() -> Option<u64> {
    read("/proc/meminfo").and_then(|text| kibibytes(&field(&text, "MemAvailable")?))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The value behind the first `name   :` of the lines.
fn field(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
    found.next()
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_found_by_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some: CPU\nMemTotal:       24594764 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some: CPU"));
        assert_eq!(kibibytes(&field(text, "MemTotal").unwrap()), Some(24_594_764 * 1024));
        assert_eq!(field(text, "flags"), None);
    }
}
