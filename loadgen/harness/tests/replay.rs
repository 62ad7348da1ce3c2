//! A run folder follows from its own inputs, and one that was tampered with does not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use stickycas_harness::environment::Environment;
use stickycas_harness::record::ExecutionMode;
use stickycas_harness::replay::{ReplayResult, replay};
use stickycas_harness::report::folder::{self, Folder};
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_model::counts::RunCounts;
use stickycas_model::judge::{Observed, Outcome};
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::ProcessId;

/// The folder of a run, to be tampered with.
struct Tampered {
    place: PathBuf,
    _temporary: tempfile::TempDir,
}

impl Tampered {
    fn with(record: &Record) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let place = temporary.path().join("run");
        folder::write(record, &Environment::here(record.how, None), Some(&place)).unwrap();
        Self { place, _temporary: temporary }
    }

    fn of(scenario: &str) -> Self {
        Self::with(&simulated(scenario))
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.place.join(file)).unwrap()
    }

    fn put(&self, file: &str, text: &str) {
        fs::write(self.place.join(file), text).unwrap();
    }

    /// Changes lines of the history; the number of lines that the harness wrote is changed with it, as
    /// somebody would who wants to deceive.
    fn history(&self, change: impl FnOnce(&mut Vec<Json>)) {
        let mut events: Vec<Json> =
            self.text("history.ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        change(&mut events);
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        self.put("history.ndjson", &lines);
        self.json("harness.json", |harness| harness["events"] = events.len().into());
    }

    fn json(&self, file: &str, change: impl FnOnce(&mut Json)) {
        let mut json: Json = serde_json::from_str(&self.text(file)).unwrap();
        change(&mut json);
        self.put(file, &json.to_string());
    }

    fn replayed(&self) -> ReplayResult {
        replay(&self.read().unwrap())
    }

    fn read(&self) -> anyhow::Result<Folder> {
        Folder::read(&self.place)
    }

    /// The first event that comes out differently is this one, and both sides are shown.
    #[track_caller]
    fn differs_at(&self, index: usize) -> String {
        let replayed = self.replayed();
        assert_eq!(replayed.difference.as_ref().map(|first| first.index), Some(index), "{replayed}");
        assert!(!replayed.same);
        let text = replayed.to_string();
        assert!(text.contains(&format!("number {index}, line {} of history.ndjson", index + 1)), "{text}");
        text
    }
}

fn simulated(name: &str) -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.toml"));
    simulate(&Scenario::load(&path, Some(3)).unwrap())
}

/// The place of the first event of this kind.
fn first(events: &[Json], kind: &str) -> usize {
    events.iter().position(|event| event["event"] == kind).unwrap()
}

#[test]
fn an_untouched_folder_follows_from_its_inputs() {
    let valid = simulated("quickstart");
    let outside = simulated("late-append-open");
    let unknown = simulated("one-warp").with_anomalies(vec!["a child fell over".to_owned()]);
    let mut reports = valid.reports.clone();
    reports[0].from.pop();
    let violation = Record::judged(
        valid.scenario.clone(),
        valid.how,
        valid.history.clone(),
        true,
        RunCounts::default(),
        reports,
    );
    let mut cut_short = valid.history.clone();
    cut_short.truncate(40);
    let incomplete =
        Record::judged(valid.scenario.clone(), valid.how, cut_short, false, RunCounts::default(), Vec::new());
    for (record, outcome) in [
        (valid, Outcome::Valid),
        (outside, Outcome::Outside),
        (unknown, Outcome::Unknown),
        (incomplete, Outcome::Unknown),
        (violation, Outcome::Violation),
    ] {
        assert_eq!(record.verdict.verdict, outcome, "{:?}", record.verdict.reasons);
        let replayed = Tampered::with(&record).replayed();
        assert!(replayed.same, "{outcome}: {replayed}");
        assert!(replayed.to_string().contains("the same"));
        assert_eq!(replayed.events, record.history.len());
    }
}

