//! JSON Schemas of the files, by which editors complete and check them. docs/schema has them as files.
//! [`Spanned`] is a value that has one and knows its place.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Order};
use stickycas_model::types::ProcessId;

/// The schema of a file that is read.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Schema {
    settings().into_generator().into_root_schema_for::<T>()
}

/// The schema of a file that is written.
#[must_use]
pub fn schema_of_result<T: JsonSchema>() -> Schema {
    settings().for_serialize().into_generator().into_root_schema_for::<T>()
}

fn settings() -> SchemaSettings {
    // The draft that taplo, the TOML checker of editors, reads.
    let without_nothing = RecursiveTransform(|schema: &mut Schema| {
        if schema.get("default").is_some_and(says_nothing) {
            schema.remove("default");
        }
    });
    SchemaSettings::draft07().with_transform(without_nothing)
}

/// Whether a default tells no more than that the key may be left out.
fn says_nothing(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.values().all(says_nothing),
        _ => false,
    }
}

/// A word of a file, as it is read and written.
#[must_use]
pub fn word(word: &impl Serialize) -> String {
    let word = serde_json::to_value(word).ok();
    word.as_ref().and_then(Value::as_str).expect("a word is a JSON text").to_owned()
}

/// One of these words.
#[must_use]
pub fn words<T: Serialize>(all: &[T]) -> Schema {
    json_schema!({ "type": "string", "enum": all.iter().map(word).collect::<Vec<_>>() })
}

pub(crate) fn order(_: &mut SchemaGenerator) -> Schema {
    words(&Order::ALL)
}

pub(crate) fn append_window(_: &mut SchemaGenerator) -> Schema {
    words(&AppendWindow::ALL)
}

/// A verdict.
pub fn outcome(_: &mut SchemaGenerator) -> Schema {
    words(&Outcome::ALL)
}

/// A list of processes by number.
pub fn processes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "integer", "minimum": ProcessId::FIRST.get() } })
}

/// A value and its place, in bytes of the file's text. As [`toml::Spanned`], which knows no schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    /// A value that stands there.
    #[must_use]
    pub fn new(span: Range<usize>, value: T) -> Self {
        Self(toml::Spanned::new(span, value))
    }

    /// Where it stands.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// The value.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A value that stands in no file.
impl<T> From<T> for Spanned<T> {
    fn from(value: T) -> Self {
        Self::new(0..0, value)
    }
}

impl<T: Default> Default for Spanned<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.get_ref().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Spanned::deserialize(deserializer).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
