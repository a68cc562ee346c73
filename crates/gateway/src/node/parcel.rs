//! A parcel: a manifest with the object bytes it describes, and its encoding for a hop.
//!
//! Between source and sink of one process a parcel is passed on unencoded. For a hop its body (manifest, then bytes) is
//! made shorter if the job wants that: bytes that the sink has are left out ([`super::dedup`]), and the rest is compressed.
//! Then it is sealed ([`super::seal`]). A sink opens, decompresses and restores it.
//!
//! Checksums that the manifest lacks are computed while the body is sealed, and follow the object bytes ([`super::passing`]).
//! A sink computes them while it opens the body.

use super::budget::Held;
use super::dedup::cutting::{Piece, pieces};
use super::dedup::known::{Contents, Place};
use super::dedup::recipe::{parse_recipe, restore, restored_bytes, shorten};
use super::dedup::window::Window;
use super::passing::{ObjectBytes, complete, objects_of};
use super::seal::sealed_bytes;
use super::work::{Failure, Manifest, parse_exactly};
use bytes::{Bytes, BytesMut};
use tradewind_contract::{CodecChoice, ZSTD_LEVEL};
use tradewind_store::{Checksums, Payload};
use tradewind_wire::frame::{BODY_BYTES_MAX, CHECKSUM_BYTES, CONTROL_BYTES_MAX, Codec, Head, Purpose, SealId};
use tradewind_wire::{Fault, RequestId, RouteId};

/// Size of the sample that is compressed to decide whether a chunk is.
const SAMPLE_BYTES: usize = 64 << 10;
/// Above this sample ratio, a chunk is sent uncompressed.
const RATIO_MAX: f64 = 0.9;
/// Below this sample ratio, zstd is used instead of lz4.
const RATIO_ZSTD: f64 = 0.6;

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
    /// Checksums of the objects (or the part), computed when their bytes arrived here; none if they were not.
    pub computed: Vec<Checksums>,
    /// Memory held for these bytes.
    pub held: Option<Held>,
}

/// An encoded parcel, before it is sealed or after it is opened.
#[derive(Debug)]
pub struct Coded {
    /// Head of the request.
    pub head: Head,
    /// Encoded body, without checksums at its end.
    pub body: Vec<Bytes>,
    /// The objects in a body that will be sealed; none if it is compressed or has a recipe.
    pub objects: Vec<ObjectBytes>,
    /// Manifest and checksums that were found when the body was opened.
    pub arrived: Arrived,
}

/// Manifest and checksums that were found in a body while it was opened.
#[derive(Debug, Default, PartialEq)]
pub struct Arrived {
    /// Its manifest, if it was parsed already.
    pub manifest: Option<Manifest>,
    /// Checksums that followed the object bytes, computed by the source.
    pub followed: Vec<Checksums>,
    /// Checksums of all objects, computed from the opened bytes, if the sink wanted that.
    pub computed: Vec<Checksums>,
}

impl Parcel {
    /// Encodes the parcel, compressed as `choice` says, to be sealed as `seal`. The memory it holds stays with the caller.
    ///
    /// # Errors
    /// The body is larger than [`BODY_BYTES_MAX`].
    pub fn encode(&self, choice: Option<CodecChoice>, seal: SealId) -> Result<Coded, Failure> {
        self.encoded(choice, seal, Bytes::new(), self.data.segments().to_vec(), 0)
    }

    /// As [`Parcel::encode`], without the pieces that the sink keeps: `places` says where they are. Also returns what a
    /// body with a recipe has; `None` if no piece of this one can be referred to.
    pub fn encode_new(
        &self,
        choice: Option<CodecChoice>,
        seal: SealId,
        places: impl FnOnce(&[Piece]) -> Vec<Option<Place>>,
    ) -> Result<(Coded, Option<Contents>), Failure> {
        let data = contiguous(self.data.segments());
        let found = pieces(&data, self.manifest.written_bytes());
        if data.len() as u64 > BODY_BYTES_MAX || found.iter().all(|piece| piece.hash.is_none()) {
            return Ok((self.encode(choice, seal)?, None));
        }
        let shortened = shorten(&data, &found, &places(&found), seal.count);
        match postcard::to_stdvec(&shortened.recipe) {
            Ok(recipe) if recipe.len() <= CONTROL_BYTES_MAX => {
                let referenced_bytes = shortened.contents.referenced_bytes;
                let coded = self.encoded(choice, seal, recipe.into(), shortened.new, referenced_bytes)?;
                Ok((coded, Some(shortened.contents)))
            }
            _ => Ok((self.encode(choice, seal)?, None)),
        }
    }

