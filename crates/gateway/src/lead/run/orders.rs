//! Builds the orders for the scheduler's decisions.

use super::context::Context;
use super::transfer::ObjectTransfer;
use crate::node::work::{Close, Fetch, Manifest, Order, PartPlace, Proof, SourceTask, WholePlace};
use tradewind_store::{PartSource, UploadId};
use tradewind_wire::by_number::ByNumber;
use tradewind_wire::scheduler::Work;
use tradewind_wire::{RequestId, RouteId};

/// The order that carries out `work`.
pub(super) fn order(
    request: RequestId,
    route: RouteId,
    work: &Work,
    is_first_attempt: bool,
    transfers: &ByNumber<Box<ObjectTransfer>>,
    context: &Context,
) -> Option<Order> {
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
            SourceTask::Bundle(fetches)
        }
        Work::Close(object) => SourceTask::Pass(Manifest::Close(Box::new(close(transfers.get(*object)?, context)?))),
        Work::Abort(object) => SourceTask::Pass(abort(transfers.get(*object)?)?),
    };
    let codec = context.job.compress.then_some(context.job.codec);
    // A retry must not depend on what a sink keeps.
    Some(Order { request, route, codec, deduplicate: context.job.deduplicate && is_first_attempt, task })
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
    })
}

fn fetch(transfer: &ObjectTransfer, context: &Context) -> Fetch {
    Fetch {
        source_key: transfer.item.info.key.clone(),
        condition: transfer.condition.clone(),
        size_bytes: transfer.item.info.size_bytes,
        listed: transfer.stated,
        place: whole_place(transfer, context),
        inherited: transfer.inherited.clone(),
        tags: transfer.tag_rule,
        copy_from_bucket: transfer.item.server_side.then(|| bucket_of(context)),
        check: transfer.item.check.clone(),
    }
}

fn close(transfer: &ObjectTransfer, context: &Context) -> Option<Close> {
    Some(Close {
        place: whole_place(transfer, context),
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

fn whole_place(transfer: &ObjectTransfer, context: &Context) -> WholePlace {
    WholePlace {
        target: transfer.item.target,
        key: transfer.item.target_key.clone(),
        options: transfer.options.clone(),
        verify: context.job.verify,
        expect: transfer.item.expect.clone(),
        again: transfer.retries > 0 || transfer.item.may_land_late,
        tags_dropped: transfer.tags_dropped,
    }
}

fn bucket_of(context: &Context) -> String {
    context.job.source.bucket().to_owned()
}
