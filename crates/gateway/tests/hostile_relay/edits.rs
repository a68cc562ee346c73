//! The edits of a hostile relay to frames that pass it. The edits of fields are generated from the wire's types: every
//! field of a head and of a reply, by the JSON that serde makes of it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tradewind_wire::frame::{Codec, Head, Purpose, Reply, SealId, Verdict};
use tradewind_wire::{Fault, RequestId, RouteId};

/// A change of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Add(i64),
    FlipBit(u32),
    Not,
    /// The next of an enum's variants, by that many.
    OtherVariant(usize),
    Shorter,
    Longer,
    /// In the middle of a list or text.
    FlipInside,
    Empty,
}

const CHANGES: [Change; 13] = [
    Change::Add(1),
    Change::Add(-1),
    Change::Add(4096),
    Change::FlipBit(0),
    Change::FlipBit(3),
    Change::FlipBit(20),
    Change::Not,
    Change::OtherVariant(1),
    Change::OtherVariant(2),
    Change::Shorter,
    Change::Longer,
    Change::FlipInside,
    Change::Empty,
];

/// One thing that the relay does, to one request or reply or to all of them.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    HeadField(String, Change),
    Body(Change),
    /// As `Body`, with the lengths in the head made to fit.
    BodyAndLengths(Change),
    DropRequest,
    RepeatRequest,
    /// Sent again after the next one.
    ReplayRequest,
    SwapOrder,
    SwapBodies,
    SwapIds,
    AbortRequest,
    /// The body comes back as if it were the sink's answer.
    ReflectBody,
    ReplyField(String, Change),
    DropReply,
    RepeatReply,
    /// The verdict of the reply before.
    ReplayVerdict,
    ForgeFailure(Fault),
    ForgeWords(Vec<u8>),
    Drain,
}

impl Edit {
    /// Returns whether it edits requests.
    pub(crate) fn is_down(&self) -> bool {
        use Edit::*;
        !matches!(
            self,
            ReplyField(..) | DropReply | RepeatReply | ReplayVerdict | ForgeFailure(_) | ForgeWords(_) | Drain
        )
    }
}

/// Returns all edits.
pub(crate) fn all() -> Vec<Edit> {
    let mut edits = vec![
        Edit::DropRequest,
        Edit::RepeatRequest,
        Edit::ReplayRequest,
        Edit::SwapOrder,
        Edit::SwapBodies,
        Edit::SwapIds,
        Edit::AbortRequest,
        Edit::ReflectBody,
        Edit::DropReply,
        Edit::RepeatReply,
        Edit::ReplayVerdict,
        Edit::Drain,
        Edit::ForgeWords(Vec::new()),
        Edit::ForgeWords(vec![4]),
        Edit::ForgeWords(vec![0; 64]),
    ];
    use Fault::*;
    edits.extend(
        [Lost, RouteDown, Unavailable, Corrupt, Refused, Permanent, Changed, UploadGone].map(Edit::ForgeFailure),
    );
    for change in [Change::FlipInside, Change::Shorter, Change::Longer, Change::Empty] {
        edits.extend([Edit::Body(change), Edit::BodyAndLengths(change)]);
    }
    let head = Head {
        request: RequestId(1000),
        route: RouteId(0),
        purpose: Purpose::Chunk,
        manifest_bytes: 1000,
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: 3,
        raw_bytes: 100_000,
        wire_bytes: 100_000,
        codec: Codec::Raw,
        seal: SealId { sealer: [7; 16], count: 1000 },
    };
    edits.extend(fields(&head).into_iter().map(|(path, change)| Edit::HeadField(path, change)));
    let failed = Verdict::Failed { fault: Lost, kind: "k".to_owned(), message: "m".to_owned(), unsent: false };
    for verdict in [Verdict::Sink(vec![1, 2, 3].into()), failed] {
        let reply = Reply { request: RequestId(1000), verdict };
        edits.extend(fields(&reply).into_iter().map(|(path, change)| Edit::ReplyField(path, change)));
    }
    edits
}

/// Every field of a value with each change that makes another value of the type.
fn fields<T: Serialize + DeserializeOwned + PartialEq>(sample: &T) -> Vec<(String, Change)> {
    let mut paths = Vec::new();
    leaves(&serde_json::to_value(sample).unwrap(), String::new(), &mut paths);
    let tried = paths.into_iter().flat_map(|path| CHANGES.map(|change| (path.clone(), change)));
    tried.filter(|(path, change)| changed(sample, path, *change).is_some()).collect()
}

/// Paths of all values that are not structs; a list counts as one value.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (name, inner) in entries {
                leaves(inner, format!("{path}/{name}"), found);
            }
        }
        _ => found.push(path),
    }
}

/// `value` with one field changed; `None` if the type has no such value, or it is the same.
pub(crate) fn changed<T: Serialize + DeserializeOwned + PartialEq>(value: &T, path: &str, change: Change) -> Option<T> {
    let mut document = serde_json::to_value(value).ok()?;
    let leaf = document.pointer_mut(path)?;
    let before = leaf.clone();
    *leaf = match (before, change) {
        (Value::Number(number), Change::Add(by)) => number.as_u64()?.checked_add_signed(by)?.into(),
        (Value::Number(number), Change::FlipBit(bit)) => (number.as_u64()? ^ (1 << bit)).into(),
        (Value::Bool(is), Change::Not) => (!is).into(),
        (Value::String(text), Change::OtherVariant(by)) => {
            return other_variant(value, path, &text, by);
        }
        (Value::String(text), Change::Longer) => format!("{text}x").into(),
        (Value::String(_), Change::Empty) => String::new().into(),
        (Value::Array(items), change) => {
            let bytes: Vec<u8> = items.iter().filter_map(|item| item.as_u64().map(|byte| byte as u8)).collect();
            serde_json::to_value(changed_bytes(&bytes, change)?).ok()?
        }
        _ => return None,
    };
    serde_json::from_value(document).ok().filter(|other| other != value)
}

/// Serde's own error names the variants of an enum.
fn other_variant<T: Serialize + DeserializeOwned + PartialEq>(
    value: &T,
    path: &str,
    present: &str,
    by: usize,
) -> Option<T> {
    let with = |text: &str| {
        let mut document = serde_json::to_value(value).ok()?;
        *document.pointer_mut(path)? = text.into();
        Some(serde_json::from_value::<T>(document))
    };
    let error = with("no such variant")?.err()?.to_string();
    let (_, names) = error.split_once("expected")?;
    let variants: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
    let place = variants.iter().position(|name| *name == present)?;
    with(variants[(place + by) % variants.len()])?.ok().filter(|other| other != value)
}

/// `bytes` with a change that bytes can have.
pub(crate) fn changed_bytes(bytes: &[u8], change: Change) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    match change {
        Change::Shorter => drop(bytes.pop()?),
        Change::Longer => bytes.push(0),
        Change::Empty if bytes.is_empty() => return None,
        Change::Empty => bytes.clear(),
        Change::FlipInside => {
            let middle = bytes.len() / 2;
            *bytes.get_mut(middle)? ^= 0x10;
        }
        _ => return None,
    }
    Some(bytes)
}
