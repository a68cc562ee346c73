//! The scheduler's actions, and the reasons why it has none.

use crate::shares::RoutePlan;
use crate::{Fault, ObjectId, RequestId, RouteId};

/// Settings of the scheduler.
#[derive(Clone, Debug)]
pub struct Config {
    /// The plan's routes.
    pub routes: Vec<RoutePlan>,
    /// See [`Shares::new`](crate::shares::Shares::new).
    pub ceiling_usd_per_gb: Option<f64>,
    /// Ceiling on the whole job's cost; see [`Shares::within`](crate::shares::Shares::within).
    pub ceiling_usd: Option<f64>,
    /// Ceiling on the bytes sent; see [`Shares::within_bytes`](crate::shares::Shares::within_bytes).
    pub ceiling_bytes: Option<u64>,
    /// Most object bytes in a bundle (one larger object goes alone).
    pub bundle_bytes_max: u64,
    /// Most objects in a bundle.
    pub bundle_objects_max: usize,
    /// Most objects in a bundle that takes more than its share of a short queue because many requests are in flight.
    pub grain_objects_max: usize,
    /// Most bytes sent as [duplicates](crate::shares::Shares::with_duplicates), as a fraction of the bytes listed.
    pub duplicate_fraction_max: f64,
    /// Bytes per second to send, over all routes.
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Time after which the job stalls if none of the remaining work could be sent and no route answered meanwhile.
    pub stall_ms: u64,
    /// First request id.
    pub first_request: u64,
}

/// Effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Open a multipart upload.
    Open(ObjectId),
    /// Transfer one part.
    Part {
        /// The object.
        object: ObjectId,
        /// Number of the part, from 1.
        part: u32,
        /// Offset in the object.
        offset: u64,
        /// Length of the part.
        bytes: u64,
    },
    /// Transfer whole objects.
    Bundle(Vec<ObjectId>),
    /// Complete the upload and prove the object. Sent again if the answer was lost: a sink that finds the upload gone
    /// and the proven object in its place answers done.
    Close(ObjectId),
    /// Abort the upload. Aborting an upload that does not exist succeeds.
    Abort(ObjectId),
}

impl Work {
    /// Returns the objects that the request serves.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.members().to_vec()
    }

    pub(super) fn members(&self) -> &[ObjectId] {
        match self {
            Work::Open(object) | Work::Part { object, .. } | Work::Close(object) | Work::Abort(object) => {
                std::slice::from_ref(object)
            }
            Work::Bundle(objects) => objects,
        }
    }
}

/// Action that the caller must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request.
    Send {
        /// A fresh id.
        request: RequestId,
        /// The route to take.
        route: RouteId,
        /// The work to do.
        work: Work,
    },
    /// The object is done and proven; the scheduler has forgotten it.
    Finished(ObjectId),
    /// The object changed or its upload vanished: look it up again and [`Scheduler::add`](super::Scheduler::add) it
    /// anew, under the same id or another. The scheduler has forgotten it.
    Restart(ObjectId),
    /// The object failed with its last fault; the scheduler has forgotten it.
    Failed(ObjectId, Fault),
    /// A route answers nothing, and a request of it was sent over another one. Returned for each such request.
    RouteStalled(RouteId),
    /// A route went down.
    RouteDown(RouteId),
    /// A route came back.
    RouteUp(RouteId),
}

/// Why [`Scheduler::poll`](super::Scheduler::poll) returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// No work is left. When draining: nothing is in flight, and the remaining work waits for the next run.
    Empty,
    /// Waiting for replies (or for more objects).
    Waiting,
    /// Nothing can be sent before this time, which is later than the time passed to `poll`.
    Until(u64),
    /// None of the remaining work could be sent for too long: end the job.
    Stalled,
    /// A ceiling forbids sending the rest over any route, and nothing is in flight. While the source is still being
    /// listed this may pass, because every listed object adds to the budget of an average price.
    Ceiling,
}
