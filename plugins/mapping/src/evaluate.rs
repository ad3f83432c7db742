//! Applies a mapping to a body. Pure.

use crate::comparison::{Field, Severity};
use crate::path::{Found, Path};
use crate::settings::{Fields, Mapping};
use crate::tree::Node;
use crate::words::{severity, tells_of_failure, tells_of_success, word};
use polliwog_sdk::prelude::*;
use std::collections::BTreeSet;

/// The most dependencies that the status of the whole runs on.
const MOST: usize = 64;

pub(crate) fn report(mapping: &Mapping, body: &Node<'_>) -> Result<Report, CallError> {
    let overall = mapping.overall.as_ref().and_then(|path| path.as_key());
    let mut found = Reading { overall, ..Reading::default() };
    let mut missing = None;
    for (root, fields) in mapping.parts() {
        if let Err(why) = found.read(root, fields, body) {
            missing.get_or_insert(why);
        }
    }
    if let Some(why) = missing {
        // A service may show the status of the whole and hide its parts.
        let overall = mapping.overall.as_ref().and_then(|path| status_at(path, body)?.status);
        if overall.is_none() || !found.dependencies.is_empty() {
            return Err(why);
        }
        found.warnings.insert(format!("only the status of the whole is known: {}", why.failure().message));
        found.dependencies.append(&mut found.odd_roots);
    }
    if let Some(path) = &mapping.overall {
        let overall = found.overall(path, body);
        found.dependencies.push(overall);
    }
    let Reading { dependencies, warnings, .. } = found;
    let mut report: Report = dependencies.into_iter().collect();
    report.warnings = warnings.into_iter().collect();
    Ok(report)
}

fn shape(message: String) -> CallError {
    CallError::transient("unexpected_shape", message)
}

/// An element: its place in the list or object, and its value.
#[derive(Clone, Copy)]
struct Item<'n, 'a> {
    place: Place<'n>,
    value: &'n Node<'a>,
}

#[derive(Clone, Copy)]
enum Place<'n> {
    /// An element of an array, counted from 0.
    Index(usize),
    /// A member of an object: its position, counted from 0, and its key.
    Key(usize, &'n str),
}

impl Place<'_> {
    /// Returns the name of an element that does not say its own.
    fn name(self) -> String {
        match self {
            Self::Key(_, key) if !key.trim().is_empty() => key.to_owned(),
            Self::Key(at, _) | Self::Index(at) => format!("item {}", at + 1),
        }
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "item {}", index + 1),
            Self::Key(_, key) => write!(f, "member {key:?}"),
        }
    }
}

/// The dependencies in a body, and warnings.
#[derive(Default)]
struct Reading<'m> {
    /// The key of the whole body that has the status of the whole.
    overall: Option<&'m str>,
    dependencies: Vec<Dependency>,
    warnings: BTreeSet<String>,
    /// Roots that are neither arrays nor objects, and that do not say that all is well.
    odd_roots: Vec<Dependency>,
    /// Whether the elements are at a place of their own, and not the members of the whole body.
    has_root: bool,
}