/// Process 3 reads first, which the scenario that is claimed does not say of it.
fn another_part(how: ExecutionMode, window: &str) -> Record {
    let text = |faults: &str| {
        format!(
            "name = \"another-part\"\n[instance]\nprocesses = 5\nwarp_size = 1\nread_size = 5\nappend_window = \"{window}\"\n\
             [proposals]\nvalues = [\"a\", \"a\", \"b\", \"a\", \"a\"]\n{faults}"
        )
    };
    let scenario = |faults| Scenario::parse("another-part.toml", &text(faults), Some(1)).unwrap();
    let played =
        simulate(&scenario("[[faults]]\nprocesses = [3]\nstrategy = \"late-append(access=3, value=b)\""));
    let Record { history, reports, .. } = played;
    Record::judged(scenario(""), how, history, true, RunCounts::default(), reports)
}

#[test]
fn a_correct_process_that_acts_otherwise_is_named_by_every_judge() {
    let says = "D1: process 3 is correct and did not append in its first access";
    for window in ["first_access", "open"] {
        for (how, outcome) in [
            (ExecutionMode::Simulated, Outcome::Violation),
            (ExecutionMode::ChildProcesses, Outcome::Violation),
            (ExecutionMode::Tasks, Outcome::Violation),
            (ExecutionMode::Judged, Outcome::Unknown),
        ] {
            let record = another_part(how, window);
            let verdict = &record.verdict;
            assert_eq!(verdict.verdict, outcome, "{how}, {window}: {:?}", verdict.reasons);
            assert!(verdict.reasons.iter().any(|reason| reason == says), "{:?}", verdict.reasons);
            assert_eq!(verdict.deviated, [ProcessId::new(3).unwrap()]);
            let broke = record.explained().broke;
            assert!(broke.iter().any(|breach| breach.says == says && breach.event.is_some()), "{broke:?}");
            let tampered = Tampered::with(&record);
            assert!(tampered.replayed().same, "{}", tampered.replayed());
            // A verdict that passes over it does not follow from the record.
            tampered.json("verdict.json", |verdict| {
                verdict["verdict"] = "valid".into();
                verdict["reasons"] = json!([]);
                verdict["deviated"] = json!([]);
            });
            let fields = tampered.replayed().fields;
            let fields: Vec<&str> = fields.iter().map(|field| &*field.field).collect();
            assert!(
                ["verdict", "reasons", "deviated"].iter().all(|field| fields.contains(field)),
                "{fields:?}"
            );
            // Version 2 did not look.
            tampered.json("verdict.json", |verdict| {
                verdict["version"] = 2.into();
                verdict.as_object_mut().unwrap().remove("deviated");
            });
            assert!(tampered.replayed().same, "{}", tampered.replayed());
        }
    }
}

#[test]
fn a_changed_answer_is_found() {
    let tampered = Tampered::of("quickstart");
    let mut place = 0;
    tampered.history(|events| {
        place = first(events, "answered");
        events[place]["answer"] = json!({ "append": "failed" });
    });
    let text = tampered.differs_at(place);
    assert!(text.contains("is answered FAILED") && text.contains("is answered SUCCESS at 0"), "{text}");
}

#[test]
fn another_winner_is_found() {
    let tampered = Tampered::of("quickstart");
    let mut place = 0;
    tampered.history(|events| {
        place = first(events, "added");
        let winner = events[place]["process"].as_u64().unwrap();
        // The other member of the first warp.
        events[place]["process"] = (3 - winner).into();
    });
    tampered.differs_at(place);
}

#[test]
fn a_dropped_event_is_found_whichever_it_is() {
    let history = Tampered::of("late-append").text("history.ndjson");
    let lines: Vec<&str> = history.lines().collect();
    for dropped in 0..lines.len() {
        let tampered = Tampered::of("late-append");
        let left = [&lines[..dropped], &lines[dropped + 1..]].concat();
        tampered.put("history.ndjson", &(left.join("\n") + "\n"));
        is_refused(&tampered, "lines were lost or added");
        // Nor does it help to change the number of lines as well.
        tampered.json("harness.json", |harness| harness["events"] = left.len().into());
        assert!(!tampered.replayed().same, "event {dropped} is missing, and nobody notices");
    }
}

