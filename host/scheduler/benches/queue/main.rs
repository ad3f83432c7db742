//! Benchmarks of the queue and a whole scheduler step against other data structures: `cargo bench -p scheduler`.
//!
//! Each sample is a thousand operations on a structure of the given size. The structure is restored to that size
//! between samples, outside the measured time. Microseconds in the table are therefore nanoseconds per operation.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue may panic")]

mod others;

use divan::{AllocProfiler, Bencher};
use model::{Kind, Moment, TargetId};
use others::{Pairing, Unindexed, Wheel};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scheduler::{Action, Entry, Finish, Input, Queue, Scheduler, Settings, Slot, TargetSpec};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const SIZES: [usize; 3] = [4_000, 40_000, 1_000_000];
const LOADED: [usize; 2] = [40_000, 1_000_000];
/// Operations per sample.
const MANY: usize = 1_000;
/// Targets are due within this many nanoseconds (five minutes).
const SPAN: i64 = 300_000_000_000;

fn main() {
    println!(
        "Times are for {MANY} operations: µs here are ns an operation. `load` and `load_ids` are for all entries at once, \
         and their allocations are the memory that the entries take.\n\
         RedFlag's document, at 40,000: push 2060 ns, pop 1655 ns, peek 23 ns, about 250 bytes an entry.\n"
    );
    divan::main();
}

/// The operations of every structure; targets are identified by number.
trait Structure {
    fn with_capacity(size: usize) -> Self;
    fn push(&mut self, number: usize, due: i64);
    fn pop(&mut self) -> Option<(usize, i64)>;
    fn peek(&self) -> Option<i64>;
    fn remove(&mut self, number: usize);
}

/// The queue of the scheduler.
struct Indexed {
    queue: Queue,
    slots: Vec<Slot>,
}

fn ids(size: usize) -> impl Iterator<Item = TargetId> {
    (0..size).map(|number| TargetId::new(&format!("target-{number}")).unwrap())
}

impl Structure for Indexed {
    fn with_capacity(size: usize) -> Self {
        let mut queue = Queue::with_capacity(size + MANY);
        let slots = ids(size + MANY).map(|id| queue.register(&id)).collect();
        Self { queue, slots }
    }

    fn push(&mut self, number: usize, due: i64) {
        let (slot, due) = (self.slots[number], Moment::from_nanos(due));
        self.queue.push(Entry { slot, due, score: 0.5, last_polled: Moment::START });
    }

    fn pop(&mut self) -> Option<(usize, i64)> {
        self.queue.pop().map(|entry| (entry.slot.index(), entry.due.as_nanos()))
    }

    fn peek(&self) -> Option<i64> {
        self.queue.peek().map(|entry| entry.due.as_nanos())
    }

    fn remove(&mut self, number: usize) {
        self.queue.remove(self.slots[number]);
    }
}

/// A structure that is restored to its size after each sample.
struct Bench<S> {
    structure: S,
    rng: Pcg64Mcg,
    /// The latest due time that was removed, because time advances.
    now: i64,
    taken: Vec<usize>,
    /// Numbers that are not in the structure.
    spare: Vec<usize>,
}

impl<S: Structure> Bench<S> {
    fn new(size: usize) -> RefCell<Self> {
        let mut structure = S::with_capacity(size);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for number in 0..size {
            structure.push(number, rng.random_range(0..SPAN));
        }
        RefCell::new(Self {
            structure,
            rng,
            now: 0,
            taken: Vec::with_capacity(MANY),
            spare: (size..size + MANY).collect(),
        })
    }

    fn due(&mut self) -> i64 {
        self.now + self.rng.random_range(0..SPAN)
    }

    /// Returns a thousand numbers of queued targets, each with a due time.
    fn some(&mut self, size: usize) -> Vec<(usize, i64)> {
        (0..MANY).map(|_| (self.rng.random_range(0..size), self.due())).collect()
    }

    fn refill(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        for number in taken.drain(..) {
            let due = self.due();
            self.structure.push(number, due);
        }
        self.taken = taken;
    }
}

#[divan::bench(types = [Indexed, Unindexed, Pairing, Wheel], args = SIZES, sample_size = 1, sample_count = 100)]
fn push<S: Structure>(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<S>::new(size);
    bencher
        .with_inputs(|| {
            let mut bench = bench.borrow_mut();
            for number in bench.spare.clone() {
                bench.structure.remove(number);
            }
            bench.spare.clone().into_iter().map(|number| (number, bench.due())).collect::<Vec<_>>()
        })
        .bench_local_values(|entries| {
            let structure = &mut bench.borrow_mut().structure;
            entries.iter().for_each(|(number, due)| structure.push(*number, *due));
        });
}

#[divan::bench(types = [Indexed, Unindexed, Pairing, Wheel], args = SIZES, sample_size = 1, sample_count = 100)]
fn pop<S: Structure>(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<S>::new(size);
    bencher.with_inputs(|| bench.borrow_mut().refill()).bench_local_values(|()| {
        let bench = &mut *bench.borrow_mut();
        for _ in 0..MANY {
            let (number, due) = bench.structure.pop().unwrap();
            bench.now = due;
            bench.taken.push(number);
        }
    });
}

#[divan::bench(types = [Indexed, Unindexed, Pairing, Wheel], args = SIZES, sample_size = 1, sample_count = 100)]
fn peek<S: Structure>(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<S>::new(size);
    let structure = &bench.borrow().structure;
    bencher.bench_local(|| (0..MANY).filter_map(|_| divan::black_box(structure).peek()).fold(0, i64::wrapping_add));
}

