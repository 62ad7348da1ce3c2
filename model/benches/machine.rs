//! The cost of one access in the machine, from its acceptance to its answer, and whether it is the same
//! however large the instance is.
//!
//! The benchmark drives a whole run of correct processes: each says hello and appends, then reads round by
//! round, then decides. The cost of the run is divided by its accesses, so it includes hellos, decisions and
//! the creation of the instance. The result is processor time (Linux; elsewhere what the clock says), medians
//! over rounds in which all shapes take turns, and with `--instructions` also what valgrind counts.
//!
//! ```sh
//! cargo bench -p stickycas-model --bench machine -- [--rounds N] [--only TEXT] [--instructions] [--json FILE]
//! cargo bench -p stickycas-model --bench machine -- --rebuild
//! ```
//!
//! `--rebuild` measures instead how long it takes to have the machine of a finished instance again: from its
//! snapshot, and by a replay of its inputs.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock and files; the machine does not")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use stickycas_model::access::{Access, Op, Refusal};
use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::Event;
use stickycas_model::machine::{Input, Machine, State};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;
use stickycas_model::sim::{self, SimPlan};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Time, Value};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads of each process, the same in all shapes so that they can be compared. A list of 2,048 entries would
/// take 256, a list of one entry a single one; they are all alike.
const READS: u32 = 8;
/// Accesses of one sample: as many whole runs as it takes.
const ACCESSES: u64 = 400_000;
/// The instance that the others are compared with.
const BASE: &str = "n=32 p=4";

/// An instance of this shape, and the order in which accesses of a round arrive.
struct Shape {
    name: String,
    series: &'static str,
    params: Arc<Params>,
    /// The processes in order of arrival.
    arrivals: Vec<ProcessId>,
}

impl Shape {
    fn new(series: &'static str, processes: u32, warp_size: u32, drawn: bool) -> Self {
        let spec = ParamsSpec::new(processes, warp_size, 8.min(processes));
        let params = Arc::new(Params::try_new(spec).expect("the parameters are valid"));
        let mut arrivals: Vec<ProcessId> = ProcessId::all(processes).collect();
        if drawn {
            let mut random = SplitMix64::new(1);
            (1..arrivals.len()).rev().for_each(|last| arrivals.swap(last, random.index(last + 1)));
        }
        let name = format!("n={processes} p={warp_size}{}", if drawn { " drawn" } else { "" });
        Self { name, series, params, arrivals }
    }

    fn accesses(&self) -> u64 {
        u64::from(self.params.processes()) * u64::from(READS + 1)
    }

    /// How many runs make a sample.
    fn runs(&self) -> u64 {
        ACCESSES.div_ceil(self.accesses())
    }
}

/// Every size, in the order of the schedule and in an order drawn; every number of warps, with warps of one
/// size and with as many processes.
fn shapes() -> Vec<Shape> {
    let mut shapes = vec![Shape::new("base", 32, 4, false)];
    for processes in [8, 32, 1_024, 16_384, 65_536] {
        let all = [(4, false), (4, true), (processes.min(32), false), (processes, false), (processes, true)];
        shapes.extend(all.map(|(warp_size, drawn)| Shape::new("n", processes, warp_size, drawn)));
    }
    let powers = (0..=12).step_by(2).map(|power| 1_u32 << power);
    shapes.extend(powers.clone().map(|warps| Shape::new("W, p fixed", warps * 4, 4, false)));
    shapes.extend(powers.map(|warps| Shape::new("W, n fixed", 4_096, 4_096 / warps, false)));
    shapes
}

/// One run of the shape.
#[inline(never)]
fn drive(shape: &Shape, events: &mut Vec<Event>) {
    let mut machine = Machine::new(Arc::clone(&shape.params));
    let value = Value::new(b"eightchr").expect("there are bytes");
    for &process in &shape.arrivals {
        let welcome = machine.hello(Time::ZERO, process, 1, events);
        consume(&welcome, events);
    }
    let mut number = AccessNumber::FIRST;
    for round in 0..=READS {
        for &process in &shape.arrivals {
            let op = match round.checked_sub(1) {
                None => Op::Append(value.clone()),
                Some(reads) => Op::Read { start: Position::new(reads * shape.params.read_size()) },
            };
            let access = Access { process, session: None, number, op, no_wait: false };
            let admission = machine.access(Time::ZERO, access, events);
            consume(&admission, events);
        }
        number = number.next();
    }
    for &process in &shape.arrivals {
        let decided = machine.decide(Time::ZERO, process, value.clone(), events);
        consume(&decided, events);
    }
    assert_eq!(machine.state(), State::Finished);
}

