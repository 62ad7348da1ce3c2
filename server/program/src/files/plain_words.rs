//! The messages of serde and toml on a file, in the words of its author: keys, values, texts, numbers.

/// The least similarity (Jaro and Winkler) of a key and the key that is suggested in its place.
const LIKELY: f64 = 0.7;

/// The known name that is most like the given one, and by how much, from 0 to 1 (Jaro and Winkler).
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, f64)> {
    let likeness = |known: &'a str| (known, strsim::jaro_winkler(given, known));
    known.into_iter().map(likeness).max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// A message of the deserialiser, in plain words and with what to do. `None`: it is none of serde's.
pub(super) fn plain(message: &str) -> Option<String> {
    unknown_name(message, "unknown field", "there is no key")
        .or_else(|| unknown_name(message, "unknown variant", "there is no value"))
        .or_else(|| Some(format!("the key {} is missing", quoted(message.strip_prefix("missing field ")?)?)))
        .or_else(|| {
            Some(format!("the key {} stands here twice", quoted(message.strip_prefix("duplicate field ")?)?))
        })
        .or_else(|| wrong_type(message))
        .or_else(|| wrong_number(message))
}

/// ``unknown field `x`, expected one of `a`, `b` ``.
fn unknown_name(message: &str, what: &str, plain: &str) -> Option<String> {
    let rest = message.strip_prefix(what)?;
    let mut names = rest.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let known: Vec<&str> = names.collect();
    Some(match nearest(given, known.iter().copied()) {
        None => format!("{plain} {given}: leave it out"),
        Some((nearest, likeness)) if likeness >= LIKELY => {
            format!("{plain} {given}: did you mean {nearest}?")
        }
        Some(_) => format!("{plain} {given}: give one of {}", known.join(", ")),
    })
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
        "a nonzero u32" => "a whole number from 1 on".to_owned(),
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
        ] {
            assert_eq!(plain(message).as_deref(), Some(plain_words));
        }
        assert_eq!(plain("something else"), None);
    }
}
