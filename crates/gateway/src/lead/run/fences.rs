//! Withdraws orders that nobody has answered, before the last look for unfinished uploads.
//!
//! An order to open an upload stays unanswered if its connection is lost, or if another route was faster. A relay may
//! still deliver it, or its sink may still retry it at a slow store. An upload that it opened after that look would be
//! left behind: a job that is done is never resumed.

use super::dispatcher::Dispatcher;
use super::orders::Made;
use crate::node::load::Answer;
use crate::node::work::{Manifest, Order, SinkReply, SourceTask, parse_exactly};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tradewind_contract::RouteSpec;
use tradewind_wire::frame::{Reply, Verdict};
use tradewind_wire::scheduler::Work;
use tradewind_wire::{RequestId, RouteId};

/// Maximum wait for sinks to confirm. One that is out of reach drops the requests of its lost connections itself.
const CONFIRMATION_MAX: Duration = Duration::from_secs(2);

/// The sinks that may still open an upload for which nobody waits.
#[derive(Debug, Default)]
pub(super) struct Fences {
    sinks: BTreeMap<RouteId, Arc<str>>,
    unanswered: BTreeSet<Arc<str>>,
}

impl Fences {
    /// Begins with the routes of a plan.
    pub(super) fn of(routes: &[RouteSpec]) -> Self {
        let mut fences = Self::default();
        fences.know(routes);
        fences
    }

    /// Adds more routes.
    pub(super) fn know(&mut self, routes: &[RouteSpec]) {
        let sinks = routes.iter().filter_map(|route| Some((RouteId(route.id), route.nodes.last()?.as_str().into())));
        self.sinks.extend(sinks);
    }

    /// Notes that a request to open an upload over this route may have arrived, and has no answer of its sink.
    pub(super) fn unanswered(&mut self, route: RouteId) {
        self.unanswered.extend(self.sinks.get(&route).cloned());
    }

    /// Returns the routes to those sinks, which are then forgotten.
    fn take_routes(&mut self) -> Vec<(RouteId, Arc<str>)> {
        let sinks = std::mem::take(&mut self.unanswered);
        let routes = self.sinks.iter().filter(|(_, sink)| sinks.contains(*sink));
        routes.map(|(route, sink)| (*route, sink.clone())).collect()
    }
}

impl Dispatcher {
    /// Notes that a request has failed, or gets no answer any more, although it may have arrived.
    pub(super) fn lost(&mut self, request: RequestId) {
        if matches!(self.scheduler.work(request), Some(Work::Open(_)))
            && let Some(route) = self.scheduler.route_of(request)
        {
            self.fences.unanswered(route);
        }
    }

    /// Withdraws all orders at the sinks that may still open an upload, over each of their routes. Waits until they
    /// confirm that, or for [`CONFIRMATION_MAX`]. Other replies are dropped: call it when none is awaited.
    pub(super) async fn fence_sinks(&mut self, replies: &mut mpsc::UnboundedReceiver<Reply>) {
        let in_flight: Vec<RequestId> = self.scheduler.in_flight().collect();
        in_flight.into_iter().for_each(|request| self.lost(request));
        let mut asked = HashMap::new();
        for (route, sink) in self.fences.take_routes() {
            let request = self.scheduler.next_request();
            let task = SourceTask::Pass(Manifest::Fence);
            let order = Order { request, route, codec: None, deduplicate: false, task };
            self.orders.push(request, Some(Made::Other(Box::new(order))));
            asked.insert(request, sink);
        }
        self.orders.flush();
        let mut unconfirmed: BTreeSet<Arc<str>> = asked.values().cloned().collect();
        let confirming = async {
            while !asked.is_empty()
                && let Some(Reply { request, verdict }) = replies.recv().await
            {
                if let Some(sink) = asked.remove(&request)
                    && is_confirmation(&verdict)
                {
                    asked.retain(|_, other| *other != sink);
                    unconfirmed.remove(&sink);
                }
            }
        };
        let _ = tokio::time::timeout(CONFIRMATION_MAX, confirming).await;
        for sink in unconfirmed {
            tracing::warn!(gateway = &*sink, "it has not confirmed that it opens no upload any more");
        }
    }
}

fn is_confirmation(verdict: &Verdict) -> bool {
    let Verdict::Sink(words) = verdict else { return false };
    parse_exactly::<Answer>(words).is_some_and(|answer| answer.sink.reply == SinkReply::Fenced)
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::drops::setup;
    use super::*;
    use crate::directory_tree::DirectoryTree;
    use crate::lead::journal::Journal;
    use crate::stepped::Stepped;
    use tokio_util::task::TaskTracker;
    use tradewind_store::PutOptions;

    #[tokio::test]
    async fn an_order_that_reaches_its_sink_after_it_was_withdrawn_opens_no_upload() {
        let (from, to) = (DirectoryTree::new(), DirectoryTree::new());
        let job = serde_json::json!({
            "source": from.spec(),
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": [{ "store": to.spec(), "key": "" }],
        });
        let stores = [Stepped::new(&from.store), Stepped::new(&to.store)];
        let setup = setup(serde_json::from_value(job).unwrap(), stores, &TaskTracker::new());
        let (mut run, mut replies) = Run::new(setup, Journal::disabled(), None, Vec::new());
        let (lead, route) = (&mut run.dispatcher, RouteId(0));
        let late = lead.scheduler.next_request();

        lead.fences.unanswered(route);
        lead.fence_sinks(&mut replies).await;
        assert!(lead.fences.take_routes().is_empty(), "no sink is asked twice");

        let open = Manifest::Open { target: 0, key: "late".to_owned(), options: PutOptions::default() };
        let order = Order { request: late, route, codec: None, deduplicate: false, task: SourceTask::Pass(open) };
        lead.orders.push(late, Some(Made::Other(Box::new(order))));
        lead.orders.flush();
        let Reply { request, verdict: Verdict::Sink(words) } = replies.recv().await.unwrap() else { panic!() };
        let answer = parse_exactly::<Answer>(&words).unwrap().sink.reply;
        assert!(request == late && matches!(answer, SinkReply::Failed(_)), "{answer:?}");
        assert!(to.keys().is_empty());
    }

    #[test]
    fn only_the_routes_to_sinks_without_an_answer_are_asked() {
        let route = |id, sink: &str| {
            let nodes = ["lead", "source", sink].map(str::to_owned).to_vec();
            RouteSpec { id, nodes, share: 0.3, usd_per_gb: 0.0 }
        };
        let mut fences = Fences::of(&[route(0, "a"), route(1, "b")]);
        fences.know(&[route(2, "a")]);
        fences.unanswered(RouteId(2));
        let routes: Vec<RouteId> = fences.take_routes().into_iter().map(|(route, _)| route).collect();
        assert_eq!(routes, [RouteId(0), RouteId(2)]);
    }
}
