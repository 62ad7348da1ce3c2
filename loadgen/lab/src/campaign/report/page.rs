//! The page: the campaign, the results, then the figures, sweep by sweep.

use maud::{Markup, html};
use stickycas_harness::report::html::document::Document;
use stickycas_harness::report::html::figure::{Figure, again};
use stickycas_harness::report::html::words::{counted, grouped, moment, spent};

use super::{blame, chance, listing, phases, resilience, tradeoff};
use crate::campaign::cell::{Cell, Counts, Figure as Kind, Results, Sweep, sum};

/// All figures, each with its number.
pub(super) fn figures(results: &Results) -> Vec<(usize, Figure)> {
    sections(results).into_iter().flat_map(|section| section.figures).collect()
}

fn sections(results: &Results) -> Vec<Section<'_>> {
    let mut number = 0;
    (1..).zip(&results.sweeps).map(|(place, sweep)| Section::of(sweep, place, &mut number)).collect()
}

pub(super) fn page(results: &Results) -> Markup {
    let sections = sections(results);
    Document {
        kind: "campaign",
        name: &results.name,
        header: html! {
            @if !results.about.is_empty() { p class="about" { (results.about) } }
            (summary(results))
            (again(&results.command))
            (made(results))
        },
        main: html! {
            (what_held(results))
            (contents(&sections))
            @for section in &sections { (section.markup()) }
            (words_used(results))
        },
        footer: html! {
            "Algorithm and theorem: Georgiou, Piduguralla, Peri, \u{201c}Byzantine-Tolerant Consensus in "
            "GPU-Inspired Shared Memory\u{201d}. The same data are in results.json and results.csv beside this file, the drawings in figures/."
        },
    }
    .markup()
}

/// The verdict, in numbers that can be read from afar.
fn summary(results: &Results) -> Markup {
    let all = |count: fn(&Cell) -> u64| sum(results.cells(), count);
    let violations = all(|cell| cell.counts.violation);
    let network_runs = all(|cell| cell.network_runs);
    let planned = results.sweeps.iter().map(|sweep| sweep.planned).sum();
    let (class, says) = match (violations, all(|cell| cell.counts.runs)) {
        (0, 0) => ("verdict none", "nothing has been run yet"),
        (0, _) => ("verdict good", "violations: no promise was broken"),
        _ => ("verdict bad", "violations: a promise was broken, which is a bug of ours"),
    };
    let bad = results.cells().filter(|cell| cell.counts.violation > 0);
    html! {
        div class=(class) {
            p class="big" { span { (grouped(violations)) } " " (says) }
            @if violations > 0 {
                ul {
                    @for cell in bad.take(10) {
                        li {
                            (counted(cell.counts.violation, "run")) " of cell " (cell.number) ": "
                            code { (cell.command) }
                        }
                    }
                }
            }
            @if !results.complete() {
                p class="unfinished" {
                    "Unfinished: " (grouped(all(|_| 1))) " of " (counted(planned, "cell")) " have been run. "
                    "The same command goes on where it stopped."
                }
            }
        }
        dl class="totals" {
            (total("runs", all(|cell| cell.counts.runs)))
            (total("cells", all(|_| 1)))
            (total("valid", all(|cell| cell.counts.valid)))
            (total("broken, not promised", all(|cell| cell.counts.outside)))
            (total("proves nothing", all(|cell| cell.counts.unknown)))
            (total("over the network too", network_runs))
            @if network_runs > 0 { (total("of these differed", all(|cell| cell.network_differences))) }
        }
    }
}

fn total(name: &str, number: u64) -> Markup {
    html! { div { dt { (name) } dd { (grouped(number)) } } }
}

/// Where and when.
fn made(results: &Results) -> Markup {
    let made = &results.made;
    let platform = &made.platform;
    let build = if platform.debug_assertions { ", built with debug assertions" } else { "" };
    html! {
        dl class="made" {
            dt { "Seed" } dd { (results.seed) }
            dt { "Started" } dd { (moment(made.started)) }
            dt { "Finished" } dd { (moment(made.finished)) ", after " (spent(made.busy_millis)) " of running" }
            dt { "Machine" } dd { (platform.os) " " (platform.architecture) ", " (counted(platform.cpus, "processor")) }
            dt { "Version" } dd {
                (platform.version) @if let Some(commit) = &platform.commit { ", commit " (commit) } (build)
            }
        }
    }
}