impl Reading<'_> {
    /// Reads the elements at a root.
    fn read(&mut self, root: &Path, fields: &Fields, body: &Node<'_>) -> Result<(), CallError> {
        let mut is_found = false;
        let mut others = Vec::new();
        self.has_root = !root.is_empty();
        root.each(body, &mut |found| match found {
            Found::Value(Node::List(items)) => {
                is_found = true;
                for (index, value) in items.iter().enumerate() {
                    self.take(fields, Item { place: Place::Index(index), value });
                }
            }
            Found::Value(Node::Object(members)) => {
                is_found = true;
                for (at, (key, value)) in in_js_order(members).into_iter().enumerate() {
                    self.member(fields, Item { place: Place::Key(at, key), value });
                }
            }
            Found::Value(value) if !value.is_null() && fields.use_values() => {
                is_found = true;
                let key = root.steps.last().map_or("status", String::as_str);
                self.take(fields, Item { place: Place::Key(0, key), value });
            }
            Found::Value(value) if !value.is_null() => others.push(value),
            _ => {}
        });
        let key = root.steps.last().map_or("status", String::as_str);
        let odd = others.into_iter().map(|value| {
            let why = format!("it is {}, and neither an array nor an object", shortened(&value.to_json()));
            (value, Dependency::unknown(key, why))
        });
        if is_found {
            // The key is repeated, with values of several kinds.
            self.dependencies.extend(odd.map(|(_, unknown)| unknown));
            return Ok(());
        }
        let is_well = |value: &Node<'_>| value.as_text().is_some_and(|text| tells_of_success(text, true));
        self.odd_roots.extend(odd.filter(|(value, _)| !is_well(value)).map(|(_, unknown)| unknown));
        Err(shape(not_found(root, body)))
    }

    /// Reads a member of an object: one dependency, or one for each element of its array of objects, as in the draft
    /// for health checks (draft-inadarei-api-health-check-06).
    fn member(&mut self, fields: &Fields, item: Item<'_, '_>) {
        let (Node::List(elements), Place::Key(at, key)) = (item.value, item.place) else {
            return self.take(fields, item);
        };
        if fields.use_values() || fields.use_lists() || !elements.iter().any(Node::is_object) {
            return self.take(fields, item);
        }
        for (index, value) in elements.iter().enumerate() {
            let id = Path::parse("componentId").last(value).and_then(name_of);
            let key = match id {
                Some(id) => format!("{key}/{id}"),
                None if index == 0 => key.to_owned(),
                None => format!("{key}/{}", index + 1),
            };
            self.take(fields, Item { place: Place::Key(at, &key), value });
        }
    }

    /// Reads an element. One that is not of the shape is left out, unless it says that something is not ok.
    fn take(&mut self, fields: &Fields, item: Item<'_, '_>) {
        let Item { place, value } = item;
        if value.is_object() || fields.use_values() || (fields.use_lists() && matches!(value, Node::List(_))) {
            let dependency = self.dependency(fields, item);
            return self.dependencies.push(dependency);
        }
        if matches!(place, Place::Index(_)) && !value.is_null() {
            let why = format!("it is {}, and not a JSON object", shortened(&value.to_json()));
            return self.dependencies.push(Dependency::unknown(place.name(), why));
        }
        if matches!(place, Place::Key(_, key) if !self.has_root && self.overall == Some(key)) {
            return;
        }
        if matches!(place, Place::Key(..)) && value.as_text().is_some_and(|text| tells_of_success(text, self.has_root))
        {
            // It was reported while its word was another one.
            return self.dependencies.push(Dependency::ok(place.name()));
        }
        self.warnings.insert(format!("{place} is skipped: it is not a JSON object"));
        let is_severe = || match &fields.severity {
            Some(Severity::Path(_)) if self.has_root => {
                Found::Value(value).to_js().and_then(|text| severity(&text)).is_some_and(|status| status != Status::Ok)
            }
            _ => false,
        };
        if tells_of_failure(value, self.has_root) || is_severe() {
            let why = format!("it is {}, and not a JSON object with a status", shortened(&value.to_json()));
            self.dependencies.push(Dependency::unknown(place.name(), why));
        }
        // One that was a dependency before is missing now: nothing says that it was removed.
    }

    fn dependency(&mut self, fields: &Fields, Item { place, value }: Item<'_, '_>) -> Dependency {
        let name = match (&fields.name, place) {
            (Field::Path(path), Place::Key(_, key)) if path.is_step("$key") => Some(key.to_owned()),
            (field, _) => at(Some(field), value).and_then(name_of),
        };
        let name = name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| {
            self.warnings.insert(format!("{place} has no name: \"name\" is missing, empty, a list or an object"));
            place.name()
        });
        let skipped = fields.skipped.as_ref().is_some_and(|field| is_skipped(field, fields, value));
        let (status, why) = if skipped { (Status::Ok, None) } else { self.status(fields, &name, value) };
        let path = |path: &Option<Path>| path.as_ref().and_then(|path| path.last(value));
        let object =
            |of: &Option<Path>| path(of).and_then(Found::node).filter(|node| node.is_object()).map(Node::to_json);
        let text = |field: &Option<Field>| at(field.as_ref(), value).and_then(text).map(str::to_owned);
        Dependency {
            kind: text(&fields.kind).filter(|kind| !kind.trim().is_empty()),
            latency_ms: at(fields.latency.as_ref(), value).and_then(latency),
            description: text(&fields.description),
            impact: text(&fields.impact),
            error: path(&fields.error).filter(|error| !error.is_null()).map(Found::to_json),
            error_message: path(&fields.error_message).and_then(self::text).map(str::to_owned).or(why),
            contact: object(&fields.contact),
            check_details: object(&fields.check_details),
            ..Dependency::new(name, status).with_skipped(skipped)
        }
    }

    /// Returns the worse of `healthy` and `severity` if both are mapped, unknown if neither can be read, and the reason
    /// for a status other than ok.
    fn status(&mut self, fields: &Fields, name: &str, item: &Node<'_>) -> (Status, Option<String>) {
        let mut all = Vec::new();
        if let Some(field) = &fields.healthy {
            all.push(("healthy", field.path(), judged(field, item)));
        }
        match &fields.severity {
            Some(Severity::Path(path)) => {
                let mut is_there = false;
                path.each(item, &mut |found| is_there |= !found.is_null());
                // One of the two fields is sufficient.
                if is_there || all.is_empty() {
                    all.push(("severity", path, worst_of(path, item, &|found| severity(&found.to_js()?))));
                }
            }
            Some(Severity::Bounds(bounds)) => {
                let bounds = [(&bounds.critical, Status::Critical), (&bounds.warning, Status::Warning)];
                for (bound, status) in bounds.into_iter().filter_map(|(bound, status)| Some((bound.as_ref()?, status)))
                {
                    let read = |found: Found<'_, '_>| {
                        let holds = bound.holds(found).filter(|holds| *holds || found.is_plain())?;
                        Some(if holds { status } else { Status::Ok })
                    };
                    all.push(("severity", &bound.field, worst_of(&bound.field, item, &read)));
                }
            }
            None => {}
        }
        let mut worst = if all.is_empty() { Status::Unknown } else { Status::Ok };
        let mut why = None;
        for (field, path, judged) in all {
            let status = match judged {
                Some(Judged { status: Some(status), value }) => {
                    let is_worse = worst.worse(status) != worst;
                    why = if is_worse { Some(stated(path, value)) } else { why };
                    status
                }
                unread => {
                    let found = unread.map(|found| shortened(&found.value.to_json()));
                    let found = found.unwrap_or_else(|| "missing".to_owned());
                    let hint = path.as_one_key(item).map_or_else(String::new, |hint| format!(": {hint}"));
                    let reason = format!("is {found}, which is not a known word or number{hint}");
                    self.warnings.insert(format!("the {field:?} of {name:?} {reason}"));
                    let is_worse = worst.worse(Status::Unknown) != worst;
                    why = if is_worse { Some(format!("{field:?} {reason}")) } else { why };
                    Status::Unknown
                }
            };
            worst = worst.worse(status);
        }
        (worst, why)
    }

    /// Reads the status of the whole. While a part is critical, it runs on that: both say the same.
    fn overall(&mut self, path: &Path, body: &Node<'_>) -> Dependency {
        let last = path.steps.last().map(|step| step.trim()).filter(|step| !step.is_empty());
        let name = last.unwrap_or("status");
        let found = status_at(path, body);
        let shown = found.as_ref().map_or_else(|| "missing".to_owned(), |found| shortened(&found.value.to_json()));
        let dependency = match found.and_then(|found| found.status) {
            Some(Status::Ok) => Dependency::ok(name),
            Some(status) => {
                Dependency { error_message: Some(format!("the service says {shown}")), ..Dependency::new(name, status) }
            }
            None => Dependency::unknown(name, format!("it is {shown}, which is not a known word")),
        };
        let critical = self.dependencies.iter().filter(|found| found.status == Status::Critical && found.name != name);
        Dependency { runs_on: critical.map(|found| found.name.clone()).take(MOST).collect(), ..dependency }
    }
}

