//! Which file of the workspace uses what another file defines, read from the paths in the code.
//!
//! A path counts for the file that defines its item: re-exports are followed, a module that is only named
//! counts for nothing. Left out are tests, and what is built for tests alone (the features `fuzzing`,
//! `simulation`, `testing`). Methods are not seen: who calls a method names its type somewhere, as a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// From the file that uses to the file that defines, with the names that are used.
pub(crate) type Imports = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

/// Features that only tests and rigs switch on.
const FOR_TESTS: [&str; 5] = ["test", "loom", "\"fuzzing\"", "\"simulation\"", "\"testing\""];

const DEFINING: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];

/// One module: a file, or a block within one.
#[derive(Clone, Debug, Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that `use` brings into scope, with the path each stands for.
    names: BTreeMap<String, Vec<String>>,
    /// Names of the items that it defines.
    defined: BTreeSet<String>,
    /// Paths whose names are all in scope.
    globs: Vec<Vec<String>>,
    /// Every path that the code mentions, those of `use` included.
    paths: BTreeSet<Vec<String>>,
}

/// All modules of some crates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modules {
    all: Vec<Module>,
    /// The roots of the libraries, by the name that code uses.
    libraries: BTreeMap<String, usize>,
}

impl Modules {
    /// Reads a crate: its library and its programs. `name`: as in its manifest.
    pub(crate) fn read_crate(&mut self, root: &Path, folder: &Path, name: &str) {
        for file in ["lib.rs", "main.rs"] {
            let file = folder.join("src").join(file);
            if root.join(&file).exists() {
                let module = self.read_file(root, &file, None);
                if file.ends_with("lib.rs") {
                    self.libraries.insert(name.replace('-', "_"), module);
                }
            }
        }
    }

    /// Reads more code as if it stood at the end of a file.
    pub(crate) fn plant(&mut self, root: &Path, file: &str, code: &str) {
        let module = self.all.iter().position(|module| module.file == Path::new(file));
        self.read_items(root, module.expect("a file that is read"), &tokens(code, file));
    }

