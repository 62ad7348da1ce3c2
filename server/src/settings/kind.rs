//! Kinds of values: how a text becomes a value and a value a text, the same in files, variables and flags.

use std::net::SocketAddr;
use std::time::Duration;

use stickycas_program::LONGEST_DURATION;
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};

use super::Given;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A whole number, or `auto`.
    CountOrAuto { min: u64, max: u64 },
    /// Bytes, with a unit. A number without a unit counts `plain` bytes.
    Size { plain: u64 },
    /// Bytes, with a unit, or `auto`. A number without a unit counts MiB.
    SizeOrAuto,
    /// A duration with a unit; `zero`: none at all is one.
    Duration { zero: bool },
    /// `true` or `false`.
    Switch,
    /// Names of principals; in variables and flags with commas between them.
    Names,
    /// Address and port.
    Address,
    /// Address and port, or `off`.
    AddressOrOff,
    /// A folder, `auto` for the usual one, or `off`.
    Folder,
    /// A folder, or `off`.
    FolderOrOff,
    /// Any text.
    Text,
    /// Any text, or `auto`.
    TextOrAuto,
    /// A URL, or `off`.
    UrlOrOff,
    /// URLs; in variables and flags with commas between them.
    Urls,
}

pub(crate) const COUNT: Kind = Kind::Count { min: 1, max: u64::MAX };
pub(crate) const COUNT_OR_NONE: Kind = Kind::Count { min: 0, max: u64::MAX };
pub(crate) const SIZE: Kind = Kind::Size { plain: 1 };
/// As the flags of these settings have always counted.
pub(crate) const MEMORY: Kind = Kind::Size { plain: 1024 * 1024 };
pub(crate) const DURATION: Kind = Kind::Duration { zero: true };
pub(crate) const TIMEOUT: Kind = Kind::Duration { zero: false };

/// A value that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Size(u64),
    Duration(Duration),
    Switch(bool),
    Names(Vec<String>),
    Address(SocketAddr),
    Text(String),
    /// `auto` or `off`.
    None(&'static str),
}

impl Kind {
    /// What a value of this kind looks like, for helps and errors.
    pub(crate) fn expects(self) -> String {
        match self {
            Self::Count { min, max: u64::MAX } => format!("a whole number from {min} on"),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::CountOrAuto { min, max } => format!("a whole number from {min} to {max}, or auto"),
            Self::Size { plain: 1 } => "a size such as 64KiB or 16MiB".to_owned(),
            Self::Size { .. } => {
                "a size such as 512MiB or 64GiB; a number without a unit counts MiB".to_owned()
            }
            Self::SizeOrAuto => "a size such as 512MiB or 64GiB, or auto".to_owned(),
            Self::Duration { zero: true } => "a duration such as 500ms, 10min or 1h".to_owned(),
            Self::Duration { zero: false } => "a duration above 0 such as 500ms, 10s or 1min".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Names => format!("a list of names, each of {PRINCIPAL_GRAMMAR}"),
            Self::Address => "an address and a port such as 127.0.0.1:7420".to_owned(),
            Self::AddressOrOff => "an address and a port such as 127.0.0.1:7421, or off".to_owned(),
            Self::Folder => "a folder, auto or off".to_owned(),
            Self::FolderOrOff => "a folder, or off".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::TextOrAuto => "a text, or auto".to_owned(),
            Self::Urls => "a list of URLs such as http://127.0.0.1:2379".to_owned(),
            Self::UrlOrOff => "a URL such as http://127.0.0.1:4317, or off".to_owned(),
        }
    }

