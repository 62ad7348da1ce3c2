//! Tables and sentences that fit into a line of the terminal: the one way in which reports draw a table.

use std::ops::RangeBounds;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use textwrap::Options;

/// Characters in a line where there is no terminal, and in files.
pub const WIDTH: usize = 100;
/// Characters in the longest line of sentences: longer ones are hard to read.
const LONGEST_LINE: usize = 108;
/// Characters in the shortest line for which anything is arranged.
const SHORTEST_LINE: usize = 40;

/// Characters in a line of standard output: `COLUMNS` if it is set, else those of the terminal, or [`WIDTH`]
/// if it is none.
#[must_use]
pub fn width() -> usize {
    stickycas_program::terminal_width().unwrap_or(WIDTH).max(SHORTEST_LINE)
}

/// An empty table for standard output. What does not fit into its lines is broken into several.
#[must_use]
pub fn grid<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    grid_within(width(), header)
}

/// An empty table in lines of so many characters.
#[must_use]
pub fn grid_within<'a>(width: usize, header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table.set_header(header);
    table
}

/// Aligns these columns as numbers are aligned, from 0. The table has its rows.
pub fn align_right(table: &mut Table, columns: impl RangeBounds<usize>) {
    for (number, column) in table.column_iter_mut().enumerate() {
        if columns.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Leaves these columns out, one after the other, until the others fit into a line unbroken. The table has
/// its rows.
pub fn leave_out(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if fits(table) {
            return;
        }
        if let Some(column) = table.column_mut(*column) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
}

/// Whether nothing in the table is broken into several lines.
#[must_use]
pub fn fits(table: &Table) -> bool {
    unbroken(table) <= table.width().map_or(WIDTH, usize::from)
}

/// Characters of a line of the table if nothing in it is broken.
fn unbroken(table: &Table) -> usize {
    let mut table = table.clone();
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.lines().next().map_or(0, |line| line.chars().count())
}

/// A text in lines of at most so many characters, the first with this indent and the others with the second,
/// and a line break at its end. Words stay whole.
#[must_use]
pub fn wrapped(text: &str, width: usize, first: &str, others: &str) -> String {
    let options = Options::new(width.min(LONGEST_LINE)).initial_indent(first).subsequent_indent(others);
    textwrap::fill(text, options.break_words(false)) + "\n"
}

/// "1 warning", "2 warnings", "1,200 entries".
#[must_use]
pub fn counted(number: u64, thing: &str) -> String {
    let things = match (number, thing.strip_suffix('y')) {
        (1, _) => thing.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) if thing.ends_with("ss") => format!("{thing}es"),
        (_, None) => format!("{thing}s"),
    };
    format!("{} {things}", grouped(number))
}

/// With a comma after each three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> String {
        let mut table = grid_within(width, ["process", "proposal", "append", "answer"]);
        table.add_row(["1", "a value of some length", "phase 3", "appended as entry 1"]);
        table.add_row(["2", "tea", "phase 4", "list had grown"]);
        align_right(&mut table, 0..1);
        leave_out(&mut table, &[2, 1]);
        table.to_string()
    }

    fn longest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn a_table_says_less_where_a_line_is_short() {
        assert_eq!(longest(&table(100)), 68);
        let less = table(67);
        assert!(longest(&less) <= 67 && less.contains("proposal") && !less.contains("phase 3"), "{less}");
        let least = table(45);
        assert!(longest(&least) <= 45 && !least.contains("proposal") && least.contains("entry 1"), "{least}");
        let broken = table(SHORTEST_LINE - 10);
        assert!(longest(&broken) <= SHORTEST_LINE - 10 && broken.contains("appended"), "{broken}");
    }

    #[test]
    fn one_thing_is_not_many() {
        let texts = [(1, "entry"), (0, "entry"), (1, "process"), (2, "process"), (1_234_567, "run")];
        let texts = texts.map(|(number, thing)| counted(number, thing));
        assert_eq!(texts, ["1 entry", "0 entries", "1 process", "2 processes", "1,234,567 runs"]);
        assert_eq!([0, 999, 1_000].map(grouped), ["0", "999", "1,000"]);
    }

    #[test]
    fn words_of_a_sentence_stay_whole() {
        let text = "the decisions of processes 1 and 2 differ from those of 4 and 5";
        assert_eq!(
            wrapped(text, 40, "  - ", "    "),
            "  - the decisions of processes 1 and 2\n    differ from those of 4 and 5\n"
        );
        assert_eq!(longest(&wrapped(&"word ".repeat(90), 500, "", "")), 104);
    }
}
