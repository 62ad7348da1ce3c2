//! Values that take the place of a file's, from elsewhere than the file: `--set KEY=VALUE`, another flag, or
//! a plan.
//!
//! They are written down as TOML and merged into the tables of the file before anything is checked. An error
//! in one of them names where it came from.

use std::fmt;

use super::{Fault, SettingError};

/// Values that take the place of a file's. Of two for one key the later one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Its name in errors.
    origin: String,
    pub(super) key: String,
    pub(super) edit: Edit,
    /// `key = value`, in one line, with its end.
    pub(super) line: String,
}

/// The effect of a setting on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Its value takes the place of the key's.
    Put,
    /// Its values come behind those of the list that the key has.
    Extend,
    /// The key is taken out of the file.
    Remove,
}

impl Settings {
    /// The settings of `--set KEY=VALUE`, given several times. The value is TOML, or a bare word that is
    /// taken as a text; if it is empty, the key is left as it is. A key without a dot is one of the table
    /// `of_others`, unless it stands `at_the_top` of the file.
    ///
    /// # Errors
    /// The first that is no such argument.
    pub fn from_flags(
        arguments: &[String],
        at_the_top: &[&str],
        of_others: &str,
    ) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        for argument in arguments {
            let origin = format!("--set {argument}");
            let Some((key, value)) = argument.split_once('=') else {
                let reason = "give KEY=VALUE, such as pace=250ms".to_owned();
                return Err(SettingError { origin, reason });
            };
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                continue;
            }
            let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
            let is_whole = key.contains('.') || at_the_top.contains(&key);
            let key = if is_whole { key.to_owned() } else { format!("{of_others}.{key}") };
            settings.put(&origin, &key, &value);
        }
        Ok(settings)
    }

    /// Whether a value takes the place of this key's.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|setting| setting.edit == Edit::Put && setting.key == key)
    }

    /// Lets what was set for one key be set for another one.
    pub fn rename(&mut self, from: &str, to: &str) {
        for setting in self.0.iter_mut().filter(|setting| setting.key == from) {
            let (_, value) = setting.line.split_once(" = ").unwrap_or_default();
            setting.line = format!("{} = {value}", quoted_path(to));
            setting.key = to.to_owned();
        }
    }

    /// Puts a value in the place of the key's.
    pub fn put(&mut self, origin: &str, key: &str, value: &toml::Value) {
        self.0.retain(|other| other.key != key);
        self.push(origin, key, Edit::Put, value);
    }

    /// Puts values behind those of the list that the key has.
    pub fn extend_list(
        &mut self,
        origin: &str,
        key: &str,
        values: impl IntoIterator<Item = impl Into<toml::Value>>,
    ) {
        let values = values.into_iter().map(Into::into).collect();
        self.push(origin, key, Edit::Extend, &toml::Value::Array(values));
    }

    /// Takes a key out of the file.
    pub fn remove(&mut self, key: &str) {
        self.0.push(Setting {
            origin: String::new(),
            key: key.to_owned(),
            edit: Edit::Remove,
            line: String::new(),
        });
    }

    fn push(&mut self, origin: &str, key: &str, edit: Edit, value: &toml::Value) {
        let line = format!("{} = {value}\n", quoted_path(key));
        self.0.push(Setting { origin: origin.to_owned(), key: key.to_owned(), edit, line });
    }

    /// Takes over those of `later`.
    pub fn extend(&mut self, later: Self) {
        for new in later.0 {
            if new.edit == Edit::Put {
                self.0.retain(|other| other.key != new.key || other.edit != Edit::Put);
            }
            self.0.push(new);
        }
    }

    /// Each with its place, behind a text so many bytes long.
    pub(super) fn placed(&self, text_len: usize) -> impl Iterator<Item = (usize, &Setting)> {
        // Not at the very end of the text, where faults of the text itself may lie.
        let mut end = text_len + 1;
        self.0.iter().map(move |setting| {
            let place = end;
            end += setting.line.len();
            (place, setting)
        })
    }

    /// The fault as the error of one of these, if it is about one; `text_len` as for
    /// [`placed`](Self::placed).
    pub(super) fn blame(&self, text_len: usize, fault: &Fault) -> Option<SettingError> {
        let mut placed = self.placed(text_len);
        let about = |(place, setting): &(usize, &Setting)| {
            (*place..place + setting.line.len()).contains(&fault.span.start)
        };
        let (_, blamed) = placed.find(about)?;
        Some(SettingError { origin: blamed.origin.clone(), reason: fault.reason.clone() })
    }
}

/// A key with its tables, as TOML has it.
fn quoted_path(key: &str) -> String {
    let parts: Vec<String> = key.split('.').map(|part| quoted(part).to_string()).collect();
    parts.join(".")
}

/// A key as TOML has it.
fn quoted(key: &str) -> impl fmt::Display + '_ {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_bare = !key.is_empty() && key.bytes().all(bare);
    if is_bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}
