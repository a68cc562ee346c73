//! The unchanging data that all parts of a lead share: the job, its stores, and the recipient of its events.

use super::causes::FailureSite;
use crate::control::events::EventSender;
use crate::failure::{hint_for_named, object_url};
use crate::lead::survey::WorkItem;
use crate::retry::RetryPolicy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tradewind_contract::{Event, JobSpec, Selection};
use tradewind_store::{NameRule, Store};

/// See the module's documentation.
pub(super) struct Context {
    pub(super) job: Arc<JobSpec>,
    pub(super) source: Arc<dyn Store>,
    pub(super) targets: Vec<Arc<dyn Store>>,
    /// Whether source and sinks are in this process.
    pub(super) local: bool,
    pub(super) policy: RetryPolicy,
    pub(super) events: EventSender,
    /// A request without an answer fails after this time, in seconds.
    pub(super) request_s: u32,
    /// By index of the destination.
    pub(super) tells_names_apart: Vec<ToldApart>,
}

/// The rules that a destination has been seen not to follow: it keeps names apart that are one by them.
#[derive(Default)]
pub(super) struct ToldApart([AtomicBool; NameRule::ALL.len()]);

impl ToldApart {
    pub(super) fn has(&self, rule: NameRule) -> bool {
        self.0[rule as usize].load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, rule: NameRule) {
        self.0[rule as usize].store(true, Ordering::Relaxed);
    }
}

impl Context {
    pub(super) fn notice(&self, message: String) {
        self.events.send(Event::Notice { message });
    }

    /// Maximum time that the job may stall.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.job.stall_s.into())
    }

    /// The URLs of an object at the source and at its destination.
    pub(super) fn urls(&self, item: &WorkItem) -> (String, String) {
        let target = &self.targets[usize::from(item.target)];
        (object_url(self.source.as_ref(), &item.info.key), object_url(target.as_ref(), &item.target_key))
    }

    /// The store's URL; empty for no store.
    pub(super) fn site_url(&self, site: FailureSite) -> &str {
        match site {
            FailureSite::Source => self.source.url(),
            FailureSite::Target(target) => self.targets[usize::from(target)].url(),
            FailureSite::TargetFiles | FailureSite::Elsewhere => "",
        }
    }

    /// Returns the site that a failure at `site` may close. Files have individual permissions: one forbidden file says
    /// nothing about the others.
    pub(super) fn closable(&self, site: FailureSite) -> FailureSite {
        match site {
            _ if !self.site_url(site).starts_with("file:") => site,
            FailureSite::Target(_) => FailureSite::TargetFiles,
            _ => FailureSite::Elsewhere,
        }
    }

    /// Removes the advice about filters if the job has a single object, which the user named.
    pub(super) fn fitting(&self, hint: String) -> String {
        match self.job.selection {
            Selection::Object { .. } => hint_for_named(&hint).to_owned(),
            _ => hint,
        }
    }
}
