//! `ls`.

use super::error::{TaskError, TaskResult};
use super::folders::{folder_of, is_only_empty, nothing_in};
use super::refused::Refused;
use super::streams::Streams;
use super::text::escaped;
use crate::failure::{human_bytes, object_url};
use crate::lead::pages::Listing;
use crate::lead::select::{Selector, Within};
use crate::retry::RetryPolicy;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use tradewind_contract::ObjectFilter;
use tradewind_store::{ErrorKind, ListPage, ObjectInfo, Store};

/// How an object is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Its name.
    Name,
    /// Time, size, storage class and name.
    Long {
        /// Sizes with a unit instead of bytes.
        human: bool,
    },
    /// One JSON object per line.
    Json,
}

impl Form {
    pub(super) fn of(long: bool, human: bool, json: bool) -> Self {
        match (json, long) {
            (true, _) => Self::Json,
            (false, true) => Self::Long { human },
            (false, false) => Self::Name,
        }
    }

    pub(super) fn size(self, bytes: u64) -> String {
        match self {
            Self::Long { human: true } => human_bytes(bytes),
            _ => bytes.to_string(),
        }
    }
}

#[derive(Serialize)]
struct ObjectLine<'a> {
    key: &'a str,
    size_bytes: u64,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_class: Option<&'a str>,
}

#[derive(Serialize)]
struct PrefixLine<'a> {
    prefix: &'a str,
}

/// Lists the object with exactly this name, and the contents of the folder with this name: one level, or everything.
/// Names are printed relative to the folder.
pub(super) async fn ls(
    store: Arc<dyn Store>,
    prefix: &str,
    recursive: bool,
    filter: &ObjectFilter,
    form: Form,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    let selector = Selector::new(filter)?;
    let folder = folder_of(prefix);
    let mut lines = Lines {
        form,
        folder: &folder,
        root: object_url(store.as_ref(), &folder),
        selector: &selector,
        folders: !recursive,
        printed: 0,
        printed_folders: Vec::new(),
        excluded: 0,
        refused: Refused::default(),
    };
    if folder != prefix && selector.within().is_none() {
        lines.print_exact(&store, prefix, policy, streams).await?;
    }
    let skips = selector.skips(&folder, "");
    let listing = Listing::new(store.clone(), folder.clone(), policy, selector.span(), skips);
    let is_deep = recursive || selector.within().is_some_and(Within::crosses_folders);
    let mut pages = if is_deep { listing.in_order().await?.boxed() } else { listing.level().into_stream().boxed() };
    while let Some(page) = pages.try_next().await? {
        lines.print_page(&page, streams)?;
    }
    lines.refused.say_links("skipped", streams);
    let is_empty = lines.printed == 0 && !lines.refused.has_unseen();
    if is_empty && !is_only_empty(prefix, &selector, lines.excluded) {
        let advice = |url: &str| format!("leave out the slash at its end: tradewind ls {url}");
        return Err(nothing_in(&store, prefix, (&selector, lines.excluded), policy, advice).await);
    }
    lines.refused.end()
}

struct Lines<'a> {
    form: Form,
    folder: &'a str,
    /// The folder's URL.
    root: String,
    selector: &'a Selector,
    /// True if folders that the wildcards match are printed.
    folders: bool,
    printed: u64,
    /// Folders that the wildcards matched and that contain the last object.
    printed_folders: Vec<String>,
    excluded: u64,
    refused: Refused,
}

impl Lines<'_> {
    async fn print_exact(
        &mut self,
        store: &Arc<dyn Store>,
        key: &str,
        policy: RetryPolicy,
        streams: &mut Streams,
    ) -> TaskResult {
        match policy.run("head", store.url(), || store.head(key)).await {
            Ok(object) => {
                let name = key.rsplit('/').next().unwrap_or(key);
                self.print_object(&object, name, streams).map_err(TaskError::from)
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            // A user who may list but not read still sees the folder.
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Merges objects and folded prefixes, each in ascending order, into one printed order.
    fn print_page(&mut self, page: &ListPage, streams: &mut Streams) -> io::Result<()> {
        let mut prefixes = page.prefixes.iter().peekable();
        for object in &page.objects {
            while let Some(prefix) = prefixes.next_if(|prefix| **prefix < object.key) {
                self.print_prefix(prefix, streams)?;
            }
            let name = object.key.strip_prefix(self.folder).unwrap_or(&object.key);
            self.print_folders_above(name, streams)?;
            self.print_object(object, name, streams)?;
        }
        for prefix in prefixes {
            self.print_prefix(prefix, streams)?;
        }
        self.excluded += page.skipped;
        self.refused.take_selected(&page.refused, &self.root, self.selector, streams);
        Ok(())
    }

    fn print_object(&mut self, object: &ObjectInfo, name: &str, streams: &mut Streams) -> io::Result<()> {
        if !self.selector.takes(name, object.size_bytes, object.modified_unix_ms) {
            self.excluded += 1;
            return Ok(());
        }
        self.printed += 1;
        let modified = utc(object.modified_unix_ms);
        match self.form {
            Form::Name => writeln!(streams.data, "{}", escaped(name)),
            Form::Long { .. } => {
                let class = object.storage_class.as_deref().unwrap_or("-");
                let size = self.form.size(object.size_bytes);
                writeln!(streams.data, "{modified} {size:>15} {class:<12} {}", escaped(name))
            }
            Form::Json => streams.json_line(&ObjectLine {
                key: &object.key,
                size_bytes: object.size_bytes,
                modified,
                etag: object.etag.as_deref(),
                storage_class: object.storage_class.as_deref(),
            }),
        }
    }

    /// Prints the folders above an object that the wildcards match, each before the first object in it.
    fn print_folders_above(&mut self, name: &str, streams: &mut Streams) -> io::Result<()> {
        let Some(within) = self.selector.within().filter(|_| self.folders) else { return Ok(()) };
        self.printed_folders.retain(|folder| name.starts_with(folder.as_str()));
        for (slash, _) in name.match_indices('/') {
            let folder = &name[..=slash];
            if within.takes_folder(folder) && !self.printed_folders.iter().any(|printed| printed == folder) {
                self.printed_folders.push(folder.to_owned());
                self.print_prefix(&format!("{}{folder}", self.folder), streams)?;
            }
        }
        Ok(())
    }

    fn print_prefix(&mut self, prefix: &str, streams: &mut Streams) -> io::Result<()> {
        let name = prefix.strip_prefix(self.folder).unwrap_or(prefix);
        if self.selector.within().is_some_and(|within| !within.takes_folder(name)) {
            return Ok(());
        }
        self.printed += 1;
        match self.form {
            Form::Name => writeln!(streams.data, "{}", escaped(name)),
            Form::Long { .. } => writeln!(streams.data, "{:>20} {:>15} {:<12} {}", "", "-", "-", escaped(name)),
            Form::Json => streams.json_line(&PrefixLine { prefix }),
        }
    }
}

/// `2026-11-21T08:56:45Z`. Proleptic Gregorian calendar; after Howard Hinnant's `civil_from_days`.
pub(super) fn utc(unix_ms: i64) -> String {
    let seconds = unix_ms.div_euclid(1000);
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From `date -u -d @SECONDS`.
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696_789), "2000-02-29T12:34:56Z");
        assert_eq!(utc(4_107_542_399_000), "2100-02-28T23:59:59Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59Z");
    }
}
