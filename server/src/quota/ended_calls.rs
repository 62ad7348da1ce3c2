//! How calls have ended, by method and gRPC code.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls([[AtomicU64; CODES.len()]; Method::ALL.len()]);

impl EndedCalls {
    /// A call of this method has ended with this code.
    pub(crate) fn count(&self, method: Method, code: Code) {
        self.0[method as usize][code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The names of each method and code, and how many calls there were.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        Method::ALL.into_iter().zip(&self.0).flat_map(|(method, codes)| {
            let row =
                move |(code, count): (_, &AtomicU64)| ([method.name(), code], count.load(Ordering::Relaxed));
            CODES.into_iter().zip(codes).map(row)
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
        let expected = (1..).zip(CODES).map(|(count, code)| (["Get", code], count));
        assert_eq!(counted, expected.collect::<Vec<_>>());
    }
}
