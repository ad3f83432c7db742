//! Masks an operator's secrets in answers.
//!
//! A plugin decides what it sends and sees what comes back, so masking must not tell it anything about a value. Three
//! rules see to that:
//!
//! - A value is found by its first [`BLOCK`] bytes. Where they occur but the rest does not, as in a quotation that was cut
//!   off, everything up to the end of the JSON string or the line is masked, so that the rest cannot be guessed byte by
//!   byte.
//! - The number of stars is the length of the value, whatever form it had in the answer.
//! - Nothing is masked but operators' secrets. A captured value is masked where it stood (see [`crate::captures`]).
//!
//! So two values of one length look the same to a plugin, whatever it sends. What is left is guessing the first 8 bytes of
//! a value at once, and a server that cuts a quotation off within them.
//!
//! A value is found in any case, and as it is, in base64 (once or twice, wrapped or not), in hexadecimal, and behind up to
//! three layers of percent encoding, escapes of JSON and similar languages, and HTML entities.

mod decode;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use decode::{Escapes, View};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A value is found by this many of its first bytes. Fewer would star out innocent text and could be guessed; more would
/// show more of a value that a server cuts off.
const BLOCK: usize = 8;
/// A shorter part of a secret is not masked by itself: it would star out half of every answer.
pub(crate) const SHORTEST: usize = BLOCK;
/// Layers of escapes that are looked behind.
const LAYERS: usize = 3;
/// Other tasks of the runtime get a turn after so many bytes: a body of many megabytes must not hold them up.
const TURN: usize = 64 << 10;
/// No pattern is longer: [`BLOCK`] bytes, in base64 twice or in hexadecimal.
const LONGEST_PATTERN: usize = 2 * BLOCK;

/// Finds the values of a target's secrets. Empty when it has none.
#[derive(Default)]
pub(crate) struct Masker {
    automaton: Option<AhoCorasick>,
    /// What each pattern of the automaton stands for.
    needles: Vec<Needle>,
    values: Vec<Value>,
    /// Layers of escapes that are looked behind: those of a server, and those that a value has itself.
    layers: usize,
}

/// The first bytes of some values in one form.
struct Needle {
    form: Form,
    /// Places in [`Masker::values`].
    values: Vec<usize>,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain,
    Base64,
    Hexadecimal,
}

/// A text to be masked.
struct Value {
    text: Vec<u8>,
    /// The length of the secret that it belongs to.
    stars: usize,
}

/// A part of the source to be replaced.
#[derive(Debug)]
pub(crate) struct Region {
    pub source: Range<usize>,
    /// How many stars stand there instead; a number in JSON has none and becomes 0.
    pub stars: usize,
}

/// What one look at a text has found.
#[derive(Default)]
struct Found {
    /// Whole values, and runs of base64 and hexadecimal digits.
    whole: Vec<Region>,
    /// From the first bytes of a value to the end of the string or line.
    parts: Vec<Region>,
}

impl Found {
    fn extend(&mut self, more: Self) {
        self.whole.extend(more.whole);
        self.parts.extend(more.parts);
    }

    /// Behind some layers of escapes a value is whole, and behind fewer only its beginning can be seen: then it ends where
    /// the whole one ends.
    fn settled(mut self) -> Vec<Region> {
        self.whole.sort_by_key(|region| region.source.start);
        // The furthest end of a whole value that begins here or before.
        let mut furthest = 0;
        let ends: Vec<usize> = (self.whole.iter())
            .map(|region| {
                furthest = region.source.end.max(furthest);
                furthest
            })
            .collect();
        let whole = &self.whole;
        let is_inside = |part: &Region| {
            let before = whole.partition_point(|region| region.source.start <= part.source.start);
            before.checked_sub(1).is_some_and(|last| ends[last] > part.source.start)
        };
        self.parts.retain(|part| !is_inside(part));
        self.whole.append(&mut self.parts);
        self.whole
    }
}

/// Where the text in hand ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    /// At its end: it is the content of one JSON string.
    Whole,
    /// At each line break: no secret has one.
    Lines,
    /// Nowhere: only whole values are masked.
    Exact,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker(..)")
    }
}

