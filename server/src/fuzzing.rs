//! Entry points to private decoders of this crate, for the search for bytes that break them (`fuzz/`).
//!
//! Each function panics if a decoder panics, takes what it should not, or contradicts its counterpart. A
//! refusal by a decoder is no fault.

use std::path::Path;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::{Builder, Runtime};

use crate::settings::{Effective, show};
use crate::{auth, data, transport};

pub use crate::auth::fuzzing::{
    certificate, certificate_seeds, credentials, credentials_seeds, token, token_seeds,
};
pub use crate::event_log::fuzzing::{store_events, stored_events};
pub use crate::service::fuzzing::{create_request, page_token};
pub use crate::transport::fuzzing::http2_frames;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("threads can be made"));

/// Reads a backup of a log and recovers its instances, as `stickycas-server data check` does. Damage is
/// reported.
pub fn backup(bytes: &[u8]) {
    let _ = RUNTIME.block_on(data::check_backup(bytes));
}

/// Settings of a file that are taken are the same when they are shown and read again. A mistake names the
/// file.
pub fn settings(text: &str) {
    let file = Path::new("server.toml");
    match Effective::of_text(file, text) {
        Ok(effective) => {
            let shown = show(&effective, true);
            let again = Effective::of_text(file, &shown).expect("it was shown as a file has it");
            assert_eq!(format!("{:?}", again.settings), format!("{:?}", effective.settings), "{shown}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file with every setting, as it is left alone.
#[must_use]
pub fn all_settings() -> String {
    show(&Effective::defaults(), true)
}

/// The messages of a request's body, in chunks: where they begin and end.
pub fn messages(bytes: &[u8]) {
    transport::fuzzing::messages(bytes);
}

/// The headers of a request that we read ourselves: each line is the number of a header and a value.
pub fn headers(bytes: &[u8]) {
    const NAMES: [&str; 3] = [crate::PRINCIPAL_KEY, "authorization", "grpc-timeout"];
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_first() else { continue };
        let name = HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    auth::fuzzing::identity_headers(&headers);
    transport::fuzzing::timeout_header(&headers);
}

/// Bytes cut into chunks as a network would: the first byte says how many lengths follow, and these are those
/// of the chunks of the rest, again and again. Returns the chunks, and all of them as one.
pub(crate) fn in_chunks(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (count, rest) = bytes.split_first()?;
    let (lengths, all) = rest.split_at_checked(usize::from(count % 16))?;
    let mut lengths = lengths.iter().map(|length| usize::from(*length).max(1)).cycle();
    let (mut chunks, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let length = lengths.next().unwrap_or(rest.len()).min(rest.len());
        let (chunk, behind) = rest.split_at(length);
        chunks.push(chunk);
        rest = behind;
    }
    Some((chunks, all))
}
