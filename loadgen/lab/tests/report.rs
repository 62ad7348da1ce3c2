//! The report of a campaign: every figure is there with what it needs to be understood and repeated, it is
//! well formed, it asks the network for nothing, and what comes out of files cannot break it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use roxmltree::Document;
use stickycas_lab::campaign::cell::Results;
use stickycas_lab::campaign::report::{html, write};
use stickycas_lab::campaign::{CampaignOptions, CampaignSource, run};

/// Every kind of figure, in small.
const CAMPAIGN: &str = r#"
name = "small"
about = "every figure once"
seed = 1

[axes]
r = 4

[[sweep]]
name = "map"
figure = "resilience"
runs = 12
[sweep.axes]
n = 12
p = [1, 2, 3]
distinct = [1, 2, 3]
f = [0, 1, 2, 3, 4, 5, 6]
arbiter = ["byzantine_first", "first_come", "uniform"]
strategy = ["collude(value=0)", "silent"]

[[sweep]]
name = "phases"
figure = "phases"
runs = 3
[sweep.axes]
n = [4, 8, 16, 24]
p = [1, 2, 4]
r = [1, 4]
distinct = 2
f = 0

[[sweep]]
name = "chance"
figure = "chance"
runs = 60
[sweep.axes]
n = 12
p = [2, 4]
distinct = [1, 2]
f = [0, 2, 4, 6, 8]
arbiter = "uniform"
strategy = "collude(value=0)"

[[sweep]]
name = "blame"
figure = "blame"
runs = 10
[sweep.axes]
n = 12
p = 2
distinct = 2
f = 2
strategy = ["late-append(access=2, value=b)", "silent", "distinct"]

[[sweep]]
name = "windows"
runs = 5
[sweep.axes]
n = 6
p = 2
distinct = 2
f = 1
window = ["open", "first_access"]
strategy = "late-append(access=2, value=b)"
"#;

static SMALL: LazyLock<Results> = LazyLock::new(|| {
    let source = CampaignSource::new("campaign.toml".to_owned(), CAMPAIGN.to_owned(), 1, Vec::new());
    let options = CampaignOptions { jobs: NonZeroUsize::MIN, budget: None, network: 0, quiet: true };
    let folder = tempfile::tempdir().unwrap();
    run(&source, folder.path(), &options, &AtomicBool::new(false), |_| {}).unwrap().results
});

/// Everything between the first `start` and the `end` behind it, again and again, both included.
fn parts<'a>(page: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = page;
    while let Some(from) = rest.find(start) {
        let length = rest[from..].find(end).expect("what begins also ends") + end.len();
        parts.push(&rest[from..from + length]);
        rest = &rest[from + length..];
    }
    parts
}

/// The page as XML: what HTML leaves open is closed first.
fn as_xml(page: &str) -> String {
    let style = parts(page, "<style>", "</style>").concat();
    let mut text = page.replace("<!DOCTYPE html>", "").replace(&style, "");
    for meta in parts(page, "<meta", ">") {
        text = text.replace(meta, "");
    }
    text
}

fn checked(results: &Results) -> String {
    let page = html(results);
    if let Err(error) = Document::parse(&as_xml(&page)) {
        panic!("not well formed: {error}");
    }
    page
}

#[test]
fn every_figure_has_title_caption_and_command() {
    let page = checked(&SMALL);
    let xml = as_xml(&page);
    let document = Document::parse(&xml).unwrap();
    let figures: Vec<_> = document.descendants().filter(|node| node.has_tag_name("figure")).collect();
    assert_eq!(figures.len(), 6, "two of the map, one of each other sweep");
    for figure in figures {
        let has = |name: &str| figure.descendants().any(|node| node.has_tag_name(name));
        assert!(has("h3") && has("figcaption") && has("details") && has("table"));
        let again = figure.children().find(|node| node.attribute("class") == Some("again")).unwrap();
        let command = again.descendants().find(|node| node.has_tag_name("code")).unwrap().text().unwrap();
        let sweep = SMALL.sweeps.iter().find(|sweep| sweep.command == command);
        assert!(sweep.is_some(), "{command}");
    }
}

#[test]
fn every_drawing_has_title_description_and_units() {
    let page = checked(&SMALL);
    let drawings: Vec<&str> = parts(&page, "<svg id", "</svg>");
    assert_eq!(drawings.len(), 3 + 3 + 2 + 2 + 2, "maps of both figures, phases, chances, blame");
    for drawing in drawings {
        let document = Document::parse(drawing).unwrap();
        let root = document.root_element();
        let named = root.attribute("aria-labelledby").unwrap();
        for id in named.split(' ') {
            let node = root.children().find(|node| node.attribute("id") == Some(id)).unwrap();
            assert!(node.text().unwrap().len() > 5);
        }
        let titles: Vec<&str> = root
            .descendants()
            .filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("title")))
            .filter_map(|node| node.text())
            .collect();
        let has_unit = |title: &&str| title.contains('(') && title.contains(')');
        assert!(titles.iter().any(has_unit), "{titles:?}");
    }
}

