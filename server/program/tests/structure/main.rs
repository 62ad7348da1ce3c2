//! The structure of the workspace: no file or folder uses another one that uses it, however indirectly, and
//! folders use only those that the table in ARCHITECTURE.md allows.
//!
//! The file of a module and the files of the modules within it are one unit, as they are for the visibility
//! of Rust: a part may use what the module around it defines.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::imports::{Imports, Modules};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the workspace")
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

/// All modules of the workspace, read once.
fn modules() -> Modules {
    static MODULES: LazyLock<Modules> = LazyLock::new(|| {
        let mut modules = Modules::default();
        for (folder, name) in crates() {
            modules.read_crate(&root(), &folder, &name);
        }
        modules
    });
    MODULES.clone()
}

/// Whether one file is that of a module around the other one.
fn is_around(outer: &Path, inner: &Path) -> bool {
    let folder = match outer.file_name().and_then(|name| name.to_str()) {
        // The root of a crate is around all of it, and is used by none of it.
        Some("lib.rs" | "main.rs") => return false,
        Some("mod.rs") => outer.parent().expect("a file is in a folder").to_owned(),
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

/// For each folder: its parts (files, and folders each with the file of the same name) by what is used
/// between them.
fn circles_of_folders(imports: &Imports) -> Vec<String> {
    let mut by_folder: BTreeMap<PathBuf, BTreeMap<(String, String), BTreeSet<String>>> = BTreeMap::new();
    for ((from, to), names) in imports {
        let (mut from_parts, mut to_parts) = (from.components(), to.components());
        let mut folder = PathBuf::new();
        while let (Some(one), Some(other)) = (from_parts.next(), to_parts.next()) {
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

/// The crate of a file; in the server also the part of it, which is a folder or a file beside `lib.rs`.
fn rooms(file: &Path, crates: &[(PathBuf, String)]) -> (String, Option<String>) {
    let folder =
        crates.iter().map(|(folder, _)| folder).filter(|folder| file.starts_with(folder.join("src")));
    let folder = folder.max_by_key(|folder| folder.components().count()).expect("a crate");
    let inside = file.strip_prefix(folder.join("src")).expect("it is in the folder").components().next();
    let part = inside.map(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned());
    let is_part = part.as_deref().is_some_and(|part| part != "lib" && part != "main");
    let in_server = folder == Path::new("server") && is_part;
    (folder.display().to_string(), part.filter(|_| in_server).map(|part| format!("server::{part}")))
}

/// Which rooms use which, with an example each.
fn uses(imports: &Imports) -> BTreeMap<(String, String), String> {
    let crates = crates();
    let mut uses = BTreeMap::new();
    for ((from, to), names) in imports {
        let example = format!("{}: {}", from.display(), names.first().expect("what is used has a name"));
        let (from, to) = (rooms(from, &crates), rooms(to, &crates));
        if from.0 != to.0 {
            uses.insert((from.0, to.0), example);
        } else if let (Some(from), Some(to)) = (from.1, to.1)
            && from != to
        {
            uses.insert((from, to), example);
        }
    }
    uses
}

/// What the table of ARCHITECTURE.md allows: the rows whose first and last cell name rooms.
fn allowed() -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the table of rooms");
    let mut allowed = BTreeSet::new();
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut in_table = false;
    for line in text.lines() {
        in_table = line.starts_with("| room |") || (in_table && line.starts_with('|'));
        let cells: Vec<_> = line.trim_matches('|').split('|').collect();
        if let (true, [room, .., uses]) = (in_table, &cells[..]) {
            for room in names(room) {
                allowed.extend(names(uses).into_iter().map(|used| (room.clone(), used)));
            }
        }
    }
    allowed
}

/// The uses that the table does not allow.
fn forbidden(imports: &Imports) -> Vec<String> {
    let allowed = allowed();
    let forbidden = uses(imports).into_iter().filter(|(edge, _)| !allowed.contains(edge));
    forbidden.map(|((from, to), example)| format!("{from} -> {to} ({example})")).collect()
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let imports = imports(&modules());
    let found = forbidden(&imports);
    assert!(found.is_empty(), "not in the table of ARCHITECTURE.md:\n{}", found.join("\n"));
    let uses = uses(&imports);
    let unused: Vec<_> = allowed().into_iter().filter(|edge| !uses.contains_key(edge)).collect();
    assert!(unused.is_empty(), "in the table of ARCHITECTURE.md, and nobody uses it: {unused:?}");
}

/// Each check finds what is planted.
#[test]
fn a_planted_use_is_found() {
    let planted = |file: &str, code: &str| {
        let mut modules = modules();
        modules.plant(&root(), file, code);
        imports(&modules)
    };
    let upwards = planted("server/src/quota/account.rs", "use crate::instances::Instances;");
    assert_eq!(forbidden(&upwards).len(), 1, "{:?}", forbidden(&upwards));
    assert!(!circles_of_folders(&upwards).is_empty());
    let back = planted("model/src/sticky_cas.rs", "struct Planted { machine: crate::machine::Machine }");
    assert!(!circles_of_files(&back).is_empty());
    let other_crate = planted(
        "client/src/retry.rs",
        "#[serde(default = \"stickycas_server::Config::new\")] struct Planted;",
    );
    assert_eq!(forbidden(&other_crate).len(), 1, "{:?}", forbidden(&other_crate));
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
