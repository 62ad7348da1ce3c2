//! The build of the server, its machine and its memory, for the comparison of measurements.

use stickycas_proto::v1;

use crate::instances::LoadMonitor;
use crate::metrics::resident_bytes;

/// This server, now.
pub(crate) fn server_info(load: &LoadMonitor) -> v1::ServerFacts {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    v1::ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: stickycas_program::commit().unwrap_or_default().to_owned(),
        debug_assertions: cfg!(debug_assertions),
        os: std::env::consts::OS.to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        resident_bytes: resident_bytes().unwrap_or_default(),
        busy: load.busy(),
        instances_under_way: load.live() as u64,
    }
}
