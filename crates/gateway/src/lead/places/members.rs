//! Refuses several sources of which one would be written over another.
//!
//! `cp -r new/d old/d/x old/` writes `new/d/x`, if there is one, over `old/d/x`, perhaps before that is read.

use super::{Part, Place, Places, compared, overlap};
use crate::lead::survey::SurveyError;
use tradewind_store::{Relation, kinship};

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

    /// Returns how a piece relates to another one, if they have anything in common.
    async fn overlaps(self, other: Self) -> Result<Option<Relation>, SurveyError> {
        if !self.is_tree && !other.is_tree {
            let relation = compared(self.place, other.place, false).await?.relation;
            return Ok((relation == Relation::Same).then_some(relation));
        }
        let relation = compared(self.directory(), other.directory(), true).await?.relation;
        let touches = match relation {
            Relation::Apart => false,
            Relation::Same | Relation::Crossed => true,
            Relation::FirstWithin => other.is_tree,
            Relation::SecondWithin => self.is_tree,
        };
        Ok(touches.then_some(relation))
    }
}

impl Places<'_> {
    /// Refuses a part whose source is where another part is written. Parts of one directory must be neighbours.
    pub(super) async fn refuse_crossing(&self, parts: &[Part<'_>], target: Place<'_>) -> Result<(), SurveyError> {
        if parts.len() < 2 {
            return Ok(());
        }
        for near in parts.chunk_by(|one, other| one.directory() == other.directory()) {
            let directory = (self.source.as_ref(), near[0].directory());
            let found = kinship(directory, (target.store.as_ref(), target.key)).await.map_err(SurveyError::Target)?;
            // A source above the destination is found when it is compared with its own copy.
            if !matches!(found.relation, Relation::Same | Relation::FirstWithin) {
                continue;
            }
            for part in near {
                self.refuse_written_over(part, parts, target).await?;
            }
        }
        Ok(())
    }

    async fn refuse_written_over(
        &self,
        part: &Part<'_>,
        parts: &[Part<'_>],
        target: Place<'_>,
    ) -> Result<(), SurveyError> {
        let source = Piece { place: Place { store: self.source, key: part.key }, is_tree: part.is_tree };
        for other in parts.iter().filter(|other| !std::ptr::eq(*other, part)) {
            let to = format!("{}{}", target.key, other.name);
            let written = Piece { place: Place { key: &to, ..target }, is_tree: other.is_tree };
            if let Some(relation) = source.overlaps(written).await? {
                return Err(overlap(source.place, written.place, relation));
            }
        }
        Ok(())
    }
}
