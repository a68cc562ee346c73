//! What all parts of a lead share and none of them changes: the job, its stores, and where its events go.

use super::causes::Place;
use crate::control::events::EventSender;
use crate::failure::{hint_for_named, object_url};
use crate::lead::survey::WorkItem;
use crate::retry::RetryPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tradewind_contract::{Event, JobSpec, Selection};
use tradewind_store::Store;

/// See the module's head.
pub(super) struct Context {
    pub(super) job: Arc<JobSpec>,
    pub(super) source: Arc<dyn Store>,
    pub(super) targets: Vec<Arc<dyn Store>>,
    /// True if source and sinks are in this process.
    pub(super) local: bool,
    pub(super) policy: RetryPolicy,
    pub(super) events: EventSender,
    /// A request without an answer is given up after this time.
    pub(super) request_s: u32,
    /// By index of the destination: it was seen not to take one name for another.
    pub(super) tells_names_apart: Vec<AtomicBool>,
}

impl Context {
    pub(super) fn notice(&self, message: String) {
        self.events.send(Event::Notice { message });
    }

    /// How long the job may stall.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.job.stall_s.into())
    }

    /// The URLs of an object at the source and at its destination.
    pub(super) fn urls(&self, item: &WorkItem) -> (String, String) {
        let target = &self.targets[usize::from(item.target)];
        (object_url(self.source.as_ref(), &item.source_key), object_url(target.as_ref(), &item.target_key))
    }

    /// The store's URL; empty for no store.
    pub(super) fn place_url(&self, place: Place) -> &str {
        match place {
            Place::Source => self.source.url(),
            Place::Target(target) => self.targets[usize::from(target)].url(),
            Place::TargetFiles | Place::Elsewhere => "",
        }
    }

    /// Of files each has rights of its own: what is forbidden there says nothing of the others.
    pub(super) fn closable(&self, place: Place) -> Place {
        match place {
            _ if !self.place_url(place).starts_with("file:") => place,
            Place::Target(_) => Place::TargetFiles,
            _ => Place::Elsewhere,
        }
    }

    /// Advice without a filter where the job has one object, which was named.
    pub(super) fn fitting(&self, hint: String) -> String {
        match self.job.selection {
            Selection::Object { .. } => hint_for_named(&hint).to_owned(),
            _ => hint,
        }
    }
}
