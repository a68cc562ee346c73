//! Refuses a job whose source and destination, or two of whose destinations, are the same place or overlap.
//!
//! Such a job would copy its own output, overwrite its own source, or delete the only copy. Places are compared by
//! identity ([`tradewind_store::kinship`]). Where names do not decide, `mv` (and a tree that may lie within the other)
//! is begun only if a sample of the source's objects is proven not to be at the destination.

mod inwards;
mod members;

use crate::failure::object_url;
use crate::lead::names::{last_part, listed_name};
use crate::lead::select::is_level;
use crate::lead::survey::SurveyError;
use crate::retry::RetryPolicy;
use std::sync::Arc;
use tokio::io::AsyncBufReadExt;
use tradewind_contract::{JobSpec, Member, ObjectFilter, Selection};
use tradewind_store::{
    Kinship, Likeness, ListRequest, Relation, Store, compare_objects, follow_no_directories, keep_out_of, kinship,
    object_kinship, respelled,
};

/// Number of source objects that are compared with a destination that may be the source. If some are equal there, and
/// none is absent or different, the two are treated as one place.
const SAMPLE_OBJECTS_MAX: usize = 8;
/// Number of candidates for this sample, from a listing or the list of names. Those that are not at the source, or that
/// change meanwhile, do not count.
const SAMPLE_CANDIDATES_MAX: usize = 64;

/// The stores of a job.
#[derive(Debug)]
pub struct Places<'a> {
    /// The job.
    pub job: &'a JobSpec,
    /// The store of the source.
    pub source: &'a Arc<dyn Store>,
    /// The destinations, in the order of [`JobSpec::targets`].
    pub targets: &'a [Arc<dyn Store>],
    /// The retry policy for requests.
    pub policy: RetryPolicy,
}

/// One place: a store and an object's key, or a prefix.
#[derive(Clone, Copy)]
struct Place<'a> {
    store: &'a Arc<dyn Store>,
    key: &'a str,
}

/// An object of the source that may be looked up at a destination.
struct Candidate {
    key: String,
    /// The part of the key after the destination's own key.
    name: String,
    /// It was there a moment ago; others are only named by the user.
    is_listed: bool,
}

/// A part of the selection: an object, or all objects below a prefix.
struct Part<'a> {
    key: &'a str,
    /// The part after the destination's own key.
    name: String,
    is_tree: bool,
}

impl Part<'_> {
    /// The directory that the part is in.
    fn directory(&self) -> &str {
        &self.key[..self.key.len() - last_part(self.key).len()]
    }
}

