//! Files that people write.

use stickycas_chaos::Plan;
use stickycas_harness::Scenario;
use stickycas_lab::campaign::Campaign;
use stickycas_load::profile::{Flags, Profile};

/// A server's settings.
pub(super) fn settings(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        stickycas_server::fuzzing::settings(text);
    }
}

/// Every file of the load generator. A mistake is told in words that name the file.
pub(super) fn files(bytes: &[u8]) {
    const FILE: &str = "some.toml";
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mistakes = [
        Scenario::parse(FILE, text, Some(1)).err(),
        Profile::parse(FILE, text, &Flags::default()).err(),
        Campaign::parse(FILE, text, Some(1)).err(),
        Plan::parse(FILE, text).err(),
    ];
    for mistake in mistakes.into_iter().flatten() {
        assert!(mistake.to_string().contains(FILE), "{mistake}");
    }
}
