//! Commands as people are shown them: each can be pasted into a shell, and does what the shown one did.

use std::borrow::Cow;
use std::env;

/// The program's name in commands that are shown.
const PROGRAM: &str = "stickycas-loadgen";

/// An option with a value, as in `--seed 7` or `--seed=7`.
const WITH_VALUE: bool = true;
/// An option without one.
pub const FLAG: bool = false;

/// Options of a run that do not hold for another: its seed may have been drawn, its folder exists, and the
/// time at which it was to begin has passed.
const OF_ONE_RUN: [(&str, bool); 3] =
    [("--seed", WITH_VALUE), ("--out", WITH_VALUE), ("--start-at", WITH_VALUE)];
/// Options of many runs that a single one does not have.
pub const OF_MANY_RUNS: [(&str, bool); 4] =
    [("--runs", WITH_VALUE), ("--jobs", WITH_VALUE), ("--expect", WITH_VALUE), ("--json", FLAG)];

/// These words as one command.
pub fn quoted(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word_of(word.as_ref()).into_owned()).collect();
    words.join(" ")
}

/// A word as a shell takes it. No shell can be given a NUL, and no argument has one.
pub fn word_of(word: &str) -> Cow<'_, str> {
    shlex::try_quote(word).unwrap_or_else(|_| Cow::Owned(word.escape_debug().to_string()))
}

/// The command of this process with this seed and without these options. It names no folder for the result.
pub fn again(seed: u64, without: &[(&str, bool)]) -> String {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    again_with(arguments, seed, without)
}

fn again_with(arguments: impl Iterator<Item = String>, seed: u64, without: &[(&str, bool)]) -> String {
    let mut words = vec![PROGRAM.to_owned()];
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let name = argument.split_once('=').map_or(argument.as_str(), |(name, _)| name);
        let left_out = OF_ONE_RUN.iter().chain(without).find(|(option, _)| *option == name);
        match left_out {
            None => words.push(argument),
            // The next word is its value.
            Some((_, WITH_VALUE)) if name == argument => drop(arguments.next()),
            Some(_) => {}
        }
    }
    words.extend(["--seed".to_owned(), seed.to_string()]);
    quoted(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_shown_can_be_pasted() {
        let words = ["load", "--fail-if", "instance_p99 > 50ms", "it's", "a\nb", "--rate", "5"];
        let line = quoted(words);
        assert_eq!(shlex::split(&line).unwrap(), words);
        assert!(line.contains("'instance_p99 > 50ms'") && line.ends_with(" --rate 5"), "{line}");
    }

    #[test]
    fn a_run_is_repeated_with_its_seed_and_all_its_other_options() {
        let shown = |words: &[&str], without: &[(&str, bool)]| {
            again_with(words.iter().map(ToString::to_string), 8, without)
        };
        let run = ["run", "a b.toml", "--server", "http://x:1", "--out", "here", "--in-process"];
        assert_eq!(
            shown(&run, &[]),
            "stickycas-loadgen run 'a b.toml' --server http://x:1 --in-process --seed 8"
        );
        let many = ["simulate", "--seed=7", "f.toml", "--runs", "20", "--json", "--jobs=2", "--set", "p=3"];
        let one = shlex::split(&shown(&many, &OF_MANY_RUNS)).unwrap();
        assert_eq!(one, ["stickycas-loadgen", "simulate", "f.toml", "--set", "p=3", "--seed", "8"]);
    }
}