/// Stands for a caller that uses the result and passes the events on.
fn consume<T: std::fmt::Debug>(returned: &Result<T, Refusal>, events: &mut Vec<Event>) {
    black_box(returned).as_ref().expect("correct processes are not refused");
    black_box(&events[..]);
    events.clear();
}

/// Nanoseconds of a processor for each access of one sample.
fn sample(shape: &Shape) -> f64 {
    let mut events = Vec::new();
    drive(shape, &mut events);
    let (begin, clock) = (processor_nanos(), Instant::now());
    for _ in 0..shape.runs() {
        drive(shape, &mut events);
    }
    let spent = match (begin, processor_nanos()) {
        (Some(begin), Some(end)) => (end - begin) as f64,
        _ => clock.elapsed().as_secs_f64() * 1e9,
    };
    spent / (shape.runs() * shape.accesses()) as f64
}

/// Processor time of this thread so far, in nanoseconds, where the kernel reports it.
fn processor_nanos() -> Option<u64> {
    // The kernel updates the figure when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().filter(|&nanos| nanos > 0)
}

/// Instructions for each access, as valgrind counts them in a run of this program that drives only this
/// shape.
fn instructions(shape: &Shape) -> Option<f64> {
    let out = std::env::temp_dir().join(format!("machine-bench-{}", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=machine::drive", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().ok()?)
        .args(["--once", &shape.name])
        .status();
    let text = status.ok()?.success().then(|| std::fs::read_to_string(&out).ok())??;
    // A file that cannot be removed stays in the folder for temporary files.
    let _ = std::fs::remove_file(&out);
    let total: f64 = text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()?;
    Some(total / shape.accesses() as f64)
}

/// The options of the command line. Cargo's own flags are ignored.
struct Options {
    rounds: usize,
    only: String,
    once: Option<String>,
    instructions: bool,
    json: Option<String>,
    rebuild: bool,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            rounds: 7,
            only: String::new(),
            once: None,
            instructions: false,
            json: None,
            rebuild: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("the option takes a value");
            match &word[..] {
                "--rounds" => options.rounds = value().parse().expect("a number of rounds"),
                "--only" => options.only = value(),
                "--once" => options.once = Some(value()),
                "--json" => options.json = Some(value()),
                "--instructions" => options.instructions = true,
                "--rebuild" => options.rebuild = true,
                _ => {}
            }
        }
        options
    }
}

/// The result for one shape.
#[derive(serde::Serialize)]
struct Measurement {
    series: &'static str,
    shape: String,
    processes: u32,
    warps: u32,
    cpu_ns_per_access: f64,
    /// The least and the most of all rounds.
    cpu_ns_range: [f64; 2],
    /// To the base, as the median of the rounds' own ratios.
    ratio: f64,
    instructions_per_access: Option<f64>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// All shapes in turns, round by round.
fn measure(shapes: &[Shape], options: &Options) -> Vec<Measurement> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); shapes.len()];
    for _ in 0..options.rounds {
        for (shape, samples) in shapes.iter().zip(&mut samples) {
            samples.push(sample(shape));
        }
    }
    let base = shapes.iter().position(|shape| shape.name == BASE);
    let base = base.map_or_else(Vec::new, |index| samples[index].clone());
    let measured = shapes.iter().zip(samples).map(|(shape, samples)| Measurement {
        series: shape.series,
        shape: shape.name.clone(),
        processes: shape.params.processes(),
        warps: shape.params.warps(),
        ratio: median(samples.iter().zip(&base).map(|(own, base)| own / base).collect()),
        cpu_ns_range: [f64::min, f64::max]
            .map(|pick| samples.iter().copied().reduce(pick).unwrap_or(f64::NAN)),
        cpu_ns_per_access: median(samples),
        instructions_per_access: options.instructions.then(|| instructions(shape)).flatten(),
    });
    measured.collect()
}

