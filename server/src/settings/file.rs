//! The file of settings: TOML, in which every key is known and every mistake has its line.

use std::path::Path;

use stickycas_program::files::{Problem, line_at, nearest, parse};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kind::{Form, Kind};
use super::table::{self, Setting};
use super::{Origin, SettingEntry};

/// The settings that a file gives and the mistakes in it, in the order in which they stand in it.
pub(super) fn read(path: &Path, text: &str) -> Vec<Result<SettingEntry, String>> {
    let table = match parse(text) {
        Ok(table) => table,
        Err(fault) => return vec![Err(Problem::new(&path.display().to_string(), text, fault).to_string())],
    };
    let mut found = Vec::new();
    read_table("", table.get_ref(), &mut |at, read| {
        let origin = Origin::File { path: path.to_owned(), line: line_at(text, at) };
        let read = read.map_err(|what| format!("{origin}: {what}"));
        found.push((at, read.and_then(|(setting, texts)| SettingEntry::new(setting, texts, origin))));
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, read)| read).collect()
}

/// A setting and its value, or the mistake in them.
type Read = Result<(&'static Setting, Vec<String>), String>;

/// Hands on the content of a table, and the byte at which it stands.
fn read_table(prefix: &str, table: &DeTable<'_>, found: &mut impl FnMut(usize, Read)) {
    for (name, value) in table {
        let (key, value) = (format!("{prefix}{}", name.get_ref()), value.get_ref());
        let read = match (table::find(&key), value) {
            (None, DeValue::Table(inner)) if key == "limits" => {
                read_table("limits.", inner, found);
                continue;
            }
            (None, _) => Err(unknown(&key)),
            (Some(setting), _) => texts(value, &setting.kind)
                .map(|texts| (setting, texts))
                .ok_or_else(|| format!("{key} is a {}: give {}", value.type_str(), setting.kind.expects())),
        };
        found(name.span().start, read);
    }
}

/// The value as texts; `None`: a setting of this kind has no value of this type.
fn texts(value: &DeValue<'_>, kind: &Kind) -> Option<Vec<String>> {
    Some(match value {
        DeValue::String(text) => kind.split(text),
        DeValue::Integer(number) if number.radix() == 10 => vec![number.as_str().to_owned()],
        DeValue::Integer(number) => {
            vec![i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string()]
        }
        DeValue::Boolean(on) => vec![on.to_string()],
        DeValue::Array(values) if matches!(kind.form, Form::List(_)) => {
            let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
            values.iter().map(text).collect::<Option<_>>()?
        }
        _ => return None,
    })
}

/// The message about a key that no setting has: the known one of nearly the same letters, or of the same name
/// in another table, was probably meant.
fn unknown(key: &str) -> String {
    if let Some(removed) = table::removed(key, |bound| bound.key.to_owned()) {
        return format!("{key} {removed}");
    }
    let names = table::all().map(|setting| setting.key);
    // A key may lack its table.
    let last = key.rsplit('.').next().unwrap_or(key).replace('-', "_");
    let of_last = table::all().map(|setting| (setting.name(), setting.key));
    let of_last: std::collections::BTreeMap<&str, &str> = of_last.collect();
    let short = nearest(&last, of_last.keys().copied()).map(|(name, likeness)| (of_last[name], likeness));
    let best = nearest(key, names).into_iter().chain(short);
    match best.max_by(|(_, one), (_, other)| one.total_cmp(other)) {
        Some((known, likeness)) if likeness > 0.85 => {
            format!("there is no key `{key}`: did you mean `{known}`?")
        }
        _ => format!("there is no key `{key}`: `stickycas-server config reference` names all keys"),
    }
}
