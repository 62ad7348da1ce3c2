//! The search: libFuzzer over the target that the variable STICKYCAS_FUZZ_TARGET names. Its arguments are those of libFuzzer.
#![no_main]

use std::sync::LazyLock;

use stickycas_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("STICKYCAS_FUZZ_TARGET").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| {
        eprintln!("STICKYCAS_FUZZ_TARGET={name:?} is no target: give one of {TARGETS:?}");
        std::process::exit(2);
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