impl Masker {
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let (mut values, mut own_layers) = (Vec::new(), 0);
        for secret in secrets {
            let halves = [':', '='].into_iter().filter_map(|separator| secret.split_once(separator));
            let parts = [secret].into_iter().chain(halves.flat_map(|(first, second)| [first, second]));
            for part in parts.filter(|part| part.len() >= SHORTEST) {
                // A value that itself holds escapes loses them together with those that a server adds.
                let texts = std::iter::successors(Some(part.as_bytes().to_vec()), |text| decode::undone(text));
                for (layer, text) in texts.take(LAYERS + 1).enumerate().filter(|(_, text)| text.len() >= SHORTEST) {
                    own_layers = own_layers.max(layer);
                    values.push(Value { text, stars: part.len() });
                }
            }
        }
        let mut patterns: BTreeMap<(Vec<u8>, Form), Vec<usize>> = BTreeMap::new();
        for (place, value) in values.iter().enumerate() {
            let block = &value.text[..value.text.len().min(BLOCK)];
            for (form, pattern) in forms(block) {
                patterns.entry((pattern, form)).or_default().push(place);
            }
        }
        let (patterns, needles): (Vec<_>, Vec<_>) =
            patterns.into_iter().map(|((pattern, form), values)| (pattern, Needle { form, values })).unzip();
        // Each target has an automaton; in this form it takes about 10 kB for each secret.
        let build = || {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(true)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&patterns)
        };
        // Building fails only on more than 2^31 patterns' worth of states; there are some dozens.
        let automaton = (!patterns.is_empty()).then(|| build().expect("some dozens of short patterns"));
        Self { automaton, needles, values, layers: LAYERS + own_layers }
    }

    /// A body as the plugin may see it. JSON stays JSON.
    pub(crate) async fn body(&self, body: Vec<u8>) -> Vec<u8> {
        let Some(automaton) = &self.automaton else { return body };
        let mut turns = Turns::default();
        // Nearly every body: no secret as it is, and nothing that could stand for one in another way.
        if !body.iter().any(|byte| decode::begins_escape(*byte)) && !automaton.is_match(&body) {
            return body;
        }
        // A number alone is text: digits may be a value in hexadecimal.
        let has_structure =
            body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| b"{[\"".contains(first));
        if !has_structure || serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_err() {
            let found = self.behind(Some(View::of(&body)), (&body, Bounds::Lines, self.layers), &mut turns).await;
            return replaced(body, found.settled());
        }
        // A secret that holds quotes and commas can lie across tokens; then the shape of the JSON cannot be kept.
        let mut regions = self.find(&View::of(&body), (&body, Bounds::Exact), &mut turns).await.whole;
        regions.retain(|region| body[region.source.clone()].contains(&b'"'));
        for token in Tokens::of(&body) {
            let text = &body[token.clone()];
            if text[0] == b'"' {
                let content = token.start + 1..token.end - 1;
                let found = self.in_string(&body[content.clone()], &mut turns).await.settled();
                regions.extend(found.into_iter().map(|region| region.moved(content.start)));
            } else if automaton.is_match(text) {
                // A number cannot hold stars.
                regions.push(Region { source: token, stars: 0 });
            }
        }
        replaced(body, regions)
    }

    /// A header, a reason or an error as the plugin may see it.
    pub(crate) async fn text(&self, text: String) -> String {
        if self.automaton.is_none() {
            return text;
        }
        let (source, mut turns) = (text.as_bytes(), Turns::default());
        let found = self.behind(Some(View::of(source)), (source, Bounds::Whole, self.layers), &mut turns).await;
        let masked = replaced(text.into_bytes(), found.settled());
        String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    async fn in_string(&self, content: &[u8], turns: &mut Turns) -> Found {
        let source = View::of(content);
        let mut found = self.find(&source, (content, Bounds::Whole), turns).await;
        if content.iter().any(|byte| decode::begins_escape(*byte)) {
            let decoded = source.decoded(Escapes::Json, turns).await.unwrap_or(source);
            found.extend(self.behind(Some(decoded), (content, Bounds::Whole, self.layers - 1), turns).await);
        }
        found
    }

    /// What is found in a view and behind its escapes.
    async fn behind(
        &self,
        mut view: Option<View<'_>>,
        (source, bounds, layers): (&[u8], Bounds, usize),
        turns: &mut Turns,
    ) -> Found {
        let mut found = Found::default();
        for _ in 0..=layers {
            let Some(present) = view.take() else { break };
            found.extend(self.find(&present, (source, bounds), turns).await);
            view = present.decoded(Escapes::Any, turns).await;
        }
        found
    }

    /// Where a value begins in a view of `source`.
    async fn find(&self, view: &View<'_>, (source, bounds): (&[u8], Bounds), turns: &mut Turns) -> Found {
        let mut found = Found::default();
        // A pattern may overlap itself; one region is enough.
        let mut ends = vec![0; self.needles.len()];
        for start in (0..view.bytes.len()).step_by(TURN) {
            self.find_from(start, view, (source, bounds), (&mut found, &mut ends));
            turns.after(view.bytes.len().min(start + TURN) - start).await;
        }
        found
    }

    /// What begins within one turn's worth of bytes.
    fn find_from(
        &self,
        start: usize,
        view: &View<'_>,
        (source, bounds): (&[u8], Bounds),
        (found, ends): (&mut Found, &mut [usize]),
    ) {
        let Some(automaton) = &self.automaton else { return };
        let text = &view.bytes[..];
        let window = start..text.len().min(start + TURN + LONGEST_PATTERN);
        for hit in automaton.find_overlapping_iter(Input::new(text).range(window)) {
            let number = hit.pattern().as_usize();
            if hit.start() < ends[number] || hit.start() >= start + TURN {
                continue;
            }
            let needle = &self.needles[number];
            let (range, stars) = match needle.form {
                Form::Plain => match self.whole(needle, &text[hit.start()..]) {
                    Some(value) => (hit.start()..hit.start() + value.text.len(), value.stars),
                    None if bounds == Bounds::Exact => continue,
                    None => {
                        let stars = needle.values.iter().map(|value| self.values[*value].stars).max().unwrap_or(0);
                        let source_range = view.source(hit.range());
                        let end = end_of(source, source_range.end, bounds);
                        ends[number] = view.place_of(end);
                        found.parts.push(Region { source: source_range.start..end, stars });
                        continue;
                    }
                },
                _ if bounds == Bounds::Exact => continue,
                Form::Base64 => run(text, hit.range(), decode::is_base64),
                Form::Hexadecimal => run(text, hit.range(), |byte| byte.is_ascii_hexdigit()),
            };
            ends[number] = range.end;
            found.whole.push(Region { source: view.source(range), stars });
        }
    }

    /// The longest value of a needle that stands at the beginning of a text.
    fn whole(&self, needle: &Needle, text: &[u8]) -> Option<&Value> {
        let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || matches!((a, b), (b' ', b'+') | (b'+', b' '));
        let stands = |value: &&Value| text.len() >= value.text.len() && value.text.iter().zip(text).all(same);
        needle.values.iter().map(|place| &self.values[*place]).filter(stands).max_by_key(|value| value.text.len())
    }
}

