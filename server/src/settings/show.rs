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

The settings of `stickycas-server serve`, as `stickycas-server config reference` prints them.

A setting comes from one of four layers; a later one wins:

1. its default,
2. a file in TOML: `--config FILE`, or the variable `STICKYCAS_CONFIG`,
3. its environment variable, `STICKYCAS_` and the key in capitals, such as `STICKYCAS_LOG_JSON`,
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
variables and flags names have commas between them. An unknown key is refused with its line, and an impossible value with
the possible ones; nothing is started then, and the exit code is 2.

```sh
stickycas-server config check --config server.toml            # says what is wrong, with the line
stickycas-server config show --config server.toml             # what is not left at its default
stickycas-server config show --effective --config server.toml # every setting, and where its value comes from
```

Both commands take all flags and variables of `serve`. `config check` and the comment at `memory` say how much memory the server may
use, and the source of this figure.
";

const LIMITS_HEAD: &str = "\
Some bounds are settings, in the table `[limits]` of the file. The flag of `live_instances` is `--live-instances`, its variable
`STICKYCAS_LIMITS_LIVE_INSTANCES`. Defaults, reasons, metrics, and the bounds that are constants: [limits.md](limits.md).

";

/// The page `docs/operate/configuration.md`.
pub(crate) fn reference() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Settings\n\n| key | flag | default | |\n| --- | --- | --- | --- |\n");
    for setting in table::all().filter(|setting| !setting.is_limit()) {
        let off = setting.off_flag.map(|(flag, _)| format!(", `--{flag}`")).unwrap_or_default();
        let (name, flag, default) = (setting.name(), setting.flag(), setting.default());
        let text = setting.text();
        let _ = writeln!(page, "| `{name}` | `--{flag}`{off} | `{default}` | {text} |");
    }
    let _ = write!(page, "\n## Limits\n\n{LIMITS_HEAD}");
    let limits =
        table::all().filter(|setting| setting.is_limit()).map(|limit| format!("- `{}`\n", limit.name()));
    page.extend(limits);
    page
}
