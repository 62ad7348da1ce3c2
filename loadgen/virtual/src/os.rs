//! The clock and the random numbers of the operating system, replaced for this whole program: for server and
//! client, and for all that they are built on (tokio's choice among branches that are ready, the keys of hash
//! maps, the dates in HTTP headers).
//!
//! The linker prefers the functions of a program to those of the C library, so the two below are called in
//! place of `clock_gettime(2)` and `getrandom(2)`. Before [`begin`] they do what the system does.
#![allow(unsafe_code, reason = "the functions of the C library cannot be replaced without")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{CLOCK_REALTIME, SYS_clock_gettime, SYS_getrandom, c_int, c_long, c_uint, c_void};
use libc::{clockid_t, size_t, ssize_t, timespec};
use stickycas_model::random::SplitMix64;
use tokio::time::Instant;

/// Nanoseconds of the monotonic clock when virtual time begins: far from 0, so that programs can subtract
/// from it.
const MONOTONIC_START: u64 = 1_000_000_000_000_000;
/// Seconds from the start of the monotonic clock to that of the wall clock: virtual time begins in the year
/// 2027.
const REALTIME_OFFSET: u64 = 1_798_000_000;
const NANOS: u64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock; 0: virtual time has not begun.
static NOW: AtomicU64 = AtomicU64::new(0);
/// The number of random numbers so far, and their seed.
static DRAWN: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);

/// Virtual time and seeded random numbers from now on. Before a runtime is made, and before another thread
/// is.
pub(crate) fn begin(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
    NOW.store(MONOTONIC_START, Ordering::Relaxed);
}

/// When virtual time began, by the clock of a runtime.
static START: OnceLock<Instant> = OnceLock::new();

/// Follows the clock of the runtime, which is paused and so jumps from timer to timer. Called within the
/// runtime whenever that has waited for its next timer, and where one of several runtimes takes its turn.
pub(crate) fn follow_runtime() {
    set(Instant::now());
}

/// Sets the time outside of any runtime: the clock of a new runtime begins with it.
pub(crate) fn set(now: Instant) {
    let elapsed = now.duration_since(*START.get_or_init(|| now)).as_nanos();
    NOW.store(MONOTONIC_START + u64::try_from(elapsed).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Virtual time so far, in microseconds.
pub(crate) fn elapsed_micros() -> u64 {
    (NOW.load(Ordering::Relaxed) - MONOTONIC_START) / 1_000
}

/// `clock_gettime(2)`.
///
/// # Safety
/// `time` points to a `timespec`, as the C library asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let now = NOW.load(Ordering::Relaxed);
    if now == 0 {
        // SAFETY: the arguments are those of the caller.
        let status = unsafe { libc::syscall(SYS_clock_gettime, c_long::from(clock), time) };
        return -c_int::from(status != 0);
    }
    let offset = if clock == CLOCK_REALTIME { REALTIME_OFFSET } else { 0 };
    let seconds = i64::try_from(now / NANOS + offset).unwrap_or(i64::MAX);
    let nanos = i64::try_from(now % NANOS).unwrap_or(0);
    // SAFETY: the caller gives a place for the time.
    unsafe { time.write(timespec { tv_sec: seconds, tv_nsec: nanos }) };
    0
}

/// The next random number.
fn draw() -> u64 {
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
    SplitMix64::new(SEED.load(Ordering::Relaxed) ^ drawn << 32).next_u64()
}

/// `getrandom(2)`.
///
/// # Safety
/// `buffer` has room for so many bytes, as the C library asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    if NOW.load(Ordering::Relaxed) == 0 {
        // SAFETY: the arguments are those of the caller.
        let read = unsafe { libc::syscall(SYS_getrandom, buffer, length, c_long::from(flags)) };
        return ssize_t::try_from(read).unwrap_or(-1);
    }
    for place in (0..length).step_by(size_of::<u64>()) {
        let bytes = draw().to_le_bytes();
        let count = bytes.len().min(length - place);
        // SAFETY: `place + count` is at most `length`.
        unsafe { buffer.cast::<u8>().add(place).copy_from_nonoverlapping(bytes.as_ptr(), count) };
    }
    ssize_t::try_from(length).unwrap_or(-1)
}
