//! A file and the settings that take the place of its values, merged before anything is deserialised.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, FileError, Problem};
use super::settings::{Edit, Settings};

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
        let padded: Vec<_> = self
            .settings
            .placed(self.text.len())
            .map(|(place, setting)| (setting, " ".repeat(place) + &setting.line))
            .collect();
        let mut table = DeTable::parse(&self.text).map_err(Fault::from)?;
        for (setting, line) in &padded {
            match setting.edit {
                Edit::Put => {
                    remove(table.get_mut(), &setting.key);
                    merge(table.get_mut(), DeTable::parse(line)?.into_inner(), false);
                }
                Edit::Extend => merge(table.get_mut(), DeTable::parse(line)?.into_inner(), true),
                Edit::Remove => remove(table.get_mut(), &setting.key),
            }
        }
        T::deserialize(toml::Deserializer::from(table)).map_err(Fault::from)
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

/// Puts the values of `from` into the place of those of `into`, table by table; with `extend` lists become
/// longer.
fn merge<'a>(into: &mut DeTable<'a>, from: DeTable<'a>, extend: bool) {
    for (key, value) in from {
        let name: &str = key.get_ref();
        match (into.get_mut(name).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(old)), DeValue::Table(_)) => {
                if let DeValue::Table(new) = value.into_inner() {
                    merge(old, new, extend);
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