/// Property by property.
fn what_held(results: &Results) -> Markup {
    let all = |count: fn(&Cell) -> u64| grouped(sum(results.cells(), count));
    let rounds = results.cells().any(|cell| cell.point.q > 1);
    let bounds = if rounds { ["2 f < T", "f (|Vc| + 1) < T"] } else { ["2 f p < n", "f (|Vc| + 1) p < n"] };
    let open = results.cells().any(|cell| cell.point.window == stickycas_model::params::AppendWindow::Open);
    // The runs of cells in which the property was promised, and how many of them broke it.
    let of_promised = |promised: fn(&Counts) -> u64, broken: fn(&Counts) -> u64| {
        let cells = || results.cells().filter(|cell| promised(&cell.counts) == cell.counts.runs);
        match sum(cells(), |cell| cell.counts.runs) {
            0 => "promised in no cell".to_owned(),
            runs => format!("{} of {}", grouped(sum(cells(), |cell| broken(&cell.counts))), grouped(runs)),
        }
    };
    // Where such a property breaks that was promised, the run is a violation.
    let always = if results.cells().all(|cell| cell.counts.violation == 0) { "0" } else { "see violations" };
    html! {
        section {
            h2 { "What held" }
            div class="scroll" tabindex="0" {
                table class="properties" {
                    thead { tr {
                        th scope="col" { "property" } th scope="col" { "broke where it was promised" }
                        th scope="col" { "broke in all" } th scope="col" { "promised when" }
                    } }
                    tbody {
                        tr { th scope="row" { "agreement" } td { (always) } td { (all(|cell| cell.counts.agreement_broken)) }
                            td { "always under the window first_access" @if open { "; never under open" } } }
                        tr {
                            th scope="row" { "termination" } td { (always) }
                            td { (all(|cell| cell.counts.termination_broken)) } td { "some correct process was punctual" }
                        }
                        tr {
                            th scope="row" { "weak validity" } td { (always) }
                            td { (all(|cell| cell.counts.weak_broken)) } td { "always" }
                        }
                        tr { th scope="row" { "common-value validity" } td { (of_promised(|counts| counts.common_promised, |counts| counts.common_broken)) }
                            td { (all(|cell| cell.counts.common_broken)) } td { (bounds[0]) } }
                        tr { th scope="row" { "strong validity" } td { (of_promised(|counts| counts.strong_promised, |counts| counts.strong_broken)) }
                            td { (all(|cell| cell.counts.strong_broken)) } td { (bounds[1]) } }
                    }
                }
            }
        }
    }
}

fn contents(sections: &[Section<'_>]) -> Markup {
    html! {
        nav aria-label="Figures" {
            h2 { "Figures" }
            ol {
                @for section in sections {
                    @for (number, figure) in &section.figures {
                        li value=(number) {
                            a href=(format!("#{}", figure.id)) { (figure.title) } " "
                            span class="facts" { (section.sweep.name) }
                        }
                    }
                }
            }
        }
    }
}

/// A sweep with its figures, each with its number.
struct Section<'a> {
    sweep: &'a Sweep,
    figures: Vec<(usize, Figure)>,
}

impl<'a> Section<'a> {
    fn of(sweep: &'a Sweep, place: usize, number: &mut usize) -> Self {
        let id = format!("sweep{place}");
        let figures = match sweep.figure {
            Some(Kind::Resilience) => resilience::figures(sweep, &id),
            Some(Kind::Phases) => phases::figures(sweep, &id),
            Some(Kind::Chance) => chance::figures(sweep, &id),
            Some(Kind::Blame) => blame::figures(sweep, &id),
            Some(Kind::Tradeoff) => tradeoff::figures(sweep, &id),
            None => listing::figures(sweep, &id),
        };
        let numbered = figures.into_iter().map(|figure| {
            *number += 1;
            (*number, figure)
        });
        Self { sweep, figures: numbered.collect() }
    }

    fn markup(&self) -> Markup {
        let Sweep { name, about, runs, planned, impossible, repeated, cells, .. } = self.sweep;
        html! {
            section {
                h2 { (name) }
                @if !about.is_empty() { p class="about" { (about) } }
                p class="facts" {
                    @if (cells.len() as u64) < *planned { (grouped(cells.len() as u64)) " of " }
                    (counted(*planned, "cell")) ", " (counted(*runs, "run")) " each"
                    @if *impossible > 0 { "; " (counted(*impossible, "point")) " of the axes cannot be" }
                    @if *repeated > 0 { "; " (counted(*repeated, "point")) " would repeat another" }
                    "."
                }
                @for (number, figure) in &self.figures { (figure.markup(*number)) }
            }
        }
    }
}

fn words_used(results: &Results) -> Markup {
    let has_rounds = results.cells().any(|cell| cell.point.q > 1);
    html! {
        section class="words" {
            h2 { "Words" }
            dl {
                dt { i { "n" } } dd { "processes" }
                dt { i { "p" } } dd { "processes in a warp, a group that takes its turns together; " i { "W" } " = \u{2308}" i { "n/p" } "\u{2309} warps" }
                dt { i { "r" } }
                dd {
                    "entries that one read returns; " i { "c" } " = \u{2308}" i { (if has_rounds { "T" } else { "W" }) "/r" }
                    "\u{2309} reads"
                }
                @if has_rounds {
                    dt { i { "q" } }
                    dd {
                        "append rounds: a warp may append in its first " i { "q" } " phases, and no process wins twice; so "
                        i { "T" } " entries, min(" i { "q" } ", members) of each warp"
                    }
                }
                dt { i { "f" } } dd {
                    "Byzantine processes, and correct ones that missed "
                    (if has_rounds { "an append round and have no entry" } else { "their first phase" })
                }
                dt { "|" i { "V" sub { "c" } } "|" } dd { "different values that correct processes propose" }
                dt { "phase" } dd { "one step of the scheduler: one warp, at most one new entry" }
                dt { "arbiter" } dd {
                    "who wins among the appends of a phase: " code { "first_come" } " whoever arrived first, "
                    code { "uniform" } " each with the same chance, "
                    code { "byzantine_first" } " Byzantine processes, the paper\u{2019}s worst case"
                }
                dt { "broken, not promised" } dd { "a property broke that was not promised in this run" }
                dt { "violation" } dd { "a promised property broke, or a rule of the specification" }
            }
        }
    }
}
