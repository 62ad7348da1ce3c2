//! [`Reader`]: the log, slot by slot.

use std::collections::BTreeMap;

use stickycas_model::machine::Entry;
use tokio::task::JoinSet;

use crate::error::LogError;
use crate::order::{Delivered, delivered};
use crate::series::{MAX_WINDOW, Series, is_sealed};

/// Reads a log from one slot on, without taking part in it: for members, the coordinator and observers.
#[derive(Clone, Debug)]
pub struct Reader {
    series: Series,
    next: u64,
}

impl Reader {
    /// A reader of this log from this slot on, 1 for all of it.
    #[must_use]
    pub fn new(series: &Series, from: u64) -> Self {
        Self { series: series.clone(), next: from }
    }

    /// The slot that comes next.
    #[must_use]
    pub const fn slot(&self) -> u64 {
        self.next
    }

    /// The values of the next slot, once its list is sealed. There may be none.
    ///
    /// # Errors
    /// [`LogError::Forgotten`] if the server keeps the slot no more: it is never passed over;
    /// [`LogError::BegunAgain`] if the log ends before the slot in front of it. When a call fails; then the
    /// same slot may be asked for again.
    pub async fn next(&mut self) -> Result<Vec<Delivered>, LogError> {
        let view = self.series.find(self.next).await?;
        let list = self.series.sealed(&view.instance).await?;
        self.next += 1;
        Ok(delivered(self.next - 1, &list))
    }

    /// The values of all slots from the next one on whose lists are sealed by now, without a gap: a
    /// linearizable read, which has the value of every append that was answered before it began.
    ///
    /// # Errors
    /// As for [`next`](Self::next); [`LogError::Nothing`] if the server keeps no slot at all.
    pub async fn read(&mut self) -> Result<Vec<Delivered>, LogError> {
        // Later ones began after this read. Byzantine members may begin them faster than it reads.
        let newest = self.series.kept().await?.last().copied();
        if newest.is_none_or(|newest| newest < self.next) {
            // It refuses callers that may not read, and instances of another series.
            self.series.look(newest.unwrap_or(self.next)).await?;
        }
        let newest = newest.ok_or_else(|| LogError::Nothing(self.series.to_string()))?;
        self.series.check_reach(newest, self.next)?;
        let (mut next, mut values, mut is_open) = (self.next, Vec::new(), false);
        while next <= newest && !is_open {
            let mut looking = JoinSet::new();
            for slot in next..=newest.min(next + MAX_WINDOW / 2) {
                let series = self.series.clone();
                looking.spawn(async move { Ok((slot, sealed_by_now(&series, slot).await?)) });
            }
            let lists: Result<BTreeMap<_, _>, LogError> = looking.join_all().await.into_iter().collect();
            for (slot, list) in lists? {
                let Some(list) = list.filter(|_| !is_open) else {
                    is_open = true;
                    continue;
                };
                values.extend(delivered(slot, &list));
                next = slot + 1;
            }
        }
        self.next = next;
        Ok(values)
    }
}

async fn sealed_by_now(series: &Series, slot: u64) -> Result<Option<Vec<Entry>>, LogError> {
    let view = series.find(slot).await?;
    Ok(if is_sealed(&view.status) { Some(series.sealed(&view.instance).await?) } else { None })
}
