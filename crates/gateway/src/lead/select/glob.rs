//! Globs of rules, and the folders below which they match.

use globset::{Glob, GlobBuilder, GlobMatcher};

/// Compiles a user's `glob`; see [`Selector::new`](super::Selector::new).
pub(super) fn build_glob(glob: &str) -> Result<Glob, globset::Error> {
    build_whole(&whole_name_glob(glob))
}

pub(super) fn build_whole(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build()
}

/// Returns false only if this glob for whole names matches no name that begins with `folder`, and no parent folder of
/// one.
pub(super) fn may_match_below(glob: &str, folder: &str) -> bool {
    let literal = &glob[..glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len())];
    literal.starts_with(folder) || folder.starts_with(literal)
}

/// The folders below which a glob for whole names matches everything.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    is_everything: bool,
    folders: Vec<GlobMatcher>,
}

impl Coverage {
    pub(super) fn of(glob: &str) -> Self {
        let above = [Some(glob), glob.strip_suffix("/**")].into_iter().flatten();
        let folders = above.filter_map(|above| build_whole(above).ok()).map(|above| above.compile_matcher()).collect();
        Self { is_everything: ["**", "**/*", "**/**"].contains(&glob), folders }
    }

    /// Returns true only if the glob matches every name that begins with `folder`, or a parent folder of it.
    pub(super) fn covers(&self, folder: &str) -> bool {
        self.is_everything
            || self.folders.iter().any(|above| folder.match_indices('/').any(|(end, _)| above.is_match(&folder[..end])))
    }
}

/// Rewrites a user's `glob` so that it can be matched against whole names; see [`Selector::new`](super::Selector::new).
fn whole_name_glob(glob: &str) -> String {
    let anchored = glob.strip_prefix('/');
    let body = anchored.unwrap_or(glob);
    let (body, is_folder) = match body.strip_suffix('/') {
        Some(folder) if !folder.is_empty() => (folder, true),
        _ => (body, false),
    };
    let anywhere = if anchored.is_none() && !body.contains('/') { "**/" } else { "" };
    // Two stars match any number of folders, also none; a trailing `/` requires one.
    let is_any_depth = body.rsplit('/').next().is_some_and(|last| last.len() > 1 && last.bytes().all(|c| c == b'*'));
    let below = match (is_folder, is_any_depth) {
        (false, _) => "",
        (true, false) => "/**",
        (true, true) => "/*/**",
    };
    format!("{anywhere}{}{below}", cross_folders(body))
}

/// Expands `**` within a part, as in `a**.log`. `globset` lets `**` cross folders only where it is a whole part of the
/// glob; elsewhere the expansion matches either as `*` does, or with folders in between.
fn cross_folders(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len() + 8);
    let mut rest = glob;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            // A bracket right after the opening one, or after its `!`, is a member of the class.
            '[' => match rest.char_indices().skip(2).find(|(at, c)| *c == ']' && !rest[1..*at].ends_with(['!', '^'])) {
                Some((end, _)) => end + 1,
                None => 1,
            },
            '*' => rest.len() - rest.trim_start_matches('*').len(),
            _ => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(taken);
        let is_whole_part = (out.is_empty() || out.ends_with('/')) && (after.is_empty() || after.starts_with('/'));
        match piece {
            "*" => out.push('*'),
            _ if c == '*' && is_whole_part => out.push_str("**"),
            _ if c == '*' => out.push_str("{*,*/**/*}"),
            _ => out.push_str(piece),
        }
        rest = after;
    }
    out
}
