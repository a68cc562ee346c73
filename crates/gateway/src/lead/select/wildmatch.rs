//! Matches text with a glob as git does: byte by byte, and with `**` special only between slashes.
//!
//! A glob is compiled into [`Token`]s. [`is_match`] answers for one text without allocation; it resumes at the latest
//! `*` or `**/` only, because whatever an earlier one could still match, the latest can match too. [`Reached`] follows
//! all possible positions at once, which answers for all texts with a common beginning.

/// A piece of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// This byte.
    Byte(u8),
    /// `?`: any byte but `/`.
    Any,
    /// `[…]`: one of these bytes; never `/`.
    Class(Box<[bool; 256]>),
    /// `*`, and `**` beside other characters: any number of bytes but `/`.
    Star,
    /// `**/` at the start of a part: any number of folders, none only if `or_none`. Git does not allow none for `**\/`.
    Folders {
        /// True if no folder is enough.
        or_none: bool,
    },
    /// `**` as the last part: everything.
    Rest,
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => byte != b'/',
            Self::Class(members) => members[usize::from(byte)],
            Self::Star | Self::Folders { .. } | Self::Rest => false,
        }
    }
}

/// Compiles a glob. With `is_path`, `**` may cross folders.
///
/// # Errors
/// The reason why git never matches such a glob.
pub(super) fn compile(glob: &[u8], is_path: bool) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = glob.get(at) {
        let (token, taken) = match byte {
            b'\\' => (Token::Byte(*glob.get(at + 1).ok_or("it ends in a backslash, which quotes nothing")?), 2),
            b'?' => (Token::Any, 1),
            b'*' => stars(glob, at, is_path),
            b'[' => class(&glob[at..])?,
            _ => (Token::Byte(byte), 1),
        };
        tokens.push(token);
        at += taken;
    }
    Ok(tokens)
}

/// The token of the stars at `at`, and its length.
fn stars(glob: &[u8], at: usize, is_path: bool) -> (Token, usize) {
    let count = glob[at..].iter().take_while(|byte| **byte == b'*').count();
    let starts_part = at == 0 || glob[at - 1] == b'/';
    if count < 2 || !is_path || !starts_part {
        return (Token::Star, count);
    }
    match &glob[at + count..] {
        [] => (Token::Rest, count),
        [b'/', ..] => (Token::Folders { or_none: true }, count + 1),
        [b'\\', b'/', ..] => (Token::Folders { or_none: false }, count + 2),
        _ => (Token::Star, count),
    }
}

const UNCLOSED: &str = "unclosed character class; missing ']'";

/// The token of the class that `text` begins with, and its length.
fn class(text: &[u8]) -> Result<(Token, usize), &'static str> {
    let byte_at = |at: usize| text.get(at).copied().ok_or(UNCLOSED);
    let quoted_at = |at: usize| {
        let is_quoted = byte_at(at)? == b'\\';
        let at = at + usize::from(is_quoted);
        byte_at(at).map(|byte| (byte, at + 1))
    };
    let is_negated = matches!(text.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    let mut members = [false; 256];
    let mut at = first;
    // A range begins with the member before its `-`.
    let mut previous = None;
    while at == first || byte_at(at)? != b']' {
        let is_range = byte_at(at)? == b'-' && text.get(at + 1).is_some_and(|next| *next != b']');
        if let Some(low) = previous.filter(|_| is_range) {
            let (high, next) = quoted_at(at + 1)?;
            (low..=high).for_each(|byte: u8| members[usize::from(byte)] = true);
            (previous, at) = (None, next);
        } else if let Some(end) = end_of_named(&text[at..])? {
            let has = named(&text[at + 2..at + end - 2]).ok_or("unknown character class, such as [:word:]")?;
            (0..=u8::MAX).filter(has).for_each(|byte| members[usize::from(byte)] = true);
            (previous, at) = (None, at + end);
        } else {
            let (byte, next) = quoted_at(at)?;
            members[usize::from(byte)] = true;
            (previous, at) = (Some(byte), next);
        }
    }
    if is_negated {
        members.iter_mut().for_each(|member| *member = !*member);
    }
    members[usize::from(b'/')] = false;
    Ok((Token::Class(Box::new(members)), at + 1))
}

/// Length of the `[:name:]` that `text` begins with, if it begins with one.
fn end_of_named(text: &[u8]) -> Result<Option<usize>, &'static str> {
    if !text.starts_with(b"[:") {
        return Ok(None);
    }
    let bracket = 2 + text[2..].iter().position(|byte| *byte == b']').ok_or(UNCLOSED)?;
    Ok((bracket > 2 && text[bracket - 1] == b':').then_some(bracket + 1))
}