impl Places<'_> {
    /// Refuses overlapping places. `is_fresh`: nothing has been copied yet; a resumed job is not compared by sample, for
    /// its own copies are at the destination. Returns for each destination whether its name proves that it is not the
    /// source.
    ///
    /// # Errors
    /// [`SurveyError::Overlap`], [`SurveyError::NotApart`], [`SurveyError::Undecided`], or what a store says.
    pub async fn refuse_overlaps(&self, is_fresh: bool) -> Result<Vec<bool>, SurveyError> {
        let targets: Vec<Place<'_>> =
            self.targets.iter().zip(&self.job.targets).map(|(store, to)| Place { store, key: &to.key }).collect();
        let is_tree = !matches!(self.job.selection, Selection::Object { .. });
        for (index, target) in targets.iter().enumerate() {
            for other in &targets[..index] {
                refused_if_related(*other, *target, compared(*other, *target, is_tree).await?)?;
            }
        }
        let mut parts = self.parts();
        parts.sort_by(|one, other| one.directory().cmp(other.directory()));
        let mut proven_apart = Vec::with_capacity(targets.len());
        for target in targets {
            self.bar_links(&parts, target);
            let found = self.relate_parts(&parts, target).await?;
            self.refuse_crossing(&parts, target).await?;
            proven_apart.push(found.is_none());
            if let Some(relation) = found
                && is_fresh
                && self.needs_proof(relation)
            {
                for parts in parts.chunk_by(|one, other| one.directory() == other.directory()) {
                    self.prove_apart(parts, target, relation).await?;
                }
            }
        }
        Ok(proven_apart)
    }

    /// Refuses a symbolic link below the source that leads to a place the job writes or, where sources are deleted, to
    /// any directory. A link that is itself the source is compared by [`compared`].
    fn bar_links(&self, parts: &[Part<'_>], target: Place<'_>) {
        let is_one_object = matches!(self.job.selection, Selection::Object { .. });
        if self.job.delete_source && !is_one_object {
            follow_no_directories(self.source.as_ref());
        }
        for part in parts.iter().filter(|_| !is_one_object) {
            let to = format!("{}{}", target.key, part.name);
            keep_out_of(self.source.as_ref(), (target.store.as_ref(), &to));
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        match &self.job.selection {
            Selection::Object { key } => vec![Part { key, name: String::new(), is_tree: false }],
            Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } => {
                vec![Part { key: prefix, name: String::new(), is_tree: true }]
            }
            Selection::Several { members, .. } => {
                let part = |Member { key, name }: &'_ Member| (key.ends_with('/'), name.clone());
                let parts = members.iter().map(|member| (member.key.as_str(), part(member)));
                parts
                    .map(|(key, (is_tree, name))| Part {
                        key,
                        name: if is_tree { format!("{name}/") } else { name },
                        is_tree,
                    })
                    .collect()
            }
        }
    }

    /// Compares each part with the place it would be written to. Returns the closest relation that is not proven.
    async fn relate_parts(&self, parts: &[Part<'_>], target: Place<'_>) -> Result<Option<Relation>, SurveyError> {
        let mut unproven = None;
        for part in parts {
            let source = Place { store: self.source, key: part.key };
            let to = format!("{}{}", target.key, part.name);
            let to = Place { key: &to, ..target };
            let found = match compared(source, to, part.is_tree).await? {
                found if self.copies_inwards(found.relation) => {
                    self.refuse_listed_within(to).await?;
                    Kinship { relation: Relation::Apart, ..found }
                }
                found => refused_if_related(source, to, found)?,
            };
            if !found.proven && unproven.is_none_or(|relation| relation == Relation::Apart) {
                unproven = Some(found.relation);
            }
        }
        Ok(unproven)
    }

    /// A list of names may be copied to a place below its source: its own copies are never listed. So may objects that
    /// a pattern matches in one folder.
    fn copies_inwards(&self, relation: Relation) -> bool {
        if let Selection::Prefix { filter: ObjectFilter { within: Some(within), .. }, .. } = &self.job.selection {
            return is_level(within) && relation == Relation::SecondWithin;
        }
        let is_list = matches!(self.job.selection, Selection::List { .. });
        is_list && !self.job.delete_source && self.job.delete.is_none() && relation == Relation::SecondWithin
    }

    /// Returns whether source and destination must be proven to be different. Copying an object or a tree onto itself
    /// does no harm. But a job that deletes its sources might delete its copies, and a copy between nested trees may
    /// overwrite or delete its own source.
    fn needs_proof(&self, relation: Relation) -> bool {
        let nested = matches!(relation, Relation::FirstWithin | Relation::SecondWithin);
        !self.job.dry_run && (self.job.delete_source || nested)
    }

    /// Looks for some objects of the source at the destination: under the names that they would get, and, if the places
    /// may overlap, under their own, spelled as the destination is.
    async fn prove_apart(&self, parts: &[Part<'_>], target: Place<'_>, relation: Relation) -> Result<(), SurveyError> {
        let sample = self.sample(parts).await?;
        let renamed: Vec<_> = sample.iter().map(|one| format!("{}{}", target.key, one.name)).collect();
        // In one bucket the question is whether the server treats two spellings as one name.
        let is_one_bucket = self.source.identity() == target.store.identity();
        let own = |Candidate { key, name, .. }: &'_ Candidate| match is_one_bucket {
            true => respelled(key, key.strip_suffix(name.as_str()).unwrap_or_default(), target.key),
            false => key.clone(),
        };
        let kept: Vec<_> = sample.iter().map(own).collect();
        let keeps = relation != Relation::Apart && renamed != kept;
        let (sample, renamed, kept) = (&sample, &renamed, keeps.then_some(&kept));
        let views = std::iter::once(renamed).chain(kept);
        let proofs = views.map(|view| self.prove_view_apart(parts, target, sample, view));
        futures::future::try_join_all(proofs).await.map(drop)
    }

    /// Compares the sample with the objects of these keys at the destination. One that is absent or different there
    /// proves that the places differ. One that is not at the source, or changes meanwhile, proves nothing; the next ones
    /// are compared instead.
    async fn prove_view_apart(
        &self,
        parts: &[Part<'_>],
        target: Place<'_>,
        sample: &[Candidate],
        view: &[String],
    ) -> Result<(), SurveyError> {
        let (mut alike, mut nothing_to_move) = (0, sample.len() < SAMPLE_CANDIDATES_MAX);
        let pairs: Vec<_> = sample.iter().zip(view).collect();
        // One pair almost always decides.
        let (first, others) = pairs.split_at(pairs.len().min(1));
        for pairs in std::iter::once(first).chain(others.chunks(SAMPLE_OBJECTS_MAX)) {
            let asked = pairs.iter().map(|(ours, at_target)| {
                self.policy.run("head", target.store.url(), move || {
                    compare_objects((self.source.as_ref(), &ours.key), (target.store.as_ref(), at_target))
                })
            });
            let answers = futures::future::try_join_all(asked).await.map_err(SurveyError::Target)?;
            if answers.contains(&Likeness::Different) {
                return Ok(());
            }
            alike += answers.iter().filter(|likeness| **likeness == Likeness::Alike).count();
            nothing_to_move &=
                pairs.iter().zip(answers).all(|((ours, _), likeness)| likeness == Likeness::Absent && !ours.is_listed);
            if alike >= SAMPLE_OBJECTS_MAX {
                break;
            }
        }
        let source_url = object_url(self.source.as_ref(), parts.first().map_or("", |part| part.key));
        let destination = object_url(target.store.as_ref(), target.key);
        match alike {
            // Their absence is reported where they are looked up to be copied.
            0 if nothing_to_move => Ok(()),
            0 => Err(SurveyError::Undecided { source_url, destination }),
            _ => Err(SurveyError::NotApart { source_url, destination }),
        }
    }

    /// Returns a sample of the source's objects.
    async fn sample(&self, parts: &[Part<'_>]) -> Result<Vec<Candidate>, SurveyError> {
        if let Selection::List { prefix, list_file, .. } = &self.job.selection {
            return sample_of_list(self.source.url(), prefix, list_file).await;
        }
        let mut sample = Vec::new();
        for part in parts {
            let left = SAMPLE_CANDIDATES_MAX - sample.len();
            if left == 0 {
                break;
            }
            if !part.is_tree {
                sample.push(Candidate { key: part.key.to_owned(), name: part.name.clone(), is_listed: false });
                continue;
            }
            let (prefix, max_keys) = (part.key.to_owned(), Some(SAMPLE_CANDIDATES_MAX as u32));
            let request = ListRequest { prefix, max_keys, ..ListRequest::default() };
            let page = self.policy.run("list", self.source.url(), || self.source.list(&request)).await;
            let keys = page.map_err(SurveyError::Source)?.objects.into_iter().map(|object| object.key);
            let (plain, special): (Vec<_>, Vec<_>) =
                keys.filter(|key| key.len() > part.key.len()).partition(|key| is_plain(&key[part.key.len()..]));
            let chosen = if plain.is_empty() { special } else { plain };
            sample.extend(chosen.into_iter().take(left).map(|key| {
                let name = format!("{}{}", part.name, &key[part.key.len()..]);
                Candidate { key, name, is_listed: true }
            }));
        }
        Ok(sample)
    }
}

/// Returns whether a server that shows files as objects shows this one: it hides its own, in names that begin with a
/// dot, and empty directories.
fn is_plain(name: &str) -> bool {
    !name.ends_with('/') && !name.split('/').any(|part| part.starts_with('.'))
}

async fn sample_of_list(source_url: &str, prefix: &str, list_file: &str) -> Result<Vec<Candidate>, SurveyError> {
    let failed = |error| SurveyError::ListFile { path: list_file.into(), error };
    let mut lines = tokio::io::BufReader::new(tokio::fs::File::open(list_file).await.map_err(failed)?).lines();
    let mut sample = Vec::new();
    while sample.len() < SAMPLE_CANDIDATES_MAX
        && let Some(line) = lines.next_line().await.map_err(failed)?
    {
        let name = listed_name(source_url, &line);
        if !name.is_empty() {
            sample.push(Candidate { key: format!("{prefix}{name}"), name: name.to_owned(), is_listed: false });
        }
    }
    Ok(sample)
}

/// How two places relate.
async fn compared(one: Place<'_>, other: Place<'_>, is_tree: bool) -> Result<Kinship, SurveyError> {
    let (first, second) = ((one.store.as_ref(), one.key), (other.store.as_ref(), other.key));
    let found = if is_tree { kinship(first, second).await } else { object_kinship(first, second).await };
    found.map_err(SurveyError::Target)
}

/// An error for two places that are proven to overlap.
fn refused_if_related(one: Place<'_>, other: Place<'_>, found: Kinship) -> Result<Kinship, SurveyError> {
    if found.proven && found.relation != Relation::Apart { Err(overlap(one, other, found.relation)) } else { Ok(found) }
}

fn overlap(one: Place<'_>, other: Place<'_>, relation: Relation) -> SurveyError {
    let url = |place: Place<'_>| object_url(place.store.as_ref(), place.key);
    SurveyError::Overlap { one: url(one), other: url(other), relation }
}

#[cfg(test)]
mod tests;
