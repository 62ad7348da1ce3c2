//! The runs that tell the story of the project: `presets.toml` has their words, each is a scenario file of
//! the repository.

use std::sync::LazyLock;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use stickycas_page::setting::StoryStep;

use crate::scenario::Scenario;

/// The seed of the golden runs.
const SEED: u64 = 3;

/// A run that is offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preset {
    /// The name of its scenario.
    pub(super) name: &'static str,
    /// For people.
    title: &'static str,
    /// Its subject, in a few sentences.
    story: &'static str,
    /// The points to look at, phase by phase.
    #[serde(skip_serializing)]
    steps: Vec<(u64, &'static str)>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct File {
    preset: Vec<Preset>,
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("presets.toml")).expect("a test reads it");
    file.preset
});

/// The scenario files of the presets, by name.
macro_rules! files {
    ($($name:literal),+) => {
        [$(($name, include_str!(concat!("../../../../examples/scenarios/", $name, ".toml")))),+]
    };
}
const FILES: [(&str, &str); 8] = files!(
    "all-correct",
    "at-the-bound",
    "over-the-bound",
    "late-append-open",
    "late-append",
    "silent-minority",
    "one-append-round",
    "append-rounds"
);

/// All of them.
pub(super) fn all() -> &'static [Preset] {
    &PRESETS
}

/// The scenario of a preset.
pub(super) fn scenario(name: &str) -> anyhow::Result<Scenario> {
    let file = FILES.iter().find(|(file, _)| *file == name);
    let (_, text) = file.with_context(|| format!("there is no preset {name:?}"))?;
    Ok(Scenario::parse(name, text, Some(SEED))?)
}

/// The points to look at in a preset, in the order of its phases.
pub(super) fn steps(name: &str) -> Vec<StoryStep> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let steps = preset.into_iter().flat_map(|preset| &preset.steps);
    steps.map(|&(phase, says)| StoryStep { phase, says }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::history::Event;

    use super::*;
    use crate::simulate;

    #[test]
    fn the_phases_of_a_story_are_those_of_its_run() {
        for preset in all() {
            let run = simulate(&scenario(preset.name).unwrap());
            let steps = run.history.iter().filter_map(|recorded| match recorded.event {
                Event::Stepped { phase, .. } => Some(phase.get()),
                _ => None,
            });
            let phases: BTreeSet<u64> = steps.chain([0]).collect();
            let told: Vec<u64> = preset.steps.iter().map(|(phase, _)| *phase).collect();
            assert!(told.is_sorted_by(|one, next| one < next), "{}", preset.name);
            assert!(
                told.iter().all(|phase| phases.contains(phase)),
                "{}: {told:?} of {phases:?}",
                preset.name
            );
        }
    }

    /// How many entries there are after a phase, by the way the list is told.
    fn list_after(name: &str, phase: u64) -> String {
        let run = simulate(&scenario(name).unwrap());
        let values = run.history.iter().filter_map(|recorded| match &recorded.event {
            Event::Added { value, phase: of, .. } if of.get() <= phase => Some(value.to_string()),
            _ => None,
        });
        values.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_lists_of_the_stories_are_those_of_the_runs() {
        for (name, phase, list) in [
            ("at-the-bound", 2, "0 0"),
            ("at-the-bound", 6, "0 0 a a b b"),
            ("at-the-bound", 7, "0 0 a a b b b"),
            ("over-the-bound", 6, "0 0 a a b b"),
            ("late-append-open", 5, "a a b b"),
            ("late-append-open", 7, "a a b b"),
            ("late-append-open", 8, "a a b b b"),
            ("late-append", 5, "a a b b"),
            ("late-append", 10, "a a b b"),
            ("one-append-round", 2, "0 0"),
            ("append-rounds", 3, "0 0 0"),
            ("append-rounds", 8, "0 0 0 v v v v v"),
        ] {
            assert_eq!(list_after(name, phase), list, "{name} after phase {phase}");
        }
        assert_eq!(list_after("all-correct", 4).split(' ').count(), 4);
        assert_eq!(list_after("silent-minority", 18).split(' ').count(), 5);
    }
}