    fn encoded(
        &self,
        choice: Option<CodecChoice>,
        seal: SealId,
        recipe: Bytes,
        data: Vec<Bytes>,
        referenced_bytes: u64,
    ) -> Result<Coded, Failure> {
        let impossible = |message: String| Failure::new(Fault::Permanent, "too_large", message);
        let manifest: Bytes =
            postcard::to_stdvec(&self.manifest).map_err(|error| impossible(error.to_string()))?.into();
        let is_empty = data.is_empty() && referenced_bytes == 0;
        let purpose = if is_empty { Purpose::Control } else { Purpose::Chunk };
        let objects = match choice {
            None if recipe.is_empty() => objects_of(&self.manifest, length(&data)),
            // A source that makes bodies shorter computes checksums when it reads.
            _ => Vec::new(),
        };
        let checksums = objects.iter().filter(|object| object.sums_follow).count() as u32;
        let checksums_bytes = u64::from(checksums) * CHECKSUM_BYTES as u64;
        let raw_bytes = manifest.len() as u64 + recipe.len() as u64 + length(&data) + checksums_bytes;
        if sealed_bytes(raw_bytes) > BODY_BYTES_MAX {
            return Err(impossible(format!("a chunk of {raw_bytes} bytes is over the limit of {BODY_BYTES_MAX}")));
        }
        let (manifest_bytes, recipe_bytes) = (manifest.len() as u32, recipe.len() as u32);
        let front = [manifest, recipe].into_iter().filter(|piece| !piece.is_empty());
        let raw: Vec<Bytes> = front.chain(data).collect();
        let (codec, body) = match choice {
            Some(choice) => compressed(raw, choice),
            None => (Codec::Raw, raw),
        };
        let head = Head {
            request: self.request,
            route: self.route,
            purpose,
            manifest_bytes,
            recipe_bytes,
            referenced_bytes,
            checksums,
            raw_bytes,
            wire_bytes: sealed_bytes(length(&body) + checksums_bytes),
            codec,
            seal,
        };
        Ok(Coded { head, body, objects, arrived: Arrived::default() })
    }
}

impl Coded {
    /// Returns the bytes that deduplication and compression saved.
    pub fn saved_bytes(&self) -> u64 {
        let compressed_bytes = match self.head.codec {
            Codec::Raw => 0,
            Codec::Lz4 | Codec::Zstd => self.head.raw_bytes.saturating_sub(length(&self.body)),
        };
        self.deduplicated_bytes() + compressed_bytes
    }

    /// Returns the bytes that deduplication saved: those of references, without the recipe.
    pub fn deduplicated_bytes(&self) -> u64 {
        self.head.referenced_bytes.saturating_sub(self.head.recipe_bytes.into())
    }

