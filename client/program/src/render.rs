//! Text for people. Pure: data goes in, text comes out.

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime};

use stickycas_client::counts::{Counts, ServerCounts};
use stickycas_client::info::{
    Awaited, InstanceInfo, InstanceStatus, InstanceView, Rows, Summary, Waiting, patience_text, state_word,
};
use stickycas_client::watch::Snapshot;
use stickycas_client::{Appended, MemberState, Read};
use stickycas_model::access::AppendAnswer;
use stickycas_model::describe;
use stickycas_model::history::Recorded;
use stickycas_model::machine::State;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, Patience};
use stickycas_model::types::{AccessNumber, Value};

/// The answer of `create`: the id alone on the first line, so that a script can take it.
pub(super) fn created(instance: &InstanceInfo, created: bool) -> String {
    let which = if created { "created" } else { "exists already" };
    let named = instance.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    let kept = humantime::format_duration(instance.retention);
    let idle = humantime::format_duration(instance.idle_lifetime);
    format!(
        "{}\ninstance{named} {which}\n{}\nkept for reading {kept} after its end; expires if nobody touches it for {idle}",
        instance.id,
        parameters(&instance.parameters)
    )
}

/// The columns of `list`.
const COLUMNS: [&str; 7] = ["instance", "state", "decided", "created", "decision", "by", "id"];
/// The column that is shortened before others are left out.
const DECISION: usize = 4;
/// The fewest columns of a terminal in which a decision tells something.
const SHORTEST_DECISION: usize = 8;

