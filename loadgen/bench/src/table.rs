//! Tables in Markdown.

use comfy_table::{Table, presets};
use stickycas_harness::report::table::align_right;

/// A table; all columns but the first hold numbers.
pub(crate) fn table(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    align_right(&mut table, 1..);
    table
}