/// Returns the worst of the values at a path as words or numbers of a severity.
fn status_at<'n, 'a>(path: &Path, body: &'n Node<'a>) -> Option<Judged<'n, 'a>> {
    worst_of(path, body, &|found| severity(&found.to_js()?))
}

/// Explains that there is nothing at a root.
fn not_found(root: &Path, body: &Node<'_>) -> String {
    let hint = root
        .as_one_key(body)
        .unwrap_or_else(|| "if it is a single value, use \"$value\" for healthy or severity".to_owned());
    let place = match root.is_empty() {
        true => "the body is neither an array nor an object".to_owned(),
        false => format!("there is no array or object at the mapping's root {:?} in the body", root.written),
    };
    format!("{place} ({hint})")
}

/// The worst of the values at a path: several, if a key is repeated.
struct Judged<'n, 'a> {
    /// `None` if the value cannot be read.
    status: Option<Status>,
    value: Found<'n, 'a>,
}

/// Returns the worst of the values at a path: a critical one, one that cannot be read, or another one. `None` if there
/// is no value.
fn worst_of<'n, 'a>(
    path: &Path,
    item: &'n Node<'a>,
    read: &dyn Fn(Found<'n, 'a>) -> Option<Status>,
) -> Option<Judged<'n, 'a>> {
    let rank = |judged: &Judged<'_, '_>| judged.status.unwrap_or(Status::Unknown);
    let mut worst: Option<Judged<'n, 'a>> = None;
    path.each(item, &mut |value| {
        let found = Judged { status: read(value), value };
        if worst.as_ref().is_none_or(|worst| rank(worst).worse(rank(&found)) != rank(worst)) {
            worst = Some(found);
        }
    });
    worst
}

