//! Decides the attributes of a new object: those that the job sets, those of its source, and a content type by its name.

use serde::{Deserialize, Serialize};
use tradewind_contract::{AttributeDirective, AttributeRules, RetentionMode};
use tradewind_store::{Attributes, ObjectLock, Preserve, PutOptions, Restored, Retention, Store};

/// Content type of an object that replaces its source's attributes, if its name does not tell a better one. Without a
/// type, a store that copies the object itself would keep the source's.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The attributes that an object gets in addition to those that its job sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// True if it keeps those of its source.
    pub from_source: bool,
    /// Its content type if neither the job nor the source states one.
    pub content_type: Option<String>,
}

impl Inherited {
    /// The rule for the object `name` and the destination `target`.
    pub fn of(rules: &AttributeRules, name: &str, target: &dyn Store) -> Self {
        let from_source = rules.directive == AttributeDirective::Keep;
        if !keeps_attributes(target) {
            return Self { from_source, content_type: None };
        }
        let unknown = (!from_source).then_some(UNKNOWN_TYPE);
        Self { from_source, content_type: content_type_of(name).or(unknown).map(str::to_owned) }
    }

    /// Returns the attributes to write: `set` by the job, else those of the source.
    pub fn complete(&self, set: &Attributes, source: &Attributes) -> Attributes {
        let none = Attributes::default();
        let source = if self.from_source { source } else { &none };
        let first = |set: &Option<String>, source: &Option<String>| set.clone().or_else(|| source.clone());
        let mut metadata = source.metadata.clone();
        metadata.extend(set.metadata.clone());
        Attributes {
            content_type: first(&set.content_type, &source.content_type).or_else(|| self.content_type.clone()),
            content_encoding: first(&set.content_encoding, &source.content_encoding),
            content_language: first(&set.content_language, &source.content_language),
            content_disposition: first(&set.content_disposition, &source.content_disposition),
            cache_control: first(&set.cache_control, &source.cache_control),
            metadata,
        }
    }
}

/// The attributes that the job sets at `target`.
pub fn set_by(rules: &AttributeRules, target: &dyn Store) -> Attributes {
    if !keeps_attributes(target) {
        return Attributes::default();
    }
    Attributes {
        content_type: rules.content_type.clone(),
        cache_control: rules.cache_control.clone(),
        metadata: rules.metadata.clone(),
        ..Attributes::default()
    }
}

/// The attributes that the job keeps of files, in the store's terms.
pub fn preserved(rules: tradewind_contract::Preserve) -> Preserve {
    Preserve { mode: rules.mode, owner: rules.owner, time: rules.time }
}

/// The protection of the objects that the job writes, in the store's terms.
pub fn locked(lock: tradewind_contract::ObjectLock) -> ObjectLock {
    let retention = lock.retention.map(|retention| Retention {
        is_compliance: retention.mode == RetentionMode::Compliance,
        until_unix_s: retention.until_unix_s,
    });
    ObjectLock { retention, legal_hold: lock.legal_hold }
}

/// Returns whether a file written with these options lacks something that its metadata states, because it cannot be
/// read.
pub fn ignores_metadata(options: &PutOptions, target: &dyn Store) -> bool {
    !keeps_attributes(target) && Restored::of(options).ignores
}

/// The content type by the extension of `name`, from a fixed table: the same on each machine.
pub fn content_type_of(name: &str) -> Option<&'static str> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let (_, extension) = name.rsplit_once('.')?;
    mime_guess::from_ext(extension).first_raw()
}

/// Returns whether the store keeps attributes with its objects.
pub fn keeps_attributes(store: &dyn Store) -> bool {
    !store.url().starts_with("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_of_the_last_part_tells_the_type() {
        for (name, expected) in [
            ("a/index.html", Some("text/html")),
            ("A.PNG", Some("image/png")),
            ("x.tar.gz", Some("application/gzip")),
            ("data.json", Some("application/json")),
            ("a.html/readme", None),
            ("Makefile", None),
            ("x.no-such-extension", None),
            ("", None),
        ] {
            assert_eq!(content_type_of(name), expected, "{name}");
        }
    }

    #[test]
    fn what_the_job_sets_comes_before_the_source_and_that_before_the_name() {
        let typed = |text: &str| Attributes { content_type: Some(text.to_owned()), ..Attributes::default() };
        let keep = Inherited { from_source: true, content_type: Some("by/name".to_owned()) };
        let nothing = Attributes::default();
        assert_eq!(keep.complete(&nothing, &nothing), typed("by/name"));
        assert_eq!(keep.complete(&nothing, &typed("of/source")), typed("of/source"));
        assert_eq!(keep.complete(&typed("of/job"), &typed("of/source")), typed("of/job"));
        let replace = Inherited { from_source: false, ..keep };
        assert_eq!(replace.complete(&nothing, &typed("of/source")), typed("by/name"));
    }

    #[test]
    fn metadata_is_kept_name_by_name() {
        let with = |pairs: &[(&str, &str)]| {
            let metadata = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Attributes { metadata, ..Attributes::default() }
        };
        let (set, source) = (with(&[("a", "1"), ("b", "2")]), with(&[("b", "old"), ("c", "3")]));
        let keep = Inherited { from_source: true, content_type: None };
        assert_eq!(keep.complete(&set, &source), with(&[("a", "1"), ("b", "2"), ("c", "3")]));
        assert_eq!(Inherited { from_source: false, ..keep }.complete(&set, &source), set);
    }
}
