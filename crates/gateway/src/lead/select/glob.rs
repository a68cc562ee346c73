//! One glob of a rule, with the meaning that it has in `.gitignore`.

use super::wildmatch::{Reached, Token, compile, is_match};

/// A compiled glob.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    /// A glob without `/`, except at its end, is compared with the last part of a name only.
    is_name: bool,
    folders_only: bool,
    /// The beginning without wildcards.
    literal: Vec<u8>,
    /// The rest. Git treats it as a glob of its own: a `**` at its start is at the start of a part.
    rest: Vec<Token>,
}

impl Glob {
    /// Compiles a user's `glob`.
    ///
    /// # Errors
    /// The reason why git never matches it.
    pub(super) fn new(glob: &str) -> Result<Self, &'static str> {
        let (body, folders_only) = match glob.strip_suffix('/') {
            Some(body) => (body, true),
            None => (glob, false),
        };
        let is_name = !body.contains('/');
        let body = body.strip_prefix('/').unwrap_or(body);
        let (literal, rest) = body.split_at(body.find(['*', '?', '[', '\\']).unwrap_or(body.len()));
        let rest = compile(rest.as_bytes(), !is_name)?;
        Ok(Self { is_name, folders_only, literal: literal.into(), rest })
    }

    /// Returns whether the glob matches exactly this entry. The name of a folder has no trailing `/`; a name that ends in
    /// `/` is the object of an empty folder, an entry without a name in that folder.
    pub(super) fn is_match(&self, name: &str, is_folder: bool) -> bool {
        if self.folders_only && !is_folder {
            return false;
        }
        let text = match self.is_name {
            true => name.rsplit('/').next().unwrap_or(name),
            false => name,
        };
        text.as_bytes().strip_prefix(&self.literal[..]).is_some_and(|text| is_match(&self.rest, text))
    }

    /// Returns false only if the glob matches no name that begins with `folder`, which is empty or ends in `/`.
    pub(super) fn may_match_below(&self, folder: &str) -> bool {
        // A name that is not UTF-8 is known only with these characters in place of some bytes.
        let is_uncertain = folder.contains(char::REPLACEMENT_CHARACTER);
        self.is_name
            || self.literal.starts_with(folder.as_bytes())
            || self.reached(folder).is_some_and(|reached| is_uncertain || reached.may_go_on())
    }

    /// Returns true only if the glob matches every entry directly in `folder`, files and folders.
    pub(super) fn takes_all_entries(&self, folder: &str) -> bool {
        let folder = if self.is_name { "" } else { folder };
        !self.folders_only && self.reached(folder).is_some_and(|reached| reached.takes_any_name())
    }

    fn reached(&self, folder: &str) -> Option<Reached<'_>> {
        folder.as_bytes().strip_prefix(&self.literal[..]).map(|text| Reached::by(&self.rest, text))
    }
}
