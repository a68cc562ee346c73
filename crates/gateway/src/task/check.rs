//! `check`: compares two trees, by what stores state or by reading both.

use super::error::{TaskError, TaskResult};
use super::folders::{folder_of, no_directory, nothing_in, object_instead};
use super::refused::Refused;
use super::streams::Streams;
use super::text::{escaped, one_line};
use super::unlisted::Unlisted;
use crate::failure::{counted, object_url};
use crate::lead::compare::{Difference, Tags, Times, Verdict, decide, with_listed_time};
use crate::lead::join::{Join, JoinError, Joined, Side};
use crate::lead::local_sums::{decide_reading, is_file};
use crate::lead::pages::{Listing, RANGES_AT_ONCE_MAX};
use crate::lead::select::Selector;
use crate::reading::{Summing, windows};
use crate::retry::RetryPolicy;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, mpsc};
use tradewind_contract::{Comparison, ObjectFilter, Outcome};
use tradewind_store::{Checksums, Error, ObjectInfo, Store};

/// Most findings that wait to be printed; at the limit the comparison waits.
const FINDINGS_QUEUE_MAX: usize = 1024;
/// Most pairs of one range that are compared together.
const BATCH_PAIRS_MAX: usize = 256;
/// Most pairs for which stores are asked concurrently.
const PAIRS_ASKED_MAX: usize = 16;
/// Most pairs that are read concurrently; with [`WINDOWS_MAX`] and two sides this limits memory to 64 MiB.
const PAIRS_READ_MAX: usize = 2;
/// Most windows of one object that are read concurrently.
const WINDOWS_MAX: usize = 2;

/// Inputs of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Facts that stores state.
    Stated(Comparison),
    /// The bytes.
    Read,
}

impl Rule {
    /// Compares the bytes if `read`, and of two folders if a checksum must decide: files state none.
    fn between(sides: &[(Arc<dyn Store>, String); 2], compare: Comparison, read: bool) -> Self {
        let are_files = sides.iter().all(|(store, _)| is_file(store));
        match read || are_files && compare == Comparison::Checksum {
            true => Self::Read,
            false => Self::Stated(compare),
        }
    }
}

/// Compares a source with a destination.
pub(super) struct Check {
    sides: [(Arc<dyn Store>, String); 2],
    rule: Rule,
    one_way: bool,
    json: bool,
    policy: RetryPolicy,
    tags: [Tags; 2],
    /// Number of source objects that the filter leaves out.
    excluded: AtomicU64,
    /// Number of objects that only the destination has, and that are not reported.
    passed_over: AtomicU64,
}

/// The finding about one name.
enum Finding {
    Same,
    Missing(String),
    Extra(String),
    Differs(String, Different),
    Unproven(String),
    Failed(String, Error),
    Refused(Error),
}

/// How the two objects of a name differ.
#[derive(Clone, Copy)]
struct Different {
    by: Difference,
    /// Their listings do not tell, so `sync` without a comparison of checksums would not copy the object.
    kept_by_sync: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kept_by_sync: bool,
}

/// The number of names for each finding.
#[derive(Default, Serialize)]
struct Tally {
    same: u64,
    missing: u64,
    extra: u64,
    differs: u64,
    unproven: u64,
    failed: u64,
    #[serde(skip)]
    failed_for_good: u64,
    #[serde(skip)]
    kept_by_sync: u64,
    #[serde(skip)]
    refused: Refused,
}

#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: &'a Tally,
}

impl Check {
    pub(super) fn new(
        sides: [(Arc<dyn Store>, String); 2],
        compare: Comparison,
        read: bool,
        one_way: bool,
        json: bool,
        policy: RetryPolicy,
    ) -> Self {
        let rule = Rule::between(&sides, compare, read);
        let (tags, excluded, passed_over) = Default::default();
        Self { sides, rule, one_way, json, policy, tags, excluded, passed_over }
    }

    pub(super) async fn run(mut self, filter: &ObjectFilter, streams: &mut Streams) -> TaskResult {
        let selector = Selector::new(filter)?;
        for (_, prefix) in &mut self.sides {
            *prefix = folder_of(prefix);
        }
        let (sender, mut findings) = mpsc::channel(FINDINGS_QUEUE_MAX);
        let mut tally = Tally::default();
        let comparing = self.compare_ranges(&selector, sender);
        let printing = async {
            while let Some(finding) = findings.recv().await {
                tally.add(&finding);
                self.print(finding, &mut tally.refused, streams)?;
            }
            Ok::<_, TaskError>(())
        };
        futures::try_join!(comparing, printing)?;
        if let Some(error) = self.not_compared(&tally, &selector).await {
            return Err(error);
        }
        self.end(&tally, streams)
    }

