//! The aggregator alone: `cargo bench -p fleet --bench aggregator -- [DEVICES] [DEPLOYMENTS]`, by default a million
//! devices and 10,000 deployments. It prints CPU time and memory, and fails if the memory exceeds its limit.
//!
//! The estate: 6 or 7 labels a device (environment, customer, region, site, model, channel, maintenance), with
//! customers and models of very different sizes; most deployments are for a site or a customer, a few for a model in a
//! region, two for most of the fleet.

use fleet::{Aggregator, Applied, Input, Labels, PREFETCHED, Phase, Requirement, Selector, Stamp};
use model::Timestamp;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::time::Duration;

/// The limit for a million devices and 10,000 deployments, in bytes. Times are printed with their limits and not
/// checked, because they depend on the machine.
const MEMORY: u64 = 150_000_000;

const SITES: usize = 20_000;
const CUSTOMERS: usize = 2_000;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let (devices, deployments) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(10_000));
    println!("{devices} devices, {deployments} deployments");
    let estate = Estate::new();
    let at_rest = memory();
    let begin = cpu();
    let mut aggregator = Aggregator::new(0);
    for n in 0..deployments {
        aggregator.apply(&Input::Deployment {
            name: &deployment(n),
            selector: Some(&estate.selector(n)),
            is_once: false,
        });
    }
    // The labels are made outside the measured time.
    let mut made = Duration::ZERO;
    for n in 0..devices {
        let before = cpu();
        let (name, labels) = (device(n), estate.labels(n, 0));
        made += cpu() - before;
        aggregator.apply(&Input::Info { device: &name, stamp: at(1), floor: 1, labels: Some(&labels) });
    }
    let loaded = cpu();
    aggregator.match_devices();
    let matched = cpu();
    let pairs = estate.pairs(devices, deployments);
    let reported = cpu();
    let (mut random, mut names) = (Pcg64Mcg::seed_from_u64(1), Duration::ZERO);
    for some in pairs.chunks(1_000) {
        let before = cpu();
        let some: Vec<_> = some.iter().map(|(n, of)| (device(*n), deployment(*of))).collect();
        names += cpu() - before;
        report(&mut aggregator, &some, 2, &mut random);
    }
    let end = cpu();
    let cold = (loaded - begin - made) + (matched - loaded) + (end - reported - names);
    let used = memory().saturating_sub(at_rest).saturating_sub(size(&pairs));
    println!("labels               {:?}", loaded - begin - made);
    println!("matching             {:?}", matched - loaded);
    println!("{:<9} states     {:?}", pairs.len(), end - reported - names);
    println!("cold start           {cold:?} (limit 8 s)");
    println!("memory               {:.1} MB (limit 150 MB)", used as f64 / 1e6);
    let patches = aggregator.drain();
    println!("deployments          {} with {} devices on average", patches.len(), pairs.len() / deployments.max(1));

    // Other programs share the way to the memory, so the rate changes from second to second.
    let mut rates: Vec<f64> = (3..14).map(|round| events(&mut aggregator, &pairs, round, &mut random) / 1e6).collect();
    rates.sort_by(f64::total_cmp);
    let (median, least, most) = (rates[rates.len() / 2], rates[0], rates[rates.len() - 1]);
    println!("events by name       {median:.2} million a second ({least:.2} to {most:.2}, limit 2)");
    let label = labels_change(&mut aggregator, &estate, devices);
    println!("a change of labels   {label:?} (limit 50 ms)");
    let selector = selectors_change(&mut aggregator, &estate, deployments);
    println!("a change of selector {selector:?} (limit 50 ms)");
    if (devices, deployments) == (1_000_000, 10_000) {
        assert!(used < MEMORY, "{used} bytes, the limit is {MEMORY}");
    }
}

/// Returns the number of events that one core applies a second, with the names as texts. They are made outside the
/// measured time, a thousand at a time, as a message from the broker has just been written when it is applied.
fn events(aggregator: &mut Aggregator, pairs: &[(usize, usize)], round: u32, random: &mut Pcg64Mcg) -> f64 {
    const EVENTS: u32 = 500_000;
    const AT_ONCE: u32 = 1_000;
    let mut used = Duration::ZERO;
    for part in 0..EVENTS / AT_ONCE {
        let mut chosen = || pairs[random.random_range(0..pairs.len())];
        let some: Vec<_> = (0..AT_ONCE).map(|_| chosen()).map(|(n, of)| (device(n), deployment(of))).collect();
        let begin = cpu();
        report(aggregator, &some, round * EVENTS + part, random);
        used += cpu() - begin;
    }
    f64::from(EVENTS) / used.as_secs_f64()
}

