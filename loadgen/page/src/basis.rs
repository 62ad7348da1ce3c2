//! The entries that a process had read when it decided: their number, and their values with counts (D1).

use std::collections::BTreeMap;

use stickycas_model::access::{Answer, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::judge::ValueCounts;
use stickycas_model::types::{ProcessId, Value};

use crate::explanation;

/// The most values that are named with their counts, and how much of a long one.
const VALUES: usize = 4;
const VALUE_CHARS: usize = 64;
/// For how many numbers of first entries the values are counted: each time from the first entry on.
const COUNTED: usize = 64;

/// Follows the entries and reads of an instance, event by event, from the first event on.
#[derive(Clone, Debug, Default)]
pub struct DecisionBasis {
    entries: Vec<Value>,
    /// Of each process that has read, behind which entry its reads ended.
    read_to: BTreeMap<ProcessId, usize>,
    /// The words for a number of first entries: most processes read the same ones. At most [`COUNTED`].
    known: BTreeMap<usize, String>,
}

impl DecisionBasis {
    /// Takes the next event. Returns for a decision the entries that its process had read, in words; `None`
    /// for other events, and if it had read nothing.
    pub fn observe(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Added { value, .. } => self.entries.push(value.clone()),
            Event::Answered { process, answer: Answer::Read(ReadAnswer { start, count, .. }), .. } => {
                let end = usize::try_from(u64::from(start.get()) + u64::from(*count)).unwrap_or(usize::MAX);
                let read_to = self.read_to.entry(*process).or_default();
                *read_to = end.min(self.entries.len()).max(*read_to);
            }
            Event::Decided { process, .. } => {
                let read_to = self.read_to.remove(process).filter(|count| *count > 0)?;
                return Some(self.in_words(read_to));
            }
            _ => {}
        }
        None
    }

    fn in_words(&mut self, read_to: usize) -> String {
        if let Some(known) = self.known.get(&read_to) {
            return known.clone();
        }
        if self.known.len() >= COUNTED {
            return explanation::entries(read_to as u64);
        }
        let counted = in_words(&self.entries[..read_to]);
        self.known.insert(read_to, counted.clone());
        counted
    }
}

/// `8 entries: 5 x a, 3 x b`.
fn in_words(entries: &[Value]) -> String {
    let counted = ValueCounts::of(entries);
    let named = counted.counts.iter().take(VALUES);
    let mut parts: Vec<String> =
        named.map(|count| format!("{} x {}", count.entries, beginning(&count.value))).collect();
    match counted.counts.len().saturating_sub(VALUES) {
        0 => {}
        1 => parts.push("one other value".to_owned()),
        more => parts.push(format!("{more} other values")),
    }
    let tie = if counted.tied.is_empty() { "" } else { "; a tie, which goes to the smallest value" };
    format!("{}: {}{tie}", explanation::entries(counted.entries), parts.join(", "))
}

/// The value, or its beginning and how long it is.
fn beginning(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], value.as_bytes().len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::types::{AccessNumber, Phase, Position};

    fn process(number: u32) -> ProcessId {
        ProcessId::new(number).unwrap()
    }

    fn value(text: &str) -> Value {
        Value::new(text.as_bytes()).unwrap()
    }

    fn decided(basis: &mut DecisionBasis, number: u32) -> Option<String> {
        basis.observe(&Event::Decided { process: process(number), value: value("a") })
    }

    fn read(basis: &mut DecisionBasis, number: u32, start: u32, count: u32) {
        let answer = Answer::Read(ReadAnswer { start: Position::new(start), count, length: 9, sealed: true });
        let event = Event::Answered {
            process: process(number),
            number: AccessNumber::FIRST,
            phase: Phase::FIRST,
            answer,
        };
        assert_eq!(basis.observe(&event), None);
    }

    fn list(values: &[&str]) -> DecisionBasis {
        let mut basis = DecisionBasis::default();
        for (position, text) in (0..).zip(values) {
            let position = Position::new(position);
            let event =
                Event::Added { position, process: process(1), phase: Phase::FIRST, value: value(text) };
            assert_eq!(basis.observe(&event), None);
        }
        basis
    }

    #[test]
    fn a_decision_comes_with_what_its_process_had_read() {
        let mut basis = list(&["a", "b", "b"]);
        read(&mut basis, 1, 0, 2);
        read(&mut basis, 2, 0, 2);
        read(&mut basis, 2, 2, 1);
        let tie = "2 entries: 1 x a, 1 x b; a tie, which goes to the smallest value";
        assert_eq!(decided(&mut basis, 1).as_deref(), Some(tie));
        assert_eq!(decided(&mut basis, 2).as_deref(), Some("3 entries: 2 x b, 1 x a"));
        assert_eq!(decided(&mut basis, 3), None, "it has read nothing");
    }

    #[test]
    fn of_many_values_the_most_frequent_are_named() {
        let mut basis = list(&["a", "b", "c", "d", "e", "f", "f"]);
        read(&mut basis, 1, 0, 7);
        let words = "7 entries: 2 x f, 1 x a, 1 x b, 1 x c, 2 other values";
        assert_eq!(decided(&mut basis, 1).as_deref(), Some(words));
    }

    #[test]
    fn of_a_long_value_the_beginning_is_named() {
        let (fits, long) = ("é".repeat(64), "é".repeat(65));
        let mut basis = list(&[&fits, &long, &long]);
        read(&mut basis, 1, 0, 3);
        let words = format!("3 entries: 2 x {fits}... (130 bytes), 1 x {fits}");
        assert_eq!(decided(&mut basis, 1), Some(words));
    }

    #[test]
    fn values_are_counted_for_so_many_reads_only() {
        let mut basis = list(&["a"; COUNTED + 1]);
        let last = COUNTED as u32 + 1;
        for number in 1..=last {
            read(&mut basis, number, 0, number);
            let words = decided(&mut basis, number).unwrap();
            assert_eq!(words.contains(" x a"), number < last, "{words}");
        }
        assert_eq!(basis.known.len(), COUNTED);
        read(&mut basis, last + 1, 0, 2);
        assert_eq!(decided(&mut basis, last + 1).as_deref(), Some("2 entries: 2 x a"), "known");
    }
}