    async fn compare_ranges(&self, selector: &Selector, sender: mpsc::Sender<Finding>) -> TaskResult {
        let listing = |(store, prefix): &(Arc<dyn Store>, String)| {
            let skips = selector.skips(prefix, "");
            Listing::new(store.clone(), prefix.clone(), self.policy, selector.span(), skips)
        };
        let (source, target) = (listing(&self.sides[0]), [Some(listing(&self.sides[1]))]);
        let at_once = if self.rule == Rule::Read { PAIRS_READ_MAX } else { PAIRS_ASKED_MAX };
        let pairs = Semaphore::new(at_once);
        let ranges = source.ranges().await?;
        futures::stream::iter(ranges.into_iter().map(Ok))
            .try_for_each_concurrent(RANGES_AT_ONCE_MAX, |range| {
                self.compare_range(Join::new(&source, &target, &range), selector, &pairs, &sender)
            })
            .await
    }

    async fn compare_range(
        &self,
        mut join: Join,
        selector: &Selector,
        pairs: &Semaphore,
        sender: &mpsc::Sender<Finding>,
    ) -> TaskResult {
        let mut batch = Vec::with_capacity(BATCH_PAIRS_MAX);
        let mut unlisted = [Unlisted::default(), Unlisted::default()];
        while let Some(step) = join.next().await.map_err(|failed: JoinError| self.failed_listing(failed))? {
            match step {
                Joined::Source { object, mut matches } => {
                    let name = self.name_of(0, &object);
                    let theirs = matches.pop().flatten();
                    if !selector.takes(&name, object.size_bytes, object.modified_unix_ms) {
                        self.excluded.fetch_add(1, Ordering::Relaxed);
                    } else if theirs.is_none()
                        && let Some(error) = unlisted[1].above(&name)
                    {
                        send(sender, Finding::Failed(name, error.clone())).await?;
                    } else {
                        batch.push((name, object, theirs));
                    }
                }
                Joined::Extra { object, .. } => {
                    let name = self.name_of(1, &object);
                    if !self.one_way && selector.takes(&name, object.size_bytes, object.modified_unix_ms) {
                        let finding = match unlisted[0].above(&name) {
                            Some(error) => Finding::Failed(name, error.clone()),
                            None => Finding::Extra(name),
                        };
                        send(sender, finding).await?;
                    } else {
                        self.passed_over.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Joined::Refused { side, error } => {
                    let side = usize::from(side != Side::Source);
                    if !self.is_left_out(selector, side, &error) {
                        unlisted[side].add(self.name_of_refused(side, &error), &error);
                        send(sender, Finding::Refused(error)).await?;
                    }
                }
            }
            if batch.len() == BATCH_PAIRS_MAX {
                self.compare_batch(std::mem::take(&mut batch), pairs, sender).await?;
            }
        }
        self.excluded.fetch_add(join.skipped_at_source(), Ordering::Relaxed);
        self.compare_batch(batch, pairs, sender).await
    }

    fn failed_listing(&self, failed: JoinError) -> TaskError {
        match failed.side {
            Side::Source => TaskError::Store(failed.error),
            // A missing destination is a failure, but not a missing source (exit code 3).
            Side::Target(_) => {
                let (outcome, hint) = (crate::failure::outcome_of(&failed.error), failed.error.hint());
                TaskError::ended(outcome, failed.error.to_string(), hint)
            }
        }
    }

    /// Returns whether the rules leave out an entry that cannot be listed.
    fn is_left_out(&self, selector: &Selector, side: usize, error: &Error) -> bool {
        self.name_of_refused(side, error).is_some_and(|name| selector.leaves_out_refused(name, error))
    }

    fn name_of_refused<'a>(&self, side: usize, error: &'a Error) -> Option<&'a str> {
        let (store, prefix) = &self.sides[side];
        error.url.strip_prefix(&object_url(store.as_ref(), prefix))
    }

    fn name_of(&self, side: usize, object: &ObjectInfo) -> String {
        object.key.strip_prefix(&self.sides[side].1).unwrap_or(&object.key).to_owned()
    }

