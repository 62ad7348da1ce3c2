//! Names the commit that the programs are built from, in `STICKYCAS_COMMIT`: as the environment says; of a
//! package, as cargo wrote it there; of a release build in a git checkout, as git says, with `-dirty` if
//! tracked files differ from it. Else it is `unknown`. A debug build does not ask git: it would be built anew
//! after every commit.

use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=STICKYCAS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = env::var("STICKYCAS_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(packaged).or_else(checked_out);
    println!("cargo::rustc-env=STICKYCAS_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// The commit from which cargo made a package.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, after) = text.split_once("\"sha1\"")?;
    after.split('"').nth(1).map(short)
}

/// The commit that is checked out.
fn checked_out() -> Option<String> {
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return None;
    }
    let root = git(&["rev-parse", "--show-toplevel"])?;
    // It grows with every commit and every change of the branch.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    // Whether the tree is dirty may change with every tracked file.
    for path in git(&["ls-tree", "--name-only", "--full-tree", "HEAD"])?.lines() {
        println!("cargo::rerun-if-changed={root}/{path}");
    }
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let commit = short(git(&["rev-parse", "HEAD"])?);
    Some(if dirty { commit + "-dirty" } else { commit })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn short(commit: impl AsRef<str>) -> String {
    commit.as_ref().chars().take(12).collect()
}
