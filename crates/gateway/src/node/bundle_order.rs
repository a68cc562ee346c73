//! An [`Order`] of a bundle that borrows its parts, so that the lead encodes it without copies of keys and options.

use super::work::{Fetch, Order, SourceTask, Unsynced, WholePlace};
use crate::attributes::Inherited;
use crate::tags::TagRule;
use serde::Serialize;
use tradewind_contract::{CodecChoice, VerifyMode};
use tradewind_store::{Checksums, Expect, Precondition, PutOptions};
use tradewind_wire::{RequestId, RouteId};

/// Encoded like an [`Order`].
#[derive(Debug, Serialize)]
pub struct BundleOrder<'a> {
    request: RequestId,
    route: RouteId,
    codec: Option<CodecChoice>,
    deduplicate: bool,
    task: BundleTask<'a>,
}

/// Encoded like a [`SourceTask`].
#[derive(Debug, Serialize)]
enum BundleTask<'a> {
    /// Keeps the number of the other variant.
    #[expect(dead_code, reason = "its place counts")]
    Part,
    Bundle(Vec<FetchRef<'a>>),
}

/// Encoded like a [`Fetch`], whose documentation has the fields.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "they are documented there")]
pub struct FetchRef<'a> {
    pub source_key: &'a str,
    pub condition: &'a Precondition,
    pub size_bytes: u64,
    pub listed: Checksums,
    pub place: WholePlaceRef<'a>,
    pub inherited: &'a Inherited,
    pub tags: TagRule,
    pub copy_from_bucket: Option<&'a str>,
    pub check: Option<&'a Unsynced>,
}

/// Encoded like a [`WholePlace`], whose documentation has the fields.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "they are documented there")]
pub struct WholePlaceRef<'a> {
    pub target: u16,
    pub key: &'a str,
    pub options: &'a PutOptions,
    pub verify: VerifyMode,
    pub expect: Option<&'a Expect>,
    pub again: bool,
    pub tags_dropped: bool,
}

impl<'a> BundleOrder<'a> {
    /// An order to fetch these objects.
    pub fn new(
        request: RequestId,
        route: RouteId,
        codec: Option<CodecChoice>,
        deduplicate: bool,
        fetches: Vec<FetchRef<'a>>,
    ) -> Self {
        Self { request, route, codec, deduplicate, task: BundleTask::Bundle(fetches) }
    }

    /// The route on which the source sends the result.
    pub fn route(&self) -> RouteId {
        self.route
    }

    /// Copies the order.
    pub fn to_order(&self) -> Order {
        let fetches = match &self.task {
            BundleTask::Bundle(fetches) => fetches.iter().map(FetchRef::to_fetch).collect(),
            BundleTask::Part => Vec::new(),
        };
        let Self { request, route, codec, deduplicate, .. } = *self;
        Order { request, route, codec, deduplicate, task: SourceTask::Bundle(fetches) }
    }
}

impl FetchRef<'_> {
    fn to_fetch(&self) -> Fetch {
        Fetch {
            source_key: self.source_key.to_owned(),
            condition: self.condition.clone(),
            size_bytes: self.size_bytes,
            listed: self.listed,
            place: self.place.to_place(),
            inherited: self.inherited.clone(),
            tags: self.tags,
            copy_from_bucket: self.copy_from_bucket.map(str::to_owned),
            check: self.check.cloned().map(Box::new),
        }
    }
}

impl WholePlaceRef<'_> {
    /// Copies the place.
    pub fn to_place(&self) -> WholePlace {
        WholePlace {
            target: self.target,
            key: self.key.to_owned(),
            options: self.options.clone(),
            verify: self.verify,
            expect: self.expect.cloned(),
            again: self.again,
            tags_dropped: self.tags_dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::work::parse_exactly;

    #[test]
    fn it_is_encoded_like_an_order() {
        let (condition, inherited) =
            (Precondition { etag: Some("e".into()), ..Default::default() }, Inherited::default());
        let options = PutOptions { size_bytes: Some(3), storage_class: Some("class".into()), ..Default::default() };
        let (expect, unsynced) =
            (Expect::Is(Box::new(condition.clone())), Unsynced { boot: "b".into(), ..Default::default() });
        let sums = Checksums { crc32c: Some(5), ..Checksums::default() };
        let fetch = |has_all: bool| FetchRef {
            source_key: "from",
            condition: &condition,
            size_bytes: 3,
            listed: sums,
            place: WholePlaceRef {
                target: 2,
                key: "to",
                options: &options,
                verify: VerifyMode::default(),
                expect: has_all.then_some(&expect),
                again: has_all,
                tags_dropped: !has_all,
            },
            inherited: &inherited,
            tags: TagRule::default(),
            copy_from_bucket: has_all.then_some("bucket"),
            check: has_all.then_some(&unsynced),
        };
        let fetches = vec![fetch(false), fetch(true)];
        let borrowed = BundleOrder::new(RequestId(9), RouteId(1), Some(CodecChoice::Auto), true, fetches);
        let order = borrowed.to_order();
        let encoded = postcard::to_stdvec(&borrowed).unwrap();
        assert_eq!(encoded, postcard::to_stdvec(&order).unwrap());
        assert_eq!(parse_exactly::<Order>(&encoded), Some(order));
    }
}
