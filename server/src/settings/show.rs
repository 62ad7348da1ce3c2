//! The settings as text: those of one server with their origin, and the reference of all of them.

use std::fmt::Write as _;

use super::table;
use super::{Effective, Origin};

/// The settings as a file would have them, each with its origin in a comment; all of them, or only those that
/// are not left at their defaults.
pub(crate) fn show(effective: &Effective, all: bool) -> String {
    let mut text = String::new();
    let mut present = "";
    for setting in table::all() {
        let origin = effective.origin(setting.key);
        let is_default = *origin == Origin::Default;
        if is_default && !all {
            continue;
        }
        let table = setting.key.split_once('.').map_or("", |(table, _)| table);
        if table != present {
            let _ = writeln!(text, "\n[{table}]");
            present = table;
        }
        let found = match setting.key {
            "memory" => Some(effective.memory.to_string()),
            _ => setting.part_text(),
        };
        let found = found.filter(|_| is_default).map(|found| format!(": {found}")).unwrap_or_default();
        let _ =
            writeln!(text, "{} = {} # {origin}{found}", setting.name(), (setting.toml)(&effective.settings));
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
connections = 2_000
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

const LIMITS_HEAD: &str = "\
They stand in the table `[limits]` of the file. A client that reaches one is refused, and no other client is affected. Where the
default is a part of the memory, 32 MiB of what the server may use (`memory`) are left out: the program takes them. All other
bounds are constants, some of them parts of the memory too: [limits.md](limits.md) has them all. What was a setting of one is
refused with its value: `limits.header_bytes is now a constant: 16KiB`.

";

/// The page `docs/operate/configuration.md`.
pub(crate) fn reference() -> String {
    let mut page = HEAD.to_owned();
    for (title, head, limits) in [("Settings", "", false), ("Limits", LIMITS_HEAD, true)] {
        let _ = write!(page, "\n## {title}\n\n{head}");
        page.push_str("| key | flag | variable | default | |\n| --- | --- | --- | --- | --- |\n");
        for setting in table::all().filter(|setting| setting.is_limit() == limits) {
            let off = setting.off_flag.map(|(flag, _)| format!(", `--{flag}`")).unwrap_or_default();
            let (name, flag, variable, default) =
                (setting.name(), setting.flag(), setting.variable(), setting.default());
            let (text, expects) = (setting.text(), setting.kind.expects());
            let _ = writeln!(
                page,
                "| `{name}` | `--{flag}`{off} | `{variable}` | `{default}` | {text} Takes {expects}. |"
            );
        }
    }
    page
}
