//! What the scheduler asks for, and why it asks for nothing.

use crate::shares::RoutePlan;
use crate::{Fault, ObjectId, RequestId, RouteId};

/// How the scheduler is set up.
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
    /// Bytes per second to send, over all routes.
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Give up when nothing that is left could be sent for so long and no route answered meanwhile.
    pub stall_ms: u64,
    /// First request id.
    pub first_request: u64,
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Open a multipart upload.
    Open(ObjectId),
    /// Move one part.
    Part {
        /// Of this object.
        object: ObjectId,
        /// From 1.
        part: u32,
        /// Where it lies.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Move whole objects.
    Bundle(Vec<ObjectId>),
    /// Make the parts the object, and prove it. Asked again when the answer was lost, so a sink that finds the upload
    /// gone and the proven object in its place answers that it is done.
    Close(ObjectId),
    /// Forget the upload. An upload that is not there is forgotten.
    Abort(ObjectId),
}

impl Work {
    /// The objects it serves.
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

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request.
    Send {
        /// Fresh id.
        request: RequestId,
        /// The way.
        route: RouteId,
        /// What.
        work: Work,
    },
    /// The object is done and proven; the scheduler has forgotten it.
    Finished(ObjectId),
    /// The object changed or its upload vanished: look at it again and [`Scheduler::add`](super::Scheduler::add) it anew, under
    /// the same id or another. The scheduler has forgotten it.
    Restart(ObjectId),
    /// The object failed for the last fault given; the scheduler has forgotten it.
    Failed(ObjectId, Fault),
    /// A route went down.
    RouteDown(RouteId),
    /// A route came back.
    RouteUp(RouteId),
}

/// Why [`Scheduler::poll`](super::Scheduler::poll) returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is left to do. When draining: nothing is in flight, and what else is left waits for the next run.
    Empty,
    /// Waiting for replies (or for more objects).
    Waiting,
    /// Nothing can be sent before this time, which is later than the one given to poll.
    Until(u64),
    /// Nothing that is left could be sent for too long; give up.
    Stalled,
    /// A ceiling forbids to send the rest over any route, and nothing is in flight. While the list has not
    /// ended this may pass, because every object listed adds to the budget of a mean price.
    Ceiling,
}
