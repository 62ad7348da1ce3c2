//! How a decision follows from entries: the counts, the tie rule, and the margin (SPEC D1).
//!
//! The **margin** of a list is the least number of its entries that would have to hold another value for its
//! mode to be another. Let m be the mode and stand c times, and let v be another value that stands d times.
//! Changing one entry brings v closer to m by two if it turns an m into v, by one if it does only half of
//! that, and otherwise not at all. To overtake m, v needs c - d to fall to 0 if it is smaller than m (a tie
//! goes to it), and below 0 if it is larger. So v takes (c-d)/2 changes, rounded up, if it is smaller, and
//! (c-d)/2 + 1, rounded down, if it is larger; and turning so many m into v does it, as there are enough. The
//! margin is the least of these over all v. Of the values that do not stand at all a smaller one is best, and
//! there is one, unless m is the smallest value that there is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::Value;

/// The counts of the values among the entries that a decision counts, and what follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounts {
    /// How many entries there are.
    pub entries: u64,
    /// Each value with how often it stands: the most frequent first, equally frequent ones by value. So the
    /// first is the mode.
    pub counts: Vec<ValueCount>,
    /// The values that stand most often, where there are several: the smallest is the mode.
    pub tied: Vec<Value>,
    /// The margin; `None` without entries.
    pub margin: Option<Margin>,
}

/// A value and how often it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCount {
    /// The value.
    pub value: Value,
    /// How often it stands.
    pub entries: u64,
}

/// How many entries would have to differ for the mode to be another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Margin {
    /// The least number of entries.
    pub entries: u64,
    /// Of the values that stand, the one that so few changes would make the mode; `None` if they suffice only
    /// for a value that does not stand yet.
    pub rival: Option<Value>,
}

impl ValueCounts {
    /// The counts of these entries.
    #[must_use]
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut by_value: BTreeMap<&Value, u64> = BTreeMap::new();
        for value in entries {
            *by_value.entry(value).or_default() += 1;
        }
        let mut counts: Vec<ValueCount> = by_value
            .into_iter()
            .map(|(value, entries)| ValueCount { value: value.clone(), entries })
            .collect();
        // Stable: equally frequent values stay in their order.
        counts.sort_by_key(|count| std::cmp::Reverse(count.entries));
        let most = counts.first().map_or(0, |first| first.entries);
        let tied: Vec<Value> =
            counts.iter().filter(|count| count.entries == most).map(|count| count.value.clone()).collect();
        Self {
            entries: counts.iter().map(|count| count.entries).sum(),
            tied: if tied.len() > 1 { tied } else { Vec::new() },
            margin: margin(&counts),
            counts,
        }
    }

    /// The mode (D1); `None` without entries.
    #[must_use]
    pub fn mode(&self) -> Option<&Value> {
        self.counts.first().map(|first| &first.value)
    }
}

/// The margin; the first of `counts` is the mode. See the module.
fn margin(counts: &[ValueCount]) -> Option<Margin> {
    let (mode, others) = counts.split_first()?;
    let changes = |value: &Value, entries: u64| {
        let lead = mode.entries - entries;
        if *value < mode.value { lead.div_ceil(2) } else { lead / 2 + 1 }
    };
    let rival = others.iter().min_by_key(|other| changes(&other.value, other.entries));
    let rival = rival.map(|rival| Margin {
        entries: changes(&rival.value, rival.entries),
        rival: Some(rival.value.clone()),
    });
    let nothing_is_smaller = mode.value.as_bytes() == [0];
    let newcomer = if nothing_is_smaller { mode.entries / 2 + 1 } else { mode.entries.div_ceil(2) };
    rival.filter(|rival| rival.entries <= newcomer).or(Some(Margin { entries: newcomer, rival: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::mode;

    fn list(bytes: &[u8]) -> Vec<Value> {
        bytes.iter().map(|byte| Value::new(&[*byte]).unwrap()).collect()
    }

    /// All lists of this length over these values.
    fn lists(length: usize, values: std::ops::Range<u8>) -> Vec<Vec<u8>> {
        (0..length).fold(vec![Vec::new()], |shorter, _| {
            let longer = |list: &Vec<u8>| {
                let list = list.clone();
                values.clone().map(move |value| [&list[..], &[value]].concat())
            };
            shorter.iter().flat_map(longer).collect()
        })
    }

    fn mode_of(list: &[u8]) -> Option<u8> {
        mode(&self::list(list)).map(|value| value.as_bytes()[0])
    }

    /// The least number of changes after which the mode is another, and whether a standing value can be it
    /// then.
    fn searched(list: &[u8], all: &[(Vec<u8>, Option<u8>)]) -> (u64, bool) {
        let mode = mode_of(list);
        let changed = |other: &[u8]| list.iter().zip(other).filter(|(a, b)| a != b).count() as u64;
        let differs = all.iter().filter(|(_, other)| *other != mode);
        let least = differs.clone().map(|(other, _)| changed(other)).min().unwrap();
        let stands = |value: Option<u8>| value.is_some_and(|value| list.contains(&value));
        let by_rival = differs.clone().any(|(other, mode)| changed(other) == least && stands(*mode));
        (least, by_rival)
    }

    #[test]
    fn the_margin_is_the_least_number_of_changes_to_another_mode() {
        let mut checked = 0;
        for length in 1..=5 {
            // Lists of 1, 2 and 3 (and of 0, below which there is nothing) become lists of 0 to 4.
            let all: Vec<(Vec<u8>, Option<u8>)> =
                lists(length, 0..5).into_iter().map(|list| (list.clone(), mode_of(&list))).collect();
            for list in lists(length, 1..4).into_iter().chain(lists(length, 0..2)) {
                let tally = ValueCounts::of(&self::list(&list));
                assert_eq!(tally.mode().map(|value| value.as_bytes()[0]), mode_of(&list), "{list:?}");
                let margin = tally.margin.unwrap();
                assert_eq!((margin.entries, margin.rival.is_some()), searched(&list, &all), "{list:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, (3 + 9 + 27 + 81 + 243) + (2 + 4 + 8 + 16 + 32));
    }

    #[test]
    fn turning_that_many_entries_into_the_rival_makes_it_the_mode() {
        for list in lists(5, 0..4) {
            let entries = self::list(&list);
            let tally = ValueCounts::of(&entries);
            let Some(Margin { entries: changes, rival: Some(rival) }) = &tally.margin else { continue };
            let mut left = *changes;
            let turned: Vec<Value> = entries
                .iter()
                .map(|value| {
                    let turn = left > 0 && Some(value) == tally.mode();
                    left -= u64::from(turn);
                    if turn { rival.clone() } else { value.clone() }
                })
                .collect();
            assert_eq!(mode(&turned), Some(rival), "{list:?}");
        }
    }

    #[test]
    fn of_tied_values_the_smallest_is_the_mode() {
        let tally = ValueCounts::of(&list(&[3, 2, 3, 2, 1]));
        assert_eq!(tally.tied, list(&[2, 3]));
        assert_eq!(tally.mode(), list(&[2]).first());
        assert_eq!(tally.entries, 5);
        assert_eq!(ValueCounts::of(&list(&[3, 3, 1])).tied, []);
    }

    #[test]
    fn without_entries_there_is_neither_mode_nor_margin() {
        let tally = ValueCounts::of(&[]);
        assert_eq!((tally.mode(), tally.margin.as_ref(), tally.tied.len()), (None, None, 0));
    }
}
