//! Text that shows as what it is: without characters that a terminal obeys, hides or reorders.
//!
//! Which these are is Rust's rule for `escape_debug`: control characters, marks of direction, characters
//! without width, unusual spaces, code points without a meaning.

use std::borrow::Cow;

/// The characters that are printed as they are, though `escape_debug` would escape them.
const PLAIN: [char; 3] = ['\'', '"', '\\'];

/// Whether a line of text shows as what it is.
#[must_use]
pub fn is_printable(text: &str) -> bool {
    is_plain_ascii(text) || text.split(PLAIN).all(|part| part.escape_debug().eq(part.chars()))
}

/// The text with escapes in place of the characters that do not show as what they are; line breaks stay.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.split('\n').all(is_printable) {
        return Cow::Borrowed(text);
    }
    let is_kept = |it: char| it == '\n' || PLAIN.contains(&it);
    let mut shown = String::with_capacity(text.len() + 16);
    for part in text.split_inclusive(is_kept) {
        let rest = part.trim_end_matches(is_kept);
        shown.extend(rest.escape_debug());
        shown.push_str(&part[rest.len()..]);
    }
    Cow::Owned(shown)
}

fn is_plain_ascii(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_hides_or_reorders_is_escaped() {
        for (text, shown) in [
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("\u{feff}a", "\\u{feff}a"),
            ("a\rb\tc", "a\\rb\\tc"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("one\n\u{7}two", "one\n\\u{7}two"),
        ] {
            assert_eq!(printable(text), shown);
            assert!(!text.split('\n').all(is_printable), "{text:?}");
        }
    }

    #[test]
    fn text_of_any_language_stays() {
        for text in ["", "it's \"a\" \\ b", "naïve", "これは", "हिन्दी", "a\nb\n", "ёжик"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
