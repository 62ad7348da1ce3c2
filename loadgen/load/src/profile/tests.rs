use stickycas_model::types::ProcessId;

use super::*;

const WHOLE: &str = r#"name = "whole"
about = "everything"
seed = 7
fail_if = ["instance_p99 > 50ms"]

[instance]
processes = 32
warp_size = 4
read_size = 8
arbiter = "byzantine_first"
patience = "none"

[proposals]
distinct = 2
value_bytes = 12

[[faults]]
share = 0.1
strategy = "collude(value=0)"

[load]
transport = "unary"
rosters = 2
ramp = { from = 0, to = 300 }
arrivals = "poisson"
warm_up = "2s"
duration = "30s"
history_sample = 0.5
"#;

fn parse(text: &str) -> Result<Profile, String> {
    Profile::parse("a.toml", text, &Flags::default()).map_err(|error| error.to_string())
}

fn with(flags: &[(&str, &str)]) -> Result<Profile, String> {
    Profile::parse("a.toml", WHOLE, &Flags::of(flags)).map_err(|error| error.to_string())
}

#[test]
fn the_default_profile_is_one() {
    let profile = Profile::load(None, &Flags::default()).unwrap();
    assert_eq!(profile.pacing, Pacing::Closed { in_flight: 16 });
}

#[test]
fn a_profile_reads_back_as_it_was_written() {
    let steps = WHOLE
        .replace(
            "ramp = { from = 0, to = 300 }",
            "steps = [{ rate = 10, for = \"1s\" }, { rate = 20, for = \"2s\" }]",
        )
        .replace("duration = \"30s\"", "")
        .replace("arbiter = \"byzantine_first\"", "");
    let rate = steps.replace(
        "steps = [{ rate = 10, for = \"1s\" }, { rate = 20, for = \"2s\" }]",
        "rate = 9.5\ninstances = 5",
    );
    for text in [WHOLE, &steps, &rate, DEFAULT] {
        let profile = parse(text).unwrap();
        let again = parse(&profile.to_toml()).unwrap();
        assert_eq!(again.to_toml(), profile.to_toml());
        assert_eq!((&again.pacing, &again.params), (&profile.pacing, &profile.params));
        assert_eq!((again.duration, again.warm_up), (profile.duration, profile.warm_up));
        assert_eq!((&again.faults, &again.fail_if), (&profile.faults, &profile.fail_if));
    }
}

#[test]
fn shares_become_counts_and_byzantine_first_is_a_priority() {
    let profile = parse(WHOLE).unwrap();
    assert_eq!(profile.faults.processes().count(), 3);
    assert_eq!(profile.measured(), Some(Duration::from_secs(28)));
    let written = profile.to_toml();
    assert!(written.contains("priority = [1, 5, 9]"), "{written}");
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_to_do() {
    let wrong = |from: &str, to: &str| parse(&WHOLE.replace(from, to)).unwrap_err();
    assert!(wrong("duration = \"30s\"", "duration = \"soon\"").starts_with("a.toml:27: duration = \"soon\""));
    assert!(wrong("share = 0.1", "share = 1.0").contains("give 0 or more, and less than 1"));
    assert!(
        wrong("value_bytes = 12", "value_bytes = 1").contains("value_bytes = 1: give 2 to max_value_bytes")
    );
    assert!(
        wrong("rosters = 2", "rosters = 0")
            .contains("the number 0 stands where a whole number from 1 on is wanted")
    );
    assert!(wrong("rosters = 2", "rotsers = 2").contains("there is no key rotsers: did you mean rosters?"));
    assert!(wrong("rosters = 2", "in_flight = 4").contains("give one of them"));
    assert!(wrong("\nread_size = 8", "\nread_size = 8\nseed = 4").contains("at the top of the file"));
    assert!(wrong("50ms", "fifty").contains("a.toml:4: instance_p99 > fifty: fifty is no value"));
    assert!(wrong("duration = \"30s\"", "duration = \"2s\"").contains("give less than the whole"));
}

#[test]
fn a_strategy_in_a_load_sends_no_value_that_is_too_long() {
    let short = WHOLE.replace("read_size = 8", "read_size = 8\nmax_value_bytes = 12");
    assert_eq!(parse(&short).map(drop), Ok(()));
    let told = parse(&short.replace("(value=0)", "(value=0123456789012)")).unwrap_err();
    assert!(told.starts_with("a.toml:20: collude sends 0123456789012, which has 13 bytes"), "{told}");
    let strategy = ("strategy", "liar(value=0123456789012)");
    let told = with(&[("set", "instance.max_value_bytes=12"), ("byzantine", "0.1"), strategy]);
    let told = told.unwrap_err();
    assert!(told.contains("--strategy liar(value=0123456789012): liar sends 0123456789012"), "{told}");
}

#[test]
fn a_flag_replaces_a_key_and_its_error_names_the_flag() {
    let profile = with(&[("in-flight", "9")]).unwrap();
    assert_eq!(profile.pacing, Pacing::Closed { in_flight: 9 });
    let profile = with(&[("rate", "5"), ("seed", "1")]).unwrap();
    assert_eq!(profile.seed, 1);
    assert!(matches!(profile.pacing, Pacing::Open(open) if open.pieces[0].to == 5.0));
    let error = with(&[("rate", "-5"), ("rosters", "3")]).unwrap_err();
    assert!(error.starts_with("--rate -5: rate = -5: give instances per second"), "{error}");
    let error = with(&[("fail-if", "speed > 4")]).unwrap_err();
    assert!(error.starts_with("--fail-if speed > 4: "), "{error}");
}

#[test]
fn a_setting_of_the_pacing_takes_the_place_of_any_other() {
    let profile = with(&[("set", "load.rate=5")]).unwrap();
    assert!(matches!(profile.pacing, Pacing::Open(open) if open.pieces[0].to == 5.0));
}

#[test]
fn a_load_has_no_wire_attack_and_a_correct_process() {
    let told = |to: &str| parse(&WHOLE.replace("strategy = \"collude(value=0)\"", to)).unwrap_err();
    assert!(told("attack = \"flood\"").contains("give strategy in place of attack"));
    let all = WHOLE.replace("share = 0.1", "count = 32").replace("arbiter = \"byzantine_first\"", "");
    assert!(parse(&all).unwrap_err().contains("leave a correct one"));
    let named = parse(&WHOLE.replace("share = 0.1", "processes = [7, 2]")).unwrap();
    assert_eq!(named.faults.processes().map(ProcessId::get).collect::<Vec<_>>(), [2, 7]);
}
