//! As much of JSON Schema as ours use, for the tests of every crate that has one.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test helpers fail the test"
)]

use serde_json::Value as Json;

/// What of `json` the schema does not allow: as much of the language as our schema uses.
pub fn faults(schema: &Json, root: &Json, json: &Json, at: &str) -> Vec<String> {
    let known = ["$ref", "$schema", "$id", "$defs", "title", "description", "type", "const", "enum", "items"];
    let known =
        [&known[..], &["properties", "required", "additionalProperties", "minimum", "minLength"]].concat();
    // Those that schemars writes.
    let known = [&known[..], &["definitions", "default", "format", "allOf", "anyOf", "oneOf"]].concat();
    let mut found = Vec::new();
    for (word, says) in schema.as_object().unwrap() {
        assert!(known.contains(&word.as_str()), "the test does not know {word}");
        let holds = match word.as_str() {
            "const" => says == json,
            "enum" => says.as_array().unwrap().contains(json),
            "type" => match says {
                Json::Array(types) => types.iter().any(|says| is_of(says, json)),
                says => is_of(says, json),
            },
            "minimum" => json.as_u64().is_none_or(|number| number >= says.as_u64().unwrap()),
            "minLength" => json.as_str().is_none_or(|text| text.len() as u64 >= says.as_u64().unwrap()),
            "allOf" => says.as_array().unwrap().iter().all(|says| faults(says, root, json, at).is_empty()),
            "anyOf" | "oneOf" => {
                says.as_array().unwrap().iter().any(|says| faults(says, root, json, at).is_empty())
            }
            "required" => json.as_object().is_none_or(|fields| {
                says.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
            }),
            _ => true,
        };
        if !holds {
            found.push(format!("{at}: {word}"));
        }
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target =
            root.pointer(reference.strip_prefix('#').unwrap()).expect("the reference leads somewhere");
        found.extend(faults(target, root, json, at));
    }
    for (place, item) in json.as_array().into_iter().flatten().enumerate() {
        found.extend(faults(&schema["items"], root, item, &format!("{at}/{place}")));
    }
    if schema.get("properties").is_some() || schema.get("additionalProperties").is_some() {
        for (name, field) in json.as_object().into_iter().flatten() {
            let at = format!("{at}/{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Json::Null, Json::Bool(false)) => found.push(format!("{at}: not in the schema")),
                (Json::Null, others @ Json::Object(_)) => found.extend(faults(others, root, field, &at)),
                (says, _) => found.extend(faults(says, root, field, &at)),
            }
        }
    }
    found
}

fn is_of(says: &Json, json: &Json) -> bool {
    match says.as_str().unwrap() {
        "object" => json.is_object(),
        "array" => json.is_array(),
        "string" => json.is_string(),
        "integer" => json.is_u64(),
        "number" => json.is_number(),
        "boolean" => json.is_boolean(),
        "null" => json.is_null(),
        other => panic!("the test does not know type {other}"),
    }
}
