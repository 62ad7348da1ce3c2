//! Decoders of this crate that nobody else may call, for the search for bytes that break them (`fuzz/`).

use std::path::Path;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

use crate::data;
use crate::settings::Effective;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("threads can be made"));

/// Reads a backup of a log and recovers its instances, as `stickycas-server data check` does. What it holds is whole or
/// reported.
pub fn backup(bytes: &[u8]) {
    let _ = RUNTIME.block_on(data::check_backup(bytes));
}

/// Reads the text of a file of a server's settings, and checks the whole.
pub fn settings(text: &str) {
    let _ = Effective::of_text(Path::new("server.toml"), text);
}
