//! Exit codes, and the error that stands for wrong usage.

/// Exit code: flags are wrong.
pub(super) const USAGE: u8 = 2;
/// Exit code of a server: its log could not be written any more. What it had told is in the log, which a restart reads.
pub(super) const LOG_FAILED: u8 = 5;

/// The codes in words, for helps.
pub(super) const EXIT_CODES: &str = "\
Exit codes, the same in all three programs:
  0  done; of a run: its verdict is valid or outside
  1  failed: a promise or a condition was not kept, an instance ended without a decision
  2  wrong usage: flags or files
  3  refused, or not possible: it did not happen
  4  unknown: it may have happened; of a run: it proves nothing
  5  of a server: its log could not be written any more";

/// Flags are wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);