    /// Reverses [`Parcel::encode`]. Takes referenced pieces from `window`, and keeps new ones there. Also returns where
    /// these begin in the stream of the window, if they are kept.
    ///
    /// # Errors
    /// `Corrupt` if the head does not fit the body, which no source with the job's key sends. `Unavailable` if the window
    /// does not keep a piece any more.
    pub fn decode(self, held: Option<Held>, window: &Window) -> Result<(Parcel, Option<u64>), Failure> {
        let Head {
            request,
            route,
            purpose,
            manifest_bytes,
            recipe_bytes,
            referenced_bytes,
            checksums,
            raw_bytes,
            codec,
            seal,
            ..
        } = self.head;
        let corrupt = |why: &str| Failure::mismatch(format!("a chunk was damaged in transit: {why}"));
        let raw = decompressed(codec, self.body, raw_bytes).map_err(|why| corrupt(&why))?;
        if length(&raw) + u64::from(checksums) * CHECKSUM_BYTES as u64 != raw_bytes {
            return Err(corrupt("its length differs"));
        }
        let (manifest, data) = split(raw, manifest_bytes as usize);
        let Arrived { manifest: parsed, followed, computed } = self.arrived;
        let parsed = parsed.or_else(|| parse_manifest(&manifest));
        let mut manifest = parsed.ok_or_else(|| corrupt("its manifest does not parse"))?;
        let (data, start) = match recipe_bytes {
            0 => (data, None),
            _ => {
                let (recipe, new) = split(data, recipe_bytes as usize);
                let recipe = parse_recipe(&recipe).ok_or_else(|| corrupt("its recipe does not parse"))?;
                let new = owned(new);
                // Before anything is hashed.
                if restored_bytes(&recipe) != new.len() as u64 + referenced_bytes {
                    return Err(corrupt("its recipe gives another length"));
                }
                let data = restore(&recipe, &new, seal, window)?;
                (data, window.keep(seal, new))
            }
        };
        let data = Payload::new(data);
        if !complete(&mut manifest, data.len(), followed) {
            return Err(corrupt("it has more or fewer checksums than its manifest lacks"));
        }
        if data.is_empty() != (purpose == Purpose::Control) {
            return Err(corrupt("its head is for another purpose"));
        }
        Ok((Parcel { request, route, manifest, data, computed, held }, start))
    }
}

/// Returns new bytes in memory of their own: they are in the buffers of a connection, or in a decompressed body, which
/// also have other bytes.
fn owned(new: Vec<Bytes>) -> Bytes {
    match &new[..] {
        [only] => Bytes::copy_from_slice(only),
        _ => contiguous(&new),
    }
}

/// Parses a manifest, without side effects; also used by the fuzzer.
pub fn parse_manifest(bytes: &[u8]) -> Option<Manifest> {
    parse_exactly(bytes)
}

