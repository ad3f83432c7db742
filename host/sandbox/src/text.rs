//! Makes texts from plugins safe to show.

/// Returns the text without control and invisible characters, truncated to `longest` bytes. Line breaks and tabs become
/// spaces.
pub(crate) fn clean(text: &str, longest: usize) -> String {
    let odd = |c: char| c.is_control() || model::is_invisible(c);
    let mut cleaned = String::with_capacity(text.len().min(longest));
    for c in text.chars() {
        let c = if c == '\n' || c == '\t' { ' ' } else { c };
        if odd(c) {
            continue;
        }
        if cleaned.len() + c.len_utf8() > longest.saturating_sub('…'.len_utf8()) {
            cleaned.push('…');
            break;
        }
        cleaned.push(c);
    }
    cleaned
}
