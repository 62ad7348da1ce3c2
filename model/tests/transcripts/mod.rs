//! Golden transcripts of the machine: a few commands in, what came of them out.
//!
//! Each file of `tests/scripts/` is one situation. A line `> command` is put to the machine; the lines under
//! it are what the machine did. Lines with `#` are for the reader and say which rules are shown. A change in
//! behaviour is a readable diff.
//!
//! `STICKYCAS_BLESS=1 cargo test -p stickycas-model --test rules transcripts` writes the files anew, except
//! in CI. Read what it wrote against the rules before you keep it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod command;
mod script;
mod words;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use script::Script;

#[test]
fn every_situation_cites_its_rules_and_goes_as_written() {
    let bless = env::var_os("STICKYCAS_BLESS").is_some_and(|value| value == "1");
    assert!(!bless || env::var_os("CI").is_none(), "golden files are never written in CI");
    let scripts = scripts();
    assert!(scripts.len() >= 30, "only {} situations", scripts.len());
    let mut differences = String::new();
    for path in scripts {
        let written = fs::read_to_string(&path).unwrap();
        let first = written.lines().next().unwrap_or_default();
        assert!(first.starts_with("# ") && cites_a_rule(first), "{}: {first}", path.display());
        let played = play(&path, &written);
        if played == written {
            continue;
        }
        if bless {
            fs::write(&path, played).unwrap();
        } else {
            differences += &format!("\n{}\n{}", path.display(), difference(&written, &played));
        }
    }
    assert!(differences.is_empty(), "lines of the file with -, of this run with +\n{differences}");
}

#[test]
fn a_changed_line_shows_in_the_difference() {
    let (file, run) = ("> tick\ndone\n0ns finished\n", "> tick\ndone\n0ns closed\n");
    assert_eq!(difference(file, run), "  > tick\n  done\n- 0ns finished\n+ 0ns closed\n");
    assert_eq!(play(Path::new("none"), "> instance n=1 p=1 r=1\n> tick\nlies\n"), {
        "> instance n=1 p=1 r=1\n> tick\ndone\n"
    });
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The text with the lines under each command as they come out now.
fn play(path: &Path, text: &str) -> String {
    let mut script = Script::default();
    let mut played = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            let outcome = script.run(command).unwrap_or_else(|why| {
                panic!("{}: {command}: {why}", path.display());
            });
            played += &format!("> {command}\n{outcome}");
        } else if line.is_empty() || line.starts_with('#') {
            played += &format!("{line}\n");
        }
    }
    played
}

/// Whether the text names a rule by its id, such as `F3` or `F8b`.
fn cites_a_rule(text: &str) -> bool {
    let is_rule = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|letter| "PWFARDVBK".contains(letter))
            && letters.next().is_some_and(|digit| digit.is_ascii_digit())
    };
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_rule)
}

/// What must go and what must come to make `old` into `new`, line by line.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // common[i][j]: the most lines that old[i..] and new[j..] have in common, in order.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines += &format!("  {}\n", old[i]);
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines += &format!("- {}\n", old[i]);
            i += 1;
        } else {
            lines += &format!("+ {}\n", new[j]);
            j += 1;
        }
    }
    lines
}
