//! Masks an operator's secrets in answers.
//!
//! A plugin decides what it sends and sees the answer, so masking must not reveal anything about a value. Three rules
//! ensure that:
//!
//! - A value is found by its first [`BLOCK`] bytes. If they occur without the rest, for example in a truncated
//!   quotation, everything up to the end of the JSON string or the line is masked. So the rest cannot be guessed byte
//!   by byte.
//! - The number of stars is the length of the value, whatever its encoding in the answer.
//! - Only operators' secrets are masked. A captured value is masked by its place (see the module `captures`).
//!
//! So a plugin cannot distinguish two values of equal length, whatever it sends. Two ways remain: to guess the first 8
//! bytes of a value in one request, and a server that truncates a quotation within these bytes.
//!
//! A value is found in upper and lower case, as plain text, in base64 (once or twice, with or without line breaks), in
//! hexadecimal, and behind up to three layers of percent encoding, escapes of JSON and similar languages, and HTML
//! entities.

mod decode;
mod filter;
mod turns;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use decode::{Escapes, View};
use filter::Filter;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use turns::{TURN, Turns};

/// The number of first bytes by which a value is found. Fewer bytes would mask unrelated text and could be guessed.
/// More bytes would reveal more of a truncated value.
const BLOCK: usize = 8;
/// Minimum length of a part of a secret that is masked separately. A shorter part would mask much unrelated text.
pub(crate) const SHORTEST: usize = BLOCK;
/// Maximum number of escape layers that are decoded.
const LAYERS: usize = 3;
/// Maximum length of a pattern: [`BLOCK`] bytes in hexadecimal or twice in base64.
const LONGEST_PATTERN: usize = 2 * BLOCK;
// No encoding is shorter than the block.
const _: () = assert!(BLOCK >= filter::SHORTEST_PATTERN);

/// Finds the values of a target's secrets.
#[derive(Default)]
pub(crate) struct Masker {
    /// `None` if the target has no secrets.
    automaton: Option<AhoCorasick>,
    /// The places that the automaton searches.
    filter: Filter,
    /// The values of each pattern of the automaton.
    needles: Vec<Needle>,
    values: Vec<Value>,
    /// The number of escape layers that are decoded: those of a server, plus those inside the values.
    layers: usize,
}

/// The first bytes of one or more values in one encoding.
struct Needle {
    form: Form,
    /// Indexes into [`Masker::values`].
    values: Vec<usize>,
}

/// The encoding of a value in an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain,
    Base64,
    Hexadecimal,
}

/// A text to mask.
struct Value {
    text: Vec<u8>,
    /// The length of the secret that the text belongs to.
    stars: usize,
}

/// A part of the source to replace.
#[derive(Debug)]
pub(crate) struct Region {
    pub source: Range<usize>,
    /// The number of stars that replace it. 0 for a JSON number, which is replaced by the digit 0.
    pub stars: usize,
}

/// The regions that a search has found.
#[derive(Default)]
struct Found {
    /// Complete values, and runs of base64 and hexadecimal digits.
    whole: Vec<Region>,
    /// Regions from the first bytes of an incomplete value to the end of the string or line.
    parts: Vec<Region>,
}

impl Found {
    fn extend(&mut self, more: Self) {
        self.whole.extend(more.whole);
        self.parts.extend(more.parts);
    }