/// Applies states of these devices and deployments, as many at once as the operator does.
fn report(aggregator: &mut Aggregator, all: &[(String, String)], counter: u32, random: &mut Pcg64Mcg) {
    for some in all.chunks(PREFETCHED) {
        aggregator.prefetch(some.iter().map(|(device, _)| device.as_str()));
        for (device, deployment) in some {
            let phase = match random.random_range(0..20) {
                0 => Phase::Failed,
                1 => Phase::Pending,
                _ => Phase::Succeeded,
            };
            let input = Input::State {
                device,
                deployment,
                stamp: at(counter),
                phase,
                at: Timestamp::from_millis(i64::from(counter)),
                error: (phase == Phase::Failed).then_some("the server answered 503 Service Unavailable"),
                term: 0,
            };
            // A device may be named twice in a round.
            assert_ne!(aggregator.apply(black_box(&input)), Applied::Refused);
        }
    }
}

/// Returns the longest of 1,000 changes.
fn labels_change(aggregator: &mut Aggregator, estate: &Estate, devices: usize) -> Duration {
    let change = |n: usize| {
        let (name, labels) = (device(n % devices), estate.labels(n, 1 + n as u64));
        let begin = cpu();
        aggregator.apply(&Input::Info { device: &name, stamp: at(2), floor: 1, labels: Some(&labels) });
        cpu() - begin
    };
    (0..1_000).map(change).max().unwrap_or_default()
}

