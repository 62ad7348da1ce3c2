//! `verdict.json` as the schema in `docs/schema` describes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use serde_json::Value as Json;
use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::judge::{VERDICT_VERSION, Verdict};

use crate::json_schema::faults;
use crate::story::{Story, id};

fn schema() -> Json {
    serde_json::from_str(include_str!("../../docs/schema/verdict.schema.json")).unwrap()
}

/// One that leaves as much out as can be, and one that has everything.
fn verdicts() -> [Verdict; 2] {
    let mut full = Story::full_run("!X !X a b", 1, 4);
    full.fired.insert("flood".to_owned(), 3);
    let detail = "append with access number 2".to_owned();
    full.insert(
        9,
        Event::Offence(Offence {
            process: id(1),
            kind: OffenceKind::LateAppend,
            number: None,
            phase: None,
            detail,
        }),
    );
    [Story::full_run("a a", 1, 1).verdict(), full.verdict()]
}

#[test]
fn a_verdict_reads_back_as_it_was_written() {
    for verdict in verdicts() {
        let text = serde_json::to_string_pretty(&verdict).unwrap();
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
    }
}

#[test]
fn every_verdict_is_what_the_schema_says() {
    let schema = schema();
    for verdict in verdicts() {
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!(faults(&schema, &schema, &json, ""), [""; 0]);
    }
}

#[test]
fn the_schema_requires_just_the_fields_always_written() {
    let schema = schema();
    let [least, full] = verdicts().map(|verdict| serde_json::to_value(&verdict).unwrap());
    let mut required: Vec<&str> =
        schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    required.sort_unstable();
    let mut written: Vec<&str> = least.as_object().unwrap().keys().map(String::as_str).collect();
    written.sort_unstable();
    assert_eq!(required, written);

    let described = schema["properties"].as_object().unwrap();
    for name in full.as_object().unwrap().keys() {
        assert!(described.contains_key(name), "{name}");
    }
    // Those of which no single run has all: each is written when its premise is missing.
    let optional: Vec<&String> =
        described.keys().filter(|name| !required.contains(&name.as_str()) && *name != "witness").collect();
    assert!(optional.iter().all(|name| name.ends_with("_missing_premise")), "{optional:?}");
    assert_eq!(optional.len(), 5);
}

#[test]
fn the_schema_refuses_what_is_not_a_verdict() {
    let schema = schema();
    let refused = |change: &dyn Fn(&mut Json)| {
        let mut json = serde_json::to_value(&verdicts()[1]).unwrap();
        change(&mut json);
        !faults(&schema, &schema, &json, "").is_empty()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|json| json["version"] = (VERDICT_VERSION + 1).into()));
    assert!(refused(&|json| json["verdict"] = "guilty".into()));
    assert!(refused(&|json| json["surprise"] = 1.into()));
    assert!(refused(&|json| json["f"] = "two".into()));
    assert!(refused(&|json| json["late"] = vec![0].into()));
    assert!(refused(&|json| json["decisions"]["3"]["bound"] = Json::Null));
    assert!(refused(&|json| {
        json.as_object_mut().unwrap().remove("agreement");
    }));
}
