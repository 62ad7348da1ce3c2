//! The settings as text: those of one server with their origin, and the reference of all of them.

use std::fmt::Write as _;

use super::table;
use super::{Effective, Origin, Settings};

/// The settings as a file would have them, each with a comment that says where it comes from; all of them, or only
/// those that are not left at their defaults.
pub(crate) fn show(effective: &Effective, all: bool) -> String {
    let mut text = String::new();
    let mut present = None;
    for (setting, origin) in effective.origins() {
        if !all && *origin == Origin::Default {
            continue;
        }
        let (table, name) = match setting.key.split_once('.') {
            Some((table, name)) => (Some(table), name),
            None => (None, setting.key),
        };
        if table != present {
            let _ = writeln!(text, "\n[{}]", table.unwrap_or_default());
            present = table;
        }
        let value = (setting.read)(&effective.settings).toml();
        let found = match setting.key {
            "memory" => Some(effective.memory.to_string()),
            _ => setting.part_text(),
        };
        let found = found.filter(|_| *origin == Origin::Default);
        let found = found.map(|found| format!(": {found}")).unwrap_or_default();
        let _ = writeln!(text, "{name} = {value} # {origin}{found}");
    }
    text
}

const HEAD: &str = "\
# Configuration

The settings of `stickycas-server serve`. This page is made from the table in the code:
`stickycas-server config reference` prints it, and a test compares.

A setting comes from one of four layers; a later one wins:

1. its default,
2. a file in TOML: `--config FILE`, or the variable `STICKYCAS_CONFIG`,
3. its environment variable (an empty variable counts as not set; a variable `STICKYCAS_...` that no program has is refused),
4. its flag.

```toml
# server.toml
insecure_principals = true
coordinators = [\"boss\"]
drain = \"10s\"

[limits]
retention = \"1h\"
incomplete_request_bytes = \"128MiB\"
```

Durations have units: `500ms`, `10s`, `10min`, `1h 30min`. Sizes too: `64KiB`, `16MiB`, `2GiB`. In a file, lists are arrays; in
variables and flags names have commas between them. A key that does not exist is refused with its line, and so is a
value that makes no sense; nothing is started then, and the exit code is 2.

```sh
stickycas-server config check --config server.toml            # says what is wrong, with the line
stickycas-server config show --config server.toml             # what is not left at its default
stickycas-server config show --effective --config server.toml # every setting, and where its value comes from
```

Both commands take all flags of `serve`, and read the same variables. `config check` and the comment at `memory` say how much
memory the server may use and who tells.
";

/// The page `docs/configuration.md`.
pub(crate) fn reference() -> String {
    let mut page = HEAD.to_owned();
    let defaults = Settings::default();
    for (title, limits) in [("Settings", false), ("Limits", true)] {
        let _ = write!(page, "\n## {title}\n\n");
        if limits {
            page.push_str(
                "They stand in the table `[limits]` of the file. A client that reaches one is refused, and no other \
                 client is affected. Where the default is a part of the memory, 32 MiB of what the server may use (`memory`) \
                 are left out: the program takes them.\n\n",
            );
        }
        page.push_str("| key | flag | variable | default | |\n| --- | --- | --- | --- | --- |\n");
        for setting in table::all().filter(|setting| setting.key.starts_with("limits.") == limits) {
            let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
            let off = setting.off_flag.map(|(flag, _)| format!(", `--{flag}`")).unwrap_or_default();
            let (flag, variable, text) = (setting.flag(), setting.variable(), setting.text());
            let default = setting.part_text().unwrap_or_else(|| (setting.read)(&defaults).toml());
            let expects = setting.kind.expects();
            let _ = writeln!(
                page,
                "| `{name}` | `--{flag}`{off} | `{variable}` | `{default}` | {text} Takes {expects}. |"
            );
        }
    }
    page
}