    async fn compare_batch(
        &self,
        batch: Vec<(String, ObjectInfo, Option<ObjectInfo>)>,
        pairs: &Semaphore,
        sender: &mpsc::Sender<Finding>,
    ) -> TaskResult {
        for (_, ours, theirs) in &batch {
            self.tags[0].see(ours);
            theirs.iter().for_each(|theirs| self.tags[1].see(theirs));
        }
        let findings = futures::stream::iter(batch.into_iter().map(|(name, ours, theirs)| async move {
            match theirs {
                None => Finding::Missing(name),
                Some(theirs) => match self.compare(&ours, &theirs, pairs).await {
                    Ok(Verdict::Same) => Finding::Same,
                    Ok(Verdict::Differs(Difference::Unproven) | Verdict::NeedsChecksums) => Finding::Unproven(name),
                    Ok(Verdict::Differs(by)) => {
                        let kept_by_sync = self.is_kept_by_sync(by, &ours, &theirs, pairs).await;
                        Finding::Differs(name, Different { by, kept_by_sync })
                    }
                    Err(error) => Finding::Failed(name, error),
                },
            }
        }));
        let mut findings = std::pin::pin!(findings.buffered(PAIRS_ASKED_MAX));
        while let Some(finding) = findings.next().await {
            send(sender, finding).await?;
        }
        Ok(())
    }

    async fn compare(&self, ours: &ObjectInfo, theirs: &ObjectInfo, pairs: &Semaphore) -> Result<Verdict, Error> {
        if ours.size_bytes != theirs.size_bytes {
            return Ok(Verdict::Differs(Difference::Size));
        }
        let [(source, _), (target, _)] = &self.sides;
        match self.rule {
            Rule::Read => {
                // The semaphore is never closed; even without a permit the pair would be read.
                let _permit = pairs.acquire().await;
                let read = futures::try_join!(self.read(source, ours), self.read(target, theirs))?;
                let same = read.0 == read.1;
                Ok(if same { Verdict::Same } else { Verdict::Differs(Difference::Checksum) })
            }
            Rule::Stated(rule) => self.compare_stated(rule, ours, theirs, pairs).await,
        }
    }

    async fn compare_stated(
        &self,
        rule: Comparison,
        ours: &ObjectInfo,
        theirs: &ObjectInfo,
        pairs: &Semaphore,
    ) -> Result<Verdict, Error> {
        let [(source, _), (target, _)] = &self.sides;
        let trusted = (self.tags[0].trusted(ours), self.tags[1].trusted(theirs));
        match decide(rule, Times::between(source.as_ref(), target.as_ref()), &trusted.0, &trusted.1) {
            Verdict::NeedsChecksums => {
                let _permit = pairs.acquire().await;
                let headed = futures::try_join!(self.ask(source, ours), self.ask(target, theirs))?;
                let (ours, theirs) = (with_listed_time(headed.0, ours), with_listed_time(headed.1, theirs));
                let ours = self.tags[0].trusted(&ours).into_owned();
                let theirs = self.tags[1].trusted(&theirs).into_owned();
                decide_reading(rule, (source, ours), (target, theirs), self.policy).await
            }
            verdict => Ok(verdict),
        }
    }

    /// Returns whether `sync`, by its default, would take objects that differ `by` something for the same.
    async fn is_kept_by_sync(&self, by: Difference, ours: &ObjectInfo, theirs: &ObjectInfo, pairs: &Semaphore) -> bool {
        let by_default = || self.compare_stated(Comparison::Auto, ours, theirs, pairs);
        by == Difference::Checksum && matches!(by_default().await, Ok(Verdict::Same))
    }

    async fn ask(&self, store: &Arc<dyn Store>, object: &ObjectInfo) -> Result<ObjectInfo, Error> {
        self.policy.run("head", store.url(), || store.head(&object.key)).await
    }

    async fn read(&self, store: &Arc<dyn Store>, object: &ObjectInfo) -> Result<Checksums, Error> {
        let mut summing = Summing::against(&Checksums::default());
        let mut windows =
            std::pin::pin!(windows(store.as_ref(), object, 0..object.size_bytes, WINDOWS_MAX, self.policy));
        while let Some(segments) = windows.try_next().await? {
            segments.iter().for_each(|segment| summing.update(segment));
        }
        Ok(summing.finish())
    }

