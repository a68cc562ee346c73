//! A parcel: a manifest with the object bytes it describes, and its encoding for a hop.
//!
//! Between source and sink of one process a parcel is passed on unencoded. For a hop its body (manifest, then bytes) is
//! hashed, compressed if a sample shows that it pays, and sealed if the job is sealed. A sink reverses these steps in
//! the opposite order.

use super::budget::Held;
use super::seal::{Context, SEAL_BYTES, SealKey, head_bytes};
use super::work::{Failure, Manifest, parse_exactly};
use bytes::{Bytes, BytesMut};
use tradewind_store::Payload;
use tradewind_wire::frame::{BODY_BYTES_MAX, Codec, Head, Purpose};
use tradewind_wire::{Fault, RequestId, RouteId};

/// Size of the sample that is compressed to decide whether a chunk is.
const SAMPLE_BYTES: usize = 64 << 10;
/// Above this sample ratio, a chunk is sent uncompressed.
const RATIO_MAX: f64 = 0.9;
/// Below this sample ratio, zstd is used instead of lz4.
const RATIO_ZSTD: f64 = 0.6;
/// The lowest level: a hop is rarely slower than that.
const ZSTD_LEVEL: i32 = 1;

/// See the module's documentation.
#[derive(Debug)]
pub struct Parcel {
    /// The lead's id of the request.
    pub request: RequestId,
    /// The route on which it is sent.
    pub route: RouteId,
    /// The sink's task.
    pub manifest: Manifest,
    /// The object bytes.
    pub data: Payload,
    /// Memory held for these bytes.
    pub held: Option<Held>,
}

/// A parcel as it crosses a hop.
#[derive(Debug)]
pub struct Coded {
    /// Header.
    pub head: Head,
    /// Body, `head.wire_bytes` in all.
    pub body: Vec<Bytes>,
}

impl Parcel {
    /// Encodes the parcel. The memory it holds stays with the caller.
    ///
    /// # Errors
    /// The body is larger than [`BODY_BYTES_MAX`].
    pub fn encode(&self, compress: bool, key: Option<&SealKey>) -> Result<Coded, Failure> {
        let impossible = |message: String| Failure::new(Fault::Permanent, "too_large", message);
        let manifest: Bytes =
            postcard::to_stdvec(&self.manifest).map_err(|error| impossible(error.to_string()))?.into();
        let raw_bytes = manifest.len() as u64 + self.data.len();
        if raw_bytes > BODY_BYTES_MAX {
            return Err(impossible(format!("a chunk of {raw_bytes} bytes is over the limit of {BODY_BYTES_MAX}")));
        }
        let manifest_bytes = manifest.len() as u32;
        let raw: Vec<Bytes> = std::iter::once(manifest).chain(self.data.segments().iter().cloned()).collect();
        let coded_as = |codec: Codec, coded: &[Bytes]| {
            let coded_bytes: u64 = coded.iter().map(|segment| segment.len() as u64).sum();
            Head {
                request: self.request,
                route: self.route,
                purpose: purpose_of(&self.data),
                manifest_bytes,
                raw_bytes,
                wire_bytes: coded_bytes + if key.is_some() { SEAL_BYTES as u64 } else { 0 },
                codec,
                sealed: key.is_some(),
                blake3: [0; 32],
            }
        };
        let Some(key) = key else {
            let hashed = Hashed::of(&raw);
            let (codec, body) = if compress { compressed(raw) } else { (Codec::Raw, raw) };
            let head = coded_as(codec, &body);
            return Ok(Coded { head: Head { blake3: hashed.with(&head), ..head }, body });
        };
        // A sealed body authenticates itself (GCM), and a hash of its contents would help relays to guess them.
        let (codec, coded) = if compress { compressed(raw) } else { (Codec::Raw, raw) };
        let head = coded_as(codec, &coded);
        let sealed = key.seal(Context::Request(&head), &coded).map_err(impossible)?;
        Ok(Coded { head, body: vec![Bytes::from(sealed)] })
    }
}

fn purpose_of(data: &Payload) -> Purpose {
    if data.is_empty() { Purpose::Control } else { Purpose::Chunk }
}

