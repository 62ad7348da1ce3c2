//! One instance while it is recovered: its inputs once more, and its time, which goes on where the log tells
//! (SPEC F3).

use std::time::Duration;

use stickycas_model::history::Event;
use stickycas_model::types::Time;
use stickycas_proto::convert::log::input_from_log;
use stickycas_proto::log::v1::Record;
use stickycas_proto::log::v1::record::Input;

use super::super::config::nanos;
use super::super::effects::Effects;
use super::super::lifecycle::Inner;
use super::{Known, text};
use crate::commit_log::LogIndex;

impl Known {
    /// Takes an input from the log once more, which was written at this place, when instances had been served
    /// for so long. The error says how the outcome differs.
    pub(super) fn replay(
        &self,
        log_index: LogIndex,
        record: &Record,
        input: &Input,
        served: Duration,
    ) -> Result<(), String> {
        let (instance, at) = (&self.instance, Time::from_nanos(record.at_nanos));
        let inner = &mut *instance.lock();
        let live = inner.restore(&instance.config, &instance.shard);
        if at < live.latest {
            return Err(format!("its time {at:?} is before that of the record before, {:?}", live.latest));
        }
        let input = input_from_log(input, live.machine.params()).map_err(text)?;
        let mut effects = Effects::new(at);
        effects.refused = live.machine.apply(at, input, &mut effects.events).is_err();
        if effects.digest() != record.digest {
            return Err("its outcome is not what it was when the input was taken".to_owned());
        }
        // All that it changed is in the log already.
        live.machine.take_changed();
        live.machine.take_counts();
        live.machine.take_opened_phases();
        let has_stepped = effects.events.iter().any(|event| matches!(event, Event::Stepped { .. }));
        let went_on = live.stopped_until.is_some() && at > live.latest;
        (live.latest, live.touched) = (at, at);
        instance.release_uncounted(live, &mut effects);
        live.stopped_until = match live.stopped_until {
            _ if live.ended.is_some() => None,
            _ if has_stepped => Some(log_index),
            stopped_until => stopped_until.filter(|_| !went_on),
        };
        let has_ended = live.ended.is_some();
        // The input was taken before its batch was written: then, the time was at least that of the input. An
        // earlier input may tell more.
        if has_ended || (!inner.is_stopped() && (went_on || inner.time(nanos(served)) < at)) {
            inner.resume(at, nanos(served));
        }
        inner.archive_if_idle(&instance.config, at);
        Ok(())
    }

    /// The server had restarted, when instances had been served for so long. The instance had not ended.
    pub(super) fn replay_restart(&self, inner: &mut Inner, served: Duration) {
        self.instance.restart(inner);
        let latest = inner.latest();
        inner.resume(latest, nanos(served));
    }
}

impl Inner {
    /// All has been replayed. If its time stood still until a step was committed, it has gone on since the
    /// effects of that had left, as far as the log tells that, and else not at all.
    pub(super) fn resume_released(&mut self, released: &[(LogIndex, u64)], served: Duration) {
        let latest = self.latest();
        if let Some(until) = self.live().and_then(|live| live.stopped_until.take()) {
            let next = released.partition_point(|(log_index, _)| *log_index < until);
            let moment = released.get(next).map_or(nanos(served), |(_, moment)| *moment);
            self.resume(latest, moment);
        }
    }
}
