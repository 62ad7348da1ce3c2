//! The seeds of every target, and what the search has kept, tried once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use stickycas_fuzz::{TARGETS, Target};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn is_survived(target: &Target, bytes: &[u8]) -> bool {
    std::panic::catch_unwind(|| (target.run)(bytes)).is_ok()
}

#[test]
fn nothing_that_was_kept_breaks_its_decoder() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let mut inputs = 0;
        for input in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = input.expect("the folder can be read").path();
            let bytes = fs::read(&path).expect("the file can be read");
            if !is_survived(target, &bytes) {
                broken.push(path);
            }
            inputs += 1;
        }
        assert!(inputs >= 10, "{target:?} has {inputs} inputs");
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_seed_breaks_its_decoder() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(seeds.len() >= 3, "{target:?} has {} seeds", seeds.len());
        for (number, seed) in (1..).zip(&seeds) {
            if !is_survived(target, seed) {
                broken.push(format!("{target:?}, seed {number}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_folder_is_of_a_target() {
    let folders = fs::read_dir(corpus()).expect("there are corpora");
    let folders =
        folders.map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"));
    let names = TARGETS.iter().map(|target| target.name.to_owned());
    assert_eq!(folders.collect::<BTreeSet<_>>(), names.collect());
}