impl Coded {
    /// Reverses [`Parcel::encode`] and verifies the hash.
    ///
    /// # Errors
    /// `Corrupt` if the body is not what the source sent.
    pub fn decode(self, key: Option<&SealKey>, held: Option<Held>) -> Result<Parcel, Failure> {
        let Head { request, route, purpose, manifest_bytes, raw_bytes, codec, sealed, blake3, .. } = self.head;
        let corrupt = |why: &str| Failure::mismatch(format!("a chunk was damaged in transit: {why}"));
        let opened = match (sealed, key) {
            (false, None) => self.body,
            (true, Some(key)) => {
                let context = Context::Request(&self.head);
                vec![Bytes::from(key.open(context, &contiguous(&self.body)).map_err(Failure::mismatch)?)]
            }
            (true, None) => return Err(corrupt("it is sealed and this sink has no key")),
            (false, Some(_)) => return Err(corrupt("it is not sealed and the job is")),
        };
        let raw = decompressed(codec, opened, raw_bytes).map_err(|why| corrupt(&why))?;
        if raw.iter().map(|segment| segment.len() as u64).sum::<u64>() != raw_bytes {
            return Err(corrupt("its length differs"));
        }
        if !sealed && Hashed::of(&raw).with(&self.head) != blake3 {
            return Err(corrupt("its BLAKE3 differs"));
        }
        let (manifest, data) = split(raw, manifest_bytes as usize);
        let manifest = parse_manifest(&manifest).ok_or_else(|| corrupt("its manifest does not parse"))?;
        let data = Payload::new(data);
        if purpose != purpose_of(&data) {
            return Err(corrupt("its head is for another purpose"));
        }
        Ok(Parcel { request, route, manifest, data, held })
    }
}

/// Parses a manifest, without side effects; also used by the fuzzer.
pub fn parse_manifest(bytes: &[u8]) -> Option<Manifest> {
    parse_exactly(bytes)
}

/// BLAKE3 hashes 16 KiB in parallel only if a block begins at a multiple of that size; pieces from a connection do not.
/// Gathering them into blocks of this size first costs less than it saves (hashing: 0.22 to 0.14 CPU-s per GB).
const HASH_BLOCK_BYTES: usize = 64 << 10;

/// BLAKE3 of a decoded body, to which the head must still be added.
struct Hashed(blake3::Hasher);

impl Hashed {
    fn of(segments: &[Bytes]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut block = Vec::with_capacity(HASH_BLOCK_BYTES);
        for segment in segments {
            let mut rest = &segment[..];
            if !block.is_empty() {
                let (filling, after) = rest.split_at((HASH_BLOCK_BYTES - block.len()).min(rest.len()));
                block.extend_from_slice(filling);
                rest = after;
            }
            if block.len() == HASH_BLOCK_BYTES {
                hasher.update(&block);
                block.clear();
            }
            let (aligned, tail) = rest.split_at(rest.len() - rest.len() % HASH_BLOCK_BYTES);
            hasher.update(aligned);
            block.extend_from_slice(tail);
        }
        hasher.update(&block);
        Self(hasher)
    }

    /// Hashes the head's fields last, so that no body is accepted under another head, not even if one bit of its head
    /// is flipped.
    fn with(mut self, head: &Head) -> [u8; 32] {
        self.0.update(&head_bytes(head));
        self.0.finalize().into()
    }
}

fn compressed(raw: Vec<Bytes>) -> (Codec, Vec<Bytes>) {
    let codec = choose_codec(&raw);
    if codec == Codec::Raw {
        return (Codec::Raw, raw);
    }
    let whole = contiguous(&raw);
    let coded = match codec {
        Codec::Raw => None,
        Codec::Lz4 => Some(lz4_flex::block::compress(&whole)),
        Codec::Zstd => zstd::bulk::compress(&whole, ZSTD_LEVEL).ok(),
    };
    match coded {
        Some(coded) if coded.len() < whole.len() => (codec, vec![coded.into()]),
        _ => (Codec::Raw, raw),
    }
}

/// Chooses the codec by a sample from the middle of the largest segment: the ends of files are often headers and
/// padding.
fn choose_codec(raw: &[Bytes]) -> Codec {
    let Some(largest) = raw.iter().max_by_key(|segment| segment.len()) else { return Codec::Raw };
    let start = largest.len().saturating_sub(SAMPLE_BYTES) / 2;
    let sample = &largest[start..(start + SAMPLE_BYTES).min(largest.len())];
    let ratio = lz4_flex::block::compress(sample).len() as f64 / sample.len().max(1) as f64;
    if ratio > RATIO_MAX {
        Codec::Raw
    } else if ratio < RATIO_ZSTD {
        Codec::Zstd
    } else {
        Codec::Lz4
    }
}

