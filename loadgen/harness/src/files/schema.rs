//! JSON Schemas of the files, by which editors complete and check them. docs/schema has them as files.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Order};
use stickycas_model::types::ProcessId;

/// The schema of a file.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Schema {
    // The draft that taplo, the TOML checker of editors, reads.
    SchemaSettings::draft07().into_generator().into_root_schema_for::<T>()
}

/// One of these words, as they are read and written.
#[must_use]
pub fn words<T: Serialize>(all: &[T]) -> Schema {
    let words: Vec<_> =
        all.iter().map(|word| serde_json::to_value(word).expect("a word is a JSON text")).collect();
    json_schema!({ "type": "string", "enum": words })
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
