//! The figures of the system about this process. A metric without a figure is left out.

use std::fmt;
use std::fs;

use super::exposition::Exposition;

/// Memory, files, threads and processor time.
pub(crate) fn encode(out: &mut Exposition<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        out.gauge("process_resident_memory_bytes", "Resident memory of the process", bytes)?;
    }
    if let Some(files) = open_files() {
        out.gauge("process_open_fds", "Open files of the process, connections among them", files)?;
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        out.gauge("process_max_fds", "Files that the process may have open", limit)?;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "exact for 285 million years")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    out.counter("process_cpu_seconds", "Processor time that the process has taken", seconds)
}

/// Resident memory of this process, where the system reports it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Open files. The size of the folder is their number on recent systems; else they are counted.
fn open_files() -> Option<u64> {
    let folder = "/proc/self/fd";
    let size = fs::metadata(folder).ok()?.len();
    if size > 0 { Some(size) } else { Some(fs::read_dir(folder).ok()?.count() as u64) }
}
