//! The seeds of every target, and what the search has kept, tried once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stickycas_fuzz::{TARGETS, Target};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// What the search has kept for a target, in the order of its file: an input is a line of base64.
fn kept(target: &Target) -> Vec<Vec<u8>> {
    let file = corpus().join(format!("{}.base64", target.name));
    let lines = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    lines.lines().map(|line| STANDARD.decode(line).expect("base64")).collect()
}

fn is_survived(target: &Target, bytes: &[u8]) -> bool {
    std::panic::catch_unwind(|| (target.run)(bytes)).is_ok()
}

#[test]
fn nothing_that_was_kept_breaks_its_decoder() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let inputs = kept(target);
        assert!(inputs.len() >= 3, "{target:?} has {} inputs", inputs.len());
        for (line, input) in (1..).zip(&inputs) {
            if !is_survived(target, input) {
                broken.push(format!("{}.base64, line {line}", target.name));
            }
        }
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
fn every_file_is_of_a_target() {
    let files = fs::read_dir(corpus()).expect("there are corpora");
    let files = files.map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"));
    let names = TARGETS.iter().map(|target| format!("{}.base64", target.name));
    assert_eq!(files.collect::<BTreeSet<_>>(), names.collect());
}
