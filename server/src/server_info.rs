//! What the server is and what it runs on, for whoever compares figures.

use std::fs;

use stickycas_proto::v1;

use crate::instances::Pressure;

/// This program on this machine, at this moment.
pub(crate) fn server_info(pressure: &Pressure) -> v1::ServerFacts {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    v1::ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("STICKYCAS_COMMIT").unwrap_or_default().to_owned(),
        debug_assertions: cfg!(debug_assertions),
        os: std::env::consts::OS.to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        resident_bytes: resident_bytes().unwrap_or_default(),
        busy: pressure.busy(),
        instances_under_way: pressure.live() as u64,
    }
}

/// Memory that this process takes, if the system tells.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
