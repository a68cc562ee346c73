//! Walks the listings of a source and of its destinations side by side, in the order of the relative names.
//!
//! The order of keys below one prefix is the order of their relative names, so listings below different prefixes can be
//! merged without holding more than a page of each.

use crate::lead::pages::{Listing, NameRange, Pages};
use std::cmp::Ordering;
use std::collections::VecDeque;
use tradewind_store::{Error, ErrorKind, ObjectInfo, UNORDERED};

/// One of the listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source's listing.
    Source,
    /// The listing of the destination with this index.
    Target(usize),
}

/// A step of the walk.
#[derive(Debug)]
pub enum Joined {
    /// The source has an object; `matches` holds what each destination has under the same name.
    Source {
        /// As the source lists it.
        object: ObjectInfo,
        /// One entry per destination.
        matches: Vec<Option<ObjectInfo>>,
    },
    /// A destination has an object that the source does not have.
    Extra {
        /// Index of the destination.
        target: usize,
        /// As the destination lists it.
        object: ObjectInfo,
    },
    /// An entry that exists and cannot be transferred.
    Refused {
        /// The listing that has it.
        side: Side,
        /// The entry, and why it cannot be transferred.
        error: Error,
    },
}

/// A listing that ended early.
#[derive(Clone, Debug)]
pub struct JoinError {
    /// The listing.
    pub side: Side,
    /// The reason.
    pub error: Error,
}

/// The walk over one range of names.
#[derive(Debug)]
pub struct Join {
    source: Cursor,
    targets: Vec<Cursor>,
    refused: VecDeque<(Side, Error)>,
}

/// One range of the listing of each destination.
#[derive(Debug)]
pub struct TargetPages(Vec<Option<Pages>>);

impl TargetPages {
    /// Starts to fetch them.
    pub fn begin(targets: &[Option<Listing>], range: &NameRange) -> Self {
        Self(targets.iter().map(|target| Some(target.as_ref()?.pages(range))).collect())
    }
}

#[derive(Debug)]
struct Cursor {
    pages: Option<Pages>,
    objects: VecDeque<ObjectInfo>,
    url: String,
    /// Last key of the previous page; `None` where nothing is compared and any order will do.
    last: Option<String>,
    prefix_len: usize,
    /// Whether a root that does not exist yet counts as empty; the first write creates it. For a destination only.
    is_missing_empty: bool,
    /// Directories that were not listed because the rules exclude them.
    skipped: u64,
}

impl Join {
    /// Begins the walk over `range` of all listings.
    /// A destination without a listing counts as empty.
    pub fn new(source: &Listing, targets: &[Option<Listing>], range: &NameRange) -> Self {
        Self::of_pages(source, source.pages(range), targets, TargetPages::begin(targets, range))
    }

    /// The walk over pages of the source, and pages of the destinations in the same range.
    pub fn of_pages(source: &Listing, pages: Pages, targets: &[Option<Listing>], theirs: TargetPages) -> Self {
        let is_compared = targets.iter().any(Option::is_some);
        let theirs = targets.iter().zip(theirs.0);
        Self {
            source: Cursor::new(source, pages, is_compared, false),
            targets: theirs.map(|(target, pages)| Cursor::of_target(target.as_ref(), pages)).collect(),
            refused: VecDeque::new(),
        }
    }

    /// Returns the next step; `None` when all listings of the range have been read to their ends.
    ///
    /// # Errors
    /// A page that could not be read. The walk must not continue after it.
    pub async fn next(&mut self) -> Result<Option<Joined>, JoinError> {
        self.source.fill(Side::Source, &mut self.refused).await?;
        for (target, cursor) in self.targets.iter_mut().enumerate() {
            cursor.fill(Side::Target(target), &mut self.refused).await?;
        }
        if let Some((side, error)) = self.refused.pop_front() {
            return Ok(Some(Joined::Refused { side, error }));
        }
        let name = self.source.name();
        let behind = self.targets.iter().position(|cursor| match (cursor.name(), name) {
            (Some(theirs), Some(ours)) => theirs < ours,
            (theirs, None) => theirs.is_some(),
            (None, Some(_)) => false,
        });
        if let Some(target) = behind {
            return Ok(self.targets[target].objects.pop_front().map(|object| Joined::Extra { target, object }));
        }
        let Some(name) = name else { return Ok(None) };
        let equal = |cursor: &Cursor| cursor.name().map(|theirs| theirs.cmp(name)) == Some(Ordering::Equal);
        let equal: Vec<bool> = self.targets.iter().map(equal).collect();
        let matches = self.targets.iter_mut().zip(equal);
        let matches = matches.map(|(cursor, equal)| if equal { cursor.objects.pop_front() } else { None }).collect();
        Ok(self.source.objects.pop_front().map(|object| Joined::Source { object, matches }))
    }

    /// Number of the source's directories that were not listed, because the rules exclude them.
    pub fn skipped_at_source(&self) -> u64 {
        self.source.skipped
    }
}

impl Cursor {
    fn new(listing: &Listing, pages: Pages, is_compared: bool, is_missing_empty: bool) -> Self {
        Self {
            pages: Some(pages),
            objects: VecDeque::new(),
            url: listing.store.url().to_owned(),
            last: is_compared.then(String::new),
            prefix_len: listing.prefix.len(),
            is_missing_empty,
            skipped: 0,
        }
    }

    fn of_target(listing: Option<&Listing>, pages: Option<Pages>) -> Self {
        match listing.zip(pages) {
            Some((listing, pages)) => Self::new(listing, pages, true, listing.store.makes_root()),
            None => Self {
                pages: None,
                objects: VecDeque::new(),
                url: String::new(),
                last: None,
                prefix_len: 0,
                is_missing_empty: true,
                skipped: 0,
            },
        }
    }

    fn name(&self) -> Option<&[u8]> {
        self.objects.front().map(|object| object.key.as_bytes().get(self.prefix_len..).unwrap_or_default())
    }

    /// Reads pages until the listing has an object to return or ends.
    async fn fill(&mut self, side: Side, refused: &mut VecDeque<(Side, Error)>) -> Result<(), JoinError> {
        while self.objects.is_empty() {
            let Some(pages) = &mut self.pages else { return Ok(()) };
            match pages.next().await {
                None => self.pages = None,
                Some(Err(error)) if self.is_missing_empty && error.kind == ErrorKind::BucketNotFound => {
                    self.pages = None
                }
                Some(Err(error)) => return Err(JoinError { side, error }),
                Some(Ok(page)) => {
                    self.skipped += page.skipped;
                    self.check_order(&page.objects).map_err(|error| JoinError { side, error })?;
                    refused.extend(page.refused.into_iter().map(|error| (side, error)));
                    self.objects = page.objects.into();
                }
            }
        }
        Ok(())
    }

    /// After one key out of order, every later name would seem to be missing on one side and extra on the other.
    fn check_order(&mut self, objects: &[ObjectInfo]) -> Result<(), Error> {
        let Some(last) = &mut self.last else { return Ok(()) };
        for object in objects {
            if object.key <= *last && !last.is_empty() {
                let message = format!("cannot be compared: {UNORDERED}: {:?} comes after {last:?}", object.key);
                return Err(Error::new(ErrorKind::Unsupported, "list", self.url.clone(), message));
            }
            last.clone_from(&object.key);
        }
        Ok(())
    }
}
