//! The outcomes of calls, by method and gRPC code, and the durations of unary calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use tonic::Code;

use super::method::Method;

/// The names of the codes of gRPC, by their numbers.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Upper bounds of the buckets of durations, in seconds: from a call that is answered at once to an access
/// whose phase is long in coming.
const SECONDS: [f64; 9] = [0.000_1, 0.000_5, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

/// See the module.
#[derive(Debug)]
pub(crate) struct EndedCalls {
    codes: [[AtomicU64; CODES.len()]; Method::ALL.len()],
    /// Of the methods that are unary.
    seconds: [Option<Histogram>; Method::ALL.len()],
}

impl Default for EndedCalls {
    fn default() -> Self {
        let seconds = Method::ALL.map(|method| method.is_unary().then(|| Histogram::new(SECONDS)));
        Self { codes: Default::default(), seconds }
    }
}

impl EndedCalls {
    /// A call of this method has ended with this code.
    pub(crate) fn count(&self, method: Method, code: Code) {
        self.codes[method as usize][code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An admitted call of this method has taken so long. Streams are not counted.
    pub(crate) fn count_duration(&self, method: Method, duration: Duration) {
        if let Some(seconds) = &self.seconds[method as usize] {
            seconds.observe(duration.as_secs_f64());
        }
    }

    /// The names of unary methods, and how long their calls took.
    pub(crate) fn seconds(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        Method::ALL
            .into_iter()
            .zip(&self.seconds)
            .filter_map(|(method, seconds)| Some((method.name(), seconds.as_ref()?)))
    }

    /// The labels of each method and code, and how many calls there were.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 2], u64)> {
        Method::ALL.into_iter().zip(&self.codes).flat_map(|(method, codes)| {
            CODES.into_iter().zip(codes).map(move |(code, count)| {
                ([("method", method.name()), ("code", code)], count.load(Ordering::Relaxed))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_counted_under_its_own_name() {
        let ended = EndedCalls::default();
        for (number, name) in CODES.iter().enumerate() {
            let code = Code::from(i32::try_from(number).unwrap());
            assert_eq!(format!("{code:?}").to_uppercase(), name.replace('_', ""));
            (0..=number).for_each(|_| ended.count(Method::Get, code));
        }
        let counted: Vec<_> = ended.rows().filter(|(_, count)| *count > 0).collect();
        let expected = (1..).zip(CODES).map(|(count, code)| ([("method", "Get"), ("code", code)], count));
        assert_eq!(counted, expected.collect::<Vec<_>>());
    }

    #[test]
    fn durations_are_counted_of_unary_methods_alone() {
        let ended = EndedCalls::default();
        for method in Method::ALL {
            ended.count_duration(method, Duration::from_millis(3));
        }
        let counted: Vec<_> = ended.seconds().map(|(name, seconds)| (name, seconds.count())).collect();
        let unary = ["Append", "Read", "Decide", "Create", "Get", "List", "Close", "GetCounts", "GetCluster"];
        assert_eq!(counted, unary.map(|name| (name, 1)));
    }
}
