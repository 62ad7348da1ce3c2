//! The cost of the object over the bare instruction: `cargo bench -p stickycas-model --bench sticky_cas`.
//!
//! Each group fills or reads the same number of cells in three ways, so that the times can be divided: `bare`
//! is one compare-exchange on a number, with no list; `boxed` is the same on a pointer to a boxed value, the
//! least that a cell for values of any size can cost; `sticky_cas` is the object. Told are nanoseconds for
//! each cell, the median of rounds in which the three take turns.

#![cfg_attr(not(loom), expect(clippy::disallowed_methods, reason = "a benchmark reads a clock"))]
#![cfg_attr(not(loom), expect(clippy::print_stdout, reason = "a benchmark prints"))]

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
    use std::time::Instant;

    use stickycas_model::sticky_cas::StickyCas;

    const CELLS: u32 = 16_384;

    const ROUNDS: usize = 501;

    /// The nanoseconds of one run of this, for each cell.
    fn nanos<T>(run: impl FnOnce() -> T) -> f64 {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CELLS)
    }

    /// Prints a row: the median of what each way takes.
    fn row(name: &str, round: impl Fn() -> [f64; 3]) {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS).map(|_| round()).collect();
        let medians: [String; 3] = std::array::from_fn(|way| {
            let mut taken: Vec<f64> = rounds.iter().map(|round| round[way]).collect();
            taken.sort_by(f64::total_cmp);
            format!("{:.2}", taken[ROUNDS / 2])
        });
        println!("| {name} | {} |", medians.join(" | "));
    }

    pub(super) fn groups() {
        println!("| ns for each cell | bare | boxed | sticky_cas |\n| --- | --- | --- | --- |");
        append();
        lose();
        read();
        contended();
    }

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
    fn append() {
        row("append", || {
            let (bare, boxed, list) = (bare(), Boxed(boxed()), StickyCas::with_limit(CELLS));
            [nanos(|| fill_bare(&bare)), nanos(|| fill_boxed(&boxed.0)), nanos(|| fill_list(&list))]
        });
    }

    /// One thread loses on a full cell, as all but one process of a warp do.
    fn lose() {
        let (bare, boxed, list) = (bare(), Boxed(boxed()), StickyCas::with_limit(CELLS));
        fill_bare(&bare);
        fill_boxed(&boxed.0);
        let turn = list.turn();
        turn.append(7);
        let lose_in_turn = || {
            for _ in 0..CELLS {
                black_box(turn.append(7));
            }
        };
        row("lose", || [nanos(|| fill_bare(&bare)), nanos(|| fill_boxed(&boxed.0)), nanos(lose_in_turn)]);
    }

    /// One thread reads every cell in order.
    fn read() {
        let (bare, boxed, list) = (bare(), Boxed(boxed()), StickyCas::with_limit(CELLS));
        fill_bare(&bare);
        fill_boxed(&boxed.0);
        fill_list(&list);
        row("read", || {
            [
                nanos(|| bare.iter().map(|cell| cell.load(Ordering::Acquire)).sum::<u64>()),
                nanos(|| boxed.0.iter().filter(|cell| !cell.load(Ordering::Acquire).is_null()).count()),
                nanos(|| list.iter().sum::<u64>()),
            ]
        });
    }

    /// Two threads race for the same cells. Starting and joining them is in the times of all three.
    fn contended() {
        fn race(fill: impl Fn() + Sync) {
            thread::scope(|scope| {
                scope.spawn(&fill);
                fill();
            });
        }
        row("append, two threads", || {
            let (bare, boxed, list) = (bare(), Boxed(boxed()), StickyCas::with_limit(CELLS));
            [
                nanos(|| race(|| fill_bare(&bare))),
                nanos(|| race(|| fill_boxed(&boxed.0))),
                nanos(|| race(|| fill_list(&list))),
            ]
        });
    }
}