fn length(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Returns the body and its codec: the chosen one, or none if that does not make the body shorter.
fn compressed(raw: Vec<Bytes>, choice: CodecChoice) -> (Codec, Vec<Bytes>) {
    let choice = match choice {
        CodecChoice::Auto => by_sample(&raw),
        CodecChoice::Lz4 | CodecChoice::Zstd(_) => Some(choice),
    };
    let whole = match choice {
        Some(_) => contiguous(&raw),
        None => return (Codec::Raw, raw),
    };
    let (codec, coded) = match choice {
        Some(CodecChoice::Zstd(level)) => (Codec::Zstd, zstd::bulk::compress(&whole, i32::from(level)).ok()),
        _ => (Codec::Lz4, Some(lz4_flex::block::compress(&whole))),
    };
    match coded {
        Some(coded) if coded.len() < whole.len() => (codec, vec![coded.into()]),
        _ => (Codec::Raw, raw),
    }
}

/// Chooses the codec by a sample from the middle of the largest segment: the ends of files are often headers and
/// padding.
fn by_sample(raw: &[Bytes]) -> Option<CodecChoice> {
    let largest = raw.iter().max_by_key(|segment| segment.len())?;
    let start = largest.len().saturating_sub(SAMPLE_BYTES) / 2;
    let sample = &largest[start..(start + SAMPLE_BYTES).min(largest.len())];
    let ratio = lz4_flex::block::compress(sample).len() as f64 / sample.len().max(1) as f64;
    match ratio {
        ratio if ratio > RATIO_MAX => None,
        ratio if ratio < RATIO_ZSTD => Some(CodecChoice::Zstd(ZSTD_LEVEL)),
        _ => Some(CodecChoice::Lz4),
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
    use tradewind_contract::ZSTD_LEVEL_MAX;
    use tradewind_store::UploadId;

    fn parcel(data: Vec<u8>) -> Parcel {
        let manifest = Manifest::Abort { target: 1, key: "a//b ü".to_owned(), upload: UploadId("u".to_owned()) };
        let segments = data.chunks(1000).map(Bytes::copy_from_slice).collect();
        Parcel {
            request: RequestId(3),
            route: RouteId(2),
            manifest,
            data: Payload::new(segments),
            computed: Vec::new(),
            held: None,
        }
    }

    const SEAL: SealId = SealId { sealer: [7; 16], count: 5 };

    fn choices() -> impl Strategy<Value = Option<CodecChoice>> {
        let levels = (1..=ZSTD_LEVEL_MAX).prop_map(CodecChoice::Zstd);
        proptest::option::of(prop_oneof![Just(CodecChoice::Auto), Just(CodecChoice::Lz4), levels])
    }

    /// Words in an irregular order: text, as far as a compressor can tell.
    fn words(count: u64) -> Vec<u8> {
        let word = |number: u64| format!("{:x} ", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57);
        (0..count).map(word).collect::<String>().into_bytes()
    }

    #[test]
    fn a_given_codec_is_used_and_one_that_saves_nothing_is_not() {
        let encoded = |data: &[u8], choice| {
            let coded = parcel(data.to_vec()).encode(Some(choice), SEAL).expect("fits");
            (coded.head.codec, coded.saved_bytes())
        };
        let text = words(30_000);
        let (codec, by_lz4) = encoded(&text, CodecChoice::Lz4);
        assert!(codec == Codec::Lz4 && by_lz4 > 0);
        let (codec, by_zstd) = encoded(&text, CodecChoice::Zstd(1));
        assert!(codec == Codec::Zstd && by_zstd > by_lz4);
        assert!(encoded(&text, CodecChoice::Zstd(9)).1 > by_zstd, "levels differ");
        assert_eq!(encoded(&text, CodecChoice::Auto), (Codec::Zstd, by_zstd), "level 1");
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(100_000)
        .collect();
        for choice in [CodecChoice::Auto, CodecChoice::Lz4, CodecChoice::Zstd(1), CodecChoice::Zstd(9)] {
            assert_eq!(encoded(&noise, choice), (Codec::Raw, 0), "{choice}");
        }
    }

    #[test]
    fn what_a_window_keeps_has_memory_of_its_own() {
        let whole = Bytes::from(words(3_000));
        for pieces in [vec![whole.slice(5_000..)], vec![whole.slice(5_000..6_000), whole.slice(7_000..)]] {
            let kept = owned(pieces.clone());
            assert!(kept == pieces.concat() && !whole.as_ptr_range().contains(&kept.as_ptr()));
        }
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(data in proptest::collection::vec(0u8..4, 0..200_000), choice in choices()) {
            let sent = parcel(data.clone());
            let coded = sent.encode(choice, SEAL).expect("fits");
            prop_assert_eq!(coded.head.wire_bytes, sealed_bytes(length(&coded.body)));
            prop_assert_eq!(coded.saved_bytes(), coded.head.raw_bytes - length(&coded.body));
            let (got, start) = coded.decode(None, &Window::new(0)).expect("intact");
            prop_assert_eq!(start, None);
            prop_assert_eq!(&got.manifest, &sent.manifest);
            prop_assert_eq!(contiguous(got.data.segments()), data);
        }

        #[test]
        fn a_head_that_does_not_fit_is_refused(data in proptest::collection::vec(any::<u8>(), 1..500), field in 0usize..4, choice in choices()) {
            let mut coded = parcel(data).encode(choice, SEAL).expect("fits");
            let head = &mut coded.head;
            match field {
                0 => head.purpose = Purpose::Control,
                1 => head.manifest_bytes -= 1,
                2 => head.raw_bytes += 1,
                _ => head.codec = if head.codec == Codec::Lz4 { Codec::Zstd } else { Codec::Lz4 },
            }
            prop_assert_eq!(coded.decode(None, &Window::new(0)).err().map(|failure| failure.fault), Some(Fault::Corrupt));
        }
    }
}
