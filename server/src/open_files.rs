//! The limit on open files, of which every connection takes one.

use crate::limits::Limits;

/// Open files of a server that are no connections: its log, its listeners, and what the runtime needs.
const BESIDE_CONNECTIONS: u64 = 128;

/// Raises the soft limit on open files to the hard limit, which is often far higher; returns the limit.
#[must_use]
pub fn allow_all_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the present one is returned.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers the limits on connections to what so many open files allow, and says so in the log. A server that
/// ran out of files could not accept anybody, nor write its log.
pub(crate) fn fit_connections(limits: &mut Limits, files: u64) {
    let allowed = usize::try_from(files.saturating_sub(BESIDE_CONNECTIONS)).unwrap_or(usize::MAX).max(1);
    if limits.connections <= allowed {
        return;
    }
    tracing::warn!(
        files,
        "limits.connections is {allowed} and not {}, since more files may not be open: raise the hard limit (ulimit -Hn)",
        limits.connections
    );
    limits.connections = allowed;
    limits.fit_connections();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_lower_the_limits_on_connections() {
        let fitted = |files| {
            let mut limits = Limits::of(1 << 40);
            fit_connections(&mut limits, files);
            [limits.connections, limits.unclaimed_connections]
        };
        assert_eq!(fitted(1_024), [896, 448]);
        assert_eq!(fitted(10_128), [10_000, 4_096]);
        assert_eq!(fitted(0), [1; 2]);
        let usual = Limits::of(1 << 40);
        let usual = [usual.connections, usual.unclaimed_connections];
        assert_eq!(fitted(u64::MAX), usual);
    }
}
