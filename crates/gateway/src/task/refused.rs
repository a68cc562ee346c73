//! Reports or counts entries that a listing names but cannot provide.

use super::error::{TaskError, TaskResult};
use super::streams::Streams;
use crate::failure::counted;
use crate::lead::select::Selector;
use tradewind_contract::Outcome;
use tradewind_store::{Error, ErrorKind};

/// The entries that listings have refused so far.
#[derive(Default)]
pub(super) struct Refused {
    /// Number of entries that may hide objects.
    unseen: u64,
    links: u64,
}

impl Refused {
    /// Like [`Refused::take`], without the entries that the wildcards of the place leave out. `root` is the URL that their
    /// names follow.
    pub(super) fn take_selected(&mut self, page: &[Error], root: &str, selector: &Selector, streams: &mut Streams) {
        let is_left_out =
            |error: &Error| error.url.strip_prefix(root).is_some_and(|name| selector.leaves_out_refused(name, error));
        let kept = |error: &&Error| selector.within().is_none() || !is_left_out(error);
        self.take(page.iter().filter(kept), streams);
    }

    /// Reports entries that cannot be listed, and counts those that may hide objects. A socket or a link hides none;
    /// links are only counted, because a tree may hold many.
    fn take<'a>(&mut self, refused: impl Iterator<Item = &'a Error>, streams: &mut Streams) {
        for error in refused {
            match error.kind {
                ErrorKind::Link => self.links += 1,
                // It existed when the listing began; now it holds nothing.
                ErrorKind::NotFound => {}
                ErrorKind::Unsupported => streams.say(&format!("note: skipped: {error}")),
                _ => {
                    self.unseen += 1;
                    streams.say_error(&error.to_string(), error.hint());
                }
            }
        }
    }

    /// Like [`Refused::take`], for comparisons: an entry of any kind that cannot be compared counts as hidden.
    pub(super) fn take_uncompared(&mut self, error: &Error, streams: &mut Streams) {
        match error.kind {
            ErrorKind::Link => self.links += 1,
            ErrorKind::NotFound => {}
            _ => {
                self.unseen += 1;
                streams.say_error(&error.to_string(), error.hint());
            }
        }
    }

    /// Reports the number of symbolic links, and `what` happened to them.
    pub(super) fn say_links(&self, what: &str, streams: &mut Streams) {
        match self.links {
            0 => {}
            1 => streams.say(&format!("note: 1 symbolic link {what}")),
            links => streams.say(&format!("note: {links} symbolic links {what}")),
        }
    }

    pub(super) fn has_unseen(&self) -> bool {
        self.unseen > 0
    }

    /// Fails if the listing was incomplete.
    pub(super) fn end(&self) -> TaskResult {
        match self.unseen {
            0 => Ok(()),
            unseen => {
                let message = format!("{} could not be listed", counted(unseen, "entry", "entries"));
                Err(TaskError::ended(Outcome::SomeFailed, message, None))
            }
        }
    }
}
