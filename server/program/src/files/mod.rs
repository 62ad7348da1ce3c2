//! Files in TOML, as all programs read them: the settings of the server, and the scenarios, load profiles,
//! campaigns and plans of the load generator.
//!
//! [`Source::read`] merges layers into the tables of a file, such as `--set KEY=VALUE` ([`Settings`]), and
//! deserialises the file as it is written; a check makes of it what can be run. An error names its line, or
//! the layer that it came from; its words are those of the file's author.

mod plain_words;
mod settings;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::plain_words::nearest;
use self::plain_words::plain;
use self::settings::Edit;
pub use self::settings::Settings;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{0}")]
    Invalid(Problem),
    /// Something is wrong with it through a value that took the place of the file's.
    #[error(transparent)]
    Setting(SettingError),
}

/// A problem of a value that was to take the place of a file's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct SettingError {
    /// Where it came from: the flag with its argument, or file and line.
    pub origin: String,
    /// The problem and its remedy.
    pub reason: String,
}

/// The first thing that is wrong with the text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
    /// The problem and its remedy.
    pub reason: String,
}

/// The line of this byte of a text, from 1.
#[must_use]
pub fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl Problem {
    /// The problem in this text of a file.
    #[must_use]
    pub fn new(file: &str, text: &str, fault: Fault) -> Self {
        let line = line_at(text, fault.span.start);
        let there = text.lines().nth(line - 1).unwrap_or_default();
        Self { file: file.to_owned(), line, text: there.to_owned(), reason: fault.reason }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text, reason } = self;
        write!(f, "{file}:{line}: {reason}\n  {line} | {text}")
    }
}

/// A problem before the place in bytes is turned into a line.
#[derive(Debug)]
pub struct Fault {
    /// The bytes that it is about.
    pub span: Range<usize>,
    /// The problem and its remedy.
    pub reason: String,
}

impl Fault {
    /// A fault in these bytes.
    pub fn new(span: Range<usize>, reason: impl fmt::Display) -> Self {
        Self { span, reason: reason.to_string() }
    }
}

/// A file, as text, and the settings in the place of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file in errors.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The settings that take the place of its values.
    pub settings: Settings,
}

impl Source {
    /// Of a text that stands in this file.
    #[must_use]
    pub fn new(file: &str, text: &str, settings: &Settings) -> Self {
        Self { file: file.to_owned(), text: text.to_owned(), settings: settings.clone() }
    }

    /// Of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
        Ok(Self::new(&path.display().to_string(), &text, settings))
    }

    /// The file as it is written, with the settings merged into it, made into what `check` makes of it.
    ///
    /// # Errors
    /// The first thing that is wrong: the line of the file, or the setting.
    pub fn check<T: DeserializeOwned, U>(
        &self,
        check: impl FnOnce(T) -> Result<U, Fault>,
    ) -> Result<U, FileError> {
        self.read().and_then(check).map_err(|fault| self.error(fault))
    }

    /// The file as it is written, with the settings merged into it.
    ///
    /// # Errors
    /// It is no TOML, or has a key or a value that the file has no place for.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        // Each setting is parsed as if it stood behind the text: its place tells whose it is.
        let mut whole = format!("{}\n", self.text);
        let mut padded = Vec::new();
        for (place, setting) in self.settings.placed(self.text.len()) {
            whole.push_str(&setting.line);
            padded.push((setting, " ".repeat(place) + &setting.line));
        }
        let mut table = parse(&self.text)?;
        for (setting, line) in &padded {
            match setting.edit {
                Edit::Put => {
                    remove(table.get_mut(), &setting.key);
                    merge(table.get_mut(), parse(line)?.into_inner(), false)?;
                }
                Edit::Extend => merge(table.get_mut(), parse(line)?.into_inner(), true)?,
                Edit::Remove => remove(table.get_mut(), &setting.key),
            }
        }
        T::deserialize(toml::Deserializer::from(table)).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let reason = plain(error.message()).unwrap_or_else(|| value_at(&whole, &span) + error.message());
            Fault::new(span, reason)
        })
    }

    /// The fault as an error: the line of the file, or the setting that it is about.
    #[must_use]
    pub fn error(&self, fault: Fault) -> FileError {
        match self.settings.blame(self.text.len(), &fault) {
            Some(error) => FileError::Setting(error),
            None => FileError::Invalid(Problem::new(&self.file, &self.text, fault)),
        }
    }
}

/// The tables of a text.
///
/// # Errors
/// It is no TOML.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Fault> {
    DeTable::parse(text).map_err(|error| Fault::new(error.span().unwrap_or_default(), error.message()))
}

/// `key = value: ` of the value that stands here, or `value: ` of one in a list.
fn value_at(text: &str, span: &Range<usize>) -> String {
    let (Some(value), Some(before)) = (text.get(span.clone()), text.get(..span.start)) else {
        return String::new();
    };
    let key = before.trim_end_matches(' ').strip_suffix('=').map(str::trim_end);
    let key = key.and_then(|key| key.rsplit(['.', ',', '{', '\n', ' ']).next());
    key.map_or_else(|| format!("{value}: "), |key| format!("{key} = {value}: "))
}

/// Puts the values of `from` into the place of those of `into`, table by table; with `extend` lists become
/// longer.
///
/// # Errors
/// A table would take the place of another value, which nobody would miss.
fn merge<'a>(into: &mut DeTable<'a>, from: DeTable<'a>, extend: bool) -> Result<(), Fault> {
    for (key, value) in from {
        let name: &str = key.get_ref();
        if let (Some(old), DeValue::Table(_)) = (into.get(name), value.get_ref())
            && !old.get_ref().is_table()
        {
            let reason =
                format!("this value is no table, and a later setting gives a key in [{name}]: leave one out");
            return Err(Fault::new(old.span(), reason));
        }
        match (into.get_mut(name).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(old)), DeValue::Table(_)) => {
                if let DeValue::Table(new) = value.into_inner() {
                    merge(old, new, extend)?;
                }
            }
            (Some(DeValue::Array(old)), DeValue::Array(_)) if extend => {
                if let DeValue::Array(new) = value.into_inner() {
                    new.into_iter().for_each(|element| old.push(element));
                }
            }
            _ => {
                into.remove(name);
                into.insert(key, value);
            }
        }
    }
    Ok(())
}

fn remove(mut table: &mut DeTable<'_>, key: &str) {
    let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
    for name in tables.split('.').filter(|name| !name.is_empty()) {
        match table.get_mut(name).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => table = inner,
            _ => return,
        }
    }
    table.remove(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_a_key_in_a_table_removes_no_other_value() {
        let read = |text: &str, settings: &Settings| {
            let read = Source::new("a.toml", text, settings).check(|table: toml::Table| Ok(table));
            read.map_err(|error| error.to_string())
        };
        let mut rate = Settings::default();
        rate.put("--rate 5", "load.rate", &5.into());
        let told = read("name = \"a\"\nload = 3\n", &rate).unwrap_err();
        assert!(told.starts_with("a.toml:2: this value is no table, and a later setting"), "{told}");
        let told = read("[[load]]\nrate = 3\n", &rate).unwrap_err();
        assert!(told.starts_with("a.toml:1: this value is no table"), "{told}");
        assert!(read("[load]\nrate = 3\n", &rate).is_ok());
        let mut both = Settings::default();
        both.put("--set load=3", "load", &3.into());
        both.extend(rate);
        let told = read("", &both).unwrap_err();
        assert!(told.starts_with("--set load=3: this value is no table"), "{told}");
    }
}