/// Decompresses a body. `raw_bytes` was checked against its limit when the head was parsed, so this allocates no more
/// than that.
fn decompressed(codec: Codec, coded: Vec<Bytes>, raw_bytes: u64) -> Result<Vec<Bytes>, String> {
    let decode = |decoder: fn(&[u8], usize) -> Result<Vec<u8>, String>| {
        decoder(&contiguous(&coded), raw_bytes as usize).map(|raw| vec![raw.into()])
    };
    match codec {
        Codec::Raw => Ok(coded),
        Codec::Lz4 => {
            decode(|coded, length| lz4_flex::block::decompress(coded, length).map_err(|error| error.to_string()))
        }
        Codec::Zstd => decode(|coded, length| zstd::bulk::decompress(coded, length).map_err(|error| error.to_string())),
    }
}

fn contiguous(segments: &[Bytes]) -> Bytes {
    match segments {
        [only] => only.clone(),
        _ => {
            let mut whole = BytesMut::with_capacity(segments.iter().map(Bytes::len).sum());
            for segment in segments {
                whole.extend_from_slice(segment);
            }
            whole.freeze()
        }
    }
}

/// Splits off the first `length` bytes, contiguous. Returns them and the rest.
fn split(segments: Vec<Bytes>, length: usize) -> (Bytes, Vec<Bytes>) {
    let mut front = BytesMut::with_capacity(length);
    let mut rest = Vec::with_capacity(segments.len());
    for mut segment in segments {
        let taken = segment.split_to((length - front.len()).min(segment.len()));
        front.extend_from_slice(&taken);
        if !segment.is_empty() {
            rest.push(segment);
        }
    }
    (front.freeze(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tradewind_store::UploadId;

    fn parcel(data: Vec<u8>) -> Parcel {
        let manifest = Manifest::Abort { target: 1, key: "a//b ü".to_owned(), upload: UploadId("u".to_owned()) };
        let segments = data.chunks(1000).map(Bytes::copy_from_slice).collect();
        Parcel { request: RequestId(3), route: RouteId(2), manifest, data: Payload::new(segments), held: None }
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(data in proptest::collection::vec(0u8..4, 0..200_000), compress: bool, seal: bool) {
            let key = seal.then(|| SealKey::from_hex(&"0a".repeat(32)).expect("64 digits"));
            let sent = parcel(data.clone());
            let got = sent.encode(compress, key.as_ref()).expect("fits").decode(key.as_ref(), None).expect("intact");
            prop_assert_eq!(&got.manifest, &sent.manifest);
            prop_assert_eq!(contiguous(got.data.segments()), data);
        }

        #[test]
        fn any_flipped_byte_is_found(data in proptest::collection::vec(any::<u8>(), 1..5_000), at: usize, compress: bool, seal: bool) {
            let key = seal.then(|| SealKey::from_hex(&"0a".repeat(32)).expect("64 digits"));
            let coded = parcel(data).encode(compress, key.as_ref()).expect("fits");
            let mut body = contiguous(&coded.body).to_vec();
            let at = at % body.len();
            body[at] ^= 0x10;
            let damaged = Coded { head: coded.head, body: vec![body.into()] };
            prop_assert_eq!(damaged.decode(key.as_ref(), None).err().map(|failure| failure.fault), Some(Fault::Corrupt));
        }

        #[test]
        fn the_hash_does_not_depend_on_the_pieces(length in 0usize..300_000, cuts in proptest::collection::vec(1usize..100_000, 1..20)) {
            let data: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let mut pieces = Vec::new();
            let mut rest = Bytes::from(data.clone());
            for cut in cuts {
                pieces.push(rest.split_to(cut.min(rest.len())));
            }
            pieces.push(rest);
            let head = parcel(Vec::new()).encode(false, None).expect("fits").head;
            let mut plain = blake3::Hasher::new();
            plain.update(&data).update(&head_bytes(&head));
            prop_assert_eq!(Hashed::of(&pieces).with(&head), *plain.finalize().as_bytes());
        }

        #[test]
        fn no_field_of_the_head_can_be_another(data in proptest::collection::vec(any::<u8>(), 1..500), field in 0usize..9, compress: bool, seal: bool) {
            let key = seal.then(|| SealKey::from_hex(&"0a".repeat(32)).expect("64 digits"));
            let mut coded = parcel(data).encode(compress, key.as_ref()).expect("fits");
            let head = &mut coded.head;
            match field {
                0 => head.request.0 += 1,
                1 => head.route.0 += 1,
                2 => head.purpose = Purpose::Control,
                3 => head.manifest_bytes += 1,
                4 => head.manifest_bytes -= 1,
                5 => head.raw_bytes += 1,
                6 => head.wire_bytes += 1,
                7 => head.codec = if head.codec == Codec::Lz4 { Codec::Zstd } else { Codec::Lz4 },
                _ => head.sealed = !head.sealed,
            }
            prop_assert_eq!(coded.decode(key.as_ref(), None).err().map(|failure| failure.fault), Some(Fault::Corrupt));
        }
    }
}
