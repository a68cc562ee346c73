//! Looks at the source, right before an extraneous object is deleted: its listing may have missed an object of this name.
//! Some servers end a listing early, or list an object only some time after its write; and another job may have copied an
//! object that the source got after it was listed.

use super::backlog::Entry;
use crate::failure::object_url;
use crate::lead::local_sums::is_file;
use crate::retry::RetryPolicy;
use std::sync::Arc;
use tradewind_contract::{JobSpec, Selection};
use tradewind_store::{Error, ErrorKind, Result, Store, entry_of, name_form};

/// The source that destinations were compared with.
#[derive(Debug)]
pub struct Origin {
    source: Arc<dyn Store>,
    prefix: String,
    /// Prefixes that replace it, one for each destination.
    below: Vec<String>,
}

impl Origin {
    /// The source of `job`.
    pub fn of(job: &JobSpec, source: &Arc<dyn Store>) -> Self {
        let prefix = match &job.selection {
            Selection::Prefix { prefix, .. } => prefix.clone(),
            _ => String::new(),
        };
        Self { source: source.clone(), prefix, below: job.targets.iter().map(|target| target.key.clone()).collect() }
    }

    /// Returns an error if an extraneous object, with the URL `url`, must stay: the source has this name, or does not say.
    pub(super) async fn refuse_wanted(&self, entry: &Entry, url: String, policy: RetryPolicy) -> Result<()> {
        let below = self.below.get(usize::from(entry.store)).map_or("", String::as_str);
        let Some(name) = entry.key.strip_prefix(below) else { return Ok(()) };
        let at_source = format!("{}{name}", self.prefix);
        let kept = |why: String| Error::new(ErrorKind::PreconditionFailed, "delete", url, why);
        match self.has(&at_source, entry.condition.size_bytes, policy).await {
            Ok(false) => Ok(()),
            Ok(true) => {
                let ours = object_url(self.source.as_ref(), &at_source);
                Err(kept(format!("the object was kept: the source has {ours}, which was not in its listing")))
            }
            Err(error) => Err(kept(format!("the object was kept: cannot look for it at the source: {error}"))),
        }
    }

    /// Returns whether the source has exactly this key. A `HEAD` shows that, except at servers and file systems that may find
    /// another spelling of the name or a directory, and where it is forbidden: there, a listing of this one key decides. At
    /// such a server, an object of the same length counts as found, because it may be listed late.
    ///
    /// # Errors
    /// The source does not say.
    async fn has(&self, key: &str, size_bytes: Option<u64>, policy: RetryPolicy) -> Result<bool> {
        let source = self.source.as_ref();
        match policy.run("head", source.url(), || source.head(key)).await {
            Ok(found) => {
                let tells_names_apart = name_form(source, key).is_none();
                let is_alike = size_bytes == Some(found.size_bytes) && found.size_bytes > 0;
                if !is_file(&self.source) && (tells_names_apart || is_alike) {
                    return Ok(true);
                }
            }
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::InvalidKey) => return Ok(false),
            Err(error) if error.kind == ErrorKind::BucketNotFound || error.kind.is_transient() => return Err(error),
            Err(_) => {}
        }
        match policy.run("list", source.url(), || entry_of(source, key)).await? {
            Some(entry) => Ok(entry.is_some()),
            None => Err(Error::new(ErrorKind::Forbidden, "list", source.url(), "the source forbids to list this name")),
        }
    }
}
