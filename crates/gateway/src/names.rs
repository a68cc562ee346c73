//! Names that gateways and jobs may have.

use crate::limits::NODE_NAME_CHARS_MAX;

/// Checks a gateway's name: one DNS label in lower case, because its certificate carries it.
///
/// # Errors
/// The fault, in one line.
pub fn check_node_name(name: &str) -> Result<(), String> {
    let label = is_label(name, NODE_NAME_CHARS_MAX) && !name.starts_with('-') && !name.ends_with('-');
    let rule = "1 to 63 characters of a-z, 0-9 and -, with no - at either end";
    if label { Ok(()) } else { Err(format!("{name:?} is not a gateway name: {rule}")) }
}

/// Returns whether a text has 1 to `chars_max` characters of a-z, 0-9 and -.
pub(crate) fn is_label(text: &str, chars_max: usize) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=chars_max).contains(&text.len()) && text.bytes().all(known)
}
