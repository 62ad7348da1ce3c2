//! The runs that tell the story of the project, in this order. Each is a scenario file of the repository.

use serde::Serialize;
use stickycas_page::setting::StoryStep;

use crate::scenario::{FileError, Scenario};

/// The seed of the golden runs.
const SEED: u64 = 3;

/// A run that is offered.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Preset {
    /// The name of its scenario.
    pub(super) name: &'static str,
    /// For people.
    title: &'static str,
    /// Its subject, in a few sentences.
    story: &'static str,
    #[serde(skip)]
    file: &'static str,
    /// The points to look at, phase by phase.
    #[serde(skip)]
    steps: &'static [StoryStep],
}

macro_rules! preset {
    ($name:literal, $title:literal, $story:literal, $([$phase:literal, $says:literal]),+ $(,)?) => {
        Preset {
            name: $name,
            title: $title,
            story: $story,
            file: include_str!(concat!("../../../../examples/scenarios/", $name, ".toml")),
            steps: &[$(StoryStep { phase: $phase, says: $says }),+],
        }
    };
}

const PRESETS: [Preset; 6] = [
    preset!(
        "all-correct",
        "All correct",
        "Nobody is Byzantine. Each warp adds one entry, everybody reads them, everybody decides alike.",
        [0, "Twelve correct processes sit in four warps of three. The list is empty."],
        [
            1,
            "The first warp has its turn. All three append, and one wins: its value is entry 0. The others lose."
        ],
        [
            4,
            "Each warp has had its turn, so the list has four entries. It is sealed: no entry is ever added again."
        ],
        [8, "In the next turn of its warp each process reads two entries, for r = 2."],
        [
            12,
            "In one more turn all have read all four. Each decides the value that stands most often, so all decide alike."
        ],
    ),
    preset!(
        "at-the-bound",
        "Collusion inside the bound",
        "Two Byzantine processes collude and win their warps. The theorem still bears, by one entry.",
        [
            0,
            "Thirteen processes, two of them Byzantine (the orange corner). f*(|Vc|+1)*p = 2*(2+1)*2 = 12 < 13 = n."
        ],
        [2, "Both colluders have won their warps and added 0, a value that no correct process proposes."],
        [
            6,
            "Correct processes have added a twice and b twice. All three values stand equally often, and a tie would go to 0."
        ],
        [7, "The last warp is the one process more: b stands three times. This entry decides."],
        [14, "All decide b, which correct processes have proposed. The colluders have gained nothing."],
    ),
    preset!(
        "over-the-bound",
        "One beyond the bound",
        "One correct process fewer, and the theorem does not bear any more: the value of the colluders is decided, which \
         no correct process proposed. All still decide alike.",
        [
            0,
            "The same without the last process: f*(|Vc|+1)*p = 2*(2+1)*2 = 12, and n is 12 too. The theorem asks for less than n."
        ],
        [2, "Again both colluders win their warps and add 0."],
        [6, "Each of the values 0, a and b stands twice, and the list is sealed."],
        [
            12,
            "A tie goes to the smallest value, which is 0: no correct process has proposed it. Strong validity is broken; \
              all still agree."
        ],
    ),
    preset!(
        "late-append-open",
        "The hole in Algorithm 1 as printed",
        "The append window is open, as the paper prints it. A Byzantine process holds its append back, until some have read \
         and others have not: correct processes decide differently.",
        [
            0,
            "Five processes, each a warp of its own. Process 3 is Byzantine. f*(|Vc|+1)*p = 1*(2+1)*1 = 3 < 5 = n: inside the \
             bound of the paper."
        ],
        [3, "Processes 1 and 2 have added a. Process 3 does not append in its turn: it reads."],
        [
            5,
            "Processes 4 and 5 have added b. The first round is over, and the list is a a b b. It is not sealed."
        ],
        [6, "Process 1 reads all four entries. It is a tie, which goes to a: it decides a."],
        [7, "Process 2 reads the same four entries, so it decides a too."],
        [8, "Now process 3 appends b, in its second turn. The window is open, so it counts: a a b b b."],
        [9, "Process 4 reads five entries: b stands three times. It decides b."],
        [
            10,
            "So does process 5. Correct processes have decided a and b: agreement is broken, inside the bound of the paper."
        ],
    ),
    preset!(
        "late-append",
        "The same with the window closed",
        "A warp may append only in its first turn. The late append is refused, and all decide alike.",
        [3, "As before process 3 reads in its first turn, and appends nothing."],
        [5, "Each warp has had its first turn, so the list is sealed: a a b b."],
        [
            6,
            "Process 1 reads these four entries. Process 3 has sent its late append, which is an offence on record."
        ],
        [8, "In its turn the late append is answered LIMIT_REACHED, and the list stays as it is."],
        [10, "Processes 4 and 5 read the same four entries as 1 and 2."],
        [13, "Process 3 has read them too. All correct processes decide a: they agree."],
    ),
    preset!(
        "silent-minority",
        "Silence and patience",
        "Two processes join and say nothing. Their warp is awaited until their patience is spent, once, and never again.",
        [0, "Processes 5 and 6, which are warp 3, will say nothing. Nobody knows that yet."],
        [2, "It would be the turn of warp 3. Both are awaited, and their patience of three seconds drains."],
        [
            4,
            "Their patience is spent: they are not awaited any more, and warp 4 has its turn. Phase 3 had no access."
        ],
        [8, "In the second round warp 3 is passed over at once: nobody waits for it again."],
        [
            18,
            "The correct processes have read the list of five entries, and decide. Two silent processes have cost one wait and one entry."
        ],
    ),
];

/// All of them.
pub(super) fn all() -> Vec<Preset> {
    PRESETS.to_vec()
}

/// The scenario of a preset.
pub(super) fn scenario(name: &str) -> Result<Scenario, Unknown> {
    let preset = find(name).ok_or_else(|| Unknown::Name(name.to_owned()))?;
    Ok(Scenario::parse(preset.name, preset.file, Some(SEED))?)
}

/// The points to look at in a preset, in the order of its phases.
pub(super) fn steps(name: &str) -> &'static [StoryStep] {
    find(name).map_or(&[], |preset| preset.steps)
}

fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Why there is no such preset.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    #[error("there is no preset {0:?}")]
    Name(String),
    #[error(transparent)]
    File(#[from] FileError),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::history::Event;

    use super::*;
    use crate::simulate;

    #[test]
    fn the_phases_of_a_story_are_those_of_its_run() {
        for preset in PRESETS {
            let run = simulate(&scenario(preset.name).unwrap());
            let steps = run.history.iter().filter_map(|recorded| match recorded.event {
                Event::Stepped { phase, .. } => Some(phase.get()),
                _ => None,
            });
            let phases: BTreeSet<u64> = steps.chain([0]).collect();
            let told: Vec<u64> = preset.steps.iter().map(|step| step.phase).collect();
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
        ] {
            assert_eq!(list_after(name, phase), list, "{name} after phase {phase}");
        }
        assert_eq!(list_after("all-correct", 4).split(' ').count(), 4);
        assert_eq!(list_after("silent-minority", 18).split(' ').count(), 5);
    }
}
