//! What one access costs in the machine, from its acceptance to its answer.
//!
//! A whole run of correct processes is driven in the order of the schedule: everybody says hello and appends,
//! then reads round by round, then decides. The time of the run is divided by the accesses it had, so hellos,
//! decisions and the making of the instance are paid for by the accesses.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use stickycas_model::access::{Access, Op};
use stickycas_model::history::Event;
use stickycas_model::machine::{Input, Machine, State};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Time, Value};

const READ_SIZE: u32 = 8;
/// The most reads of one process: a list of 2,048 entries takes 256 rounds, and they are all alike.
const MOST_READS: u32 = 8;

/// The inputs of one run, made beforehand.
struct Run {
    params: Arc<Params>,
    inputs: Vec<Input>,
    accesses: u64,
}

impl Run {
    fn new(processes: u32, warp_size: u32) -> Self {
        let spec = ParamsSpec::new(processes, warp_size, READ_SIZE.min(processes));
        let params = Arc::new(Params::try_new(spec).expect("the parameters are valid"));
        let all = || ProcessId::all(processes);
        let value = Value::new(b"apple").expect("there are bytes");
        let reads = params.reads().min(MOST_READS);
        let access = |process, op, number: u32| {
            let number = AccessNumber::new(number.into()).expect("numbers count from 1");
            Input::Access(Access { process, session: None, number, op, no_wait: false })
        };
        let mut inputs = Vec::new();
        inputs.extend(all().map(|process| Input::Hello { process, incarnation: 0 }));
        inputs.extend(all().map(|process| access(process, Op::Append(value.clone()), 1)));
        for round in 0..reads {
            let start = Position::new(round * params.read_size());
            inputs.extend(all().map(|process| access(process, Op::Read { start }, round + 2)));
        }
        inputs.extend(all().map(|process| Input::Decide { process, value: value.clone() }));
        Self { params, inputs, accesses: u64::from(processes) * u64::from(reads + 1) }
    }

    /// Drives one machine through the run.
    fn drive(&self, inputs: Vec<Input>, events: &mut Vec<Event>) -> State {
        let mut machine = Machine::new(Arc::clone(&self.params));
        for input in inputs {
            let reply = machine.apply(Time::ZERO, input, events);
            black_box(&reply).as_ref().expect("correct processes are not refused");
            // Whoever drives a machine hands the events on.
            black_box(&events[..]);
            events.clear();
        }
        machine.state()
    }
}

fn per_access(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for processes in [8_u32, 32, 1_024, 65_536] {
        let shapes = [("p=32", processes.min(32)), ("p=n", processes)];
        for (name, warp_size) in shapes {
            let run = Run::new(processes, warp_size);
            group.throughput(Throughput::Elements(1));
            group.bench_function(BenchmarkId::new(name, format!("n={processes}")), |bencher| {
                bencher.iter_custom(|accesses| {
                    // Whole runs only; what they had more than was asked for is taken off in proportion.
                    let runs = accesses.div_ceil(run.accesses);
                    let mut events = Vec::new();
                    let mut spent = Duration::ZERO;
                    for _ in 0..runs {
                        let inputs = run.inputs.clone();
                        let start = Instant::now();
                        let state = run.drive(inputs, &mut events);
                        spent += start.elapsed();
                        assert_eq!(state, State::Finished);
                    }
                    spent.mul_f64(accesses as f64 / (runs * run.accesses) as f64)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, per_access);
criterion_main!(benches);