/// The table of `list`. In a terminal of this width the last columns are left out that do not fit.
pub(super) fn list(instances: &[Summary], now: SystemTime, width: Option<usize>) -> String {
    let rows = instances.iter().map(|summary| row(summary, now));
    let rows: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows).collect();
    let length = |text: &String| text.chars().count();
    let mut widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0))
        .collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
    while let Some(excess) =
        width.and_then(|width| total(&widths).checked_sub(width + 1)).map(|over| over + 1)
    {
        let last = widths.len() - 1;
        match widths[last].checked_sub(excess) {
            Some(left) if last == DECISION && left >= SHORTEST_DECISION => widths[last] = left,
            _ if last > 0 => drop(widths.pop()),
            _ => break,
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| match length(cell) {
            all if all > width => cell.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
            _ => format!("{cell:<width$}"),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

fn row(summary: &Summary, now: SystemTime) -> [String; 7] {
    // A closed instance has given its name back.
    let name = summary.name.as_ref().filter(|_| summary.state != State::Closed);
    [
        name.map_or_else(|| summary.id.to_string(), ToString::to_string),
        state_word(summary.state).to_owned(),
        format!("{}/{}", summary.decided, summary.processes),
        summary
            .created
            .map_or_else(String::new, |created| ago(now.duration_since(created).unwrap_or_default())),
        summary.decision.as_ref().map_or_else(String::new, ToString::to_string),
        summary.creator.clone(),
        summary.id.to_string(),
    ]
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// A number of things: `1 entry`, `2 entries`.
pub(super) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    format!("{count} {}", if count == "1" { one } else { many })
}

fn parameters(params: &Params) -> String {
    let spec = params.spec();
    let order = match spec.order {
        Order::Ascending => "ascending",
        Order::Descending => "descending",
        Order::Shuffled => "shuffled",
    };
    let arbiter = match &spec.arbiter {
        Arbiter::FirstCome => "first_come".to_owned(),
        Arbiter::Uniform => "uniform".to_owned(),
        Arbiter::Priority(order) => format!("priority:{}", joined(order, ",")),
    };
    let window = match spec.append_window {
        AppendWindow::FirstAccess if spec.append_rounds > 1 => {
            format!("first_access, {} append rounds", spec.append_rounds)
        }
        AppendWindow::FirstAccess => "first_access".to_owned(),
        AppendWindow::Open => "open".to_owned(),
    };
    let short = humantime::format_duration;
    format!(
        "n={} processes, p={} to a warp, r={} entries to a read: {}\n\
         order {order}, arbiter {arbiter}, seed {}, append window {window}\n\
         patience {}, join timeout {}, pace {}, pipeline {}, values up to {} bytes",
        spec.processes,
        spec.warp_size,
        spec.read_size,
        counted(params.warps(), "warp", "warps"),
        spec.seed,
        patience_text(spec.patience),
        short(spec.join_timeout),
        short(spec.pace),
        spec.pipeline,
        spec.max_value_bytes
    )
}

/// The answer of `counts`, without zeros.
pub(super) fn counts(counts: &ServerCounts) -> String {
    let mut text = String::new();
    if let Some(started) = counts.started {
        let _ = writeln!(text, "since {}", humantime::format_rfc3339_seconds(started));
    }
    let all = ("all".to_owned(), &counts.all);
    let each = counts.principals.iter().map(|(name, counts)| (format!("principal {name}"), counts));
    for (whose, counts) in std::iter::once(all).chain(each) {
        let _ = writeln!(text, "{whose}: {}", tally(counts));
    }
    if counts.left_out > 0 {
        let _ = writeln!(text, "and {}", counted(counts.left_out, "more principal", "more principals"));
    }
    text
}

fn tally(counts: &Counts) -> String {
    let refusals = counts.refusals.iter().map(|(reason, count)| format!("refused {reason} {count}"));
    let others = counts.others().into_iter().filter(|(_, count)| *count > 0);
    let others = others.map(|(what, count)| format!("{} {count}", what.replace('_', " ")));
    let all: Vec<String> = refusals.chain(others).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// The answer of `get`.
pub(super) fn instance(view: &InstanceView) -> String {
    let InstanceView { instance, status, own } = view;
    let name = instance.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let mut text = format!("instance {}{name}, created by {}\n", instance.id, instance.creator);
    text += &parameters(&instance.parameters);
    text.push('\n');
    text += &standing(status, &instance.parameters);
    if let Some(own) = own {
        text += &standing_of_caller(own);
    }
    text
}

fn standing(status: &InstanceStatus, params: &Params) -> String {
    let mut text = format!("\n{}\n", why(status, params));
    let sealed = if status.sealed { "sealed" } else { "open" };
    let _ = writeln!(text, "list: {}, {sealed}", entries(status.length));
    if status.waiting.total() > 0 {
        let waits = |row: &Waiting| {
            let appends = row.appends.iter().map(|number| format!("append #{number}"));
            let reads = row.reads.iter().map(|number| format!("read #{number}"));
            let accesses: Vec<String> = appends.chain(reads).collect();
            format!("process {} ({})", row.process, accesses.join(", "))
        };
        let _ = writeln!(text, "waiting accesses: {}", rows(&status.waiting, waits));
    }
    if status.left.total() > 0 {
        let _ = writeln!(text, "have left: {}", rows(&status.left, ToString::to_string));
    }
    for row in &status.offences.shown {
        let kind = describe::offence_kind(row.kind);
        let when = row.first_phase.map_or("while gathering".to_owned(), |phase| format!("in phase {phase}"));
        let _ = writeln!(
            text,
            "offence of process {}: {kind}, {}; first {when}: {}",
            row.process,
            times(row.count),
            row.first
        );
    }
    if status.offences.left_out > 0 {
        let _ = writeln!(
            text,
            "and {}",
            counted(status.offences.left_out, "more kind of offences", "more kinds of offences")
        );
    }
    text
}

/// Why it does not go on, in one sentence (F12).
fn why(status: &InstanceStatus, params: &Params) -> String {
    let n = params.processes();
    match status.state {
        State::Closed => {
            "Closed by its creator: no access is taken any more, reads are answered at once.".to_owned()
        }
        State::Finished => "Finished: every process has left. Reads are answered at once.".to_owned(),
        State::Gathering if status.joined == 0 => {
            let all = counted(n, "process", "processes");
            format!("Gathering: none of {all} has joined; the join timeout starts with the first.")
        }
        State::Gathering => format!(
            "Gathering: {} of {} joined. Phase 1 opens when all have, or {} after the first \
             join. Missing: {}.",
            status.joined,
            counted(n, "process has", "processes have"),
            humantime::format_duration(params.spec().join_timeout),
            rows(&status.awaited, |row| row.process.to_string())
        ),
        State::Running => running(status),
    }
}

fn running(status: &InstanceStatus) -> String {
    let at = match (status.phase, status.warp) {
        (Some(phase), Some(warp)) => format!("phase {phase} (warp {warp})"),
        _ => "the next phase".to_owned(),
    };
    if status.open && status.awaited.total() > 0 {
        let waits_for =
            rows(&status.awaited, |row| format!("process {} ({})", row.process, patience_left(row)));
        format!("Running: {at} is open and waits for {waits_for}.")
    } else if status.waiting.total() > 0 {
        format!("Running: {at} opens as soon as the pace allows.")
    } else {
        format!("Running, but nothing waits, so nothing moves: {at} opens when an access comes.")
    }
}

fn patience_left(row: &Awaited) -> String {
    match row.patience_left {
        Patience::Finite(left) => format!("{} of its patience left", rounded(left)),
        Patience::Endless => "its patience has no end".to_owned(),
    }
}

/// Nanoseconds tell people nothing.
fn rounded(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

fn standing_of_caller(own: &MemberState) -> String {
    let mut text = format!("you are process {}; your next access is #{}", own.process, own.next);
    if let Some((phase, answer)) = own.append {
        let _ = write!(text, "; your append in phase {phase}: {}", append_answer(answer));
    }
    if let Some(decided) = &own.decided {
        let _ = write!(text, "; you decided {decided}");
    }
    text.push('\n');
    text
}

pub(super) fn appended(number: AccessNumber, value: &Value, appended: &Appended) -> String {
    format!("append #{number} of {value} in phase {}: {}", appended.phase, append_answer(appended.answer))
}

fn append_answer(answer: AppendAnswer) -> String {
    match answer {
        AppendAnswer::Success(position) => format!("success, position {position}"),
        AppendAnswer::Failed => "failed: another append of the phase won".to_owned(),
        AppendAnswer::LimitReached => "limit reached: no appends any more".to_owned(),
    }
}

pub(super) fn read(number: AccessNumber, read: &Read) -> String {
    let when = read.phase.map_or_else(|| "outside phases".to_owned(), |phase| format!("in phase {phase}"));
    let sealed = if read.sealed { "sealed" } else { "open" };
    let mut text = format!("read #{number} {when}: list of {}, {sealed}\n", entries(read.length));
    for (position, value) in (read.start.get()..).zip(&read.values) {
        let _ = writeln!(text, "{position:>6}  {value}");
    }
    text
}

pub(super) fn snapshot(snapshot: &Snapshot) -> String {
    let status = &snapshot.status;
    let sealed = if status.sealed { "sealed" } else { "open" };
    let mut text =
        format!("snapshot: {}, list of {}, {sealed}\n", state_word(status.state), entries(status.length));
    for entry in &snapshot.entries {
        let (position, value, process, phase) = (entry.position, &entry.value, entry.process, entry.phase);
        let _ = writeln!(text, "{:>6}  {value}  (process {process}, phase {phase})", position.get());
    }
    text
}

/// One line of `watch`.
pub(super) fn event(recorded: &Recorded) -> String {
    let seconds = Duration::from_nanos(recorded.at.as_nanos()).as_secs_f64();
    format!("{seconds:>10.3}s  {}", describe::event(&recorded.event))
}

pub(super) fn rows<T>(rows: &Rows<T>, row: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = rows.shown.iter().map(row).collect();
    let more = if rows.left_out > 0 { format!(" and {} more", rows.left_out) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn entries(length: u32) -> String {
    counted(length, "entry", "entries")
}

fn joined(items: &[impl Display], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// How often something has happened.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

#[cfg(test)]
mod tests {
    use stickycas_model::history::Event;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::{Phase, ProcessId, WarpId};

    use super::*;

    #[test]
    fn counts_name_the_principal_and_leave_zeros_out() {
        let one =
            Counts { refusals: [("RATE_EXCEEDED", 2)].into(), messages_oversized: 1, ..Counts::default() };
        let principals = [("mallory".to_owned(), one)].into();
        let told = counts(&ServerCounts {
            started: None,
            uptime: None,
            all: Counts::default(),
            principals,
            left_out: 3,
            server: None,
        });
        let lines = ["all: nothing", "principal mallory: refused RATE_EXCEEDED 2, messages oversized 1"];
        assert_eq!(told, format!("{}\n{}\nand 3 more principals\n", lines[0], lines[1]));
    }

    fn params() -> Params {
        Params::try_new(ParamsSpec::new(4, 2, 2)).unwrap()
    }

    fn process(number: u32) -> ProcessId {
        ProcessId::new(number).unwrap()
    }

    fn shown<T>(shown: Vec<T>) -> Rows<T> {
        Rows { shown, left_out: 0 }
    }

    fn running() -> InstanceStatus {
        InstanceStatus {
            state: State::Running,
            phase: Phase::new(5),
            warp: WarpId::new(1),
            open: true,
            awaited: shown(vec![Awaited {
                process: process(2),
                patience_left: Patience::Finite(Duration::from_nanos(800_000_123)),
            }]),
            waiting: shown(vec![Waiting {
                process: process(1),
                appends: vec![],
                reads: vec![AccessNumber::new(3).unwrap()],
            }]),
            joined: 4,
            length: 2,
            sealed: true,
            left: shown(vec![process(3), process(4)]),
            offences: shown(vec![]),
        }
    }

    #[test]
    fn the_text_of_an_open_phase_names_the_awaited_process() {
        assert_eq!(
            standing(&running(), &params()),
            "\nRunning: phase 5 (warp 1) is open and waits for process 2 (800ms of its patience left).\n\
             list: 2 entries, sealed\n\
             waiting accesses: process 1 (read #3)\n\
             have left: 3, 4\n"
        );
    }

    #[test]
    fn an_idle_instance_is_not_stuck_and_a_paced_one_says_so() {
        let idle =
            InstanceStatus { open: false, awaited: shown(vec![]), waiting: shown(vec![]), ..running() };
        assert_eq!(
            why(&idle, &params()),
            "Running, but nothing waits, so nothing moves: phase 5 (warp 1) opens when an access comes."
        );
        let paced = InstanceStatus { open: false, awaited: shown(vec![]), ..running() };
        assert_eq!(why(&paced, &params()), "Running: phase 5 (warp 1) opens as soon as the pace allows.");
    }

    #[test]
    fn gathering_names_who_is_missing_and_how_many_are_not_shown() {
        let missing = Awaited { process: process(2), patience_left: Patience::Endless };
        let status = InstanceStatus {
            state: State::Gathering,
            joined: 1,
            awaited: Rows { shown: vec![missing], left_out: 2 },
            ..running()
        };
        assert_eq!(
            why(&status, &params()),
            "Gathering: 1 of 4 processes have joined. Phase 1 opens when all have, or 30s after the first \
             join. Missing: 2 and 2 more."
        );
        let nobody = InstanceStatus { joined: 0, ..status };
        assert!(why(&nobody, &params()).contains("none of 4 processes has joined"));
    }

    #[test]
    fn each_event_is_one_line() {
        let value = Value::parse("a").unwrap();
        let phase = Phase::FIRST;
        let lines = [
            Event::Stepped { phase, warp: WarpId::FIRST, length: 0 },
            Event::Added { position: Default::default(), process: process(1), phase, value: value.clone() },
            Event::Decided { process: process(1), value },
        ];
        let at = stickycas_model::types::Time::from_nanos(1_234_000_000);
        let lines = lines.map(|event| self::event(&Recorded { at, event }));
        assert_eq!(
            lines.join("\n"),
            "     1.234s  phase 1 is executed, of warp 1, with 0 entries in the list\n     1.234s  process 1 wins phase 1: a is \
             added at 0\n     1.234s  process 1 decides a"
        );
    }
}
