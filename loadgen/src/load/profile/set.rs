//! `--set KEY=VALUE`: any key of a profile from the command line, also those that have no flag of their own. As for
//! scenarios, a key by itself is one of `[instance]`.

use toml::{Table, Value};

/// The text of a profile with these keys set, such as `order=descending`, `load.principal=a`. A value is read as TOML;
/// what is none is text. Keys and values are checked with the rest of the profile.
///
/// # Errors
/// The first of them that is no `KEY=VALUE`, in words; or that the text is no TOML, which whoever reads it tells
/// better.
pub(super) fn set(text: &str, settings: &[String]) -> Result<String, String> {
    let mut table: Table = text.parse().map_err(|_| "the profile is no TOML".to_owned())?;
    for setting in settings {
        let (key, value) =
            setting.split_once('=').ok_or_else(|| format!("--set {setting}: give KEY=VALUE"))?;
        let parsed = format!("value = {value}").parse::<Table>().ok().and_then(|mut it| it.remove("value"));
        let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
        place(&mut table, key, value)
            .ok_or_else(|| format!("--set {setting}: {key} is no key of a table"))?;
    }
    Ok(table.to_string())
}

fn place(mut table: &mut Table, key: &str, value: Value) -> Option<()> {
    // As for scenarios: a key by itself is one of the instance, unless it is one of the file.
    let of_the_file = key.contains('.') || ["name", "about", "seed", "fail_if"].contains(&key);
    let prefix = if of_the_file { None } else { Some("instance") };
    let mut parts: Vec<&str> = prefix.into_iter().chain(key.split('.')).collect();
    let last = parts.pop().filter(|last| !last.is_empty())?;
    for part in parts {
        let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        table = inner.as_table_mut()?;
    }
    table.insert(last.to_owned(), value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_set_wherever_they_are_and_whatever_their_type() {
        let text = "name = \"a\"\n[instance]\nprocesses = 4\n";
        let settings = ["order=descending", "instance.processes=8", "load.warm_up=1s", "seed=3"];
        let set = set(text, &settings.map(str::to_owned)).unwrap();
        let table: Table = set.parse().unwrap();
        assert_eq!(table["instance"]["order"].as_str(), Some("descending"));
        assert_eq!(table["instance"]["processes"].as_integer(), Some(8));
        assert_eq!(table["load"]["warm_up"].as_str(), Some("1s"));
        assert_eq!(table["seed"].as_integer(), Some(3));
    }

    #[test]
    fn what_cannot_be_set_is_said() {
        let wrong = |setting: &str| set("name = \"a\"\n", &[setting.to_owned()]).unwrap_err();
        assert_eq!(wrong("order"), "--set order: give KEY=VALUE");
        assert_eq!(wrong("name.first=b"), "--set name.first=b: name.first is no key of a table");
    }
}
