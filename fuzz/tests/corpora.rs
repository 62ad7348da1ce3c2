//! What the search has kept, tried once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use stickycas_fuzz::TARGETS;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn nothing_that_was_kept_breaks_its_decoder() {
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let mut inputs = 0;
        for input in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = input.expect("the folder can be read").path();
            let bytes = fs::read(&path).expect("the file can be read");
            let tried = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(tried.is_ok(), "{}", path.display());
            inputs += 1;
        }
        assert!(inputs >= 10, "{target:?} has {inputs} inputs");
    }
}

#[test]
fn every_folder_is_of_a_target() {
    let folders = fs::read_dir(corpus()).expect("there are corpora");
    let folders = folders.map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"));
    let names = TARGETS.map(|target| target.name.to_owned());
    assert_eq!(folders.collect::<BTreeSet<_>>(), BTreeSet::from(names));
}
