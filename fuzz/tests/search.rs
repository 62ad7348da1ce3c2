//! The search: libFuzzer over the target that the variable STICKYCAS_FUZZ_TARGET names. Its arguments are
//! those of libFuzzer. With STICKYCAS_FUZZ_SEEDS it writes the seeds of the target into that folder and ends.
#![no_main]
#![allow(
    clippy::exit,
    clippy::print_stderr,
    reason = "it is a program, and its main function is libFuzzer's"
)]

use std::path::Path;
use std::sync::LazyLock;

use stickycas_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("STICKYCAS_FUZZ_TARGET").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| {
        eprintln!("STICKYCAS_FUZZ_TARGET={name:?} is no target: give one of {TARGETS:?}");
        std::process::exit(2);
    })
});

fn write_seeds(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, seed) in (1..).zip((TARGET.seeds)()) {
        std::fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

libfuzzer_sys::fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("STICKYCAS_FUZZ_SEEDS") {
            let written = write_seeds(folder.as_ref());
            let written = written.inspect_err(|error| eprintln!("{}: {error}", folder.display()));
            std::process::exit(if written.is_ok() { 0 } else { 1 });
        }
        LazyLock::force(&TARGET);
    },
    |bytes: &[u8]| (TARGET.run)(bytes)
);
