//! Refuses several sources of which one would be written over another.
//!
//! `cp -r new/d old/d/x old/` writes `new/d/x`, if there is one, over `old/d/x`, perhaps before that is read.

use super::{Part, Place, Places, compared};
use crate::failure::object_url;
use crate::lead::names::last_part;
use crate::lead::survey::SurveyError;
use std::collections::{BTreeMap, HashMap};
use tradewind_store::{Relation, kinship, loose_form};

/// A part of a job as a place: a tree, or one object.
#[derive(Clone, Copy)]
struct Piece<'a> {
    place: Place<'a>,
    is_tree: bool,
}

impl<'a> Piece<'a> {
    /// The innermost directory that surely holds it.
    fn directory(self) -> Place<'a> {
        let key = self.place.key;
        let end = if self.is_tree { key.len() } else { key.rfind('/').map_or(0, |slash| slash + 1) };
        Place { key: &key[..end], ..self.place }
    }

    /// Returns whether two pieces may have anything in common.
    async fn overlaps(self, other: Self) -> Result<bool, SurveyError> {
        if !self.is_tree && !other.is_tree {
            return Ok(compared(self.place, other.place, false).await?.relation == Relation::Same);
        }
        Ok(match compared(self.directory(), other.directory(), true).await?.relation {
            Relation::Apart => false,
            Relation::Same | Relation::Crossed => true,
            Relation::FirstWithin => other.is_tree,
            Relation::SecondWithin => self.is_tree,
        })
    }
}

/// A part, and the key that it is written to.
type WrittenPart<'a> = (&'a Part<'a>, String);

/// The keys that the parts of a job are written to, arranged so that a source is compared only with those near it.
struct Written<'a> {
    trees: Vec<WrittenPart<'a>>,
    /// Objects by a form of their names without directories.
    objects: HashMap<String, Vec<WrittenPart<'a>>>,
    /// An object of each directory that an object is written to.
    directories: BTreeMap<String, WrittenPart<'a>>,
}

impl<'a> Written<'a> {
    fn new(parts: &'a [Part<'a>], target: Place<'_>) -> Self {
        let mut written = Self { trees: Vec::new(), objects: HashMap::new(), directories: BTreeMap::new() };
        for part in parts {
            let key = format!("{}{}", target.key, part.name);
            if part.is_tree {
                written.trees.push((part, key));
                continue;
            }
            let directory = key[..key.len() - last_part(&key).len()].to_owned();
            written.directories.entry(directory).or_insert_with(|| (part, key.clone()));
            written.objects.entry(loose_form(last_part(&key))).or_default().push((part, key));
        }
        written
    }

    /// Returns the objects that may be where `part` is: those of its name, or for a tree, one of each directory.
    fn objects_near(&self, part: &Part<'_>) -> impl Iterator<Item = &WrittenPart<'a>> {
        let of_name = (!part.is_tree).then(|| self.objects.get(&loose_form(last_part(part.key)))).flatten();
        let in_directories = part.is_tree.then(|| self.directories.values());
        of_name.into_iter().flatten().chain(in_directories.into_iter().flatten())
    }
}

impl Places<'_> {
    /// Refuses a part whose source is where another part is written. Parts of one directory must be neighbours.
    pub(super) async fn refuse_crossing(&self, parts: &[Part<'_>], target: Place<'_>) -> Result<(), SurveyError> {
        if parts.len() < 2 {
            return Ok(());
        }
        let written = Written::new(parts, target);
        for near in parts.chunk_by(|one, other| one.directory() == other.directory()) {
            let directory = (self.source.as_ref(), near[0].directory());
            let found = kinship(directory, (target.store.as_ref(), target.key)).await.map_err(SurveyError::Target)?;
            // A source above the destination is found when it is compared with its own copy.
            if !matches!(found.relation, Relation::Same | Relation::FirstWithin) {
                continue;
            }
            let mut trees_near = Vec::new();
            for tree in &written.trees {
                let to = (target.store.as_ref(), tree.1.as_str());
                if kinship(directory, to).await.map_err(SurveyError::Target)?.relation != Relation::Apart {
                    trees_near.push(tree);
                }
            }
            for part in near {
                // A tree that is a link or a mount lies elsewhere.
                let place = (self.source.as_ref(), part.key);
                let is_there = !part.is_tree
                    || kinship(place, directory).await.map_err(SurveyError::Source)?.relation == Relation::FirstWithin;
                let mut others = if is_there { trees_near.clone() } else { written.trees.iter().collect() };
                others.extend(written.objects_near(part));
                self.refuse_written_over(part, &others, target).await?;
            }
        }
        Ok(())
    }

    async fn refuse_written_over(
        &self,
        part: &Part<'_>,
        others: &[&WrittenPart<'_>],
        target: Place<'_>,
    ) -> Result<(), SurveyError> {
        let source = Piece { place: Place { store: self.source, key: part.key }, is_tree: part.is_tree };
        for (other, to) in others.iter().filter(|(other, _)| !std::ptr::eq(*other, part)) {
            let written = Piece { place: Place { key: to, ..target }, is_tree: other.is_tree };
            if source.overlaps(written).await? {
                return Err(SurveyError::WrittenOver {
                    source_url: object_url(self.source.as_ref(), part.key),
                    other_url: object_url(self.source.as_ref(), other.key),
                    destination: object_url(target.store.as_ref(), to),
                });
            }
        }
        Ok(())
    }
}
