//! A walk over small XML answers that calls back at the end of each element. No tree, no namespaces, and no entities
//! except the five of XML and character references, so no answer can expand in memory.

use crate::Tags;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Deepest accepted nesting; real answers have five levels.
const DEPTH_MAX: usize = 16;

/// An answer that is not the expected XML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XmlError(pub(crate) String);

impl std::fmt::Display for XmlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unreadable answer: {}", self.0)
    }
}

/// An element that just ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    /// Local name of the enclosing element; empty for the root.
    pub(crate) parent: &'a str,
    /// Local name.
    pub(crate) name: &'a str,
    /// Its text, unescaped; for an element with children, only the text after the last child.
    pub(crate) text: &'a str,
    /// True if an attribute says that the text is percent-encoded (`Encoded="true"`, used by Azure).
    pub(crate) is_encoded: bool,
}

impl Walk<'_> {
    /// The text as a number.
    pub(crate) fn number(&self) -> Result<u64, XmlError> {
        self.text.trim().parse().map_err(|_| XmlError(format!("<{}> is not a number", self.name)))
    }
}

/// Names of the open elements, outermost first.
#[derive(Default)]
struct Names {
    text: String,
    starts: Vec<usize>,
}

impl Names {
    fn push(&mut self, name: &[u8]) -> Result<(), XmlError> {
        if self.starts.len() == DEPTH_MAX {
            return Err(XmlError(format!("deeper than {DEPTH_MAX} levels")));
        }
        let name = std::str::from_utf8(name).map_err(|_| XmlError("a name is not UTF-8".to_owned()))?;
        self.starts.push(self.text.len());
        self.text.push_str(name);
        Ok(())
    }

    /// The innermost name, or the enclosing one (`up` = 1).
    fn get(&self, up: usize) -> &str {
        let depth = self.starts.len();
        if depth <= up {
            return "";
        }
        let end = if up == 0 { self.text.len() } else { self.starts[depth - up] };
        &self.text[self.starts[depth - up - 1]..end]
    }

    fn pop(&mut self) {
        if let Some(start) = self.starts.pop() {
            self.text.truncate(start);
        }
    }
}

