//! The files of a run folder, one per format, and the parts of the reports of other crates.

pub mod folder;
pub mod grid;
pub mod html;
pub mod table;

/// Records for programs, such as `verdict.json`: its schema is `docs/schema/verdict.schema.json`.
pub mod json {
    /// Indented JSON of one of our own records, which always have one, ending in a line break.
    #[must_use]
    pub fn text(record: &impl serde::Serialize) -> String {
        let text =
            serde_json::to_string_pretty(record).expect("our records have text keys and no failing parts");
        text + "\n"
    }

    /// The same in one line.
    #[must_use]
    pub fn line(record: &impl serde::Serialize) -> String {
        serde_json::to_string(record).expect("our records have text keys and no failing parts") + "\n"
    }
}
