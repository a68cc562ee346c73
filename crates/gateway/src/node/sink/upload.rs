//! Opens, aborts and sweeps uploads.

use super::refused_tags::{TagPath, without_refused_tags};
use super::{Sink, Target};
use crate::node::reply::ReplyTo;
use crate::node::work::{Failure, Leaves, SinkReply};
use std::sync::atomic::{AtomicU32, Ordering};
use tradewind_store::{Error, ErrorKind, PutOptions, UploadId};
use tradewind_wire::{Fault, RequestId};

const NOBODY_WAITS: &str = "nobody waits for this upload any more";

/// A request and the recipient of its answer.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) request: RequestId,
    pub(super) reply: &'a ReplyTo,
}

impl Sink {
    /// Opens an upload for a caller who still waits for it: nobody would ever find the upload of a request that was
    /// withdrawn, or whose connection was lost.
    pub(super) async fn open(
        &self,
        caller: Caller<'_>,
        index: u16,
        key: &str,
        mut options: PutOptions,
    ) -> Result<SinkReply, Failure> {
        let target = self.target(index, key).map_err(|failure| failure.leaving(Leaves::NoUpload))?;
        let _opening = self.fence.opening().await;
        let (tries, is_void) = (&AtomicU32::new(0), &|| self.is_void(caller));
        let write = |options: PutOptions| async move {
            let options = &options;
            let open = |_| async move {
                if is_void() {
                    return Err(Error::new(ErrorKind::Unfinished, "open upload", target.store.url(), NOBODY_WAITS));
                }
                tries.fetch_add(1, Ordering::Relaxed);
                target.store.open_upload(key, options).await
            };
            target.run("open upload", key, None, open).await
        };
        let (opened, tags_dropped) = without_refused_tags(&mut options, TagPath::Sent, write).await;
        let tries = tries.load(Ordering::Relaxed);
        match opened {
            Ok(upload) if is_void() => {
                drop(self.abort(index, key, &upload).await);
                Err(Failure::new(Fault::Lost, "unavailable", NOBODY_WAITS))
            }
            Ok(upload) => Ok(SinkReply::Opened { upload, asked_again: tries > 1, tags_dropped }),
            Err(_) if is_void() => Err(Failure::new(Fault::Lost, "unavailable", NOBODY_WAITS)),
            Err(failure) if tries == 1 && failure.is_plain_refusal() => Err(failure.leaving(Leaves::NoUpload)),
            Err(failure) => Err(failure),
        }
    }

    fn is_void(&self, caller: Caller<'_>) -> bool {
        self.fence.withdraws(caller.request) || !caller.reply.is_awaited()
    }

    pub(super) async fn abort(&self, target: u16, key: &str, upload: &UploadId) -> Result<(), Failure> {
        let target = self.target(target, key)?;
        target.run("abort upload", key, None, |_| target.store.abort_upload(key, upload)).await
    }

    /// Aborts the uploads that earlier attempts have opened for this key. If that fails, `jobs cancel` finds them.
    pub(super) async fn sweep(&self, target: &Target, key: &str, since_unix_ms: i64) {
        let Ok(pending) = target.run("list uploads", key, None, |_| target.store.pending_uploads(key)).await else {
            return;
        };
        for orphan in pending.iter().filter(|pending| pending.opened_unix_ms >= since_unix_ms) {
            drop(target.run("abort upload", key, None, |_| target.store.abort_upload(key, &orphan.upload)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::drops::{Ends, KEY, block_on, sink_reply};
    use crate::node::parcel::Parcel;
    use crate::node::reply::Owed;
    use crate::node::seal;
    use crate::node::work::Manifest;
    use bytes::BytesMut;
    use futures::poll;
    use std::pin::pin;
    use tokio::sync::mpsc::{self, UnboundedReceiver};
    use tradewind_store::Payload;
    use tradewind_wire::RouteId;
    use tradewind_wire::frame::{Reply, Verdict};

    fn parcel(request: u64, manifest: Manifest) -> Parcel {
        Parcel {
            request: RequestId(request),
            route: RouteId(0),
            manifest,
            data: Payload::default(),
            computed: Vec::new(),
            held: None,
        }
    }

    fn open(request: u64) -> Parcel {
        parcel(request, Manifest::Open { target: 0, key: KEY.to_owned(), options: PutOptions::default() })
    }

    /// Runs a request, and returns its only answer.
    fn asked(ends: &Ends, parcel: Parcel) -> (impl Future<Output = ()> + use<>, UnboundedReceiver<Reply>) {
        let (answers_in, answers) = mpsc::unbounded_channel();
        let owed = Owed::new(ReplyTo::memory(answers_in), parcel.request);
        (ends.sink.clone().accepting(parcel, owed), answers)
    }

    fn reply(answers: &mut UnboundedReceiver<Reply>) -> SinkReply {
        let Verdict::Sink(words) = answers.try_recv().unwrap().verdict else { panic!("not from the sink") };
        sink_reply(&words).unwrap()
    }

    async fn uploads(ends: &Ends) -> usize {
        ends.to.store.pending_uploads(KEY).await.unwrap().len()
    }

    #[test]
    fn an_upload_that_nobody_waits_for_any_more_is_aborted() {
        block_on(async {
            let ends = Ends::new();
            let (opening, answers) = asked(&ends, open(1));
            let mut opening = pin!(opening);
            assert!(poll!(&mut opening).is_pending());
            drop(answers);
            opening.await;
            assert_eq!(uploads(&ends).await, 0);
        });
    }

    #[test]
    fn an_upload_that_is_being_opened_when_its_request_is_withdrawn_is_aborted_before_that_is_confirmed() {
        block_on(async {
            let ends = Ends::new();
            let (opening, mut opened) = asked(&ends, open(1));
            let mut opening = pin!(opening);
            assert!(poll!(&mut opening).is_pending());
            let (fencing, mut fenced) = asked(&ends, parcel(2, Manifest::Fence));
            let mut fencing = pin!(fencing);
            assert!(poll!(&mut fencing).is_pending(), "confirmed too early");
            opening.await;
            assert!(matches!(reply(&mut opened), SinkReply::Failed(failure) if failure.fault == Fault::Lost));
            assert_eq!(uploads(&ends).await, 0);
            fencing.await;
            assert_eq!(reply(&mut fenced), SinkReply::Fenced);
        });
    }

    #[test]
    fn a_request_that_arrives_after_it_was_withdrawn_opens_no_upload() {
        block_on(async {
            let ends = Ends::new();
            asked(&ends, parcel(5, Manifest::Fence)).0.await;
            for (request, is_open) in [(4, false), (6, true)] {
                let coded = open(request).encode(None, seal::of_tests().next_id()).unwrap();
                let mut opening = ends.sink.opening(&coded.head).unwrap();
                opening.push(BytesMut::from(&coded.sealed()[..]));
                let (answers_in, mut answers) = mpsc::unbounded_channel();
                let owed = Owed::new(ReplyTo::memory(answers_in), RequestId(request));
                let held = ends.budget.hold(RouteId(0), 1).await;
                ends.sink.clone().accepting_sealed(opening, held, owed).await;
                let verdict = answers.try_recv().unwrap().verdict;
                assert_eq!(matches!(verdict, Verdict::Sink(_)), is_open, "{verdict:?}");
                assert_eq!(uploads(&ends).await, usize::from(is_open), "request {request}");
            }
        });
    }
}