#[test]
fn swapped_events_are_found_unless_the_order_is_free() {
    let events = simulated("late-append").history.len();
    let mut found = 0;
    for place in 0..events - 1 {
        let tampered = Tampered::of("late-append");
        let mut kinds = Vec::new();
        tampered.history(|events| {
            kinds = [place, place + 1].map(|at| events[at]["event"].as_str().unwrap().to_owned()).to_vec();
            events.swap(place, place + 1);
        });
        let replayed = tampered.replayed();
        // Two processes' accesses before their phases, for one, may have arrived either way.
        let inputs = ["session", "accepted", "decided", "joined"];
        let all_inputs = kinds.iter().all(|kind| inputs.contains(&kind.as_str()));
        assert!(!replayed.same || all_inputs, "{kinds:?} swapped at {place}, and nobody notices");
        found += usize::from(!replayed.same);
    }
    assert!(found > events / 2, "{found} of {events}");
}

#[test]
fn under_first_come_another_order_has_another_winner() {
    let tampered = Tampered::of("one-warp");
    tampered.history(|events| {
        let accepted: Vec<usize> =
            (0..events.len()).filter(|place| events[*place]["event"] == "accepted").collect();
        let (winner, last) = (accepted[0], accepted[5]);
        // Everything else about the two accesses is the same: the processes' first appends.
        let process = events[winner]["process"].clone();
        events[winner]["process"] = events[last]["process"].clone();
        events[last]["process"] = process;
        for place in [winner, last] {
            events[place].as_object_mut().unwrap().remove("session");
        }
    });
    assert!(!tampered.replayed().same);
}

#[test]
fn each_changed_field_of_the_verdict_is_found_and_named() {
    let tampered = Tampered::of("quickstart");
    tampered.json("verdict.json", |verdict| {
        verdict["f"] = 1.into();
        verdict["decision"] = "pear".into();
        verdict["blame"] = json!({ "4": { "late_append": 1 } });
        verdict.as_object_mut().unwrap().remove("named");
        verdict["surprise"] = true.into();
    });
    let replayed = tampered.replayed();
    assert_eq!(replayed.difference, None, "the events are untouched");
    let mut names: Vec<&str> = replayed.fields.iter().map(|different| different.field.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["blame", "decision", "f", "named", "surprise"]);
    let text = replayed.to_string();
    assert!(text.contains("verdict.json says  1\n  the judge says     2"), "{text}");
}

#[test]
fn a_folder_of_version_1_has_numbers_for_incarnations() {
    let tampered = Tampered::of("quickstart");
    let mut changed = 0;
    tampered.history(|events| {
        for event in events.iter_mut().filter(|event| event["event"] == "session") {
            let text = event["incarnation"].as_str().expect("a text");
            event["incarnation"] = text.parse::<u64>().unwrap().into();
            changed += 1;
        }
    });
    assert!(changed > 0);
    tampered.json("harness.json", |harness| harness["version"] = 1.into());
    assert!(tampered.replayed().same, "{}", tampered.replayed());
}

/// The verdict of version 1 that was written of this run.
fn as_version_1(tampered: &Tampered, change: impl FnOnce(&mut Json)) {
    tampered.json("verdict.json", |verdict| {
        verdict["version"] = 1.into();
        change(verdict);
    });
}

#[test]
fn a_verdict_of_version_1_replays_where_all_have_decided() {
    let tampered = Tampered::of("quickstart");
    as_version_1(&tampered, |_| {});
    let replayed = tampered.replayed();
    assert!(replayed.same, "{replayed}");
    assert_eq!(replayed.not_compared, ["version", "deviated"]);
    // Termination means the same in both versions here, so it is compared.
    as_version_1(&tampered, |verdict| verdict["termination"] = "violated".into());
    let fields = tampered.replayed().fields;
    assert_eq!(fields.iter().map(|field| &*field.field).collect::<Vec<_>>(), ["termination"]);
}

