//! What the machine does about misbehaviour: refusals, offences, the comparison of reported decisions (SPEC B2, D3).

use crate::access::{Op, Refusal};
use crate::history::{Event, Offence, OffenceKind};
use crate::params::AppendWindow;
use crate::process::mode;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, ProcessId, Value};

use super::state::{Machine, State};

impl<S: PhaseOrder> Machine<S> {
    /// Counts a refusal, records it while the bound allows, and returns it.
    pub(super) fn refuse(
        &mut self,
        process: ProcessId,
        number: Option<AccessNumber>,
        refusal: Refusal,
        events: &mut Vec<Event>,
    ) -> Refusal {
        if self.offences.count_refusal(process) {
            events.push(Event::Refused { process, number, why: refusal.to_string() });
        }
        refusal
    }

    /// Files an offence under the phase that is open or next.
    pub(super) fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let phase = (self.state != State::Gathering).then_some(self.phase);
        self.offences.file(Offence { phase, ..offence }, events);
    }

    /// Compares a reported decision with the mode of the sealed list (D3). Under `open` correct processes can decide
    /// differently (SPEC section 9), so nothing is compared.
    pub(super) fn compare_report(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        if self.params.spec().append_window != AppendWindow::FirstAccess {
            return;
        }
        let Self { list, sealed_mode, .. } = self;
        sealed_mode.get_or_insert_with(|| mode(list.iter().map(|entry| &entry.value)).cloned());
        let mode = self.sealed_mode.as_ref().and_then(Option::as_ref);
        let report = self.decision(process);
        if report != mode {
            let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), brief);
            let detail = format!("reports {}, the sealed list decides {}", say(report), say(mode));
            let kind = OffenceKind::FalseDecision;
            self.file(Offence { process, kind, number: None, phase: None, detail }, events);
        }
    }
}

pub(super) fn describe(op: &Op) -> String {
    match op {
        Op::Append(value) => format!("append {}", brief(value)),
        Op::Read { start } => format!("read from {start}"),
    }
}

/// A value as an offence quotes it, cut short: the record of misbehaviour must not grow with the values that are
/// sent.
pub(crate) fn brief(value: &Value) -> String {
    const LONGEST: usize = 64;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], value.as_bytes().len()),
    }
}