/// The inputs of an event, for a replay of a run without misbehaviour.
fn input_of(event: &Event) -> Option<Input> {
    match event.clone() {
        Event::Session { process, incarnation, .. } => Some(Input::Hello { process, incarnation }),
        Event::Accepted { process, number, session, op } => {
            Some(Input::Access(Access { process, session, number, op, no_wait: false }))
        }
        Event::Decided { process, value } => Some(Input::Decide { process, value }),
        _ => None,
    }
}

/// Nanoseconds of one call, the least of some samples.
fn least_nanos(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 100;
    let sample = |_| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..20).map(sample).fold(f64::INFINITY, f64::min)
}

/// Prints, for finished instances of correct processes, the bytes of a snapshot and the time of both ways to
/// rebuild it.
fn rebuild() {
    println!("| n | events | bytes of the snapshot | ns from the snapshot | ns by replay |");
    println!("| --- | --- | --- | --- | --- |");
    for processes in [8, 32, 1_024] {
        let params = Arc::new(Params::try_new(ParamsSpec::new(processes, 4, 8)).expect("valid parameters"));
        let assignment = |process: ProcessId| {
            let proposal = format!("value {:02}", process.get() % 4);
            Assignment {
                role: Role::Correct,
                proposal: Value::new(proposal.as_bytes()).expect("there are bytes"),
            }
        };
        let truth = GroundTruth::new(ProcessId::all(processes).map(assignment).collect());
        let history = sim::run(&SimPlan { params: Arc::clone(&params), truth, seed: 7 }).history;
        let machine = sim::replay(&params, &history).expect("a history of the simulator");
        let mut snapshot = Encoder::default();
        machine.write_snapshot(&mut snapshot);
        let from_snapshot = least_nanos(|| {
            let machine = Machine::from_snapshot(Arc::clone(&params), &mut Decoder::new(snapshot.bytes()));
            black_box(machine.expect("it was written"));
        });
        let mut events = Vec::new();
        let by_replay = least_nanos(|| {
            let mut machine = Machine::new(Arc::clone(&params));
            for recorded in &history {
                if let Some(input) = input_of(&recorded.event) {
                    machine.apply(recorded.at, input, &mut events).expect("it was accepted");
                    events.clear();
                }
            }
            black_box(machine);
        });
        println!(
            "| {processes} | {} | {} | {from_snapshot:.0} | {by_replay:.0} |",
            history.len(),
            snapshot.bytes().len()
        );
    }
}

fn main() {
    let options = Options::parse();
    if options.rebuild {
        return rebuild();
    }
    let mut shapes = shapes();
    if let Some(name) = &options.once {
        let shape = shapes.iter().find(|shape| shape.name == *name).expect("a shape of this name");
        return drive(shape, &mut Vec::new());
    }
    shapes.retain(|shape| shape.name == BASE || shape.name.contains(&options.only));
    let measured = measure(&shapes, &options);
    println!("size of a machine: {} bytes, of an event: {}", size_of::<Machine>(), size_of::<Event>());
    println!("| series | shape | W | CPU ns/access | least | most | of {BASE} | instructions |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for row in &measured {
        let [least, most] = row.cpu_ns_range;
        let counted = row.instructions_per_access.map_or_else(String::new, |count| format!("{count:.0}"));
        println!(
            "| {} | {} | {} | {:.1} | {least:.1} | {most:.1} | {:.2} | {counted} |",
            row.series, row.shape, row.warps, row.cpu_ns_per_access, row.ratio
        );
    }
    if let Some(file) = &options.json {
        let result = serde_json::json!({
            "schema": "stickycas.machine-bench/1",
            "base": BASE,
            "rounds": options.rounds,
            "accesses_per_sample": ACCESSES,
            "size_of_machine": size_of::<Machine>(),
            "measured": measured,
        });
        std::fs::write(file, format!("{result:#}\n")).expect("the file can be written");
    }
}
