//! The help of the program: its subcommands in groups, and examples of each.

use anstyle::Style;
use clap::Command;
use stickycas_harness::exit::EXIT_CODES;
use stickycas_harness::report::grid::{width, wrapped};

/// The subcommands by their purpose, in the order in which a newcomer needs them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("One run", &["run", "simulate", "judge"]),
    ("Look at runs", &["explain", "replay", "view", "play"]),
    ("Many runs", &["campaign", "explore", "report"]),
    ("Load and faults", &["load", "crash", "perturb"]),
    ("One process", &["client"]),
    ("Besides", &["completions", "man", "help"]),
];

/// What `help` does, which clap adds only when it parses.
const HELP: &str = "Print this help, or that of a subcommand";

/// Examples of each subcommand but for those that write completions and man pages, and for `client`, whose
/// help is its own.
const EXAMPLES: [(&str, &[&str]); 13] = [
    (
        "run",
        &[
            "stickycas-loadgen run examples/scenarios/quickstart.toml",
            "stickycas-loadgen run examples/scenarios/late-append-open.toml --expect valid",
        ],
    ),
    (
        "simulate",
        &[
            "stickycas-loadgen simulate examples/scenarios/late-append-open.toml --seed 8",
            "stickycas-loadgen simulate examples/scenarios/over-the-bound.toml --runs 1e5",
        ],
    ),
    (
        "judge",
        &[
            "stickycas-loadgen judge examples/scenarios/demo.toml --instances 3",
            "stickycas-loadgen judge examples/scenarios/demo.toml --endless --expect valid",
        ],
    ),
    ("explain", &["stickycas-loadgen explain runs", "stickycas-loadgen explain runs/quickstart-7 --json"]),
    (
        "replay",
        &[
            "stickycas-loadgen replay runs/quickstart-7",
            "stickycas-loadgen replay server.dump --instance tea-time",
        ],
    ),
    (
        "view",
        &[
            "stickycas-loadgen view runs",
            "stickycas-loadgen view --server http://127.0.0.1:7420 --principal observer",
        ],
    ),
    ("play", &["stickycas-loadgen play", "stickycas-loadgen play --port 7424"]),
    (
        "campaign",
        &[
            "stickycas-loadgen campaign examples/campaigns/quick.toml",
            "stickycas-loadgen campaign examples/campaigns/paper.toml --only window",
        ],
    ),
    (
        "explore",
        &[
            "stickycas-loadgen explore --claim b --max-n 4",
            "stickycas-loadgen explore --claim a --out witness.toml",
        ],
    ),
    (
        "report",
        &[
            "stickycas-loadgen report runs/paper-1",
            "stickycas-loadgen report merge runs/load-1 runs/load-2 --out runs/both",
        ],
    ),
    (
        "load",
        &[
            "stickycas-loadgen load --rate 100 --fail-if 'instance_p99 > 50ms'",
            "stickycas-loadgen load --profile steady.toml --server http://127.0.0.1:7420",
        ],
    ),
    (
        "crash",
        &[
            "stickycas-loadgen crash --rounds 5 --seed 7",
            "stickycas-loadgen crash --cluster 3 --etcd-members 3 --faults 20",
        ],
    ),
    (
        "perturb",
        &[
            "stickycas-loadgen perturb examples/perturbations/server-killed.toml",
            "stickycas-loadgen perturb examples/perturbations/*.toml --json",
        ],
    ),
];

/// The same command line with its helps: the subcommands in groups, and behind each help examples and the
/// exit codes.
pub(super) fn with_help(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let groups = groups(&command, header, width());
    let command = command.after_help(EXIT_CODES).help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ));
    command.mut_subcommands(|subcommand| {
        let own = subcommand.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
        let examples = examples_of(subcommand.get_name());
        subcommand.after_help(own + &examples + EXIT_CODES)
    })
}

fn examples_of(subcommand: &str) -> String {
    let Some((_, examples)) = EXAMPLES.iter().find(|(name, _)| *name == subcommand) else {
        return String::new();
    };
    format!("Examples:\n  {}\n\n", examples.join("\n  "))
}

/// The subcommands with what they do, group by group.
fn groups(command: &Command, header: Style, width: usize) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let column = names.map(|name| name.len()).max().unwrap_or_default();
    let other_lines = " ".repeat(column + 4);
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{header}{title}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP.to_owned(), ToString::to_string);
            text.push_str(&wrapped(&about, width, &format!("  {name:column$}  "), &other_lines));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::command;
    use super::*;

    #[test]
    fn every_subcommand_stands_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = command();
        let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        let mut all: BTreeSet<&str> = shown.map(Command::get_name).collect();
        all.insert("help");
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len(), "one stands in two groups");
    }

    #[test]
    fn every_example_is_a_command_line_that_is_taken() {
        let without: BTreeSet<&str> = ["client", "completions", "man", "server"].into();
        let mut command = command();
        for subcommand in command.clone().get_subcommands().map(Command::get_name) {
            let examples = EXAMPLES.iter().find(|(name, _)| *name == subcommand);
            assert_eq!(examples.is_none(), without.contains(subcommand), "{subcommand}");
            for example in examples.iter().flat_map(|(_, examples)| examples.iter()) {
                let words = shlex::split(example).unwrap();
                let parsed = command.try_get_matches_from_mut(&words);
                let parsed = parsed.unwrap_or_else(|error| panic!("{example}: {error}"));
                assert_eq!(parsed.subcommand_name(), Some(subcommand), "{example}");
                assert!(example.len() <= 78, "it is broken in a terminal of 80 columns: {example}");
            }
        }
    }

    #[test]
    fn helps_have_no_line_break_within_a_sentence() {
        for subcommand in command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            for pair in help.lines().collect::<Vec<_>>().windows(2) {
                let is_broken = pair[0].starts_with(char::is_alphabetic)
                    && !pair[0].ends_with([':', '.'])
                    && pair[1].starts_with(char::is_alphabetic);
                assert!(!is_broken, "{}: {pair:?}", subcommand.get_name());
            }
        }
    }
}
