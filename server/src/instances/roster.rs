//! The principals of an instance's processes (SPEC P1): which process a principal is, and the reverse.

use stickycas_model::types::ProcessId;

/// The principals of processes 1, 2, 3, ..., in one allocation.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Roster {
    /// All names, one behind the other.
    names: Box<str>,
    /// By process: where its name ends in `names`.
    ends: Box<[u32]>,
    /// The indices of the processes in the order of their names.
    sorted: Box<[u32]>,
}

impl Roster {
    /// A roster of these names, all of them different.
    pub(super) fn new(names: &[String]) -> Self {
        let mut end = 0;
        let ends = names.iter().map(|name| {
            end += name.len();
            u32::try_from(end).expect("65,536 names of a bounded length")
        });
        let ends = ends.collect();
        let mut sorted: Box<[u32]> = (0..).take(names.len()).collect();
        sorted.sort_unstable_by_key(|index| &names[*index as usize]);
        Self { names: names.concat().into(), ends, sorted }
    }

    /// The number of processes.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.names[start as usize..self.ends[index] as usize]
    }

    /// The process that this principal is; `None` if it is none of them.
    pub(crate) fn process_of(&self, principal: &str) -> Option<ProcessId> {
        let found = self.sorted.binary_search_by(|index| self.name(*index as usize).cmp(principal)).ok()?;
        ProcessId::from_index(self.sorted[found] as usize)
    }

    /// Bytes of all names.
    pub(super) fn bytes(&self) -> usize {
        self.names.len()
    }

    /// The names, by process.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|index| self.name(index))
    }

    /// As many names from the first on as fit into so many bytes on the wire, and how many do not.
    pub(crate) fn beginning(&self, bytes: usize) -> (Vec<String>, u32) {
        /// The key and the length of a name.
        const FRAMING: usize = 3;
        let mut sum = 0;
        let fitting = self.names().take_while(|name| {
            sum += name.len() + FRAMING;
            sum <= bytes
        });
        let names: Vec<String> = fitting.map(ToOwned::to_owned).collect();
        let left_out = u32::try_from(self.ends.len() - names.len()).unwrap_or(u32::MAX);
        (names, left_out)
    }

    /// The same in a list.
    pub(crate) fn to_vec(&self) -> Vec<String> {
        (0..self.ends.len()).map(|index| self.name(index).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roster_finds_processes_by_name_and_names_by_process() {
        let names = ["zoe", "al", "alba"].map(ToOwned::to_owned);
        let roster = Roster::new(&names);
        assert_eq!(roster.to_vec(), names);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(roster.process_of(name), ProcessId::from_index(index));
        }
        assert_eq!(roster.beginning(11), (vec!["zoe".to_owned(), "al".to_owned()], 1));
        assert_eq!(roster.beginning(usize::MAX), (names.to_vec(), 0));
        for stranger in ["", "a", "zoea", "zoeal"] {
            assert_eq!(roster.process_of(stranger), None);
        }
    }
}
