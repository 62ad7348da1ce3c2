//! Sleeping until a moment that may not exist.

use tokio::time::{Instant, sleep_until};

/// Resolves at this moment; never if there is none.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