/// Whether an element was skipped on purpose. Of an object that is repeated, each one has to say so.
fn is_skipped(field: &Field, fields: &Fields, item: &Node<'_>) -> bool {
    let count = |path: &Path| {
        let mut count = 0;
        path.each(item, &mut |_| count += 1);
        count
    };
    let is_whole = || fields.of_status().all(|path| count(path) <= count(field.path()));
    judged(field, item).is_some_and(|found| found.status == Some(Status::Ok)) && is_whole()
}

/// Evaluates the field `healthy` or `skipped`.
fn judged<'n, 'a>(field: &Field, item: &'n Node<'a>) -> Option<Judged<'n, 'a>> {
    let plain = |healthy: bool| if healthy { Status::Ok } else { Status::Critical };
    match field {
        Field::Path(path) => worst_of(path, item, &|found| match found.node()? {
            Node::Bool(healthy) => Some(plain(*healthy)),
            Node::Text(text) => word(text),
            _ => None,
        }),
        Field::Comparison(comparison) => worst_of(&comparison.field, item, &|found| comparison.holds(found).map(plain)),
    }
}

/// Says which value a path has.
fn stated(path: &Path, value: Found<'_, '_>) -> String {
    let value = shortened(&value.to_json());
    match path.written.as_str() {
        "$value" => format!("it is {value}"),
        quoted if quoted.contains('"') => format!("{quoted} is {value}"),
        plain => format!("{plain:?} is {value}"),
    }
}

/// Returns the value of a field. A comparison yields a boolean, which is neither text nor number. Like upstream, it is
/// ignored except in `healthy` and `skipped`.
fn at<'n, 'a>(field: Option<&Field>, item: &'n Node<'a>) -> Option<Found<'n, 'a>> {
    match field? {
        Field::Path(path) => path.last(item),
        Field::Comparison(_) => None,
    }
}

/// Returns the name that a value is: a text, a number or a boolean.
fn name_of(found: Found<'_, '_>) -> Option<String> {
    match found.node()? {
        // The host makes it plain, and shows in a note what made two names equal.
        Node::Text(text) => Some(text.clone().into_owned()),
        // An id keeps its digits.
        Node::Number(number) if !number.is_f64() => Some(number.to_string()),
        Node::Number(_) | Node::Bool(_) => found.to_js(),
        _ => None,
    }
}

fn text<'n>(found: Found<'n, '_>) -> Option<&'n str> {
    found.node()?.as_text()
}

/// Returns a latency in milliseconds: a number, or a time span of .NET (`[d.]hh:mm:ss[.fffffff]`).
fn latency(found: Found<'_, '_>) -> Option<f64> {
    let Some(text) = text(found) else { return found.as_number() };
    let (rest, seconds) = text.rsplit_once(':')?;
    let (hours, minutes) = rest.rsplit_once(':')?;
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let part = |text: &str| text.parse::<f64>().ok().filter(|part| part.is_finite() && *part >= 0.0);
    let hours = part(days)? * 24.0 + part(hours)?;
    Some(((hours * 60.0 + part(minutes)?) * 60.0 + part(seconds)?) * 1000.0)
}

/// Shortens a value for a message.
fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    if shown.len() < text.len() { shown + "…" } else { shown }
}

/// Returns the members of an object in the order of JavaScript: array-index keys ascending, then the others in their
/// original order.
fn in_js_order<'n, 'a>(members: &'n [(std::borrow::Cow<'a, str>, Node<'a>)]) -> Vec<(&'n str, &'n Node<'a>)> {
    let index = |key: &str| key.parse::<u32>().ok().filter(|&n| n < u32::MAX && n.to_string() == key);
    let mut ordered: Vec<_> = members.iter().map(|(key, value)| (&**key, value)).collect();
    ordered.sort_by_key(|(key, _)| index(key).map_or((1, 0), |n| (0, n)));
    ordered
}
