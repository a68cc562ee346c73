//! Builds the orders for the scheduler's decisions.

use super::context::Context;
use super::transfer::ObjectTransfer;
use crate::node::bundle_order::{BundleOrder, FetchRef, WholePlaceRef};
use crate::node::work::{Close, Manifest, Order, PartPlace, Proof, SourceTask};
use tradewind_store::{PartSource, UploadId};
use tradewind_wire::by_number::ByNumber;
use tradewind_wire::scheduler::Work;
use tradewind_wire::{RequestId, RouteId};

/// An order for a source.
pub(super) enum Made<'a> {
    /// A bundle, which borrows the transfers of its objects.
    Bundle(BundleOrder<'a>),
    /// Anything else.
    Other(Box<Order>),
}

impl Made<'_> {
    pub(super) fn into_order(self) -> Order {
        match self {
            Self::Bundle(bundle) => bundle.to_order(),
            Self::Other(order) => *order,
        }
    }
}

/// The order that carries out `work`.
pub(super) fn order<'a>(
    request: RequestId,
    route: RouteId,
    work: &Work,
    is_first_attempt: bool,
    transfers: &'a ByNumber<Box<ObjectTransfer>>,
    context: &'a Context,
) -> Option<Made<'a>> {
    let codec = context.job.compress.then_some(context.job.codec);
    // A retry must not depend on what a sink keeps.
    let deduplicate = context.job.deduplicate && is_first_attempt;
    let task = match work {
        Work::Open(object) => SourceTask::Pass(open(transfers.get(*object)?)),
        Work::Part { object, part, offset, bytes } => {
            part_task(transfers.get(*object)?, *part, *offset, *bytes, context)?
        }
        Work::Bundle(objects) => {
            let mut fetches = Vec::with_capacity(objects.len());
            for object in objects {
                fetches.push(fetch(transfers.get(*object)?, context));
            }
            return Some(Made::Bundle(BundleOrder::new(request, route, codec, deduplicate, fetches)));
        }
        Work::Close(object) => SourceTask::Pass(Manifest::Close(Box::new(close(transfers.get(*object)?, context)?))),
        Work::Abort(object) => SourceTask::Pass(abort(transfers.get(*object)?)?),
    };
    Some(Made::Other(Box::new(Order { request, route, codec, deduplicate, task })))
}

fn open(transfer: &ObjectTransfer) -> Manifest {
    Manifest::Open {
        target: transfer.item.target,
        key: transfer.item.target_key.clone(),
        options: transfer.options.clone(),
    }
}

fn part_task(transfer: &ObjectTransfer, part: u32, offset: u64, bytes: u64, context: &Context) -> Option<SourceTask> {
    let range = offset..offset + bytes;
    let place = PartPlace {
        target: transfer.item.target,
        key: transfer.item.target_key.clone(),
        upload: transfer.upload.clone()?,
        part,
        offset,
    };
    if let Some(written) = transfer.unsynced.get(&part) {
        return Some(SourceTask::Pass(Manifest::CheckPart { place, part: written.clone() }));
    }
    if transfer.item.server_side {
        let source = PartSource {
            bucket: bucket_of(context),
            key: transfer.item.info.key.clone(),
            condition: transfer.condition.clone(),
            range: Some(range),
        };
        return Some(SourceTask::Pass(Manifest::CopyPart { place, source }));
    }
    Some(SourceTask::Part {
        source_key: transfer.item.info.key.clone(),
        condition: transfer.condition.clone(),
        range,
        place,
        crc32c: transfer.stated.crc32c.is_some(),
    })
}

fn fetch<'a>(transfer: &'a ObjectTransfer, context: &'a Context) -> FetchRef<'a> {
    FetchRef {
        source_key: &transfer.item.info.key,
        condition: &transfer.condition,
        size_bytes: transfer.item.info.size_bytes,
        listed: transfer.stated,
        place: whole_place(transfer, context),
        inherited: &transfer.inherited,
        tags: transfer.tag_rule,
        copy_from_bucket: transfer.item.server_side.then(|| context.job.source.bucket()),
        check: transfer.item.check.as_deref(),
    }
}

fn close(transfer: &ObjectTransfer, context: &Context) -> Option<Close> {
    Some(Close {
        place: whole_place(transfer, context).to_place(),
        upload: transfer.upload.clone()?,
        parts: transfer.parts.values().cloned().collect(),
        size_bytes: transfer.item.info.size_bytes,
        checksums: transfer.combined(),
        source_proof: transfer.source_proof().unwrap_or(Proof::Length),
        // The times of uploads come from the store's clock.
        sweep_since_unix_ms: transfer.sweep_since_unix_ms().map(|since_unix_ms| {
            let target = context.targets.get(usize::from(transfer.item.target));
            since_unix_ms.saturating_sub(target.map_or(0, |store| store.clock_ahead_s()).saturating_mul(1000))
        }),
    })
}

fn abort(transfer: &ObjectTransfer) -> Option<Manifest> {
    let upload: UploadId = transfer.upload.clone()?;
    Some(Manifest::Abort { target: transfer.item.target, key: transfer.item.target_key.clone(), upload })
}

fn whole_place<'a>(transfer: &'a ObjectTransfer, context: &Context) -> WholePlaceRef<'a> {
    WholePlaceRef {
        target: transfer.item.target,
        key: &transfer.item.target_key,
        options: &transfer.options,
        verify: context.job.verify,
        expect: transfer.item.expect.as_ref(),
        again: transfer.retries > 0 || transfer.item.may_land_late,
        tags_dropped: transfer.tags_dropped,
    }
}

fn bucket_of(context: &Context) -> String {
    context.job.source.bucket().to_owned()
}
