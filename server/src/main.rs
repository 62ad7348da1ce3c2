//! The StickyCAS server. See `stickycas_server`.

use std::process::ExitCode;

/// Most allocations of a server are small and short-lived; this allocator is made for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    stickycas_server::cli::run_from(std::env::args_os())
}

/// The allocator asks for huge pages, and the memory of many buffers that are hardly used would then count in
/// full: half as much again for each connection (docs/internals/performance.md, "Memory").
fn use_small_pages() {
    // If the system refuses this, the server only takes more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
