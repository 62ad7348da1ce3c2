//! The structure of the workspace: no file or folder uses another one that uses it, however indirectly, and folders use only
//! those that the table in ARCHITECTURE.md allows.
//!
//! The file of a module and the files of the modules within it are one unit, as they are for the visibility of Rust: a part
//! may use what the module around it defines.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::imports::{Imports, Modules};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root of the workspace")
}

/// The folders of all crates, with their names.
fn crates() -> Vec<(PathBuf, String)> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest of the workspace");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let members = manifest["workspace"]["members"].as_array().expect("members");
    let read = |member: &toml::Value| {
        let folder = PathBuf::from(member.as_str().expect("a folder"));
        let manifest = fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        (folder, manifest["package"]["name"].as_str().expect("a name").to_owned())
    };
    members.iter().map(read).collect()
}

fn modules() -> Modules {
    let mut modules = Modules::default();
    for (folder, name) in crates() {
        modules.read_crate(&root(), &folder, &name);
    }
    modules
}

/// Whether one file is that of a module around the other one.
fn is_around(outer: &Path, inner: &Path) -> bool {
    let folder = match outer.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => outer.parent().expect("a file is in a folder").to_owned(),
        _ => outer.with_extension(""),
    };
    inner.starts_with(folder)
}

/// Who uses what of whom, but for what parts use of the module around them.
fn imports(modules: &Modules) -> Imports {
    let mut imports = modules.imports();
    imports.retain(|(from, to), _| !is_around(to, from));
    imports
}

/// The circles in a graph: each edge within one, with what is used.
fn circles(edges: &BTreeMap<(String, String), BTreeSet<String>>) -> Vec<String> {
    let graph: DiGraphMap<&str, ()> = edges.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
    let tell = |circle: Vec<&str>| {
        let mut told = format!("{} use each other:\n", circle.len());
        for ((from, to), names) in edges {
            if circle.contains(&from.as_str()) && circle.contains(&to.as_str()) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                writeln!(told, "  {from} -> {to}: {}", names.join(", ")).expect("a string takes it");
            }
        }
        told
    };
    circles.map(tell).collect()
}

fn circles_of_files(imports: &Imports) -> Vec<String> {
    let name = |file: &Path| file.display().to_string();
    circles(&imports.iter().map(|((from, to), names)| ((name(from), name(to)), names.clone())).collect())
}

/// For each folder: its parts (files, and folders each with the file of the same name) by what is used between them.
fn circles_of_folders(imports: &Imports) -> Vec<String> {
    let mut by_folder: BTreeMap<PathBuf, BTreeMap<(String, String), BTreeSet<String>>> = BTreeMap::new();
    for ((from, to), names) in imports {
        let (mut from_parts, mut to_parts) = (from.components(), to.components());
        let mut folder = PathBuf::new();
        loop {
            let (Some(one), Some(other)) = (from_parts.next(), to_parts.next()) else { break };
            if one != other {
                let part = |part: std::path::Component<'_>| {
                    folder.join(part).display().to_string().trim_end_matches(".rs").to_owned()
                };
                let (one, other) = (part(one), part(other));
                if one != other {
                    let used = names.iter().map(|name| format!("{name} ({})", from.display()));
                    by_folder.entry(folder).or_default().entry((one, other)).or_default().extend(used);
                }
                break;
            }
            folder.push(one);
        }
    }
    by_folder.values().flat_map(circles).collect()
}

#[test]
fn no_file_uses_another_one_that_uses_it() {
    let found = circles_of_files(&imports(&modules()));
    assert!(found.is_empty(), "{} circles of files\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_folder_uses_another_one_that_uses_it() {
    let found = circles_of_folders(&imports(&modules()));
    assert!(found.is_empty(), "{} circles of folders\n{}", found.len(), found.join("\n"));
}
