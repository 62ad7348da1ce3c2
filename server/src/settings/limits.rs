//! The settings of the table `[limits]`, made of the list of all limits.

use std::time::Duration;

use super::kind::{self, Number};
use super::setting::Setting;
use crate::limits::{GIB, KIB, MIB, for_each_limit};
use crate::memory::{LimitDefault, part};

/// Makes the settings of the list.
macro_rules! limit_settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, $kind:ident;)+) => {
        /// See the module.
        pub(super) const LIMIT_SETTINGS: &[Setting] = &[$(Setting {
            key: concat!("limits.", stringify!($name)),
            flag: limit_flag(stringify!($name)),
            off_flag: None,
            kind: kind::$kind,
            doc: concat!($($doc),+),
            read: |settings| Number::to_value(settings.limits.$name, &kind::$kind),
            write: |settings, value| {
                settings.limits.$name = Number::from_value(value)?;
                Ok(())
            },
            part: || LimitDefault::<$type>::part($default),
        },)+];
    };
}

for_each_limit!(limit_settings);

/// The flags whose names are not made from the key; `None`: from the key.
const fn limit_flag(name: &str) -> Option<&'static str> {
    match name.as_bytes() {
        b"instance_bytes" => Some("instance-memory"),
        b"event_bytes" => Some("record-memory"),
        b"page" => Some("list-page"),
        _ => None,
    }
}