#[test]
fn termination_of_version_1_is_not_compared_where_it_is_unknown() {
    let run = simulated("quickstart");
    let mut reports = run.reports.clone();
    let failed = reports.iter_mut().find(|report| report.process.get() == 1).unwrap();
    (failed.decision, failed.phase, failed.from) = (None, None, Vec::new().into());
    failed.ended = ProcessEnd::Failed("connection lost".to_owned());
    let counted = RunCounts::default();
    let record = Record::judged(run.scenario.clone(), run.how, run.history.clone(), true, counted, reports);
    assert_eq!(record.verdict.termination, Observed::Unknown, "{:?}", record.verdict);
    let tampered = Tampered::with(&record);
    assert!(tampered.replayed().same);
    as_version_1(&tampered, |verdict| verdict["termination"] = "held".into());
    let replayed = tampered.replayed();
    assert!(replayed.same, "{replayed}");
    assert!(
        replayed.to_string().contains(
            "not compared, since verdict.json has an older version: version, deviated, termination"
        )
    );
    let explained = tampered.read().unwrap().judged_again().explained();
    assert_eq!(explained.verdict.termination, Observed::Unknown);
    // In version 2 the same difference counts, and in version 1 every other one does.
    tampered.json("verdict.json", |verdict| verdict["version"] = 2.into());
    assert!(!tampered.replayed().same);
    as_version_1(&tampered, |verdict| verdict["agreement"] = "violated".into());
    assert!(!tampered.replayed().same);
}

#[test]
fn a_report_that_says_something_else_changes_the_verdict() {
    let tampered = Tampered::of("quickstart");
    let changed =
        tampered.text("reports.ndjson").replacen("\"decision\":\"apple\"", "\"decision\":\"pear\"", 1);
    tampered.put("reports.ndjson", &changed);
    let fields = tampered.replayed().fields;
    assert!(fields.iter().any(|different| different.field == "verdict"), "{fields:?}");
}

#[track_caller]
fn is_refused(tampered: &Tampered, says: &str) {
    let error = tampered.read().unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_damaged_folder_is_reported_with_file_and_line() {
    for file in
        ["scenario.toml", "harness.json", "history.ndjson", "counts.json", "reports.ndjson", "verdict.json"]
    {
        let tampered = Tampered::of("one-warp");
        fs::remove_file(tampered.place.join(file)).unwrap();
        is_refused(&tampered, &format!("run: {file} is missing"));
    }
    let nowhere = Folder::read(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(nowhere.starts_with("no/such/folder: no such folder"), "{nowhere}");

    let tampered = Tampered::of("one-warp");
    let history = tampered.text("history.ndjson");
    let mut lines: Vec<&str> = history.lines().collect();
    lines[4] = "{\"at\":0,\"event\":\"joined\",";
    tampered.put("history.ndjson", &(lines.join("\n") + "\n"));
    is_refused(&tampered, "history.ndjson:5: EOF while parsing");
    lines[4] = "{\"at\":0,\"event\":\"exploded\"}";
    tampered.put("history.ndjson", &(lines.join("\n") + "\n"));
    is_refused(&tampered, "history.ndjson:5: unknown variant `exploded`");
    lines.remove(4);
    tampered.put("history.ndjson", &(lines.join("\n") + "\n"));
    is_refused(&tampered, "lines were lost or added");

    let tampered = Tampered::of("one-warp");
    tampered.put("scenario.toml", "name = \"one-warp\"\nwhat = 1\n");
    is_refused(&tampered, "scenario.toml:2: there is no key what");
}

#[test]
fn a_folder_of_another_version_is_refused_with_both_versions() {
    for (file, read) in [("harness.json", "versions 1 to 2"), ("verdict.json", "versions 1 to 3")] {
        let tampered = Tampered::of("one-warp");
        tampered.json(file, |json| {
            json["version"] = 7.into();
            json["how"] = "by carrier pigeon".into();
        });
        is_refused(&tampered, &format!("{file}: version 7, and this program reads {read}:"));
    }
}
