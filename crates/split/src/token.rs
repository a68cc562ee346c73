//! The tokens by which clients of `socks5` and `connect` listeners authenticate.

use crate::limits::TOKENS_MAX;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// The clients that may connect. As text: one `NAME:SHA256` a line, where SHA256 is the hash of the client's token in
/// hexadecimal. Empty lines, and lines that start with `#`, are skipped.
///
/// Tokens are random, so a fast hash is enough: nobody can try all tokens of 128 bits. The file does not reveal them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(HashMap<String, Hash>);

impl Tokens {
    /// Tokens from names and SHA-256 hashes in hexadecimal.
    ///
    /// # Errors
    /// A name is empty or too long, a hash is malformed, or there are none or too many. An error repeats no hash.
    pub fn of_hashes<'a>(hashes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut tokens = HashMap::new();
        for (name, hash) in hashes {
            let hash = decode(hash).filter(|_| is_name(name));
            let hash =
                hash.ok_or_else(|| format!("the token of {name:?} is not a name of 1 to 255 bytes and a SHA-256"))?;
            tokens.insert(name.to_owned(), hash);
            if tokens.len() > TOKENS_MAX {
                return Err(format!("more than {TOKENS_MAX} tokens"));
            }
        }
        if tokens.is_empty() { Err("no token".to_owned()) } else { Ok(Self(tokens)) }
    }

    /// True if a client with this name knows its token. The time does not depend on how much of the token is right.
    pub fn accept(&self, name: &str, token: &[u8]) -> bool {
        let wanted = self.0.get(name);
        // Somebody who guesses names must not learn which exist, so an unknown one is compared too.
        let known = wanted.unwrap_or(&[0; SHA256_OUTPUT_LEN]);
        let same = verify_slices_are_equal(digest(&SHA256, token).as_ref(), known).is_ok();
        same && wanted.is_some()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl FromStr for Tokens {
    type Err = String;

    /// An error names the line, and never repeats it: it may hold a token.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut tokens = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line
                .split_once(':')
                .and_then(|(name, hash)| Some((name, decode(hash)?)))
                .filter(|(name, _)| is_name(name))
                .ok_or_else(|| format!("line {number} is not NAME:SHA256"))?;
            if tokens.insert(name.to_owned(), hash).is_some() {
                return Err(format!("line {number} repeats a name"));
            }
            if tokens.len() > TOKENS_MAX {
                return Err(format!("more than {TOKENS_MAX} tokens"));
            }
        }
        if tokens.is_empty() { Err("no token".to_owned()) } else { Ok(Self(tokens)) }
    }
}

/// True if SOCKS5 can carry the name.
fn is_name(name: &str) -> bool {
    (1..=u8::MAX.into()).contains(&name.len())
}

fn decode(text: &str) -> Option<Hash> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> =
        text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn only_the_token_of_the_name_is_accepted() {
        let tokens: Tokens = format!("# clients\n\nann:{HASH_OF_SECRET}\nzero:{}", "0".repeat(64)).parse().unwrap();
        assert!(tokens.accept("ann", b"secret"));
        for (name, token) in [("ann", "secre"), ("ann", ""), ("bob", "secret"), ("", "secret"), ("zero", "secret")] {
            assert!(!tokens.accept(name, token.as_bytes()), "{name} {token}");
        }
    }

    #[test]
    fn a_bad_file_is_refused_without_its_text() {
        let (short, odd) = (&HASH_OF_SECRET[2..], &HASH_OF_SECRET[1..]);
        let twice = format!("a:{HASH_OF_SECRET}\na:{HASH_OF_SECRET}");
        for bad in ["", "# none", "secret", "ann:secret", &format!("ann:{short}"), &format!("ann:{odd}"), &twice] {
            let error = bad.parse::<Tokens>().unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