/// Calls `visit` at the end of each element of a document whose root must be `root`.
pub(crate) fn walk(
    xml: &[u8],
    root: &str,
    mut visit: impl FnMut(Walk<'_>) -> Result<(), XmlError>,
) -> Result<(), XmlError> {
    let mut reader = Reader::from_reader(xml.trim_ascii_start());
    let mut names = Names::default();
    let mut text = String::new();
    let mut root_seen = false;
    let mut is_encoded = false;
    loop {
        let event = reader.read_event().map_err(|error| XmlError(error.to_string()))?;
        match event {
            Event::Start(start) => {
                text.clear();
                is_encoded = says_encoded(&start);
                names.push(start.local_name().as_ref())?;
                expect_root(&names, root, &mut root_seen)?;
            }
            Event::Empty(start) => {
                text.clear();
                names.push(start.local_name().as_ref())?;
                expect_root(&names, root, &mut root_seen)?;
                visit(Walk { parent: names.get(1), name: names.get(0), text: "", is_encoded: false })?;
                names.pop();
            }
            Event::End(_) => {
                visit(Walk { parent: names.get(1), name: names.get(0), text: &text, is_encoded })?;
                names.pop();
                text.clear();
                is_encoded = false;
            }
            Event::Text(part) => text.push_str(as_text(&part)?),
            Event::CData(part) => text.push_str(as_text(&part)?),
            Event::GeneralRef(reference) => push_reference(&mut text, &reference)?,
            Event::Eof if root_seen && names.starts.is_empty() => return Ok(()),
            Event::Eof => return Err(XmlError(format!("it ends before </{root}>"))),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

/// The tags in an answer: the same elements at S3 (`Tagging`) and Azure (`Tags`).
pub(crate) fn parse_tags(xml: &[u8], root: &str) -> Result<Tags, XmlError> {
    let (mut tags, mut name, mut value) = (Tags::new(), String::new(), String::new());
    walk(xml, root, |at| {
        match (at.parent, at.name) {
            ("Tag", "Key") => at.text.clone_into(&mut name),
            ("Tag", "Value") => at.text.clone_into(&mut value),
            ("TagSet", "Tag") if name.is_empty() => return Err(XmlError("a tag has no name".to_owned())),
            ("TagSet", "Tag") => drop(tags.insert(std::mem::take(&mut name), std::mem::take(&mut value))),
            _ => {}
        }
        Ok(())
    })?;
    Ok(tags)
}

/// Returns whether this is a whole document, whatever its root.
pub(crate) fn is_document(xml: &[u8]) -> bool {
    let mut reader = Reader::from_reader(xml.trim_ascii_start());
    loop {
        match reader.read_event() {
            Ok(Event::Start(root) | Event::Empty(root)) => {
                let name = root.local_name();
                return std::str::from_utf8(name.as_ref()).is_ok_and(|root| walk(xml, root, |_| Ok(())).is_ok());
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

fn says_encoded(start: &BytesStart<'_>) -> bool {
    let attribute = start.try_get_attribute("Encoded").ok().flatten();
    attribute.is_some_and(|attribute| attribute.value.eq_ignore_ascii_case(b"true"))
}

fn expect_root(names: &Names, root: &str, seen: &mut bool) -> Result<(), XmlError> {
    if names.starts.len() == 1 {
        if names.get(0) != root || *seen {
            return Err(XmlError(format!("<{}> where <{root}> was expected", names.get(0).escape_debug())));
        }
        *seen = true;
    }
    Ok(())
}

fn as_text(bytes: &[u8]) -> Result<&str, XmlError> {
    std::str::from_utf8(bytes).map_err(|_| XmlError("text is not UTF-8".to_owned()))
}

fn push_reference(text: &mut String, reference: &quick_xml::events::BytesRef<'_>) -> Result<(), XmlError> {
    let resolved = reference.resolve_char_ref().map_err(|error| XmlError(error.to_string()))?;
    if let Some(character) = resolved {
        text.push(character);
        return Ok(());
    }
    let name = as_text(reference)?;
    let character = quick_xml::escape::resolve_xml_entity(name)
        .ok_or_else(|| XmlError(format!("unknown entity &{};", name.escape_debug())))?;
    text.push_str(character);
    Ok(())
}

/// Escapes text for an element. White space other than plain spaces between words is written as references, because
/// some parsers fold it, and some trim text: s3rver deletes another object if it is not told of a space at the end.
pub(crate) fn escape_into(out: &mut String, text: &str) {
    let (start, end) =
        (text.len() - text.trim_start_matches(is_trimmed).len(), text.trim_end_matches(is_trimmed).len());
    for (at, character) in text.char_indices() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other if matches!(other, '\t' | '\n' | '\r') || is_trimmed(other) && !(start..end).contains(&at) => {
                out.push_str(&format!("&#{};", u32::from(other)));
            }
            other => out.push(other),
        }
    }
}

/// Returns whether `trim` of some language removes a character. JavaScript's also removes the byte order mark.
fn is_trimmed(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

/// Returns whether XML 1.0 can represent the text at all (§2.2).
pub(crate) fn can_hold(text: &str) -> bool {
    text.chars()
        .all(|c| !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_that_a_parser_may_fold_or_trim_is_written_as_references() {
        let escaped = |text: &str| {
            let mut out = String::new();
            escape_into(&mut out, text);
            out
        };
        assert_eq!(escaped("two words"), "two words");
        assert_eq!(escaped(" a b  "), "&#32;a b&#32;&#32;");
        assert_eq!(escaped("  "), "&#32;&#32;");
        assert_eq!(escaped("\u{a0}a\u{a0}b\u{feff}"), "&#160;a\u{a0}b&#65279;");
        assert_eq!(escaped("a\tb\r\n"), "a&#9;b&#13;&#10;");
        assert_eq!(escaped("<\"&\">"), "&lt;&quot;&amp;&quot;&gt;");
        assert_eq!(escaped(""), "");
    }
}