/// The first bytes of a value in every form.
fn forms(block: &[u8]) -> Vec<(Form, Vec<u8>)> {
    let mut forms = vec![(Form::Plain, block.to_vec())];
    if block.contains(&b' ') {
        let with_plus = block.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect();
        forms.push((Form::Plain, with_plus));
    }
    forms.push((Form::Hexadecimal, block.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()));
    let once = in_base64(block);
    let twice: Vec<Vec<u8>> = once.iter().flat_map(|encoded| in_base64(encoded)).collect();
    forms.extend(once.into_iter().chain(twice).map(|encoded| (Form::Base64, encoded)));
    forms
}

/// Bytes in base64, at each of the three offsets at which they can lie in a longer text. Characters that also depend on what
/// lies before or behind are left out.
fn in_base64(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::with_capacity(6);
    for offset in 0..3 {
        let mut shifted = vec![0; offset];
        shifted.extend_from_slice(bytes);
        let determined = (offset * 8).div_ceil(6)..shifted.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            forms.push(engine.encode(&shifted).as_bytes()[determined.clone()].to_vec());
        }
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// The longest run of one kind of characters round a range, and its length.
fn run(text: &[u8], range: Range<usize>, belongs: impl Fn(u8) -> bool) -> (Range<usize>, usize) {
    let before = text[..range.start].iter().rev().take_while(|byte| belongs(**byte)).count();
    let behind = text[range.end..].iter().take_while(|byte| belongs(**byte)).count();
    let range = range.start - before..range.end + behind;
    let length = range.len();
    (range, length)
}

/// Where what began before `from` ends at the latest.
fn end_of(source: &[u8], from: usize, bounds: Bounds) -> usize {
    if bounds == Bounds::Whole {
        return source.len();
    }
    source[from..].iter().position(|byte| matches!(byte, b'\r' | b'\n')).map_or(source.len(), |length| from + length)
}

impl Region {
    fn moved(self, by: usize) -> Self {
        Self { source: self.source.start + by..self.source.end + by, ..self }
    }
}

/// Puts stars in the place of each region.
pub(crate) fn replaced(source: Vec<u8>, mut regions: Vec<Region>) -> Vec<u8> {
    if regions.is_empty() {
        return source;
    }
    regions.sort_by_key(|region| region.source.start);
    let mut masked = Vec::with_capacity(source.len());
    let mut copied = 0;
    let mut regions = regions.into_iter().peekable();
    while let Some(mut region) = regions.next() {
        while let Some(next) = regions.next_if(|next| next.source.start < region.source.end) {
            region.source.end = region.source.end.max(next.source.end);
            region.stars = region.stars.max(next.stars);
        }
        masked.extend_from_slice(&source[copied..region.source.start]);
        match region.stars {
            0 => masked.push(b'0'),
            stars => masked.resize(masked.len() + stars, b'*'),
        }
        copied = region.source.end;
    }
    masked.extend_from_slice(&source[copied..]);
    masked
}

/// Strings with their quotes, and numbers, of valid JSON.
struct Tokens<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    fn of(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let body = self.body;
        let begins = |byte: &u8| matches!(byte, b'"' | b'-' | b'0'..=b'9');
        let start = self.at + body.get(self.at..)?.iter().position(begins)?;
        let mut at = start + 1;
        if body[start] == b'"' {
            while at < body.len() && body[at] != b'"' {
                at += if body[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
        } else {
            while at < body.len() && matches!(body[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') {
                at += 1;
            }
        }
        self.at = at.min(body.len());
        Some(start..self.at)
    }
}

/// Gives other tasks a turn now and then.
#[derive(Default)]
pub(crate) struct Turns {
    bytes: usize,
}

impl Turns {
    pub(crate) async fn after(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= TURN {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
