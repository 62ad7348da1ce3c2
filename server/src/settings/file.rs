//! The file of settings: TOML, in which every key is known and every mistake has its line.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Given;
use super::setting::Setting;
use super::table;

/// A setting that a file gives.
#[derive(Debug)]
pub(super) struct Entry {
    /// The number of the setting in the table.
    pub(super) index: usize,
    pub(super) setting: &'static Setting,
    pub(super) given: Given,
    pub(super) line: usize,
}

/// A mistake, with its line.
pub(super) type Mistake = (usize, String);

/// The settings that a file gives, and what is wrong with it.
pub(super) fn read(path: &Path, text: &str) -> (Vec<Entry>, Vec<Mistake>) {
    let mut reader = Reader { path, text, mistakes: Vec::new(), entries: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => reader.table("", table.get_ref()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            reader.mistake(at, error.message());
        }
    }
    (reader.entries, reader.mistakes)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    mistakes: Vec<Mistake>,
    entries: Vec<Entry>,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let line = self.line(name.span().start);
            if let Some((index, setting)) = table::find(&key) {
                match given(value.get_ref()) {
                    Some(given) => self.entries.push(Entry { index, setting, given, line }),
                    None => {
                        let found = value.get_ref().type_str();
                        self.mistake(
                            value.span().start,
                            &format!("{key} is a {found}: give {}", setting.kind.expects()),
                        );
                    }
                }
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) if is_table(&key) => self.table(&format!("{key}."), inner),
                _ => self.unknown(name, &key),
            }
        }
    }

    fn unknown(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, key: &str) {
        let advice = match nearest(key) {
            _ if is_of_page(key) => PAGE_IS_ELSEWHERE.to_owned(),
            Some(known) => format!("did you mean `{known}`?"),
            None => "`stickycas-server config reference` names all keys".to_owned(),
        };
        self.mistake(name.span().start, &format!("there is no key `{key}`: {advice}"));
    }

    fn mistake(&mut self, at: usize, what: &str) {
        let (path, line) = (self.path.display(), self.line(at));
        self.mistakes.push((line, format!("{path}:{line}: {what}")));
    }

    /// The line, from 1 on, of this byte of the text.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }
}

/// What is said to whoever still gives a setting of the live page to a server.
pub(crate) const PAGE_IS_ELSEWHERE: &str = "the live page is served by `stickycas-loadgen view --server URL`";

/// Whether it is the key of a setting that the live page had.
fn is_of_page(key: &str) -> bool {
    matches!(key, "page" | "page_hosts") || key.starts_with("limits.page_")
}

/// The value as a text or a list of texts; `None`: a setting is nothing of this kind.
fn given(value: &DeValue<'_>) -> Option<Given> {
    Some(match value {
        DeValue::String(text) => Given::One(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Given::One(number.as_str().to_owned()),
        DeValue::Integer(number) => {
            Given::One(i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string())
        }
        DeValue::Boolean(on) => Given::One(on.to_string()),
        DeValue::Array(values) => {
            let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
            Given::Many(values.iter().map(text).collect::<Option<_>>()?)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

/// Whether settings stand in this table.
fn is_table(key: &str) -> bool {
    table::all().any(|setting| setting.key.split_once('.').is_some_and(|(table, _)| table == key))
}

/// The known key that was probably meant: one of nearly the same letters, or the same name in another table.
fn nearest(key: &str) -> Option<&'static str> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().replace('-', "_");
    let closeness =
        |known: &str| strsim::jaro_winkler(key, known).max(strsim::jaro_winkler(&last(key), &last(known)));
    let best = table::all().max_by(|one, other| closeness(one.key).total_cmp(&closeness(other.key)))?;
    (closeness(best.key) > 0.85).then_some(best.key)
}
