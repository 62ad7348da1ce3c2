//! Files that people write.

use std::fs;
use std::path::Path;

use stickycas_faults::Plan;
use stickycas_harness::Scenario;
use stickycas_lab::campaign::Campaign;
use stickycas_load::profile::{Flags, Profile};

/// A server's settings.
pub(super) fn settings(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        stickycas_server::fuzzing::settings(text);
    }
}

/// The file of the systemd unit, all settings with their defaults, and values of every kind.
pub(super) fn settings_seeds() -> Vec<Vec<u8>> {
    let kinds = "insecure_principals = true\ncoordinators = ['boss']\ndrain = '10s'\nadmission = 'observe'\n\
                 [limits]\nretention = '1h'\nread_bytes = '1MiB'\ninstance_bytes = '16GiB'\nwatchers = 3\n";
    let texts = [
        include_str!("../../deploy/systemd/server.toml").to_owned(),
        stickycas_server::fuzzing::all_settings(),
        kinds.to_owned(),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}

/// Every file of the load generator. A mistake is told in words that name the file; a scenario is the same
/// when it is written and read again.
pub(super) fn files(bytes: &[u8]) {
    const FILE: &str = "some.toml";
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let scenario = Scenario::parse(FILE, text, Some(1));
    if let Ok(scenario) = &scenario {
        let again = Scenario::parse(FILE, &scenario.to_toml(), None);
        assert_eq!(again.as_ref().map_err(ToString::to_string), Ok(scenario));
    }
    let mistakes = [
        scenario.err(),
        Profile::parse(FILE, text, &Flags::default()).err(),
        Campaign::parse(FILE, text, Some(1)).err(),
        Plan::parse(FILE, text).err(),
    ];
    for mistake in mistakes.into_iter().flatten() {
        assert!(mistake.to_string().contains(FILE), "{mistake}");
    }
}

/// The files that are delivered.
pub(super) fn files_seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = ["examples/scenarios", "examples/profiles", "examples/campaigns", "examples/perturbations"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten());
    let files = files.filter_map(|file| Some(file.ok()?.path()).filter(|path| path.is_file()));
    files.filter_map(|path| fs::read(path).ok()).collect()
}
