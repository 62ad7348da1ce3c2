//! One setting, and the names that are made from its key.

use super::Settings;
use super::kind::{Kind, Value};
use crate::memory::Part;

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
    /// The part of the memory that its default is, if it is one.
    pub(crate) part: fn() -> Option<Part>,
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

    /// How its default follows from the memory; `None`: it does not.
    pub(crate) fn part_text(&self) -> Option<String> {
        let Part { share, of, most } = (self.part)()?;
        let amount = |number| match self.kind {
            Kind::Size { .. } => Value::Size(number).toml().replace('"', ""),
            _ => number.to_string(),
        };
        let text = match self.kind {
            Kind::Size { .. } => format!("{share}/{of} of the memory"),
            _ => format!("{share} for each {} of the memory", Value::Size(of).toml().replace('"', "")),
        };
        Some(if most == u64::MAX { text } else { format!("{text}, at most {}", amount(most)) })
    }

    /// What it is for, as plain text.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<_> = self.doc.split('\n').map(str::trim).collect();
        lines.join(" ").trim().replace("[`Limits::", "`").replace("`]", "`")
    }
}
