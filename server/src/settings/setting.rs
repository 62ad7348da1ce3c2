//! One setting, and the names that are made from its key.

use super::Settings;
use super::kind::{Kind, Value};

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key in the file, with that of its table: `limits.retention`.
    pub(crate) key: &'static str,
    /// The flag, if it is not made from the key.
    pub(crate) flag: Option<&'static str>,
    /// A second flag that takes no value, and the value that it stands for.
    pub(crate) off_flag: Option<(&'static str, &'static str)>,
    pub(crate) kind: Kind,
    /// What it is for; the first sentence is enough for most.
    pub(crate) doc: &'static str,
    pub(crate) read: fn(&Settings) -> Value,
    pub(crate) write: fn(&mut Settings, Value) -> Result<(), String>,
}

impl Setting {
    /// The flag, without its dashes: `requests-per-second`.
    pub(crate) fn flag(&self) -> String {
        let name = self.key.rsplit('.').next().unwrap_or(self.key);
        self.flag.map_or_else(|| name.replace('_', "-"), str::to_owned)
    }

    /// The environment variable: `STICKYCAS_LIMITS_RETENTION`.
    pub(crate) fn variable(&self) -> String {
        format!("STICKYCAS_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// What it is for, as plain text.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<_> = self.doc.split('\n').map(str::trim).collect();
        lines.join(" ").trim().replace("[`Limits::", "`").replace("`]", "`")
    }
}
