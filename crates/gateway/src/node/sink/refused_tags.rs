//! Repeats a write without its optional tags if the store may have refused it because of them.

use crate::node::work::Failure;
use tradewind_store::PutOptions;

/// How a write gets the tags of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagPath {
    /// They are among its options.
    Sent,
    /// The store copies them with the object, unless the options say otherwise.
    Copied,
}

/// Runs `write` until it succeeds or fails for another reason than its tags. Also returns whether tags were dropped from
/// `options`.
pub(super) async fn without_refused_tags<T, F>(
    options: &mut PutOptions,
    path: TagPath,
    mut write: impl FnMut(PutOptions) -> F,
) -> (Result<T, Failure>, bool)
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut dropped = false;
    loop {
        match write(options.clone()).await {
            Err(failure) if drop_refused(options, path, &failure) => dropped = true,
            written => return (written, dropped),
        }
    }
}

/// Drops optional tags if `failure` may be due to them. Returns whether the write can be tried again.
fn drop_refused(options: &mut PutOptions, path: TagPath, failure: &Failure) -> bool {
    if !options.tags_are_optional {
        return false;
    }
    if path == TagPath::Copied && options.tags.is_empty() && !options.drops_source_tags {
        // The store reads the tags of the source and writes those of the copy, which needs permissions of its own.
        options.drops_source_tags = failure.kind == "forbidden";
        return options.drops_source_tags;
    }
    let drops =
        !options.tags.is_empty() && matches!(failure.kind.as_str(), "forbidden" | "bad_request" | "unsupported");
    if drops {
        options.tags.clear();
    }
    drops
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_wire::Fault;

    fn tagged(tags_are_optional: bool) -> PutOptions {
        PutOptions { tags: [("a".to_owned(), "1".to_owned())].into(), tags_are_optional, ..PutOptions::default() }
    }

    /// Writes to a store that refuses tags with failures of this kind; returns whether it wrote, and dropped tags.
    async fn write(mut options: PutOptions, path: TagPath, kind: &str) -> (bool, bool) {
        let (written, dropped) = without_refused_tags(&mut options, path, |options| async move {
            let has_tags = !options.tags.is_empty() || path == TagPath::Copied && !options.drops_source_tags;
            if has_tags { Err(Failure::new(Fault::Permanent, kind, "no tags")) } else { Ok(()) }
        })
        .await;
        (written.is_ok(), dropped)
    }

    #[tokio::test]
    async fn only_optional_tags_are_dropped_and_only_where_they_may_be_the_cause() {
        for kind in ["forbidden", "bad_request", "unsupported"] {
            assert_eq!(write(tagged(true), TagPath::Sent, kind).await, (true, true), "{kind}");
            assert_eq!(write(tagged(false), TagPath::Sent, kind).await, (false, false), "{kind}");
        }
        assert_eq!(write(tagged(true), TagPath::Sent, "no_space").await, (false, false));
    }

    #[tokio::test]
    async fn a_copy_by_the_store_leaves_out_the_tags_that_it_may_not_copy() {
        let options = |tags_are_optional| PutOptions { tags_are_optional, ..PutOptions::default() };
        assert_eq!(write(options(true), TagPath::Copied, "forbidden").await, (true, true));
        assert_eq!(write(options(true), TagPath::Copied, "bad_request").await, (false, false));
        assert_eq!(write(options(false), TagPath::Copied, "forbidden").await, (false, false));
    }
}
