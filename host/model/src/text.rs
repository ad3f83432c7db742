//! Which characters of a foreign text deceive whoever reads it.

/// Whether a character is not shown but changes how others are read: marks and overrides of direction, spaces of no width,
/// tags (Unicode's general category Cf). The joiners that emoji and some scripts need are not among them.
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}
