//! Kinds of values: how a text becomes a value and a value a text, the same in files, variables and flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use stickycas_program::parse_duration;
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};

use super::Data;
use crate::auth::is_trust_domain;
use crate::config::Admission;

/// The forms of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A whole number in these bounds.
    Count(u64, u64),
    /// Bytes, with a unit. A number without a unit counts this many bytes.
    Size(u64),
    /// `true` or `false`.
    Switch,
    /// A text that passes a check.
    Text(fn(&str) -> bool),
    /// Texts that pass a check; in variables and flags with commas between them.
    List(fn(&str) -> bool),
}

/// The form of a value, with the words for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) form: Form,
    /// The name of a value of this kind in helps.
    pub(crate) value_name: &'static str,
    expects: &'static str,
    /// The word for no value; empty: there is always one.
    none: &'static str,
}

const fn kind(form: Form, value_name: &'static str, expects: &'static str) -> Kind {
    Kind { form, value_name, expects, none: "" }
}

const ANY: Form = Form::Text(|_| true);
const NOT_EMPTY: Form = Form::Text(|text| !text.is_empty());

/// The largest number that every type of a count can hold.
const MOST: u64 = u32::MAX as u64;
pub(crate) const COUNT: Kind = kind(Form::Count(1, MOST), "N", "a whole number from 1 to 4294967295");
pub(crate) const COUNT_OR_NONE: Kind = kind(Form::Count(0, MOST), "N", "a whole number from 0 to 4294967295");
pub(crate) const SHARDS: Kind = kind(Form::Count(1, 1 << 20), "N", "a whole number from 1 to 1048576");
pub(crate) const WORKERS: Kind = kind(Form::Count(1, 1_024), "N", "a whole number from 1 to 1024");
pub(crate) const SIZE: Kind = kind(Form::Size(1), "SIZE", "a size such as 64KiB or 16MiB");
/// As the flag has always counted.
pub(crate) const MEMORY: Kind = kind(Form::Size(1 << 20), "SIZE", "a size such as 512MiB or 64GiB");
pub(crate) const DURATION: Kind =
    kind(ANY, "DURATION", "a duration such as 500ms, 10min or 1h, of 3650d at most");
pub(crate) const TIMEOUT: Kind = kind(
    Form::Text(|text| parse_duration(text).is_ok_and(|duration| !duration.is_zero())),
    "DURATION",
    "a duration above 0 such as 500ms, 10s or 1min, of 3650d at most",
);
pub(crate) const SWITCH: Kind = kind(Form::Switch, "BOOL", "true or false");
pub(crate) const ADDRESS: Kind = kind(ANY, "ADDRESS", "an address and a port such as 127.0.0.1:7420");
pub(crate) const FOLDER: Kind = kind(NOT_EMPTY, "DIR", "a folder");
pub(crate) const DATA: Kind = kind(NOT_EMPTY, "DIR", "a folder, auto or off");
pub(crate) const TEXT: Kind = kind(ANY, "TEXT", "a text");
pub(crate) const NAME: Kind = kind(NOT_EMPTY, "NAME", "a text");
pub(crate) const URL: Kind = kind(Form::Text(is_url), "URL", "a URL such as http://127.0.0.1:4317");
pub(crate) const URLS: Kind = kind(Form::List(is_url), "URL", "a list of URLs such as http://127.0.0.1:2379");
pub(crate) const PRINCIPALS: Kind =
    kind(Form::List(|name| is_principal_name(name.as_bytes())), "NAME", "a list of names, each of {grammar}");
pub(crate) const TRUST_DOMAIN: Kind =
    kind(Form::Text(is_trust_domain), "NAME", "1 to 255 lower-case letters, digits, '.', '_' or '-'");
pub(crate) const ADMISSION: Kind = kind(ANY, "MODE", "off, observe or enforce");
pub(crate) const FILTER: Kind = kind(
    Form::Text(|filter| crate::logging::check_filter(filter).is_ok()),
    "FILTER",
    "a level such as info, or filters by module such as info,h2=debug",
);

impl Kind {
    /// The same, or none, for which this word stands.
    pub(crate) const fn or(self, none: &'static str) -> Self {
        Self { none, ..self }
    }

    /// A description of a value of this kind, for the reference and errors.
    pub(crate) fn expects(&self) -> String {
        let expects = self.expects.replace("{grammar}", PRINCIPAL_GRAMMAR);
        if self.none.is_empty() { expects } else { format!("{expects}, or {}", self.none) }
    }

