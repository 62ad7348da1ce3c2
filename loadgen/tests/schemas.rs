//! The schemas of the files for editors and the table of their keys, made from the types that read the files;
//! and those of the results of campaigns and simulations, from the types that write them.
//!
//! `STICKYCAS_BLESS=1 cargo test -p stickycas-loadgen --test program schemas` writes docs/schema and the
//! table in docs/use/files.md anew, except in CI.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

/// What stands before and behind the tables of docs/use/files.md.
const BEGIN: &str = "<!-- made from the schemas: begin -->\n";
const END: &str = "<!-- end -->\n";

/// The tables that several files have, told once.
const SHARED: [&str; 2] = ["Instance", "Faults"];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The files' kinds, each with its schema.
fn schemas() -> [(&'static str, Json); 4] {
    [
        ("scenario", stickycas_harness::scenario::schema()),
        ("profile", stickycas_load::profile::schema()),
        ("campaign", stickycas_lab::campaign::schema()),
        ("plan", stickycas_faults::plan::schema()),
    ]
    .map(|(kind, schema)| (kind, schema.to_value()))
}

/// What is written, each with its schema.
fn results() -> [(&'static str, Json); 2] {
    [
        ("campaign-results", stickycas_lab::campaign::cell::schema()),
        ("simulate-runs", stickycas_lab::batch::report::schema()),
    ]
    .map(|(kind, schema)| (kind, schema.to_value()))
}

/// Compares a file with what it should be, or writes it.
fn holds(path: &Path, expected: &str) {
    if std::env::var_os("STICKYCAS_BLESS").is_some() && std::env::var_os("CI").is_none() {
        return fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} is not what the types say: see the head of this test", path.display());
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    for (kind, schema) in schemas().into_iter().chain(results()) {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        holds(&docs().join(format!("schema/{kind}.schema.json")), &text);
    }
}

#[test]
fn the_table_of_keys_is_made_from_the_schemas() {
    let page = docs().join("use/files.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    holds(&page, &format!("{head}{BEGIN}{}{}{END}{tail}", tables(), dictionary()));
}

/// All tables, those of all files first.
fn tables() -> String {
    let mut text = String::new();
    let schemas = schemas();
    for name in SHARED {
        section(&mut text, &schemas[0].1, "##", &schemas[0].1["definitions"][name]);
    }
    for (kind, schema) in &schemas {
        writeln!(text, "\n## {}{}\n", kind[..1].to_uppercase(), &kind[1..]).unwrap();
        rows(&mut text, schema, schema);
        for (name, definition) in schema["definitions"].as_object().unwrap() {
            let is_table = definition["properties"].is_object();
            if is_table && !SHARED.contains(&name.as_str()) {
                section(&mut text, schema, "###", definition);
            }
        }
    }
    text
}

/// The columns of a campaign's results, and the fields of the files of results.
fn dictionary() -> String {
    let [(_, campaign), (_, runs)] = results();
    let mut text = "\n## Results of a campaign\n\n`results.csv` has a line for each cell. Seeds are texts; what there is not is empty.\n\n\
                    | column | what |\n| --- | --- |\n"
        .to_owned();
    let definitions = &campaign["definitions"];
    for column in csv_columns() {
        let of = |table: &str| &definitions[table]["properties"][&column];
        let field = if of("Point").is_object() { of("Point") } else { of("Cell") };
        let what =
            if column == "sweep" { "The name of its sweep.".to_owned() } else { line(&field["description"]) };
        assert!(!what.is_empty(), "the column {column} is described nowhere");
        writeln!(text, "| `{column}` | {} |", escaped(&what)).unwrap();
    }
    text.push_str(
        "\n`results.json` has these as the fields of `sweeps[].cells[]`, `n` to `window` in `point`; and\n\n",
    );
    fields(
        &mut text,
        &[("", &campaign), ("sweeps[].", &definitions["Sweep"]), ("made.", &definitions["Made"])],
    );
    text.push_str("\n## `simulate --runs --json`\n\n");
    let definitions = &runs["definitions"];
    fields(
        &mut text,
        &[
            ("", &runs),
            ("tally.", &definitions["Tally"]),
            ("tally.properties.NAME.", &definitions["PropertyTally"]),
            ("tally.verdicts.NAME.", &definitions["OutcomeCount"]),
        ],
    );
    text
}

/// The fields of these tables, one line each.
fn fields(text: &mut String, tables: &[(&str, &Json)]) {
    text.push_str("| field | what |\n| --- | --- |\n");
    for (of, table) in tables {
        for (name, field) in table["properties"].as_object().unwrap() {
            let what = line(&field["description"]);
            assert!(!what.is_empty(), "the field {name} is described nowhere");
            writeln!(text, "| `{of}{name}` | {} |", escaped(&what)).unwrap();
        }
    }
}

/// The columns of `results.csv`, as the program writes them.
fn csv_columns() -> Vec<String> {
    let nothing = json!({
        "version": 1, "name": "", "about": "", "command": "", "seed": "1", "sweeps": [],
        "made": {
            "debug_assertions": true, "os": "", "architecture": "", "cpus": 1,
            "started": 0, "finished": 0, "busy_millis": 0,
        },
    });
    let text = stickycas_lab::campaign::report::csv(&serde_json::from_value(nothing).unwrap());
    text.trim_end().split(',').map(str::to_owned).collect()
}

/// A text in a table of Markdown.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A table of a file under its description, which begins with its name: "`[load]`: what it is."
fn section(text: &mut String, schema: &Json, level: &str, table: &Json) {
    let description = line(&table["description"]);
    let (name, what) = description.split_once(": ").unwrap_or(("", &description));
    let title = if name.is_empty() { description.trim_end_matches('.') } else { name };
    writeln!(text, "\n{level} {title}\n").unwrap();
    if !name.is_empty() {
        writeln!(text, "{}{}\n", what[..1].to_uppercase(), &what[1..]).unwrap();
    }
    rows(text, schema, table);
}

fn rows(text: &mut String, schema: &Json, table: &Json) {
    text.push_str("| key | what |\n| --- | --- |\n");
    let required: Vec<&str> =
        table["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()).collect();
    for (name, key) in table["properties"].as_object().unwrap() {
        let key_schema = resolved(schema, key);
        let what = if key["description"].is_null() {
            line(&key_schema["description"])
        } else {
            line(&key["description"])
        };
        // Of a table of its own: its name and purpose; the rest stands there.
        let what = if what.starts_with("`[") {
            what.split_inclusive(". ").next().unwrap().trim_end()
        } else {
            &what
        };
        let needed = if required.contains(&name.as_str()) { " Required." } else { "" };
        // Types are in the schemas; the page has the words that a key takes.
        let value = Some(value(schema, key)).filter(|value| value.contains('`'));
        let words = value.map(|words| format!(" One of {words}.")).unwrap_or_default();
        writeln!(text, "| `{name}` | {what}{words}{needed} |").unwrap();
    }
}

fn line(text: &Json) -> String {
    text.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a reference, or the one choice beside null, stands for.
fn resolved<'a>(schema: &'a Json, given: &'a Json) -> &'a Json {
    let choices = ["anyOf", "allOf"].iter().find_map(|key| given[*key].as_array());
    if let Some(choices) = choices {
        let mut others = choices.iter().filter(|choice| choice["type"] != "null");
        if let (Some(only), None) = (others.next(), others.next()) {
            return resolved(schema, only);
        }
    }
    match given["$ref"].as_str() {
        Some(name) => &schema["definitions"][name.rsplit('/').next().unwrap()],
        None => given,
    }
}

/// What may stand there, in a few words.
fn value(schema: &Json, given: &Json) -> String {
    let given = resolved(schema, given);
    let word = |word: &Json| format!("`{}`", serde_json::to_string(word).unwrap());
    if let Some(words) = given["enum"].as_array() {
        return words.iter().filter(|it| !it.is_null()).map(word).collect::<Vec<_>>().join(", ");
    }
    if !given["const"].is_null() {
        return word(&given["const"]);
    }
    let choices = ["oneOf", "anyOf"].iter().find_map(|key| given[*key].as_array());
    if let Some(choices) = choices {
        let some = choices.iter().filter(|choice| choice["type"] != "null");
        return some.map(|choice| value(schema, choice)).collect::<Vec<_>>().join(", ");
    }
    let kind = match &given["type"] {
        Json::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap(),
        kind => kind,
    };
    match kind.as_str() {
        Some("string") => "text".to_owned(),
        Some("integer") => "integer".to_owned(),
        Some("number") => "number".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("array") if given["items"]["properties"].is_object() => "tables".to_owned(),
        Some("array") => match value(schema, &given["items"]).as_str() {
            "table" => "tables".to_owned(),
            item if item.starts_with('`') => "or a list of them".to_owned(),
            item => format!("list of {item}s"),
        },
        Some("object") => match given["properties"].as_object() {
            // A word with something, such as { priority = [3, 1] }.
            Some(keys) if keys.len() == 1 => {
                let (name, inner) = keys.iter().next().unwrap();
                format!("`{{ {name} = ... }}` with a {}", value(schema, inner))
            }
            _ => "table".to_owned(),
        },
        _ => panic!("a schema that the table cannot tell: {given}"),
    }
}
