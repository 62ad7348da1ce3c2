//! Panics as lines of the log. The hook of the standard library writes to standard error itself, and would wait for ever if
//! nobody reads it; and it has no limit.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};

/// From now on panics are logged.
pub(super) fn log_panics() {
    set_hook(Box::new(report));
}

fn report(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    // Captured if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let message = text(panic.payload());
    tracing::error!(thread, place, backtrace, "panicked: {message}");
}

/// The text of a panic.
fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| payload.downcast_ref().copied()).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_found_in_both_of_its_forms() {
        assert_eq!(text(&"as it stands"), "as it stands");
        assert_eq!(text(&"with a number: 9".to_owned()), "with a number: 9");
        assert_eq!(text(&9), "(no text)");
    }
}
