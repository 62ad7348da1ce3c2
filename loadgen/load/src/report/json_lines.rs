//! A load while it runs, for programs: an object in one line for each second. Its keys: `docs/use/files.md`.

use std::time::Duration;

use serde::Serialize;

use crate::engine::LoadProgress;
use crate::recorder::Second;

/// The row of `seconds.csv`, with the time of its end, and the verdicts until then. A latency of which there
/// is none is null.
#[derive(Debug, Serialize)]
struct Line {
    time: String,
    second: f64,
    length: f64,
    planned: u64,
    late: u64,
    dropped: u64,
    done: u64,
    errors: u64,
    accesses: u64,
    in_flight: u64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    valid: u64,
    outside: u64,
    violation: u64,
    unknown: u64,
}

/// The last second in one line, with its line feed; `None` before there is one.
#[must_use]
pub fn line(progress: &LoadProgress<'_>) -> Option<String> {
    let last = progress.recorder.seconds.last()?;
    let Second { second, length, planned, late, dropped, done, errors, accesses, in_flight, .. } = *last;
    let time = progress.recorder.began + Duration::from_secs_f64(second);
    let latency = |millis: f64| (done > 0).then_some(millis);
    let judged = progress.judged;
    let line = Line {
        time: humantime::format_rfc3339_millis(time).to_string(),
        second,
        length,
        planned,
        late,
        dropped,
        done,
        errors,
        accesses,
        in_flight,
        p50_ms: latency(last.p50_ms),
        p99_ms: latency(last.p99_ms),
        max_ms: latency(last.max_ms),
        valid: judged.valid,
        outside: judged.outside,
        violation: judged.violation,
        unknown: judged.unknown,
    };
    Some(serde_json::to_string(&line).expect("numbers and texts have JSON") + "\n")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::measure::{Histograms, Label, Measure, OperationOutcome, record};
    use crate::recorder::{Recorder, Starts};
    use crate::verdicts::VerdictCounts;

    #[test]
    fn a_second_without_an_end_has_no_latency() {
        let mut recorder = Recorder::new(UNIX_EPOCH);
        let mut shown = |taken: &Histograms| {
            recorder.second(Duration::from_secs(1), taken, Starts { planned: 3, late: 1, dropped: 0 }, 2);
            let judged = VerdictCounts { valid: 7, ..VerdictCounts::default() };
            let line = line(&LoadProgress { recorder: &recorder, judged: &judged, phase: 1 }).unwrap();
            assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
            serde_json::from_str::<serde_json::Value>(&line).unwrap()
        };
        let empty = shown(&Histograms::new());
        assert_eq!((&empty["time"], &empty["p50_ms"]), (&"1970-01-01T00:00:01.000Z".into(), &().into()));
        assert_eq!((&empty["planned"], &empty["late"], &empty["valid"]), (&3.into(), &1.into(), &7.into()));
        let mut taken = Histograms::new();
        let done = Label::own(Measure::Instance, OperationOutcome::Done);
        record(&mut taken, done, Duration::from_micros(1_500));
        let full = shown(&taken);
        assert!((1.49..1.51).contains(&full["p50_ms"].as_f64().unwrap()), "{full}");
    }
}
