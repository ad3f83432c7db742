//! Pictures of the past as SVG: strips of states, and the latency over time.
//!
//! A picture stretches to the width of its place, so it contains no text. The labels are HTML around it.

use crate::timeline::{Period, State, columns};
use crate::wire::time;
use maud::{Markup, html};
use model::{LATENCY_WINDOW, LatencySummary, Timestamp};
use std::fmt::Write as _;

/// The maximum number of parts of a picture.
const COLUMNS: usize = 240;
/// The height of the latency chart, in units of its picture.
const HEIGHT: f64 = 100.0;
/// A line is interrupted where this many parts of the picture have no measurement.
const INTERRUPTION: usize = 6;

/// A strip of states over time. `name` says what it shows, for readers of the screen.
pub(crate) fn strip(name: &str, periods: &[Period], span: (Timestamp, Timestamp)) -> Markup {
    let states = columns(periods, span, COLUMNS);
    let begin = |column: usize| {
        let (from, to) = (span.0.as_millis(), span.1.as_millis());
        Timestamp::from_millis(from + (to - from) * column as i64 / COLUMNS as i64)
    };
    let mut runs: Vec<(usize, usize, State)> = Vec::new();
    for (column, state) in states.into_iter().enumerate() {
        match runs.last_mut() {
            Some((_, end, last)) if *last == state => *end = column + 1,
            _ => runs.push((column, column + 1, state)),
        }
    }
    html! {
        svg.strip viewBox={ "0 0 " (COLUMNS) " 10" } preserveAspectRatio="none" role="img" aria-label=(label(name, periods, span)) {
            @for (first, end, state) in runs {
                rect x=(first) y="0" width=(end - first) height="10" class={ "is-" (state.as_str()) } {
                    title { (state.as_str().replace('_', " ")) " from " (time(begin(first))) " to " (time(begin(end))) }
                }
            }
        }
    }
}

/// Describes a strip: the time in each state.
fn label(name: &str, periods: &[Period], (from, to): (Timestamp, Timestamp)) -> String {
    let mut text = format!("states of {name}:");
    for state in State::ALL.into_iter().rev() {
        let of_state = periods.iter().filter(|period| period.state == state);
        let length: u64 = of_state.map(|period| period.to.min(to).since(period.from.max(from)).as_secs()).sum();
        if length > 0 {
            let _ = write!(text, " {} {},", state.as_str().replace('_', " "), duration(length));
        }
    }
    text.trim_end_matches(',').to_owned()
}

/// Formats a duration in its largest unit, or its two largest.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} days {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// The measurements in one part of a chart.
#[derive(Clone, Copy)]
struct Part {
    min: f64,
    max: f64,
    mean: f64,
    p95: f64,
}

/// The sums of the measurements in one part of a chart.
#[derive(Clone, Copy)]
struct Sums {
    min: f64,
    max: f64,
    p95: f64,
    sum: f64,
    count: f64,
}

/// The latency over time: the mean as a line, the highest 95th percentile as a broken line, and the range from the
/// lowest to the highest as an area. `None` without measurements.
pub(crate) fn latency(name: &str, points: &[LatencySummary], (from, to): (Timestamp, Timestamp)) -> Option<Markup> {
    let length = (to.as_millis() - from.as_millis()).max(1);
    // A part is not shorter than a window, or the line would have holes.
    let count = (length / LATENCY_WINDOW.as_millis() as i64).clamp(1, COLUMNS as i64) as usize;
    let mut sums = vec![Sums { min: f64::INFINITY, max: 0.0, p95: 0.0, sum: 0.0, count: 0.0 }; count];
    for point in points.iter().filter(|point| point.start <= to && point.count > 0) {
        let place = (point.start.as_millis() - from.as_millis()) * count as i64 / length;
        let Some(part) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place.min(count - 1))) else {
            continue;
        };
        part.min = part.min.min(point.min.into());
        part.max = part.max.max(point.max.into());
        part.p95 = part.p95.max(point.p95.into());
        part.sum += f64::from(point.mean) * f64::from(point.count);
        part.count += f64::from(point.count);
    }
    let part =
        |&Sums { min, max, p95, sum, count }: &Sums| (count > 0.0).then(|| Part { min, max, p95, mean: sum / count });
    let parts: Vec<Option<Part>> = sums.iter().map(part).collect();
    let highest = parts.iter().flatten().map(|part| part.max).reduce(f64::max)?;
    let (sum, number) = sums.iter().fold((0.0, 0.0), |total, part| (total.0 + part.sum, total.1 + part.count));
    let scale = round_up(highest);
    let Paths { line, p95, area } = paths(&parts, scale);
    Some(html! {
        figure.chart {
            figcaption {
                "Latency of " (name) ": mean " (milliseconds(sum / number)) ", highest " (milliseconds(highest))
                ". The line is the mean, the broken line the 95th percentile."
            }
            div.plot {
                div.scale aria-hidden="true" {
                    span { (milliseconds(scale)) } span { (milliseconds(scale / 2.0)) } span { "0" }
                }
                svg viewBox={ "0 0 " (count) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ "latency of " (name) " over time" } {
                    path.grid d={ "M0 " (HEIGHT / 2.0) "H" (count) } {}
                    path.area d=(area) {}
                    path.line.p95 d=(p95) {}
                    path.line d=(line) {}
                }
            }
        }
    })
}

