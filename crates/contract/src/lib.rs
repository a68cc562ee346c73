//! The documents that Python and a gateway exchange: the types behind `contract/gateway-v1.schema.json`.
//!
//! Every document is JSON. Names end in their units. Unknown fields are refused, so that a typing error in a
//! program is an error and not a silent default. [`Program::seal_key_hex`] and [`StoreCredentials`] travel only over the
//! control API and are never written to disk or logged; the token of a [`Join`] works once. No other document holds a
//! secret.

mod attributes;
mod codec;
mod control;
mod credentials;
mod enrol;
mod event;
mod job;
mod program;
mod split;
mod store;
mod task;

pub use attributes::{AttributeDirective, AttributeRules, ObjectLock, Preserve, Retention, RetentionMode, SourceTags};
pub use codec::{CodecChoice, ZSTD_LEVEL, ZSTD_LEVEL_MAX};
pub use control::{
    LeaseRequest, ProbeReport, ProbeRequest, Ready, ReceiveReport, ReceiveRequest, Refusal, SendReport, SendRequest,
};
pub use credentials::{Authority, GatewayStores, StoreAccess, StoreCredentials, StoreUse};
pub use enrol::{
    GatewayEntry, GatewayState, GatewayStates, IdentityGrant, Join, JoinAgain, JoinControl, KeyRequest, OWNER_NAME,
    OwnerReady,
};
pub use event::{
    DestinationSummary, Event, FailedObject, HopActivity, HopLimit, JobState, JobStatus, LimitChanged, LimitReason,
    Outcome, Progress, Proofs, SlowHop, Stage, StageLimit, StageLimits, Summary, ToDelete,
};
pub use job::{
    Comparison, Deletion, FilterRule, JobSpec, Member, NameGlob, ObjectFilter, Selection, Target, VerifyMode,
};
pub use program::{CopyScope, DialSpec, HopSpec, KeyScope, Limits, Program, RouteSpec, Routes, TakingBack, Version};
pub use split::{
    DATA_PORT, SplitHop, SplitLimits, SplitListener, SplitProgram, SplitRoute, SplitState, SplitStatus, SplitTraffic,
    SplitWay,
};
pub use store::{Lending, StoreSpec};
pub use task::{ByteRange, Task};

/// Version of the contract. A gateway refuses a program of another major version.
pub const CONTRACT_VERSION: u32 = 2;
