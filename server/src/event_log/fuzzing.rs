//! The codec of this folder for [`crate::fuzzing`].

use stickycas_model::compact_codec::Encoder;
use stickycas_model::history::Recorded;

use super::codec::{EventDecoder, EventEncoder};

/// Events that are read are the same when they are written and read again.
pub fn stored_events(bytes: &[u8]) {
    let events = read(bytes);
    assert_eq!(read(&store_events(&events)), events);
}

/// Events as an event log keeps them.
#[must_use]
pub fn store_events(events: &[Recorded]) -> Vec<u8> {
    let (mut writer, mut out) = (EventEncoder::default(), Encoder::default());
    events.iter().for_each(|recorded| writer.write(recorded.at, &recorded.event, &mut out));
    out.bytes().to_vec()
}

fn read(bytes: &[u8]) -> Vec<Recorded> {
    let mut reader = EventDecoder::new(bytes);
    std::iter::from_fn(|| reader.read()).collect()
}
