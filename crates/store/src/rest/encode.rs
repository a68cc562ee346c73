//! Percent-encoding for SigV4 (RFC 3986: unreserved characters stay; hex digits are upper case).

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn encode_into(out: &mut String, text: &str, keep_slash: bool) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if keep_slash => out.push('/'),
            _ => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
}

/// Encodes a key for a path. Slashes stay, so `a//b` and `/a` are unchanged; `.` and `..` are sent unchanged.
pub(crate) fn encode_path(prefix: &str, key: &str) -> String {
    let mut path = String::with_capacity(prefix.len() + 1 + key.len() * 3 / 2);
    path.push_str(prefix);
    path.push('/');
    encode_into(&mut path, key, true);
    path
}

/// Encodes a name that is one segment of a path: its slashes too.
pub(crate) fn percent_encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len() * 3 / 2);
    encode_into(&mut encoded, name, false);
    encoded
}

/// Encodes query parameters in canonical order: sorted by encoded name, each with a `=`.
pub(crate) fn encode_query(parameters: &[(&str, &str)]) -> String {
    let mut encoded: Vec<(String, String)> = parameters
        .iter()
        .map(|(name, value)| {
            let (mut encoded_name, mut encoded_value) = (String::new(), String::new());
            encode_into(&mut encoded_name, name, false);
            encode_into(&mut encoded_value, value, false);
            (encoded_name, encoded_value)
        })
        .collect();
    encoded.sort_unstable();
    let mut query = String::new();
    for (name, value) in encoded {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(&name);
        query.push('=');
        query.push_str(&value);
    }
    query
}

/// Decodes `encoding-type=url`, including `+`, which some servers send for a space. `None` if the result is not UTF-8
/// or an escape is invalid.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Some(text.to_owned());
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_keys_keep_their_slashes_and_dots() {
        assert_eq!(encode_path("/b", "a//b"), "/b/a//b");
        assert_eq!(encode_path("/b", "/a"), "/b//a");
        assert_eq!(encode_path("", "a/../b c+é"), "/a/../b%20c%2B%C3%A9");
    }

    #[test]
    fn sorts_the_query() {
        assert_eq!(encode_query(&[("uploads", ""), ("prefix", "a/b")]), "prefix=a%2Fb&uploads=");
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(key in ".*") {
            let path = encode_path("", &key);
            prop_assert_eq!(percent_decode(&path[1..]), Some(key));
            prop_assert!(path.is_ascii());
        }

        #[test]
        fn decoding_never_panics(text in ".*") {
            let _ = percent_decode(&text);
        }
    }
}
