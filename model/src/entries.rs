//! The first entries of a list, as a process has read them.
//!
//! Entries never change (R2), so all processes that have read the first k entries have read the same k. In
//! the simulator they share one copy: n processes that each hold W entries take memory for n + W, not for n *
//! W.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::Value;

/// The first entries of a list. Cheap to clone; it is copied when one of several that share it is changed.
#[derive(Clone, Default)]
pub struct Entries {
    /// Perhaps with later entries, which others have read. `None` takes no memory.
    list: Option<Arc<Vec<Value>>>,
    count: usize,
}

impl Entries {
    /// The first entries of this list.
    ///
    /// # Panics
    /// If the list has fewer.
    #[must_use]
    pub(crate) fn sharing(list: &Arc<Vec<Value>>, count: usize) -> Self {
        assert!(count <= list.len(), "only what stands in a list is read");
        Self { list: Some(Arc::clone(list)), count }
    }

    /// The first of these, `count` at most.
    #[must_use]
    pub(crate) fn first(&self, count: usize) -> Self {
        Self { count: self.count.min(count), ..self.clone() }
    }

    /// The entries.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Value] {
        self.list.as_ref().map_or(&[], |list| &list[..self.count])
    }

    /// Adds the next entry.
    #[inline]
    pub fn push(&mut self, value: Value) {
        self.own().push(value);
        self.count += 1;
    }

    /// Removes the last entry.
    pub fn pop(&mut self) -> Option<Value> {
        let popped = self.own().pop();
        self.count = self.own().len();
        popped
    }

    /// Removes all entries. Memory that is not shared is kept.
    pub fn clear(&mut self) {
        match self.list.as_mut().and_then(Arc::get_mut) {
            Some(list) => list.clear(),
            None => self.list = None,
        }
        self.count = 0;
    }

    /// These entries and no later ones, not shared.
    #[inline]
    fn own(&mut self) -> &mut Vec<Value> {
        let list = self.list.get_or_insert_default();
        if list.len() > self.count {
            *list = Arc::new(list[..self.count].to_vec());
        }
        Arc::make_mut(list)
    }
}

impl Deref for Entries {
    type Target = [Value];

    #[inline]
    fn deref(&self) -> &[Value] {
        self.as_slice()
    }
}

impl<'a> IntoIterator for &'a Entries {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Vec<Value>> for Entries {
    fn from(values: Vec<Value>) -> Self {
        let count = values.len();
        Self { list: (count > 0).then(|| Arc::new(values)), count }
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        let shared = self.list.as_ref().zip(other.list.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        self.count == other.count && (shared || self.as_slice() == other.as_slice())
    }
}

impl Eq for Entries {}

impl PartialEq<Vec<Value>> for Entries {
    fn eq(&self, other: &Vec<Value>) -> bool {
        self.as_slice() == other
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<Value> {
        text.bytes().map(|byte| Value::new(&[byte]).unwrap()).collect()
    }

    #[test]
    fn shared_entries_are_copied_when_one_copy_changes() {
        let list = Arc::new(values("abc"));
        let mut one = Entries::sharing(&list, 2);
        let other = Entries::sharing(&list, 3);
        assert_eq!((one.len(), other.first(2) == one), (2, true));
        one.push(Value::new(b"x").unwrap());
        assert_eq!((one, other), (Entries::from(values("abx")), Entries::from(values("abc"))));
    }

    #[test]
    fn what_is_removed_from_one_copy_stays_in_the_others() {
        let list = Arc::new(values("abc"));
        let mut one = Entries::sharing(&list, 2);
        assert_eq!(one.pop(), Value::new(b"b"));
        assert_eq!(one, values("a"));
        one.clear();
        assert!(one.is_empty() && list.len() == 3);
        assert_eq!(one.pop(), None);
    }
}
