//! The cost of the object over the bare instruction: `cargo bench -p stickycas-model --bench sticky_cas`.
//!
//! Each group fills or reads the same number of cells in three ways, so that the times can be divided: `bare`
//! is one compare-exchange on a number, with no list; `boxed` is the same on a pointer to a boxed value, the
//! least that a cell for values of any size can cost; `sticky_cas` is the object.

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() {
    measured::groups();
}

#[cfg(not(loom))]
mod measured {
    use std::hint::black_box;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
    use std::thread;

    use criterion::{BatchSize, Criterion, Throughput, criterion_group};
    use stickycas_model::sticky_cas::StickyCas;

    const CELLS: u32 = 16_384;

    criterion_group!(groups, append, lose, read, contended);

    /// Numbered cells, each written once from 0.
    fn bare() -> Vec<AtomicU64> {
        (0..CELLS).map(|_| AtomicU64::new(0)).collect()
    }

    fn fill_bare(cells: &[AtomicU64]) {
        for cell in cells {
            let _ = black_box(cell.compare_exchange(0, 7, Ordering::AcqRel, Ordering::Acquire));
        }
    }

    /// Cells that own boxed numbers. Leaks nothing: see `free`.
    fn boxed() -> Vec<AtomicPtr<u64>> {
        (0..CELLS).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
    }

    fn fill_boxed(cells: &[AtomicPtr<u64>]) {
        for cell in cells {
            let value = Box::into_raw(Box::new(7));
            let written = cell.compare_exchange(ptr::null_mut(), value, Ordering::AcqRel, Ordering::Acquire);
            if written.is_err() {
                free(value);
            }
        }
    }

    #[allow(unsafe_code, reason = "the baseline owns its values by pointer, as the object does")]
    fn free(value: *mut u64) {
        if !value.is_null() {
            // SAFETY: every pointer that comes here was made by `Box::into_raw` and is in no cell any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }

    struct Boxed(Vec<AtomicPtr<u64>>);

    impl Drop for Boxed {
        fn drop(&mut self) {
            self.0.iter_mut().for_each(|cell| free(*cell.get_mut()));
        }
    }

    fn fill_list(list: &StickyCas<u64>) {
        for _ in 0..CELLS {
            black_box(list.turn().append(7));
        }
    }

    /// One thread wins every cell.
    fn append(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("append");
        group.throughput(Throughput::Elements(CELLS.into()));
        group.bench_function("bare", |bencher| {
            bencher.iter_batched_ref(bare, |cells| fill_bare(cells), BatchSize::LargeInput);
        });
        group.bench_function("boxed", |bencher| {
            bencher.iter_batched_ref(|| Boxed(boxed()), |cells| fill_boxed(&cells.0), BatchSize::LargeInput);
        });
        group.bench_function("sticky_cas", |bencher| {
            bencher.iter_batched_ref(
                || StickyCas::with_limit(CELLS),
                |list| fill_list(list),
                BatchSize::LargeInput,
            );
        });
        group.finish();
    }

    /// One thread loses on a full cell, as all but one process of a warp do.
    fn lose(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("lose");
        group.throughput(Throughput::Elements(CELLS.into()));
        let cells = bare();
        fill_bare(&cells);
        group.bench_function("bare", |bencher| bencher.iter(|| fill_bare(&cells)));
        let cells = Boxed(boxed());
        fill_boxed(&cells.0);
        group.bench_function("boxed", |bencher| bencher.iter(|| fill_boxed(&cells.0)));
        let list = StickyCas::with_limit(CELLS);
        let turn = list.turn();
        turn.append(7);
        group.bench_function("sticky_cas", |bencher| {
            bencher.iter(|| {
                for _ in 0..CELLS {
                    black_box(turn.append(7));
                }
            });
        });
        group.finish();
    }

    /// One thread reads every cell in order.
    fn read(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("read");
        group.throughput(Throughput::Elements(CELLS.into()));
        let cells = bare();
        fill_bare(&cells);
        group.bench_function("bare", |bencher| {
            bencher.iter(|| cells.iter().map(|cell| cell.load(Ordering::Acquire)).sum::<u64>());
        });
        let list = StickyCas::with_limit(CELLS);
        fill_list(&list);
        group.bench_function("sticky_cas", |bencher| bencher.iter(|| list.iter().sum::<u64>()));
        group.finish();
    }

    /// Two threads race for the same cells. Starting and joining them is in the times of all three.
    fn contended(criterion: &mut Criterion) {
        fn race(fill: impl Fn() + Sync) {
            thread::scope(|scope| {
                scope.spawn(&fill);
                fill();
            });
        }
        let mut group = criterion.benchmark_group("contended_2_threads");
        group.throughput(Throughput::Elements(CELLS.into()));
        group.bench_function("bare", |bencher| {
            bencher.iter_batched_ref(bare, |cells| race(|| fill_bare(cells)), BatchSize::LargeInput);
        });
        group.bench_function("boxed", |bencher| {
            bencher.iter_batched_ref(
                || Boxed(boxed()),
                |cells| race(|| fill_boxed(&cells.0)),
                BatchSize::LargeInput,
            );
        });
        group.bench_function("sticky_cas", |bencher| {
            bencher.iter_batched_ref(
                || StickyCas::with_limit(CELLS),
                |list| race(|| fill_list(list)),
                BatchSize::LargeInput,
            );
        });
        group.finish();
    }
}