/// A small chart of the mean latency, without labels. `None` without measurements.
pub(crate) fn sparkline(points: &[LatencySummary], (from, to): (Timestamp, Timestamp)) -> Option<Markup> {
    const PARTS: usize = 48;
    const HEIGHT: f64 = 20.0;
    let length = (to.as_millis() - from.as_millis()).max(1);
    let mut sums = [(0.0_f64, 0.0_f64); PARTS];
    for point in points {
        let place = (point.start.as_millis() - from.as_millis()) * PARTS as i64 / length;
        let Some((sum, count)) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) else { continue };
        *sum += f64::from(point.mean) * f64::from(point.count);
        *count += f64::from(point.count);
    }
    let means = || sums.iter().enumerate().filter(|(_, (_, count))| *count > 0.0).map(|(at, (sum, n))| (at, sum / n));
    let highest = means().map(|(_, mean)| mean).reduce(f64::max)?;
    let (mut line, mut last) = (String::new(), None);
    for (at, mean) in means() {
        let command = if last.is_some_and(|last| at - last <= INTERRUPTION) { 'L' } else { 'M' };
        let _ = write!(line, "{command}{at} {:.0}", HEIGHT - mean / highest.max(f64::MIN_POSITIVE) * (HEIGHT - 2.0));
        last = Some(at);
    }
    line.push_str("h0.9");
    Some(html! {
        svg.spark viewBox={ "0 0 " (PARTS) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" { path d=(line) {} }
    })
}

