//! Decides which tags of a source object its copy gets.

use serde::{Deserialize, Serialize};
use tradewind_contract::SourceTags;
use tradewind_store::{Error, ErrorKind, ObjectInfo, PutOptions, Store, TagSupport, Tags};

/// The treatment of the source's tags at one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagRule {
    source_tags: SourceTags,
    /// True if the destination keeps tags.
    target_keeps: bool,
}

impl TagRule {
    /// The rule of a job for the destination `target`.
    pub fn of(source_tags: SourceTags, target: &dyn Store) -> Self {
        Self { source_tags, target_keeps: target.tag_support() != TagSupport::Missing }
    }

    /// Returns whether the tags of objects may have to be read from `source`.
    pub fn may_read(self, source: &dyn Store) -> bool {
        self.target_keeps && self.source_tags != SourceTags::Drop && source.tag_support() != TagSupport::Missing
    }

    /// Returns whether the tags of the object `info` must be read from `source`. A store that states no number of tags
    /// may still have some, for which only `keep` asks.
    pub fn reads(self, info: &ObjectInfo, source: &dyn Store) -> bool {
        let may_have = self.source_tags == SourceTags::Keep || has_tags(info);
        may_have && self.may_read(source)
    }

    /// Adds the source's tags to those that the job sets in `options`. `read` is the answer of the source, `None` if it
    /// was not asked. Returns whether tags of the object `info` are dropped.
    ///
    /// # Errors
    /// The source did not return the tags, and they must be kept.
    pub fn settle(
        self,
        read: Option<Result<Tags, Error>>,
        info: &ObjectInfo,
        options: &mut PutOptions,
    ) -> Result<bool, Error> {
        let is_auto = self.source_tags == SourceTags::Auto;
        match read {
            None => Ok(is_auto && has_tags(info)),
            Some(Ok(tags)) => {
                for (name, value) in tags {
                    options.tags.entry(name).or_insert(value);
                }
                Ok(false)
            }
            Some(Err(error)) if is_auto && matches!(error.kind, ErrorKind::Forbidden | ErrorKind::Unsupported) => {
                Ok(true)
            }
            Some(Err(error)) => Err(error),
        }
    }
}

fn has_tags(info: &ObjectInfo) -> bool {
    info.tag_count.is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn rule(source_tags: SourceTags) -> TagRule {
        TagRule { source_tags, target_keeps: true }
    }

    fn forbidden() -> Option<Result<Tags, Error>> {
        Some(Err(Error::new(ErrorKind::Forbidden, "get tags", "s3://b/k", "refused")))
    }

    #[test]
    fn tags_of_the_job_come_before_those_of_the_source() {
        let mut options = PutOptions { tags: tags(&[("a", "1")]), ..PutOptions::default() };
        let read = Some(Ok(tags(&[("a", "old"), ("b", "2")])));
        assert!(!rule(SourceTags::Auto).settle(read, &ObjectInfo::default(), &mut options).unwrap());
        assert_eq!(options.tags, tags(&[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn only_auto_drops_what_cannot_be_read() {
        let mut options = PutOptions::default();
        let tagged = ObjectInfo { tag_count: Some(1), ..ObjectInfo::default() };
        assert!(rule(SourceTags::Auto).settle(forbidden(), &tagged, &mut options).unwrap());
        assert!(rule(SourceTags::Keep).settle(forbidden(), &tagged, &mut options).is_err());
        assert!(rule(SourceTags::Auto).settle(None, &tagged, &mut options).unwrap());
        assert!(!rule(SourceTags::Auto).settle(None, &ObjectInfo::default(), &mut options).unwrap());
        assert!(!rule(SourceTags::Drop).settle(None, &tagged, &mut options).unwrap(), "as the user said");
    }
}