/// Returns the median of 21 changes.
fn selectors_change(aggregator: &mut Aggregator, estate: &Estate, deployments: usize) -> Duration {
    let change = |n: usize| {
        let (name, selector) = (deployment(n * 7 % deployments), estate.selector(n * 7 + 100_000));
        let begin = cpu();
        aggregator.apply(&Input::Deployment { name: &name, selector: Some(&selector), is_once: false });
        cpu() - begin
    };
    let mut times: Vec<Duration> = (0..21).map(change).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn at(counter: u32) -> Stamp {
    Stamp { epoch: 1, counter }
}

fn device(n: usize) -> String {
    format!("site-{:05}-host-{:02}", n / 50, n % 50)
}

fn deployment(n: usize) -> String {
    format!("deployment-{n:05}")
}

/// Draws labels and selectors.
struct Estate {
    /// The shares of the models, summed up: the n-th is 1/n of the first.
    models: Vec<f64>,
    /// The customer and the region of each site.
    sites: Vec<(usize, usize)>,
}

impl Estate {
    fn new() -> Self {
        let shares = |count: usize| {
            let mut sum = 0.0;
            let sums: Vec<f64> = (1..=count)
                .map(|n| {
                    sum += 1.0 / n as f64;
                    sum
                })
                .collect();
            sums.into_iter().map(|part| part / sum).collect::<Vec<f64>>()
        };
        let (customers, models) = (shares(CUSTOMERS), shares(60));
        let mut random = Pcg64Mcg::seed_from_u64(0);
        let sites = (0..SITES).map(|_| (draw(&customers, &mut random), random.random_range(0..24))).collect();
        Self { models, sites }
    }

    /// The labels of a device; other ones for each change.
    fn labels(&self, n: usize, change: u64) -> Labels {
        let mut random = Pcg64Mcg::seed_from_u64(n as u64 * 7_919 + 13 + change * 1_000_003);
        let site = random.random_range(0..SITES);
        let (customer, region) = self.sites[site];
        let model = draw(&self.models, &mut random);
        let environment = pick(&[(0.8, "prod"), (0.15, "staging"), (0.05, "dev")], &mut random);
        let channel = pick(&[(0.85, "stable"), (0.12, "beta"), (0.03, "canary")], &mut random);
        let mut labels = vec![
            ("env", environment.to_owned()),
            ("customer", format!("c{customer}")),
            ("region", format!("r{region}")),
            ("site", format!("s{site}")),
            ("model", format!("m{model}")),
            ("channel", channel.to_owned()),
        ];
        if random.random_bool(0.02) {
            labels.push(("maintenance", "yes".to_owned()));
        }
        labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn selector(&self, n: usize) -> Selector {
        let mut random = Pcg64Mcg::seed_from_u64(n as u64 * 104_729 + 7);
        let mut labels = Labels::new();
        let mut put = |key: &str, value: String| labels.insert(key.to_owned(), value);
        let mut requirements = Vec::new();
        match (n, random.random_range(0..100)) {
            (0, _) => {
                put("env", "prod".to_owned());
                requirements.push(Requirement::DoesNotExist("maintenance".to_owned()));
            }
            (1, _) => {
                put("channel", "stable".to_owned());
                requirements.push(Requirement::NotIn("model".to_owned(), vec!["m0".to_owned()]));
            }
            (_, 0..60) => {
                put("site", format!("s{}", random.random_range(0..SITES)));
                if random.random_bool(0.5) {
                    put("env", "prod".to_owned());
                }
            }
            (_, 60..90) => {
                put("customer", format!("c{}", random.random_range(0..CUSTOMERS)));
                if random.random_bool(0.7) {
                    put("model", format!("m{}", draw(&self.models, &mut random)));
                }
            }
            (_, 90..95) => {
                put("region", format!("r{}", random.random_range(0..24)));
                put("model", format!("m{}", random.random_range(0..60)));
                put("channel", "beta".to_owned());
            }
            (_, 95..97) => {
                let customers = (0..3).map(|_| format!("c{}", random.random_range(0..CUSTOMERS))).collect();
                requirements.push(Requirement::In("customer".to_owned(), customers));
                requirements.push(Requirement::NotIn("env".to_owned(), vec!["dev".to_owned(), "staging".to_owned()]));
                requirements.push(Requirement::Exists("site".to_owned()));
            }
            _ => {
                put("model", format!("m{}", random.random_range(20..60)));
                requirements.push(Requirement::In("channel".to_owned(), vec!["canary".to_owned()]));
                requirements.push(Requirement::DoesNotExist("maintenance".to_owned()));
            }
        }
        Selector { labels, requirements }
    }

    /// Every device with every deployment that matches it, found with another index than the aggregator's.
    fn pairs(&self, devices: usize, deployments: usize) -> Vec<(usize, usize)> {
        let selectors: Vec<Selector> = (0..deployments).map(|n| self.selector(n)).collect();
        let mut filed: std::collections::HashMap<(&str, &str), Vec<usize>> = std::collections::HashMap::new();
        let mut everywhere = Vec::new();
        for (n, selector) in selectors.iter().enumerate() {
            let anchor = ["site", "customer", "model"].iter().find_map(|key| Some((*key, selector.labels.get(*key)?)));
            match anchor {
                Some((key, value)) => filed.entry((key, value.as_str())).or_default().push(n),
                None => everywhere.push(n),
            }
        }
        let mut pairs = Vec::new();
        for device in 0..devices {
            let labels = self.labels(device, 0);
            let near = labels.iter().filter_map(|(key, value)| filed.get(&(key.as_str(), value.as_str()))).flatten();
            pairs.extend(near.chain(&everywhere).filter(|n| selectors[**n].matches(&labels)).map(|n| (device, *n)));
        }
        pairs.shrink_to_fit();
        pairs
    }
}

fn draw(shares: &[f64], random: &mut Pcg64Mcg) -> usize {
    let at: f64 = random.random();
    shares.partition_point(|share| *share < at).min(shares.len() - 1)
}

fn pick<'a>(choices: &[(f64, &'a str)], random: &mut Pcg64Mcg) -> &'a str {
    let mut at: f64 = random.random();
    for (share, choice) in choices {
        if at < *share {
            return choice;
        }
        at -= share;
    }
    choices[0].1
}

fn size<T>(list: &Vec<T>) -> u64 {
    (list.capacity() * size_of::<T>()) as u64
}

/// The CPU time of this thread, because other programs run at the same time.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The resident memory in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kb| kb.trim().parse::<u64>().ok()).unwrap_or(0)
        * 1024
}
