//! Records for programs, first of all `verdict.json`: its schema is `docs/schema/verdict.schema.json`.

use stickycas_model::judge::Verdict;

/// The verdict as the text of `verdict.json`, ending in a line break.
#[must_use]
pub fn verdict(verdict: &Verdict) -> String {
    text(verdict)
}

/// Indented JSON of one of our own records, which always have one, ending in a line break.
#[must_use]
pub fn text(record: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(record).expect("our records have text keys and no failing parts");
    text + "\n"
}

/// The same in one line.
#[must_use]
pub fn line(record: &impl serde::Serialize) -> String {
    serde_json::to_string(record).expect("our records have text keys and no failing parts") + "\n"
}