    /// The name of a value of this kind in helps.
    pub(crate) const fn value_name(self) -> &'static str {
        match self {
            Self::Count { .. } | Self::CountOrAuto { .. } => "N",
            Self::Size { .. } | Self::SizeOrAuto => "SIZE",
            Self::Duration { .. } => "DURATION",
            Self::Switch => "BOOL",
            Self::Names => "NAME",
            Self::Address | Self::AddressOrOff => "ADDRESS",
            Self::Folder | Self::FolderOrOff => "DIR",
            Self::Text | Self::TextOrAuto => "TEXT",
            Self::UrlOrOff | Self::Urls => "URL",
        }
    }

    /// The value that a text stands for.
    pub(crate) fn parse(self, given: &Given) -> Result<Value, String> {
        let value = match (self, given) {
            (Self::Names, given) => list(given, |name| is_principal_name(name.as_bytes())),
            (Self::Urls, given) => list(given, is_url),
            (_, Given::Many(_)) => None,
            (_, Given::One(text)) => self.parse_one(text.trim()),
        };
        value.ok_or_else(|| match (self, given) {
            (Self::Duration { .. }, Given::One(text)) if is_too_long(text) => "give 3650d at most".to_owned(),
            _ => format!("give {}", self.expects()),
        })
    }

    fn parse_one(self, text: &str) -> Option<Value> {
        match self {
            Self::CountOrAuto { .. } | Self::SizeOrAuto if text == "auto" => Some(Value::None("auto")),
            Self::Count { min, max } | Self::CountOrAuto { min, max } => {
                number(text, min, max).map(Value::Number)
            }
            Self::SizeOrAuto => MEMORY.parse_one(text),
            Self::Size { plain } => size(text, plain).filter(|size| *size > 0).map(Value::Size),
            Self::Duration { zero } => {
                let duration = stickycas_program::parse_duration(text).ok()?;
                (zero || !duration.is_zero()).then_some(Value::Duration(duration))
            }
            Self::Switch => text.parse().ok().map(Value::Switch),
            Self::AddressOrOff | Self::UrlOrOff | Self::Folder | Self::FolderOrOff if text == "off" => {
                Some(Value::None("off"))
            }
            Self::Folder | Self::TextOrAuto if text == "auto" => Some(Value::None("auto")),
            Self::Folder | Self::FolderOrOff | Self::TextOrAuto if text.is_empty() => None,
            Self::Address | Self::AddressOrOff => text.parse().ok().map(Value::Address),
            Self::UrlOrOff => is_url(text).then(|| Value::Text(text.to_owned())),
            Self::Folder | Self::FolderOrOff | Self::Text | Self::TextOrAuto => {
                Some(Value::Text(text.to_owned()))
            }
            Self::Names | Self::Urls => None,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "to tell a duration that is too long from none")]
fn is_too_long(duration: &str) -> bool {
    humantime::parse_duration(duration.trim()).is_ok_and(|duration| duration > LONGEST_DURATION)
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
}

fn list(given: &Given, is_one: impl Fn(&str) -> bool) -> Option<Value> {
    let names: Vec<String> = match given {
        Given::One(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
        Given::Many(names) => names.clone(),
    };
    names.iter().all(|name| is_one(name)).then_some(Value::Names(names))
}

fn number(text: &str, min: u64, max: u64) -> Option<u64> {
    let number: u64 = text.replace('_', "").parse().ok()?;
    (min..=max).contains(&number).then_some(number)
}

/// The units of sizes, the largest first.
const UNITS: [(&str, u64); 4] =
    [("TiB", 1_u64 << 40), ("GiB", 1_u64 << 30), ("MiB", 1_u64 << 20), ("KiB", 1_u64 << 10)];

fn size(text: &str, plain: u64) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.or_else(|| Some((text.strip_suffix('B')?, 1))).unwrap_or((text, plain));
    let number: u64 = number.trim_end().replace('_', "").parse().ok()?;
    number.checked_mul(unit)
}

impl Value {
    /// The value as a TOML file has it.
    pub(crate) fn toml(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::Names(names) => toml::Value::from(names.clone()).to_string(),
            Self::Text(text) => toml::Value::from(text.as_str()).to_string(),
            Self::None(word) => format!("{word:?}"),
            Self::Address(address) => format!("\"{address}\""),
            Self::Duration(duration) => format!("\"{}\"", plain_duration(*duration)),
            Self::Size(bytes) => {
                let exact = UNITS.iter().find(|(_, unit)| *bytes > 0 && bytes % unit == 0);
                exact.map_or_else(
                    || format!("\"{bytes}B\""),
                    |(name, unit)| format!("\"{}{name}\"", bytes / unit),
                )
            }
        }
    }
}

/// A duration without spaces: `1h30m`.
fn plain_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

/// A number, a size or a duration as the type of a setting.
pub(crate) trait Number: Sized {
    fn from_value(value: Value) -> Result<Self, String>;
    fn to_value(self, kind: &Kind) -> Value;
}

macro_rules! number {
    ($($type:ty),+) => {$(
        impl Number for $type {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::Number(number) | Value::Size(number) => {
                        Self::try_from(number).map_err(|_| format!("give at most {}", Self::MAX))
                    }
                    other => unreachable!("{other:?} is no number, as the kind of the setting demands"),
                }
            }

            fn to_value(self, kind: &Kind) -> Value {
                let number = u64::try_from(self).unwrap_or(u64::MAX);
                if matches!(kind, Kind::Size { .. }) { Value::Size(number) } else { Value::Number(number) }
            }
        }
    )+};
}

number!(u16, u32, usize);

impl Number for Duration {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Duration(duration) => Ok(duration),
            other => unreachable!("{other:?} is no duration, as the kind of the setting demands"),
        }
    }

    fn to_value(self, _: &Kind) -> Value {
        Value::Duration(self)
    }
}
