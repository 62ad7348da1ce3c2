//! The atomics that [`crate::sticky_cas`] is built on: those of the standard library, or, under `--cfg loom`,
//! those of a checker that runs a test once for every interleaving and every value that the memory model lets
//! a load return.
//!
//! The checker (loom 0.7.2) leaves out interleavings that it considers equal to one that it has run. It
//! remembers only the last access to each atomic: if a thread loads an atomic and then writes it, the checker
//! misses that another thread loaded it before, and never runs the other order ([issue
//! 166](https://github.com/tokio-rs/loom/issues/166), [issue
//! 392](https://github.com/tokio-rs/loom/issues/392)). Hence the gates: each atomic has a second one, and
//! every operation first exchanges that. Exchanges are never left out, so all orders of the operations on one
//! atomic are run. The gates are relaxed and hold nothing: they order nothing for the program under test.

#[cfg(loom)]
pub(crate) use self::gated::{AtomicPtr, AtomicU32};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

#[cfg(loom)]
mod gated {
    use loom::sync::atomic::{self, Ordering};

    macro_rules! gated {
        ($name:ident $(<$t:ident>)?, $value:ty) => {
            #[derive(Debug)]
            pub(crate) struct $name $(<$t>)? {
                gate: atomic::AtomicU32,
                atomic: atomic::$name $(<$t>)?,
            }

            impl $(<$t>)? $name $(<$t>)? {
                pub(crate) fn new(value: $value) -> Self {
                    Self { gate: atomic::AtomicU32::new(0), atomic: atomic::$name::new(value) }
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.exchange_gate();
                    self.atomic.load(order)
                }

                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.exchange_gate();
                    self.atomic.compare_exchange(current, new, success, failure)
                }

                fn exchange_gate(&self) {
                    self.gate.swap(0, Ordering::Relaxed);
                }
            }
        };
    }

    gated!(AtomicU32, u32);
    gated!(AtomicPtr<T>, *mut T);
}