/// The members of a class of POSIX, as git has them: ASCII only.
fn named(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

/// Returns whether the tokens match the whole text.
pub(super) fn is_match(tokens: &[Token], text: &[u8]) -> bool {
    let (mut token_at, mut at) = (0, 0);
    // Where the latest `*`, and the latest `**/`, would continue: the token after it, and the end of its own text.
    let mut star: Option<(usize, usize)> = None;
    let mut folders: Option<(usize, usize)> = None;
    loop {
        match (tokens.get(token_at), text.get(at)) {
            (None, None) | (Some(Token::Rest), _) => return true,
            (Some(Token::Star), _) => {
                token_at += 1;
                star = Some((token_at, at));
                continue;
            }
            (Some(Token::Folders { or_none }), _) => {
                token_at += 1;
                (star, folders) = (None, Some((token_at, at)));
                if *or_none {
                    continue;
                }
            }
            (Some(token), Some(byte)) if token.takes(*byte) => {
                (token_at, at) = (token_at + 1, at + 1);
                continue;
            }
            _ => {}
        }
        if let Some((next, end)) = star.filter(|(_, end)| text.get(*end).is_some_and(|byte| *byte != b'/')) {
            star = Some((next, end + 1));
            (token_at, at) = (next, end + 1);
        } else if let Some((next, end)) = folders
            && let Some(slash) = text[end..].iter().position(|byte| *byte == b'/')
        {
            let end = end + slash + 1;
            (star, folders) = (None, Some((next, end)));
            (token_at, at) = (next, end);
        } else {
            return false;
        }
    }
}

/// The positions in a glob that a text may have reached.
#[derive(Debug)]
pub(super) struct Reached<'a> {
    tokens: &'a [Token],
    /// True at `i` if token `i` may come next; the last entry is the end of the glob.
    open: Vec<bool>,
}

impl<'a> Reached<'a> {
    /// The positions after `text`.
    pub(super) fn by(tokens: &'a [Token], text: &[u8]) -> Self {
        let mut reached = Self { tokens, open: vec![false; tokens.len() + 1] };
        reached.enter(0);
        text.iter().for_each(|byte| reached.step(*byte));
        reached
    }

    /// Returns whether some text that begins with this one matches.
    pub(super) fn may_go_on(&self) -> bool {
        self.open.contains(&true)
    }

    /// Returns whether the glob matches, whatever follows, as long as it has no `/`.
    pub(super) fn takes_any_name(&self) -> bool {
        let is_any = |at: usize| matches!(self.tokens[at..], [Token::Star] | [Token::Rest]);
        (0..self.tokens.len()).any(|at| self.open[at] && is_any(at))
    }

    fn enter(&mut self, at: usize) {
        self.open[at] = true;
        if let Some(Token::Star | Token::Rest | Token::Folders { or_none: true }) = self.tokens.get(at) {
            self.enter(at + 1);
        }
    }

    fn step(&mut self, byte: u8) {
        let before = std::mem::replace(&mut self.open, vec![false; self.tokens.len() + 1]);
        for (at, token) in self.tokens.iter().enumerate().filter(|(at, _)| before[*at]) {
            match token {
                Token::Star if byte == b'/' => {}
                Token::Star | Token::Rest => self.enter(at),
                Token::Folders { .. } => {
                    // Within a folder's name, what follows may not begin.
                    self.open[at] = true;
                    if byte == b'/' {
                        self.enter(at + 1);
                    }
                }
                token if token.takes(byte) => self.enter(at + 1),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_those_of_posix() {
        for (glob, takes, leaves) in [
            ("[[:digit:]]", "059", "a:/"),
            ("[![:digit:]]", "a:-", "7/"),
            ("[^a-c]", "d]", "abc"),
            ("[]a]", "]a", "b"),
            ("[!]a]", "b", "]a"),
            ("[a-]", "a-", "b"),
            ("[--0]", "-.0", "/1"),
            ("[\\]\\-a]", "]-a", "\\"),
            ("[a-\\c]", "abc", "d-\\"),
            ("[[:x]", "[:x", "y"),
            ("[[:upper:][:blank:]-]", "A \t-", "a"),
            ("[z-a]", "z", "ay-"),
        ] {
            let tokens = compile(glob.as_bytes(), true).unwrap();
            takes.chars().for_each(|one| assert!(is_match(&tokens, one.to_string().as_bytes()), "{glob} takes {one}"));
            leaves
                .chars()
                .for_each(|one| assert!(!is_match(&tokens, one.to_string().as_bytes()), "{glob} leaves {one}"));
        }
        for glob in ["[", "[]", "[!]", "[a", "[a-", "[[:alpha:]", "[[:word:]]", "[\\]", "a\\"] {
            assert!(compile(glob.as_bytes(), true).is_err(), "{glob}");
        }
    }

    #[test]
    fn hostile_globs_end() {
        let tokens = compile("**/*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b".as_bytes(), true).unwrap();
        assert!(!is_match(&tokens, "a/".repeat(500).as_bytes()) && !is_match(&tokens, "a".repeat(1000).as_bytes()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Both ways to match agree, at every split of the text.
        #[test]
        fn all_positions_at_once_give_the_same_answer(glob in "[ab/*?\\\\]{0,8}", text in "[ab/]{0,8}", split in 0_usize..9) {
            let Ok(tokens) = compile(glob.as_bytes(), true) else { return Ok(()) };
            let matches = is_match(&tokens, text.as_bytes());
            prop_assert_eq!(Reached::by(&tokens, text.as_bytes()).open[tokens.len()], matches);
            let (beginning, rest) = text.split_at(split.min(text.len()));
            let reached = Reached::by(&tokens, beginning.as_bytes());
            prop_assert!(!matches || reached.may_go_on());
            prop_assert!(matches || rest.is_empty() || rest.contains('/') || !reached.takes_any_name());
        }
    }
}