/// A chart of a quantity, with its last and its highest value.
pub(crate) fn line(title: &str, points: &[(Timestamp, f64)], (from, to): (Timestamp, Timestamp)) -> Markup {
    /// The width in units of the picture.
    const WIDTH: f64 = 240.0;
    let length = (to.as_millis() - from.as_millis()).max(1) as f64;
    let highest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let scale = if highest > 0.0 { round_up(highest) } else { 1.0 };
    let mut path = String::new();
    for (n, (at, value)) in points.iter().enumerate() {
        let x = (at.as_millis() - from.as_millis()) as f64 / length * WIDTH;
        let y = (HEIGHT - value / scale * HEIGHT).clamp(0.0, HEIGHT);
        let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
    }
    if points.len() == 1 {
        path.push_str("h0.9");
    }
    let last = points.last().map_or(0.0, |(_, value)| *value);
    let text = format!("{title}: now {}, highest {}", number(last), number(highest));
    html! {
        figure.chart {
            figcaption { (text) }
            div.plot.low {
                div.scale aria-hidden="true" { span { (number(scale)) } span { "0" } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(text) { path.line d=(path) {} }
            }
        }
    }
}

/// A number with three digits.
fn number(value: f64) -> String {
    match value {
        value if value == value.round() || value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// The beginning, the middle and the end of the time that a picture shows.
pub(crate) fn axis((from, to): (Timestamp, Timestamp)) -> Markup {
    let middle = Timestamp::from_millis(i64::midpoint(from.as_millis(), to.as_millis()));
    html! {
        p.axis {
            @for at in [from, middle, to] { time data-local=(at.as_millis()) { (time(at)) } " " }
        }
    }
}

/// The paths of a chart.
#[derive(Default)]
struct Paths {
    /// The means.
    line: String,
    /// The 95th percentiles.
    p95: String,
    /// The area between lowest and highest.
    area: String,
}

fn paths(parts: &[Option<Part>], scale: f64) -> Paths {
    let y = |ms: f64| (HEIGHT - ms / scale * HEIGHT).clamp(0.0, HEIGHT);
    let mut paths = Paths::default();
    let measured: Vec<(usize, Part)> = parts.iter().enumerate().filter_map(|(at, part)| Some((at, (*part)?))).collect();
    for run in measured.chunk_by(|left, right| right.0 - left.0 <= INTERRUPTION) {
        for (n, (at, part)) in run.iter().enumerate() {
            let (command, x) = (if n == 0 { 'M' } else { 'L' }, *at as f64 + 0.5);
            let _ = write!(paths.line, "{command}{x:.1} {:.1}", y(part.mean));
            let _ = write!(paths.p95, "{command}{x:.1} {:.1}", y(part.p95));
            let _ = write!(paths.area, "{command}{x:.1} {:.1}", y(part.max));
        }
        // A single measurement is a dot as wide as its part.
        if run.len() == 1 {
            paths.line.push_str("h0.9");
        }
        for (at, part) in run.iter().rev() {
            let _ = write!(paths.area, "L{:.1} {:.1}", *at as f64 + 0.5, y(part.min));
        }
        paths.area.push('Z');
    }
    paths
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(0.001).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

pub(crate) fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.0} s", ms / 1000.0),
        ms if ms >= 1_000.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms >= 10.0 => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    #[test]
    fn a_strip_has_a_part_for_each_run_of_a_state() {
        let period = |from, to, state| Period { from: at(from), to: at(to), state };
        let periods = [period(0, 30, State::Ok), period(30, 31, State::Critical), period(31, 60, State::Ok)];
        let text = strip("a <b>", &periods, (at(0), at(60))).into_string();
        assert_eq!(text.matches("<rect").count(), 3, "{text}");
        assert!(text.contains(r#"<rect x="120" y="0" width="4" height="10" class="is-critical">"#), "{text}");
        assert!(text.contains("states of a &lt;b&gt;: critical 1 min, ok 59 min\""), "{text}");
    }

    #[test]
    fn a_chart_interrupts_the_line_where_nothing_was_measured() {
        let point = |minutes: i64, ms: f32| LatencySummary {
            start: at(minutes),
            min: ms,
            mean: ms,
            p95: ms,
            max: ms,
            count: 1,
        };
        let points = [point(0, 10.0), point(5, 20.0), point(60, 30.0)];
        let text = latency("a", &points, (at(0), at(120))).unwrap().into_string();
        assert!(text.contains("mean 20 ms, highest 30 ms"), "{text}");
        assert!(text.contains(r#"d="M0.5 80.0L1.5 60.0M12.5 40.0h0.9""#), "{text}");
        assert!(text.contains("viewBox=\"0 0 24 100\""), "{text}");
        assert!(latency("a", &points, (at(300), at(400))).is_none(), "no measurement in this time");
        assert!(latency("a", &[], (at(0), at(0))).is_none());
    }

    #[test]
    fn a_line_shows_its_last_and_its_highest_value() {
        let text = line("Polls", &[(at(0), 4.0), (at(30), 10.0), (at(60), 2.5)], (at(0), at(60))).into_string();
        assert!(text.contains("Polls: now 2.50, highest 10"), "{text}");
        assert!(text.contains(r#"d="M0.0 60.0L120.0 0.0L240.0 75.0""#), "{text}");
        let empty = line("Polls", &[(at(0), 0.0)], (at(0), at(60))).into_string();
        assert!(empty.contains("now 0, highest 0") && empty.contains(r#"d="M0.0 100.0h0.9""#), "{empty}");
    }

    #[test]
    fn scales_are_round() {
        for (value, scale) in [(0.0, 0.001), (0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (47.0, 50.0), (999.0, 1000.0)] {
            assert_eq!((round_up(value) * 1e6).round() / 1e6, scale, "{value}");
        }
        for (seconds, text) in [(59, "59 s"), (61, "1 min"), (7_260, "2 h 1 min"), (200_000, "2 days 7 h")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
