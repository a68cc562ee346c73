//! Aborts uploads that no run will finish, after all other work of the job.

use super::finisher::Finisher;
use super::recorder::Recorder;
use crate::lead::journal::{Entry, UnfinishedUpload};
use crate::lead::sweep::{self, Intents};
use std::collections::HashMap;
use std::sync::Arc;
use tradewind_store::Store;

impl Finisher {
    /// Aborts uploads of earlier runs whose objects have changed, and those in `unfinished`.
    pub(super) async fn abort_leftovers(
        &mut self,
        unfinished: HashMap<(u16, String), UnfinishedUpload>,
        recorder: &Recorder,
    ) {
        let context = self.context.clone();
        // If an answer to an open was lost and the object failed, an upload with an unknown name may exist. It cannot
        // exist if everything runs in this process and no request ever reached the store.
        let none_can_be = |store: &Arc<dyn Store>| context.local && !store.was_reached();
        if !context.job.resume && context.targets.iter().all(none_can_be) {
            return;
        }
        let swept = sweep::abort_orphans(&recorder.journal, &context.targets, context.policy, Intents::Forgotten).await;
        for error in swept.map(|end| end.failed).unwrap_or_default() {
            context.notice(format!("an unfinished upload may be left behind: {error}"));
        }
        self.abort_asked_again().await;
        for ((target, target_key), upload) in unfinished {
            let store = &context.targets[usize::from(target)];
            let url = format!("{}/{target_key}", store.url());
            let aborted =
                context.policy.run("abort upload", &url, || store.abort_upload(&target_key, &upload.upload)).await;
            match aborted {
                Ok(()) => {
                    // The earlier run may have opened more than one.
                    let swept = sweep::abort_orphans_of(&upload.intent, &[], &context.targets, context.policy).await;
                    if let Err(error) = swept {
                        context.notice(format!("an unfinished upload may be left behind: {error}"));
                    }
                    let upload = Some(upload.upload);
                    drop(recorder.record(Entry::Abandoned { target, target_key, upload }).await);
                }
                Err(error) => context.notice(format!("an unfinished upload is left behind: {error}")),
            }
        }
    }

    /// Aborts uploads that were requested more than once.
    async fn abort_asked_again(&mut self) {
        let left_behind = |error: &dyn std::fmt::Display| format!("unfinished uploads may be left behind: {error}");
        let intents = match self.asked_again.take() {
            Ok(intents) => intents,
            Err(error) => return self.context.notice(left_behind(&error)),
        };
        for intent in intents {
            let (targets, policy) = (&self.context.targets, self.context.policy);
            match intent {
                Ok(intent) => {
                    if let Err(error) = sweep::abort_orphans_of(&intent, &[], targets, policy).await {
                        self.context.notice(left_behind(&error));
                    }
                }
                Err(error) => return self.context.notice(left_behind(&error)),
            }
        }
    }
}