    fn print(&self, finding: Finding, refused: &mut Refused, streams: &mut Streams) -> io::Result<()> {
        let mut kept_by_sync = false;
        let (kind, name, detail) = match finding {
            Finding::Same => return Ok(()),
            Finding::Missing(name) => ("missing", name, None),
            Finding::Extra(name) => ("extra", name, None),
            Finding::Differs(name, different) => {
                kept_by_sync = different.kept_by_sync;
                ("differs", name, Some(word_of(different.by).to_owned()))
            }
            Finding::Unproven(name) => ("unproven", name, None),
            Finding::Failed(name, error) => ("failed", name, Some(error.to_string())),
            Finding::Refused(error) => {
                refused.take_uncompared(&error, streams);
                return Ok(());
            }
        };
        if self.json {
            return streams.json_line(&Line { kind, name: &name, detail, kept_by_sync });
        }
        let name = escaped(&name);
        match detail {
            Some(detail) if kept_by_sync => writeln!(streams.data, "{kind:<8} {name} ({detail}; sync would keep it)"),
            Some(detail) => writeln!(streams.data, "{kind:<8} {name} ({})", one_line(&detail)),
            None => writeln!(streams.data, "{kind:<8} {name}"),
        }
    }

    /// Returns the error if the source has nothing to compare, or if the destination is an object.
    async fn not_compared(&self, tally: &Tally, selector: &Selector) -> Option<TaskError> {
        let at_both = tally.same + tally.differs + tally.unproven + tally.failed;
        if at_both > 0 || tally.refused.has_unseen() {
            return None;
        }
        let advice =
            |_: &str| "check compares directories: name the directory, and the object with --include".to_owned();
        let [(source, from), (destination, to)] = &self.sides;
        if tally.missing == 0 {
            let excluded = self.excluded.load(Ordering::Relaxed);
            return Some(nothing_in(source, from, (selector, excluded), self.policy, advice).await);
        }
        if tally.extra > 0 {
            return None;
        }
        object_instead(destination, to, self.policy).await.map(|url| no_directory(&url, &advice(&url)))
    }

    fn end(&self, tally: &Tally, streams: &mut Streams) -> TaskResult {
        tally.refused.say_links("skipped; --follow-symlinks compares what they point to", streams);
        if self.json {
            streams.json_line(&SummaryLine { summary: tally })?;
        } else {
            let Tally { same, missing, extra, differs, unproven, failed, .. } = tally;
            streams.say(&format!(
                "{same} same, {missing} missing, {extra} extra, {differs} differ, {unproven} unproven, {failed} failed"
            ));
        }
        let different = tally.missing + tally.extra + tally.differs;
        if different > 0 {
            let message = format!("the trees differ in {}", counted(different, "name", "names"));
            let is_nothing_there = self.passed_over.load(Ordering::Relaxed) == 0
                && tally.same + tally.extra + tally.differs + tally.unproven + tally.failed == 0;
            let (store, prefix) = &self.sides[1];
            let hint = match (is_nothing_there, tally.kept_by_sync) {
                (true, _) => Some(format!("nothing exists at {}: check the name", object_url(store.as_ref(), prefix))),
                (false, 0) => None,
                (false, kept) => Some(format!(
                    "sync would keep {kept} of them, because it goes by size and time: pass --compare checksum to it"
                )),
            };
            return Err(TaskError::ended(Outcome::Mismatch, message, hint.as_deref()));
        }
        if tally.failed > 0 {
            let message = format!("{} could not be compared", counted(tally.failed, "object", "objects"));
            let outcome = if tally.failed_for_good == 0 { Outcome::Unavailable } else { Outcome::SomeFailed };
            return Err(TaskError::ended(outcome, message, None));
        }
        if tally.unproven > 0 {
            let message = format!("no checksum could be compared for {} of the objects of equal size", tally.unproven);
            let hint = Some("the stores have no checksum in common for them: pass --read");
            return Err(TaskError::ended(Outcome::SomeFailed, message, hint));
        }
        tally.refused.end()
    }
}

impl Tally {
    fn add(&mut self, finding: &Finding) {
        match finding {
            Finding::Same => self.same += 1,
            Finding::Missing(_) => self.missing += 1,
            Finding::Extra(_) => self.extra += 1,
            Finding::Differs(_, different) => {
                self.differs += 1;
                self.kept_by_sync += u64::from(different.kept_by_sync);
            }
            Finding::Unproven(_) => self.unproven += 1,
            Finding::Failed(_, error) => {
                self.failed += 1;
                self.failed_for_good += u64::from(!error.kind.is_transient());
            }
            Finding::Refused(_) => {}
        }
    }
}

fn word_of(difference: Difference) -> &'static str {
    match difference {
        Difference::Size => "size",
        Difference::Checksum => "checksum",
        Difference::Time => "time",
        Difference::Unproven => "unproven",
    }
}

async fn send(sender: &mpsc::Sender<Finding>, finding: Finding) -> TaskResult {
    // The printer ends early only with an error of its own, which is the one to report.
    sender.send(finding).await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe).into())
}
