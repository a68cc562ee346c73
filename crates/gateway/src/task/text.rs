//! Names in readable form. JSON output has them exactly.

use std::borrow::Cow;
use std::fmt::Write;
use std::io;

/// Returns a name on one line, like `ls -b`: `\n`, `\t`, `\x1b`, and `\u202e` for characters that are invisible or
/// reverse the line. A backslash is doubled, so that the output stands for one name only.
pub(super) fn escaped(name: &str) -> Cow<'_, str> {
    escape(name, true)
}

/// Returns a message on one line; it may quote any characters. Backslashes stay.
pub(super) fn one_line(line: &str) -> Cow<'_, str> {
    escape(line, false)
}

/// Returns a message with files named by their paths, as users type them, in place of their `file://` URLs.
pub(super) fn with_paths(message: &str) -> String {
    message.replace(" file:///", " /").replace(" 'file:///", " '/")
}

/// Returns a URL on one line, like [`escaped`]; a file by its path, as users type it.
pub(super) fn shown_place(url: &str) -> Cow<'_, str> {
    escaped(url.strip_prefix("file://").unwrap_or(url))
}

fn escape(text: &str, backslashes: bool) -> Cow<'_, str> {
    let is_plain = |c: char| !(is_unprintable(c) || backslashes && c == '\\');
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if is_plain(c) => shown.push(c),
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Writing to a string cannot fail.
            _ if u32::from(c) < 0x100 => write!(shown, "\\x{:02x}", u32::from(c)).unwrap_or_default(),
            _ => write!(shown, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
        }
    }
    Cow::Owned(shown)
}

/// JSON that is safe to show on a terminal: escapes characters that JSON allows unescaped but a terminal interprets.
pub(super) struct TerminalSafeJson;

impl serde_json::ser::Formatter for TerminalSafeJson {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((index, c)) = rest.char_indices().find(|(_, c)| is_unprintable(*c)) {
            writer.write_all(&rest.as_bytes()[..index])?;
            // All of them are in the basic multilingual plane, so one escape is enough.
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &rest[index + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Control characters, line separators, and format characters that hide or reorder the text next to them.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line_and_means_one_name() {
        assert_eq!(escaped("plain name é 文"), "plain name é 文");
        assert_eq!(escaped("a\nb\tc\r\x1b[31m\u{85}"), "a\\nb\\tc\\r\\x1b[31m\\x85");
        assert_eq!(escaped("a\\nb"), "a\\\\nb");
        assert_eq!(escaped("txt.\u{202e}exe"), "txt.\\u202eexe");
        assert_eq!(one_line("C:\\x\ny"), "C:\\x\\ny");
    }

    #[test]
    fn a_file_is_shown_by_its_path() {
        assert_eq!(shown_place("file:///d/a\nb file:///c"), "/d/a\\nb file:///c");
        assert_eq!(shown_place("s3://b/file:///c"), "s3://b/file:///c");
    }

    #[test]
    fn json_escapes_control_characters_and_reads_back_the_same() {
        let name = "a\u{9b}31m\u{7f}\u{202e}é\n\u{feff}z";
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, TerminalSafeJson);
        serde::Serialize::serialize(name, &mut serializer).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json, r#""a\u009b31m\u007f\u202eé\n\ufeffz""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