    /// Merges both lists. A value can be complete after some layers of decoding and incomplete after fewer layers. Then
    /// only the complete region counts.
    fn settled(mut self) -> Vec<Region> {
        self.whole.sort_by_key(|region| region.source.start);
        // The furthest end of a complete value that begins here or earlier.
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

/// A source text and the end of its incomplete values.
#[derive(Clone, Copy)]
struct Text<'a> {
    source: &'a [u8],
    bounds: Bounds,
}

/// The results of a search in progress.
struct Search {
    found: Found,
    /// For each needle the end of its last region in the view. Earlier matches overlap it.
    ends: Vec<usize>,
}

/// Where an incomplete value ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    /// At the end of the text, which is the content of one JSON string.
    Whole,
    /// At the next line break. Secrets contain no line breaks.
    Lines,
    /// Incomplete values are not masked.
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
                // If a value itself contains escapes, decoding removes them together with those that a server adds.
                let texts = std::iter::successors(Some(part.as_bytes().to_vec()), |text| decode::decode_short(text));
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
        // Each target has an automaton. This kind takes about 10 kB per secret.
        let build = || {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(true)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&patterns)
        };
        // Building fails only if there are too many states for 31 bits. There are a few dozen short patterns.
        let automaton = (!patterns.is_empty()).then(|| build().expect("a few dozen short patterns fit"));
        let filter = Filter::new(patterns.iter().map(Vec::as_slice));
        Self { automaton, filter, needles, values, layers: LAYERS + own_layers }
    }

    /// Returns whether there is nothing to find.
    pub(crate) fn is_empty(&self) -> bool {
        self.automaton.is_none()
    }

    /// Returns a body with its secrets replaced.
    #[cfg(any(test, fuzzing))]
    pub(crate) async fn body(&self, body: Vec<u8>) -> Vec<u8> {
        let regions = self.regions(&body).await;
        replaced(body, regions)
    }

    /// Returns the parts of a body to replace. With them, valid JSON stays valid.
    pub(crate) async fn regions(&self, body: &[u8]) -> Vec<Region> {
        // The common case: the body contains neither a pattern nor an escape.
        if self.automaton.is_none() || !self.contains_pattern(body) && !decode::contains_escape(body) {
            return Vec::new();
        }
        let mut turns = Turns::default();
        // A single number is treated as text, because its digits may be a value in hexadecimal.
        let has_structure =
            body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| b"{[\"".contains(first));
        if !has_structure || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
            let text = Text { source: body, bounds: Bounds::Lines };
            return self.find_in_layers(Some(View::of(body)), text, self.layers, &mut turns).await.settled();
        }
        // A secret that contains quotes and commas can span tokens. Then the JSON structure cannot be preserved.
        let text = Text { source: body, bounds: Bounds::Exact };
        let mut regions = self.find(&View::of(body), text, &mut turns).await.whole;
        regions.retain(|region| body[region.source.clone()].contains(&b'"'));
        for token in Tokens::of(body) {
            let text = &body[token.clone()];
            if text[0] == b'"' {
                let content = token.start + 1..token.end - 1;
                let found = self.in_string(&body[content.clone()], &mut turns).await.settled();
                regions.extend(found.into_iter().map(|region| region.moved(content.start)));
            } else if self.contains_pattern(text) {
                // A number cannot contain stars.
                regions.push(Region { source: token, stars: 0 });
            }
        }
        regions
    }

    /// Masks a header, a reason phrase or an error.
    pub(crate) async fn text(&self, text: String) -> String {
        if self.automaton.is_none() {
            return text;
        }
        let mut turns = Turns::default();
        let whole = Text { source: text.as_bytes(), bounds: Bounds::Whole };
        let found = self.find_in_layers(Some(View::of(whole.source)), whole, self.layers, &mut turns).await;
        let masked = replaced(text.into_bytes(), found.settled());
        String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    async fn in_string(&self, content: &[u8], turns: &mut Turns) -> Found {
        let text = Text { source: content, bounds: Bounds::Whole };
        let source = View::of(content);
        let mut found = self.find(&source, text, turns).await;
        if decode::contains_escape(content) {
            let decoded = source.decoded(Escapes::Json, turns).await.unwrap_or(source);
            found.extend(self.find_in_layers(Some(decoded), text, self.layers - 1, turns).await);
        }
        found
    }

    /// Searches a view, then the view with one more layer of escapes decoded, up to `layers` times.
    async fn find_in_layers(
        &self,
        mut view: Option<View<'_>>,
        text: Text<'_>,
        layers: usize,
        turns: &mut Turns,
    ) -> Found {
        let mut found = Found::default();
        for _ in 0..=layers {
            let Some(present) = view.take() else { break };
            found.extend(self.find(&present, text, turns).await);
            view = present.decoded(Escapes::Any, turns).await;
        }
        found
    }

    /// Searches one view of a text.
    async fn find(&self, view: &View<'_>, text: Text<'_>, turns: &mut Turns) -> Found {
        // A pattern may overlap itself. One region is enough.
        let mut search = Search { found: Found::default(), ends: vec![0; self.needles.len()] };
        for start in (0..view.bytes.len()).step_by(TURN) {
            self.find_from(start, view, text, &mut search);
            turns.after(view.bytes.len().min(start + TURN) - start).await;
        }
        search.found
    }

    /// Returns whether a text contains one of the patterns.
    fn contains_pattern(&self, text: &[u8]) -> bool {
        let Some(automaton) = &self.automaton else { return false };
        let mut searched = 0;
        for place in self.filter.places(text) {
            let from = place.saturating_sub(LONGEST_PATTERN);
            // A server may send a text of which the filter excludes little. Then the automaton searches the rest once.
            let end = if searched < text.len() / 2 { text.len().min(place + LONGEST_PATTERN) } else { text.len() };
            if automaton.is_match(Input::new(text).range(from..end)) {
                return true;
            }
            if end == text.len() {
                return false;
            }
            searched += end - from;
        }
        false
    }

    /// Searches for values that begin within [`TURN`] bytes from `start`.
    fn find_from(&self, start: usize, view: &View<'_>, Text { source, bounds }: Text<'_>, search: &mut Search) {
        let Search { found, ends } = search;
        let Some(automaton) = &self.automaton else { return };
        let text = &view.bytes[..];
        let window = start..text.len().min(start + TURN + LONGEST_PATTERN);
        if !self.contains_pattern(&text[window.clone()]) {
            return;
        }
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

    /// Returns the longest value of a needle with which the text begins.
    fn whole(&self, needle: &Needle, text: &[u8]) -> Option<&Value> {
        let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || matches!((a, b), (b' ', b'+') | (b'+', b' '));
        let begins = |value: &&Value| text.len() >= value.text.len() && value.text.iter().zip(text).all(same);
        needle.values.iter().map(|place| &self.values[*place]).filter(begins).max_by_key(|value| value.text.len())
    }
}

/// Returns the first bytes of a value in every encoding.
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

/// Encodes bytes in base64 at each of the three offsets that they can have in a longer text. Characters that depend on
/// the neighbouring bytes are omitted.
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

/// Returns the longest run of matching characters around a range, and its length.
fn run(text: &[u8], range: Range<usize>, belongs: impl Fn(u8) -> bool) -> (Range<usize>, usize) {
    let before = text[..range.start].iter().rev().take_while(|byte| belongs(**byte)).count();
    let behind = text[range.end..].iter().take_while(|byte| belongs(**byte)).count();
    let range = range.start - before..range.end + behind;
    let length = range.len();
    (range, length)
}

/// Returns the end of an incomplete value whose first bytes end at `from`.
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

/// Puts regions in order, and merges those that overlap.
pub(crate) fn merged(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| region.source.start);
    let mut merged: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions {
        match merged.last_mut().filter(|last| region.source.start < last.source.end) {
            Some(last) => {
                last.source.end = last.source.end.max(region.source.end);
                last.stars = last.stars.max(region.stars);
            }
            None => merged.push(region),
        }
    }
    merged
}

/// Replaces each region by its stars. Overlapping regions are merged.
pub(crate) fn replaced(source: Vec<u8>, regions: Vec<Region>) -> Vec<u8> {
    if regions.is_empty() {
        return source;
    }
    let mut masked = Vec::with_capacity(source.len());
    let mut copied = 0;
    for region in merged(regions) {
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

/// Iterates over the strings (with quotes) and numbers of valid JSON.
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

#[cfg(test)]
mod tests;