    /// Who uses what of whom.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (number, module) in self.all.iter().enumerate() {
            for path in &module.paths {
                let Some((home, name)) = self.definition(number, path, 0) else { continue };
                let home = &self.all[home].file;
                if *home != module.file {
                    imports.entry((module.file.clone(), home.clone())).or_default().insert(name);
                }
            }
        }
        imports
    }

    fn read_file(&mut self, root: &Path, file: &Path, parent: Option<usize>) -> usize {
        let text =
            fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let module = self.add(file, parent);
        self.read_items(root, module, &tokens(&text, &file.display().to_string()));
        module
    }

    fn add(&mut self, file: &Path, parent: Option<usize>) -> usize {
        self.all.push(Module { file: file.to_owned(), parent, ..Module::default() });
        self.all.len() - 1
    }

    /// Reads what stands in a module, or in any group of tokens within it.
    fn read_items(&mut self, root: &Path, module: usize, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(sign) if sign.as_char() == '#' => {
                    let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) else {
                        at += 1;
                        continue;
                    };
                    at += 2;
                    if is_for_tests(attribute) {
                        at = end_of_item(tokens, at);
                    } else {
                        self.read_attribute(root, module, attribute);
                    }
                }
                // Not the captures of `impl Trait + use<>`.
                TokenTree::Ident(word)
                    if *word == "use" && !tokens.get(at + 1).is_some_and(|next| is_sign(next, '<')) =>
                {
                    let end =
                        (at..tokens.len()).find(|at| is_sign(&tokens[*at], ';')).unwrap_or(tokens.len());
                    self.read_use(module, &[], &tokens[at + 1..end]);
                    at = end;
                }
                TokenTree::Ident(word) if *word == "mod" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                        self.read_module(root, module, &name.to_string(), tokens.get(at + 2));
                    }
                    at += 3;
                }
                TokenTree::Ident(word) => {
                    if DEFINING.iter().any(|defining| word == defining) {
                        self.all[module].defined.extend(tokens.get(at + 1).map(ToString::to_string));
                    }
                    let (path, end) = path_at(tokens, at);
                    if path.len() > 1 {
                        self.all[module].paths.insert(path);
                    }
                    at = end;
                }
                TokenTree::Group(group) => {
                    self.read_items(root, module, &group.stream().into_iter().collect::<Vec<_>>());
                    at += 1;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// Reads the paths of an attribute, those in strings too: `#[serde(with = "crate::text")]`.
    fn read_attribute(&mut self, root: &Path, module: usize, attribute: &Group) {
        let stream: Vec<_> = attribute.stream().into_iter().collect();
        if stream.first().is_some_and(|name| name.to_string() == "doc") {
            return;
        }
        self.read_items(root, module, &stream);
        let inner = stream.into_iter().flat_map(|token| match token {
            TokenTree::Group(group) => group.stream(),
            other => other.into(),
        });
        for literal in inner.map(|token| token.to_string()) {
            let path = literal.trim_matches('"');
            if path != literal
                && path.contains("::")
                && let Ok(path) = TokenStream::from_str(path)
            {
                self.read_items(root, module, &path.into_iter().collect::<Vec<_>>());
            }
        }
    }

    fn read_module(&mut self, root: &Path, parent: usize, name: &str, body: Option<&TokenTree>) {
        let file = self.all[parent].file.clone();
        let child = if let Some(TokenTree::Group(body)) = body {
            let child = self.add(&file, Some(parent));
            self.read_items(root, child, &body.stream().into_iter().collect::<Vec<_>>());
            child
        } else {
            let owns_folder = ["mod.rs", "lib.rs", "main.rs"].iter().any(|owner| file.ends_with(owner));
            let folder = if owns_folder {
                file.parent().expect("a file is in a folder").to_owned()
            } else {
                file.with_extension("")
            };
            let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
            let Some(found) = files.iter().find(|file| root.join(file).exists()) else {
                panic!("{}: no file of its module {name}", file.display());
            };
            self.read_file(root, found, Some(parent))
        };
        self.all[parent].children.insert(name.to_owned(), child);
    }

    /// Reads the tree of a `use` behind these words.
    fn read_use(&mut self, module: usize, before: &[String], tokens: &[TokenTree]) {
        for branch in tokens.split(|token| is_sign(token, ',')) {
            let mut path = before.to_vec();
            let mut alias = None;
            let mut words = branch.iter().filter(|token| !is_sign(token, ':'));
            let is_name = loop {
                match words.next() {
                    None => break path.len() > before.len() || !branch.is_empty(),
                    Some(TokenTree::Ident(word)) if *word == "as" => {
                        alias = words.next().map(ToString::to_string);
                    }
                    Some(TokenTree::Ident(word)) if *word == "self" && !path.is_empty() => {}
                    Some(TokenTree::Group(group)) => {
                        self.read_use(module, &path, &group.stream().into_iter().collect::<Vec<_>>());
                        break false;
                    }
                    Some(TokenTree::Punct(_)) => {
                        self.all[module].globs.push(path.clone());
                        break false;
                    }
                    Some(word) => path.push(word.to_string()),
                }
            };
            if let Some(last) = path.last().filter(|_| is_name) {
                self.all[module].names.insert(alias.unwrap_or_else(|| last.clone()), path.clone());
                self.all[module].paths.insert(path);
            }
        }
    }

    /// The module in whose file the item of a path is defined, and its name. `None`: it is a module, or none
    /// of ours.
    fn definition(&self, from: usize, path: &[String], depth: usize) -> Option<(usize, String)> {
        if depth > 16 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => self.root(from),
            "self" => from,
            "super" => self.all[from].parent?,
            name => {
                if let Some(child) = self.all[from].children.get(name) {
                    *child
                } else if let Some(alias) =
                    self.all[from].names.get(name).filter(|alias| alias.first() != Some(first))
                {
                    let whole: Vec<_> = alias.iter().chain(rest).cloned().collect();
                    return self.definition(from, &whole, depth + 1);
                } else {
                    *self.libraries.get(name)?
                }
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            if name == "super" {
                module = self.all[module].parent?;
            } else if let Some(child) = self.all[module].children.get(name) {
                module = *child;
            } else if let Some(alias) = self.all[module].names.get(name) {
                let whole: Vec<_> = alias.iter().chain(behind).cloned().collect();
                return self.definition(module, &whole, depth + 1);
            } else {
                let through = self.all[module].globs.iter().find_map(|glob| {
                    let whole: Vec<_> = glob.iter().chain(rest).cloned().collect();
                    self.definition(module, &whole, depth + 1)
                        .filter(|(home, name)| self.all[*home].defined.contains(name))
                });
                return Some(through.unwrap_or_else(|| (module, name.clone())));
            }
            rest = behind;
        }
        None
    }

    fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.all[module].parent {
            module = parent;
        }
        module
    }
}

/// Whether an attribute says that its item is built for tests alone, or read from a file of tests.
fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    if text.starts_with("path") {
        assert!(text.contains("/tests/"), "not followed: {text}");
        return true;
    }
    let mut words = attribute.stream().into_iter();
    let is_cfg = words.next().is_some_and(|word| word.to_string() == "cfg");
    let Some(TokenTree::Group(condition)) = words.next().filter(|_| is_cfg) else { return false };
    let condition = condition.stream().to_string();
    let words: Vec<_> = condition.split(|letter: char| " (),=".contains(letter)).collect();
    !words.contains(&"not") && FOR_TESTS.iter().any(|feature| words.contains(feature))
}

/// Behind the item or field that begins here, whose attributes are behind us but for some.
fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    let is_field = tokens[at..].windows(3).find_map(|next| match next {
        [TokenTree::Ident(word), ..] if word == "pub" => None,
        [TokenTree::Ident(_), colon, behind] => Some(is_sign(colon, ':') && !is_sign(behind, ':')),
        _ => None,
    });
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            sign if is_sign(sign, ';') => break,
            sign if is_field == Some(true) && is_sign(sign, ',') => break,
            _ => {}
        }
    }
    at
}

fn tokens(code: &str, file: &str) -> Vec<TokenTree> {
    let tokens = TokenStream::from_str(code).unwrap_or_else(|error| panic!("{file}: {error}"));
    tokens.into_iter().collect()
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The path that begins at a word, and the place behind it.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path = vec![tokens[at].to_string()];
    at += 1;
    while let [first, second, TokenTree::Ident(word), ..] = &tokens[at..] {
        if !(is_sign(first, ':') && is_sign(second, ':')) {
            break;
        }
        path.push(word.to_string());
        at += 3;
    }
    (path, at)
}