#[divan::bench(types = [Indexed, Pairing, Wheel], args = SIZES, sample_size = 1, sample_count = 100)]
fn update<S: Structure>(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<S>::new(size);
    bencher.with_inputs(|| bench.borrow_mut().some(size)).bench_local_values(|entries| {
        let structure = &mut bench.borrow_mut().structure;
        entries.iter().for_each(|(number, due)| structure.push(*number, *due));
    });
}

#[divan::bench(types = [Indexed, Pairing, Wheel], args = SIZES, sample_size = 1, sample_count = 100)]
fn remove<S: Structure>(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<S>::new(size);
    bencher
        .with_inputs(|| {
            let mut bench = bench.borrow_mut();
            bench.refill();
            let some = bench.some(size);
            bench.taken = some.iter().map(|(number, _)| *number).collect();
            some
        })
        .bench_local_values(|entries| {
            let structure = &mut bench.borrow_mut().structure;
            entries.iter().for_each(|(number, _)| structure.remove(*number));
        });
}

/// Pops a hundred due entries, ten times.
#[divan::bench(args = SIZES, sample_size = 1, sample_count = 100)]
fn pop_due_100(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<Indexed>::new(size);
    bencher.with_inputs(|| bench.borrow_mut().refill()).bench_local_values(|()| {
        let bench = &mut *bench.borrow_mut();
        for _ in 0..MANY / 100 {
            let due = bench.structure.queue.pop_due(Moment::from_nanos(i64::MAX), 100);
            bench.now = due.last().map_or(bench.now, |entry| entry.due.as_nanos());
            bench.taken.extend(due.iter().map(|entry| entry.slot.index()));
        }
    });
}

/// Pushes by id, as another crate does.
#[divan::bench(args = SIZES, sample_size = 1, sample_count = 100)]
fn push_by_id(bencher: Bencher<'_, '_>, size: usize) {
    let bench = Bench::<Indexed>::new(size);
    bencher
        .with_inputs(|| {
            let mut bench = bench.borrow_mut();
            let some = bench.some(size);
            let named = some
                .into_iter()
                .map(|(number, due)| (bench.structure.queue.id(bench.structure.slots[number]).clone(), due));
            named.collect::<Vec<_>>()
        })
        .bench_local_values(|entries| {
            let queue = &mut bench.borrow_mut().structure.queue;
            for (id, due) in &entries {
                let slot = queue.slot(id).unwrap();
                queue.push(Entry { slot, due: Moment::from_nanos(*due), score: 0.5, last_polled: Moment::START });
            }
        });
}

/// Registers and queues targets with existing ids.
#[divan::bench(args = LOADED, sample_size = 1, sample_count = 10)]
fn load(bencher: Bencher<'_, '_>, size: usize) {
    let ids: Vec<TargetId> = ids(size).collect();
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let dues: Vec<i64> = (0..size).map(|_| rng.random_range(0..SPAN)).collect();
    bencher.bench_local(|| {
        let mut queue = Queue::with_capacity(size);
        for (id, due) in ids.iter().zip(&dues) {
            let slot = queue.register(id);
            queue.push(Entry { slot, due: Moment::from_nanos(*due), score: 0.5, last_polled: Moment::START });
        }
        queue
    });
}

/// Like `load`, including the allocation of the ids, of ten to fourteen letters each.
#[divan::bench(args = LOADED, sample_size = 1, sample_count = 10)]
fn load_ids(bencher: Bencher<'_, '_>, size: usize) {
    let names: Vec<String> = (0..size).map(|number| format!("target-{number}")).collect();
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let dues: Vec<i64> = (0..size).map(|_| rng.random_range(0..SPAN)).collect();
    bencher.bench_local(|| {
        let mut queue = Queue::with_capacity(size);
        for (name, due) in names.iter().zip(&dues) {
            let slot = queue.register(&TargetId::new(name).unwrap());
            queue.push(Entry { slot, due: Moment::from_nanos(*due), score: 0.5, last_polled: Moment::START });
        }
        queue
    });
}

/// Ends one poll, computes and queues the next one, and starts the next target.
#[divan::bench(args = SIZES[..2].iter().copied(), sample_size = 1, sample_count = 100)]
fn whole_step(bencher: Bencher<'_, '_>, size: usize) {
    let settings = Settings { base: Some(Duration::from_secs(60)), ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 1);
    let specs = ids(size).enumerate().map(|(number, id)| (spec(number, id), None)).collect();
    scheduler.apply(Input::Started(specs), Moment::START);
    let state = RefCell::new((scheduler, VecDeque::new(), Moment::START));
    let step = || {
        let (scheduler, flights, now) = &mut *state.borrow_mut();
        for action in scheduler.drain() {
            if let Action::Start(target, _) = action {
                flights.push_back(target);
            }
        }
        *now = scheduler.next_wakeup().unwrap_or(*now).max(*now);
        let input = match flights.pop_front() {
            Some(target) => {
                Input::Finished(target, Finish::Success { changed: false, critical: false, next_poll: None })
            }
            None => Input::Tick,
        };
        scheduler.apply(input, *now);
    };
    // Poll every target first, so that all have a learnt interval.
    (0..size * 20).for_each(|_| step());
    bencher.bench_local(|| (0..MANY).for_each(|_| step()));
}

fn spec(number: usize, id: TargetId) -> TargetSpec {
    let host: Arc<str> = format!("host-{}", number / 10).into();
    TargetSpec {
        id,
        kind: Kind::new("http").unwrap(),
        url_hash: (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        origin: host.clone(),
        host,
        cadence: None,
        interval: None,
        min: None,
        max: None,
        kind_interval: None,
        enabled: true,
    }
}
