use std::path::Path;

use hdrhistogram::Histogram;

use super::super::engine::LoadOutcome;
use super::super::figures::Latency;
use super::super::measure::{Label, Measure, Messages, OperationOutcome, record};
use super::super::verdicts::VerdictCounts;
use super::*;
use crate::report::folder;

const DONE: Label = Label::own(Measure::Instance, OperationOutcome::Done);

/// A generator that began so many seconds after 1970, warmed up for two seconds, and then measured: in each
/// second the latencies, in milliseconds, of the instances that ended in it.
struct Generator {
    began: u64,
    processes: u32,
    ended: Vec<Vec<u64>>,
}

const WARM_UP: u64 = 2;

impl Generator {
    /// Writes its result folder.
    fn write(&self, to: &Path) {
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(self.began);
        let flags = Flags::of(&[
            ("processes", &self.processes.to_string()),
            ("duration", &format!("{}s", WARM_UP + self.ended.len() as u64)),
            ("warm-up", &format!("{WARM_UP}s")),
            ("seed", &self.began.to_string()),
        ]);
        let profile = Profile::load(None, &flags).unwrap();
        let mut recorder = Recorder::new(began);
        let warm_up = vec![Vec::new(); WARM_UP as usize];
        let mut starts = Starts::default();
        for (second, latencies) in (1..).zip(warm_up.iter().chain(&self.ended)) {
            let mut taken = Histograms::new();
            latencies.iter().for_each(|millis| record(&mut taken, DONE, Duration::from_millis(*millis)));
            starts.planned += latencies.len() as u64;
            recorder.second(Duration::from_secs(second), &taken, starts, 0);
        }
        let done = self.ended.iter().map(Vec::len).sum::<usize>() as u64;
        let said = format!("of {}", self.began);
        let counts = Counts { planned: done, ..Counts::default() };
        let loaded = LoadOutcome {
            figures: Figures::of(&recorder.histograms, counts, self.ended.len() as f64, (done, 0)),
            recorder: recorder.finished(),
            judged: VerdictCounts { valid: done, ..VerdictCounts::default() },
            messages: Messages::from([(OperationOutcome::Stalled, said)]),
            evidence: Vec::new(),
            server: None,
            cut_short: None,
        };
        folder::write(&Measurement::of(&profile, loaded, None), Some(to)).unwrap();
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut taken = Histograms::new();
        self.ended.iter().flatten().for_each(|it| record(&mut taken, DONE, Duration::from_millis(*it)));
        taken.remove(&DONE).unwrap()
    }
}

fn steady(began: u64, seconds: usize, rate: usize) -> Generator {
    Generator { began, processes: 8, ended: vec![vec![5; rate]; seconds] }
}

fn merged(generators: &[Generator]) -> Result<LoadResult, String> {
    let temporary = tempfile::tempdir().unwrap();
    let folders: Vec<PathBuf> =
        (0..generators.len()).map(|it| temporary.path().join(it.to_string())).collect();
    for (generator, folder) in generators.iter().zip(&folders) {
        generator.write(folder);
    }
    merge(&folders).map(|measured| measured.result).map_err(|error| error.to_string())
}

#[test]
fn percentiles_of_a_merge_are_those_of_the_added_histograms() {
    // Two that differ, so that no mean of percentiles would do: the slow one has one instance in ten.
    let fast = Generator {
        began: 1_000,
        processes: 8,
        ended: (0..30).map(|it| (1 + it..91 + it).collect()).collect(),
    };
    let slow = Generator {
        began: 1_000,
        processes: 8,
        ended: (0..30).map(|it| (500..510 + it).collect()).collect(),
    };
    let mut added = fast.histogram();
    added.add(slow.histogram()).unwrap();
    let averaged =
        f64::midpoint(Latency::of(&fast.histogram()).p50 as f64, Latency::of(&slow.histogram()).p50 as f64);
    let result = merged(&[fast, slow]).unwrap();
    let latency = result.figures.latency(Measure::Instance).unwrap();
    assert_eq!(*latency, Latency::of(&added));
    assert!(averaged > 1.5 * latency.p50 as f64, "averages would have been seen");
    let counts = &result.figures.counts;
    assert_eq!((counts.planned, counts.done, result.judged.valid), (added.len(), added.len(), added.len()));
}

#[test]
fn rates_of_those_that_measured_at_the_same_time_add_up() {
    let result = merged(&[steady(1_000, 30, 40), steady(1_001, 30, 2)]).unwrap();
    assert!((result.figures.rate - 42.0).abs() < 1e-9, "{}", result.figures.rate);
    assert_eq!((result.figures.seconds, result.measured_from), (29.0, 3.0));
    assert_eq!(result.warnings, [""; 0]);
    assert_eq!(result.messages[&OperationOutcome::Stalled], "of 1000", "the first is the first");
}

#[test]
fn merged_rates_are_those_of_the_overlap() {
    // Alone the first did 100 a second, beside the other 40.
    let mut first = steady(1_000, 30, 100);
    first.ended[10..].iter_mut().for_each(|second| second.truncate(40));
    let result = merged(&[first, steady(1_010, 30, 50)]).unwrap();
    assert!((result.figures.rate - 90.0).abs() < 1e-9, "{}", result.figures.rate);
    assert_eq!((result.figures.seconds, result.measured_from), (20.0, 12.0));
    let [warning] = result.warnings.as_slice() else { panic!("{:?}", result.warnings) };
    assert!(warning.starts_with("all of them measured at the same time for 20.0 s only"), "{warning}");
    assert_eq!(result.figures.counts.done, 10 * 100 + 20 * 40 + 30 * 50, "nothing else is left out");
}

#[test]
fn what_did_not_run_at_the_same_time_is_not_merged() {
    let error = merged(&[steady(1_100, 30, 2), steady(1_000, 30, 40)]).unwrap_err();
    assert!(
        error.contains("began to measure 70.0 s after") && error.contains("rates add up only if"),
        "{error}"
    );
    let error = merged(&[steady(1_000, 30, 2), steady(1_000, 30, 2), steady(1_040, 30, 40)]).unwrap_err();
    assert!(error.contains("began to measure 10.0 s after"), "all of them, not each two: {error}");
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("one");
    steady(1_000, 30, 2).write(&folder);
    let error = merge(&[folder.clone(), folder]).unwrap_err().to_string();
    assert!(error.contains("is named twice"), "{error}");
}

#[test]
fn loads_of_different_work_are_told() {
    let other = Generator { processes: 16, ..steady(1_000, 30, 2) };
    let result = merged(&[steady(1_000, 30, 40), other]).unwrap();
    let [warning] = result.warnings.as_slice() else { panic!("{:?}", result.warnings) };
    assert!(warning.starts_with("the profiles differ in instance.processes (16, 8): "), "{warning}");
}