    /// The values in the text of a variable or a flag: only a list may have several.
    pub(crate) fn split(&self, text: &str) -> Vec<String> {
        match self.form {
            Form::List(_) => text.split(',').map(|one| one.trim().to_owned()).collect(),
            _ => vec![text.trim().to_owned()],
        }
    }

    /// Whether a text passes the check.
    fn accepts(&self, text: &str) -> bool {
        if let Form::Text(check) | Form::List(check) = self.form { check(text) } else { true }
    }

    /// The one text, if it passes the check.
    fn only<'a>(&self, texts: &'a [String]) -> Option<&'a str> {
        if let [text] = texts { Some(text.as_str()).filter(|text| self.accepts(text)) } else { None }
    }

    /// The value as its type reads it, if this kind has it: a number without its unit.
    fn plain(&self, texts: &[String]) -> Option<String> {
        let whole = |text: &str| text.replace('_', "").parse::<u64>().ok();
        let text = self.only(texts)?;
        let number = match self.form {
            Form::Count(min, max) => whole(text).filter(|number| (min..=max).contains(number)),
            Form::Size(plain) => {
                let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
                let (number, unit) = unit.unwrap_or((text, plain));
                whole(number.trim_end())?.checked_mul(unit).filter(|size| *size > 0)
            }
            _ => return Some(text.to_owned()),
        };
        number.map(|number| number.to_string())
    }

    /// The value as a file has it. `plain`: as its type writes it.
    fn toml(&self, plain: &str) -> String {
        match (self.form, plain.parse()) {
            (Form::Count(..), Ok(_)) | (Form::Switch, _) => plain.to_owned(),
            (Form::Size(_), Ok(bytes)) => quoted(&size_text(bytes)),
            _ => quoted(plain),
        }
    }

    fn wrong(&self) -> String {
        format!("give {}", self.expects())
    }
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
}

/// The units of sizes, the largest first.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Bytes in the largest unit of which they are a whole number.
pub(crate) fn size_text(bytes: u64) -> String {
    let (name, unit) = UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit)).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

/// A value of a setting.
pub(crate) trait Field: Sized {
    /// The value that texts stand for; only a list has other than one.
    fn parse(kind: &Kind, texts: &[String]) -> Result<Self, String>;

    /// The value as a file has it.
    fn toml(&self, kind: &Kind) -> String;
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Each type with the function that reads its text and the one that writes it.
macro_rules! fields {
    ($($type:ty: $read:expr, $write:expr;)+) => {$(
        impl Field for $type {
            fn parse(kind: &Kind, texts: &[String]) -> Result<Self, String> {
                let read: fn(&str) -> Option<Self> = $read;
                kind.plain(texts).and_then(|text| read(&text)).ok_or_else(|| kind.wrong())
            }

            fn toml(&self, kind: &Kind) -> String {
                let write: fn(&Self) -> String = $write;
                kind.toml(&write(self))
            }
        }
    )+};
}

fields! {
    u16: |text| text.parse().ok(), Self::to_string;
    u32: |text| text.parse().ok(), Self::to_string;
    u64: |text| text.parse().ok(), Self::to_string;
    usize: |text| text.parse().ok(), Self::to_string;
    bool: |text| text.parse().ok(), Self::to_string;
    String: |text| Some(text.to_owned()), Self::clone;
    SocketAddr: |text| text.parse().ok(), Self::to_string;
    PathBuf: |text| Some(text.into()), |path| path.display().to_string();
    Admission: Self::from_name, |mode| mode.name().to_owned();
    Data: |text| Some(text.into()), Self::to_string;
    // Without spaces: `1h30m`.
    Duration: |text| parse_duration(text).ok(), |it| humantime::format_duration(*it).to_string().replace(' ', "");
}

impl<T: Field> Field for Option<T> {
    fn parse(kind: &Kind, texts: &[String]) -> Result<Self, String> {
        if texts == [kind.none] { Ok(None) } else { T::parse(kind, texts).map(Some) }
    }

    fn toml(&self, kind: &Kind) -> String {
        self.as_ref().map_or_else(|| quoted(kind.none), |value| value.toml(kind))
    }
}

impl Field for Vec<String> {
    fn parse(kind: &Kind, texts: &[String]) -> Result<Self, String> {
        let is_good = texts.iter().all(|text| kind.accepts(text));
        is_good.then(|| texts.to_vec()).ok_or_else(|| kind.wrong())
    }

    fn toml(&self, _: &Kind) -> String {
        toml::Value::from(self.clone()).to_string()
    }
}