#[test]
fn every_name_in_the_page_is_given_once() {
    let page = checked(&SMALL);
    let xml = as_xml(&page);
    let document = Document::parse(&xml).unwrap();
    let mut ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(all > 20);
    assert_eq!(ids.len(), all);
    for link in document.descendants().filter_map(|node| node.attribute("href")) {
        assert!(ids.contains(&link.trim_start_matches('#')), "{link} leads nowhere");
    }
}

#[test]
fn the_page_asks_the_network_for_nothing_and_runs_no_script() {
    let page = checked(&SMALL);
    for sign in ["http:", "https:", "src=", "url(", "@import", "<script", "<link", "javascript:"] {
        assert!(!page.contains(sign), "{sign}");
    }
}

#[test]
fn the_numbers_of_the_results_are_in_the_page() {
    let page = checked(&SMALL);
    let broken = SMALL.sweeps[0].cells.iter().filter(|cell| cell.counts.strong_broken > 0);
    let weakest = broken.min_by_key(|cell| (cell.point.f, cell.number)).unwrap();
    let escaped = weakest.command.replace('&', "&amp;").replace('>', "&gt;");
    assert!(page.contains(&escaped), "{escaped}");
    assert!(page.contains(&format!("first with seed {}", weakest.counts.example.unwrap())));
    let chance = &SMALL.sweeps[2].cells.last().unwrap().counts;
    assert!(chance.strong_broken > 0);
    let cells = format!("<td>{}</td><td>{}</td>", chance.runs, chance.strong_broken);
    assert!(page.contains(&cells), "{cells}");
}

#[test]
fn a_violation_cannot_be_overlooked() {
    assert!(checked(&SMALL).contains("class=\"verdict good\""));
    let mut results = SMALL.clone();
    results.sweeps[1].cells[2].counts.violation = 3;
    results.sweeps[1].cells[2].command = "the command of the cell".to_owned();
    let page = checked(&results);
    assert!(page.contains("class=\"verdict bad\"") && !page.contains("no promise was broken"));
    assert!(page.find("the command of the cell").unwrap() < page.find("<main>").unwrap());
}

#[test]
fn what_comes_out_of_files_cannot_become_markup() {
    let evil = "</style><script>alert('1')</script>\"&<b>";
    let mut results = SMALL.clone();
    results.name = evil.to_owned();
    results.about = evil.to_owned();
    results.command = evil.to_owned();
    results.made.platform.os = evil.to_owned();
    for sweep in &mut results.sweeps {
        sweep.name = evil.to_owned();
        sweep.about = evil.to_owned();
        sweep.command = evil.to_owned();
        for cell in &mut sweep.cells {
            cell.point.strategy = evil.to_owned();
            cell.command = evil.to_owned();
        }
    }
    let page = checked(&results);
    assert!(!page.contains("<script") && !page.contains("<b>"));
    assert_eq!(parts(&page, "<style>", "</style>").len(), 1);
}

#[test]
fn what_has_not_been_run_yet_is_said_and_the_rest_is_shown() {
    let mut partial = SMALL.clone();
    for sweep in &mut partial.sweeps {
        sweep.cells.truncate(sweep.cells.len() / 2);
    }
    let page = checked(&partial);
    assert!(page.contains("Unfinished"));
    assert!(!checked(&SMALL).contains("Unfinished"));

    for sweep in &mut partial.sweeps {
        sweep.cells.clear();
    }
    let page = checked(&partial);
    assert!(
        page.contains("nothing has been run yet") && page.contains("No cell of this figure has been run yet")
    );

    partial.sweeps.clear();
    assert!(checked(&partial).contains("nothing has been run yet"));
}

#[test]
fn numbers_that_no_campaign_makes_are_shown_too() {
    let mut results = SMALL.clone();
    for (number, cell) in results.sweeps.iter_mut().flat_map(|sweep| &mut sweep.cells).enumerate() {
        let extremes = [0, 1, u32::MAX];
        cell.point.n = extremes[number % 3];
        cell.point.p = extremes[number / 3 % 3];
        cell.point.r = extremes[number / 9 % 3];
        cell.point.f = extremes[number / 27 % 3];
        cell.point.distinct = extremes[number / 81 % 3];
        cell.phase_bound = u64::from(cell.point.n);
        cell.counts.strong_broken = 7;
        cell.counts.runs = number as u64 % 2;
    }
    results.made.finished = u64::MAX;
    checked(&results);
}

#[test]
fn every_drawing_of_the_report_is_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    write(&SMALL, folder.path()).unwrap();
    let mut titles = Vec::new();
    for file in fs::read_dir(folder.path().join("figures")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let drawing = Document::parse(&text).unwrap();
        assert_eq!(drawing.root_element().tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
        assert!(!text.contains("var("), "{text}");
        titles.push(drawing.root_element().attribute("id").unwrap().to_owned());
    }
    let page = html(&SMALL);
    assert!(titles.len() > 3 && titles.len() == parts(&page, "<svg id", ">").len(), "{titles:?}");
}

/// For eyes: `scripts/report-screenshots` takes it from there.
#[test]
fn the_small_report_lies_where_it_can_be_looked_at() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html");
    fs::write(&place, checked(&SMALL)).unwrap();
    assert!(fs::metadata(&place).unwrap().len() > 10_000);
}
