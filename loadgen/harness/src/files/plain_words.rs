//! The messages of serde and toml on a file, in the words of its author: keys, values, texts, numbers.

/// The least similarity (Jaro and Winkler) of a key and the key that is suggested in its place.
const LIKELY: f64 = 0.7;

/// Keys of before, those that took their place, and what to write.
const RENAMED: [(&str, &str, &str); 8] = [
    ("byzantine", "faults", "write a group [[faults]], with share or count, strategy and placement"),
    ("groups", "rosters", "it is called rosters now"),
    ("most_errors", "max_errors", "it is called max_errors now"),
    ("most_in_flight", "max_in_flight", "it is called max_in_flight now"),
    ("most_missed", "max_missed", "it is called max_missed now"),
    ("principal", "principal_prefix", "it is called principal_prefix now"),
    ("seen", "expectations", "it is called expectations now"),
    ("watch_share", "history_sample", "it is called history_sample now"),
];

/// A message of the deserialiser, in plain words and with what to do.
pub(super) fn plain(message: &str) -> String {
    unknown_name(message, "unknown field", "there is no key")
        .or_else(|| unknown_name(message, "unknown variant", "there is no value"))
        .or_else(|| Some(format!("the key {} is missing", quoted(message.strip_prefix("missing field ")?)?)))
        .or_else(|| {
            Some(format!("the key {} stands here twice", quoted(message.strip_prefix("duplicate field ")?)?))
        })
        .or_else(|| wrong_type(message))
        .or_else(|| wrong_number(message))
        .unwrap_or_else(|| message.to_owned())
}

/// ``unknown field `x`, expected one of `a`, `b` ``.
fn unknown_name(message: &str, what: &str, plain: &str) -> Option<String> {
    let rest = message.strip_prefix(what)?;
    let mut names = rest.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let known: Vec<&str> = names.collect();
    let renamed = RENAMED.iter().find(|(before, now, _)| *before == given && known.contains(now));
    if let Some((_, _, hint)) = renamed {
        return Some(format!("{plain} {given}: {hint}"));
    }
    let nearest = known.iter().max_by(|a, b| likeness(given, a).total_cmp(&likeness(given, b)));
    Some(match nearest {
        None => format!("{plain} {given}: leave it out"),
        Some(nearest) if likeness(given, nearest) >= LIKELY => {
            format!("{plain} {given}: did you mean {nearest}?")
        }
        Some(_) => format!("{plain} {given}: give one of {}", known.join(", ")),
    })
}

fn likeness(given: &str, known: &str) -> f64 {
    strsim::jaro_winkler(given, known)
}

/// `invalid type: integer 7, expected a string`.
fn wrong_type(message: &str) -> Option<String> {
    let (given, wanted) = message.strip_prefix("invalid type: ")?.split_once(", expected ")?;
    let given = given.replace('`', "");
    let given = match given.split_once(' ') {
        Some(("integer", value)) | Some(("floating", value)) => {
            format!("the number {}", value.trim_start_matches("point "))
        }
        Some(("string", text)) => format!("the text {text}"),
        Some(("boolean", value)) => value.to_owned(),
        Some(("unit", _)) => "a word".to_owned(),
        _ => match given.as_str() {
            "map" => "a table".to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    };
    Some(format!("{given} stands where {} is wanted", plain_type(wanted)))
}

/// ``invalid value: integer `-4`, expected u32``.
fn wrong_number(message: &str) -> Option<String> {
    let (given, wanted) = message.strip_prefix("invalid value: integer ")?.split_once(", expected ")?;
    let given = given.replace('`', "");
    Some(format!("the number {given} stands where {} is wanted", plain_type(wanted)))
}

fn plain_type(wanted: &str) -> String {
    let wanted = wanted.trim();
    match wanted {
        "a string" => "a text".to_owned(),
        "u32" | "u64" | "usize" | "i64" => "a whole number from 0 on".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "newtype variant" => "a table such as { NAME = ... }".to_owned(),
        _ if wanted.starts_with("struct ") || wanted == "a map" => "a table".to_owned(),
        _ => wanted.to_owned(),
    }
}

fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn messages_name_keys_values_and_what_to_do() {
        for (message, plain_words) in [
            (
                "unknown field `peace`, expected one of `pace`, `order`",
                "there is no key peace: did you mean pace?",
            ),
            ("unknown field `x`, expected `pace`", "there is no key x: give one of pace"),
            ("unknown field `x`, there are no fields", "there is no key x: leave it out"),
            (
                "unknown variant `fist_come`, expected `first_come` or `uniform`",
                "there is no value fist_come: did you mean first_come?",
            ),
            ("missing field `name`", "the key name is missing"),
            ("invalid type: integer `7`, expected a string", "the number 7 stands where a text is wanted"),
            (
                "invalid type: string \"x\", expected u32",
                "the text \"x\" stands where a whole number from 0 on is wanted",
            ),
            ("invalid type: map, expected a string", "a table stands where a text is wanted"),
            (
                "invalid type: unit variant, expected newtype variant",
                "a word stands where a table such as { NAME = ... } is wanted",
            ),
            (
                "invalid value: integer `-4`, expected u32",
                "the number -4 stands where a whole number from 0 on is wanted",
            ),
            ("something else", "something else"),
        ] {
            assert_eq!(plain(message), plain_words);
        }
    }
}
