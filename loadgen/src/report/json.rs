//! `verdict.json`: the verdict for programs. Its schema is `docs/schema/verdict.schema.json`.

use stickycas_model::judge::Verdict;

/// The verdict as the text of `verdict.json`, ending in a line break.
#[must_use]
pub fn verdict(verdict: &Verdict) -> String {
    line_broken(verdict)
}

/// Indented JSON of our own records, ending in a line break.
pub(crate) fn line_broken(record: &impl serde::Serialize) -> String {
    let mut text = pretty(record);
    text.push('\n');
    text
}

/// Indented JSON of our own records, which always have one.
pub(super) fn pretty(record: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(record).expect("our records have text keys and no failing parts")
}
