//! `du`: sums sizes, of everything and of folders.

use super::error::{TaskError, TaskResult};
use super::folders::{folder_of, is_only_empty, nothing_in};
use super::list::Form;
use super::refused::Refused;
use super::streams::Streams;
use super::text::shown_place;
use crate::failure::object_url;
use crate::lead::pages::Listing;
use crate::lead::select::Selector;
use crate::retry::RetryPolicy;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use tradewind_contract::{ObjectFilter, Outcome};
use tradewind_store::{ErrorKind, ObjectInfo, Store};

/// Most folders with sums of their own, about 200 MB; more are an error.
const FOLDERS_MAX: usize = 1_000_000;

/// The listing to sum, and the form of its sums.
pub(super) struct Du {
    /// The store.
    pub(super) store: Arc<dyn Store>,
    /// The form in which sums are printed.
    pub(super) form: Form,
    /// Levels of folders with sums of their own.
    pub(super) depth: u32,
    /// Retry policy of a request.
    pub(super) policy: RetryPolicy,
}

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    objects: u64,
    bytes: u64,
}

/// A sum.
#[derive(Clone, Copy, Default)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl Sum {
    /// Adds an object; false if the sum overflows. A server may claim any length, and a sum that wraps would look small.
    #[must_use]
    fn add(&mut self, bytes: u64) -> bool {
        self.objects += 1;
        self.bytes.checked_add(bytes).map(|sum| self.bytes = sum).is_some()
    }
}

/// The sums so far.
#[derive(Default)]
struct Sums {
    all: Sum,
    /// By the folder's name below the prefix, which ends in `/`.
    folders: BTreeMap<String, Sum>,
    excluded: u64,
}

impl Du {
    /// Sums the sizes of everything in a folder, and of the object with exactly this name.
    pub(super) async fn run(self, prefix: &str, filter: &ObjectFilter, streams: &mut Streams) -> TaskResult {
        let selector = Selector::new(filter)?;
        let folder = folder_of(prefix);
        let (mut sums, mut refused) = (Sums::default(), Refused::default());
        if folder != prefix && selector.within().is_none() {
            match self.policy.run("head", self.store.url(), || self.store.head(prefix)).await {
                Ok(object) => sums.all = Sum { objects: 1, bytes: object.size_bytes },
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let skips = selector.skips(&folder, "");
        let listing = Listing::new(self.store.clone(), folder, self.policy, selector.span(), skips);
        let root = object_url(self.store.as_ref(), &listing.prefix);
        let mut pages = listing.in_any_order().await?.boxed();
        while let Some(page) = pages.try_next().await? {
            for object in &page.objects {
                let name = object.key.strip_prefix(&listing.prefix).unwrap_or(&object.key);
                if selector.takes(name, object.size_bytes, object.modified_unix_ms) {
                    self.add(&mut sums, name, object)?;
                } else {
                    sums.excluded += 1;
                }
            }
            sums.excluded += page.skipped;
            refused.take_selected(&page.refused, &root, &selector, streams);
        }
        refused.say_links("skipped", streams);
        let url = object_url(self.store.as_ref(), prefix);
        let (url, _) = selector.missing(&url, sums.excluded);
        let is_empty = sums.all.objects == 0 && !refused.has_unseen();
        if is_empty && !is_only_empty(prefix, &selector, sums.excluded) {
            let advice = |url: &str| format!("leave out the slash at its end: tradewind du {url}");
            return Err(nothing_in(&self.store, prefix, (&selector, sums.excluded), self.policy, advice).await);
        }
        for (name, sum) in &sums.folders {
            self.print(&format!("{root}{name}"), *sum, streams)?;
        }
        self.print(&url, sums.all, streams)?;
        refused.end()
    }

    fn add(&self, sums: &mut Sums, name: &str, object: &ObjectInfo) -> TaskResult {
        let mut fits = sums.all.add(object.size_bytes);
        let ends = name.match_indices('/').map(|(index, _)| index + 1);
        for end in ends.take(usize::try_from(self.depth).unwrap_or(usize::MAX)) {
            let is_full = sums.folders.len() == FOLDERS_MAX;
            fits &= match sums.folders.get_mut(&name[..end]) {
                Some(sum) => sum.add(object.size_bytes),
                None if is_full => return Err(self.too_many()),
                None => sums.folders.entry(name[..end].to_owned()).or_default().add(object.size_bytes),
            };
        }
        if fits { Ok(()) } else { Err(self.too_large()) }
    }

    fn print(&self, url: &str, Sum { objects, bytes }: Sum, streams: &mut Streams) -> std::io::Result<()> {
        if self.form == Form::Json {
            return streams.json_line(&Line { url, objects, bytes });
        }
        writeln!(streams.data, "{}\t{objects}\t{}", self.form.size(bytes), shown_place(url))
    }

    fn too_many(&self) -> TaskError {
        let message = format!("there are more than {FOLDERS_MAX} folders at this depth in {}", self.store.url());
        TaskError::ended(Outcome::Failed, message, Some("use a smaller --depth"))
    }

    fn too_large(&self) -> TaskError {
        let message = format!("the lengths of the objects in {} add up to more than 2^64 bytes", self.store.url());
        TaskError::ended(Outcome::Failed, message, Some("list the length of each object with `tradewind ls -l`"))
    }
}
