//! The needs of runs in the simulator, told before they begin: memory for the processes and for the histories
//! of the runs that are kept, room on the disk for the run folder.
//!
//! The processes of a run share the list, so their memory grows with n + T. A history has an event for each
//! access and one for each answer: 2n(q+c), which is what makes a run with many processes and small reads
//! large. In the run folder each report has the entries from which its process decided: n * T of them.

use std::mem::size_of;

use anyhow::bail;
use stickycas_model::history::Recorded;
use stickycas_model::params::Params;

use stickycas_harness::host::memory_available;

/// Bytes of a process and its report, without what it reads.
const PROCESS: u64 = 2_000;
/// Bytes of an entry of the list, and of what the judge knows of it.
const ENTRY: u64 = 400;
/// Bytes of an entry in a report in the run folder, besides those of the value: quotes and a comma.
const PUNCTUATION: u64 = 3;
/// Events of a process besides those of its accesses: it joins, opens a session, decides, and leaves.
const OTHER_EVENTS: u64 = 4;
/// Less is not worth a line.
const WORTH_A_LINE: u64 = 256 << 20;
/// The share of the available memory that may be used, in percent.
const USABLE: u64 = 75;

/// The needs of runs. Estimates, a little high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEstimate {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of the run folder; 0 if there is none.
    pub disk: u64,
}

impl ResourceEstimate {
    /// Of one run whose folder is written, with values of so many bytes.
    #[must_use]
    pub fn of_one(params: &Params, value_bytes: u64) -> Self {
        let (n, entries) = (u64::from(params.processes()), u64::from(params.counted_entries()));
        let reports = n.saturating_mul(entries).saturating_mul(value_bytes + PUNCTUATION);
        // An event in the folder is about as long as in memory.
        Self { memory: processes(params).saturating_add(history(params)), disk: reports + history(params) }
    }

    /// Of so many runs at a time, of which `in_full` keep their histories.
    #[must_use]
    pub fn of_many(params: &Params, jobs: u64, in_full: u64) -> Self {
        let whole = in_full.min(jobs).saturating_mul(history(params));
        Self { memory: jobs.saturating_mul(processes(params)).saturating_add(whole), disk: 0 }
    }

    /// The message before the beginning, if it is worth one.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn check(&self) -> anyhow::Result<Option<String>> {
        self.check_against(memory_available())
    }

    fn check_against(&self, available: Option<u64>) -> anyhow::Result<Option<String>> {
        let Self { memory, disk } = *self;
        if let Some(available) = available
            && memory > available / 100 * USABLE
        {
            bail!(
                "this needs about {} of memory, and {} are available, of which {USABLE} % may be used: give fewer \
                 processes or a larger read_size (a history has 2n(q+c) events), or fewer --jobs",
                bytes(memory),
                bytes(available)
            );
        }
        let folder = format!(", and about {} for the run folder", bytes(disk));
        let folder = if disk >= WORTH_A_LINE { folder.as_str() } else { "" };
        let worth = memory.max(disk) >= WORTH_A_LINE;
        Ok(worth.then(|| format!("this needs about {} of memory{folder}", bytes(memory))))
    }
}

fn processes(params: &Params) -> u64 {
    u64::from(params.processes()) * PROCESS + u64::from(params.counted_entries()) * ENTRY
}

fn history(params: &Params) -> u64 {
    let events = OTHER_EVENTS + 2 * u64::from(params.append_rounds() + params.reads());
    let events = u64::from(params.processes()).saturating_mul(events);
    // A vector that grows has room for twice as many.
    events.saturating_mul(2 * size_of::<Recorded>() as u64)
}

/// In the unit that a person would use.
fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{count} bytes"),
        1_000_000..10_000_000_000 => format!("{} MB", count / 1_000_000),
        _ => format!("{} GB", count / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    fn params(n: u32, r: u32) -> Params {
        Params::try_new(ParamsSpec::new(n, 1, r)).unwrap()
    }

    #[test]
    fn memory_grows_with_n_and_reads_but_not_with_n_times_w() {
        let of = |n, r| ResourceEstimate::of_one(&params(n, r), 2).memory;
        assert!(of(8_192, 8_192) <= 2 * of(4_096, 4_096));
        assert!(of(4_096, 1) > 200 * of(4_096, 4_096));
        assert!(
            ResourceEstimate::of_many(&params(4_096, 1), 8, 0).memory < of(4_096, 1) / 10,
            "without histories"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_large_is_told() {
        let one = |n, r| ResourceEstimate::of_one(&params(n, r), 2);
        assert_eq!(one(64, 8).check_against(Some(1 << 30)).unwrap(), None);
        let refused = one(65_536, 1).check_against(Some(16 << 30)).unwrap_err().to_string();
        assert!(refused.contains(" GB of memory, and 17 GB are available"), "{refused}");
        let told = one(65_536, 65_536).check_against(Some(16 << 30)).unwrap().unwrap();
        assert!(told.contains("about 21") && told.ends_with(" GB for the run folder"), "{told}");
        assert!(one(65_536, 1).check_against(None).is_ok(), "where nothing is known, nothing is refused");
    }
}
