//! Seals bodies at the source and opens them at the sink, and sinks' answers in the other direction, so that the relays
//! between them can neither read nor change what they carry.
//!
//! The cipher is AES-256-GCM. Keys are derived (HKDF-SHA256, RFC 5869) from the run's key, which only sources and sinks
//! have, for one direction, one sealing process and one [`Epoch`](EPOCH_MESSAGES). A process names itself by 128 random
//! bits ([`SealId::sealer`]) and counts its messages, so no key meets a nonce twice: not after a restart, not in
//! another attempt, and not in the other direction. The nonce is the count and the index of the segment.
//!
//! A body is sealed in segments of [`SEGMENT_BYTES`], which a sink opens while the rest arrives. Associated data are the
//! whole head, which has the body's length, the index of the segment, and whether it is the last. So no segment opens
//! in another place, in another body, or below another head, and no body opens with a segment missing.

use super::parcel::{Arrived, Coded};
use super::passing::{ArrivingSums, Summing, encode_checksums, parse_checksums};
use super::work::Failure;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use bytes::{Bytes, BytesMut};
use rand::RngCore;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tradewind_store::Crcs;
use tradewind_wire::RequestId;
use tradewind_wire::frame::{Head, SEALER_ID_BYTES, SEGMENT_BYTES, SealId};

/// Length of the content of a whole segment.
const SEGMENT_PLAIN_BYTES: usize = SEGMENT_BYTES - TAG_BYTES;
const TAG_BYTES: usize = 16;
/// Length of what comes before the ciphertext of an answer: the sealer's id and its count.
const ANSWER_HEADER_BYTES: usize = SEALER_ID_BYTES + 8;
/// Messages for which a process uses one key: 2^16 bodies of 16 MiB are 2^36 blocks, so that an attacker's advantage
/// stays below 2^-56 (NIST SP 800-38D, appendix C).
const EPOCH_MESSAGES: u64 = 1 << 16;
/// Maximum number of derived keys that are kept. Only keys that have opened or sealed a message are.
const KEYS_MAX: usize = 256;
/// Shorter pieces of a body are copied: a small piece would keep the large buffer that it is in.
const PIECE_BYTES_MIN: usize = 8 << 10;
/// All pieces of a shorter body are copied, because up to two buffers would stay allocated for it. A bundle of tiny
/// objects is so short, and copying 64 KiB that were just opened costs little.
const BODY_BYTES_MIN: u64 = 160 << 10;

/// Returns the sealed length of a body.
pub fn sealed_bytes(content_bytes: u64) -> u64 {
    content_bytes + content_bytes.div_ceil(SEGMENT_PLAIN_BYTES as u64) * TAG_BYTES as u64
}

/// The purpose of a sealed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    /// From a source to a sink.
    Body,
    /// From a sink to a source.
    Answer,
}

impl Direction {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Body => b"tradewind body",
            Self::Answer => b"tradewind answer",
        }
    }
}

/// The purpose, process and epoch of a derived key.
type KeyName = (Direction, [u8; SEALER_ID_BYTES], u64);

/// The run's key, and this process's own name and count for what it seals. It is never printed.
pub struct Seal {
    secret: Prk,
    sealer: [u8; SEALER_ID_BYTES],
    next: AtomicU64,
    keys: Mutex<HashMap<KeyName, Arc<LessSafeKey>>>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Seal {
    /// Parses a key of 64 hexadecimal digits, and draws a new name for this process.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut sealer = [0; SEALER_ID_BYTES];
        rand::rng().fill_bytes(&mut sealer);
        Self::named(hex, sealer)
    }

    fn named(hex: &str, sealer: [u8; SEALER_ID_BYTES]) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let key: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
        let secret = Salt::new(HKDF_SHA256, b"tradewind run").extract(&key);
        Some(Self { secret, sealer, next: AtomicU64::new(0), keys: Mutex::default() })
    }

    /// Returns the id of the next message that this process seals. No two messages have the same.
    pub fn next_id(&self) -> SealId {
        SealId { sealer: self.sealer, count: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// Begins to seal a body whose head has an id of this process, for one use.
    pub fn sealing<'a>(&self, coded: &'a Coded) -> Sealing<'a> {
        let id = coded.head.seal;
        let key = self.kept(name_of(Direction::Body, id));
        let key = key.unwrap_or_else(|| self.keep(Direction::Body, id, self.derive(Direction::Body, id)));
        let body_bytes: u64 = coded.body.iter().map(|piece| piece.len() as u64).sum();
        let content_bytes = body_bytes + coded.head.checksums_bytes();
        let cipher = BodyCipher::new(key, &coded.head, content_bytes);
        let summing =
            (coded.head.checksums > 0).then(|| Summing::following(&coded.objects, coded.head.manifest_bytes.into()));
        Sealing { cipher, head: &coded.head, pieces: &coded.body, at: 0, content_left: content_bytes, summing }
    }

    /// Begins to open a body that arrives. Computes these CRCs of its objects, if it has all their bytes as they are.
    pub fn opening(self: &Arc<Self>, head: &Head, crcs: Option<Crcs>) -> Opening {
        let kept = self.kept(name_of(Direction::Body, head.seal));
        let is_new = kept.is_none();
        let key = kept.unwrap_or_else(|| self.derive(Direction::Body, head.seal));
        let segments = head.wire_bytes.div_ceil(SEGMENT_BYTES as u64);
        let content_bytes = head.wire_bytes.saturating_sub(segments * TAG_BYTES as u64);
        Opening {
            seal: is_new.then(|| self.clone()),
            cipher: BodyCipher::new(key, head, content_bytes),
            head: head.clone(),
            wire_left: head.wire_bytes,
            pieces: Vec::with_capacity(segments as usize),
            partial: BytesMut::new(),
            is_broken: false,
            sums: crcs.filter(|_| head.is_plain_chunk()).map(|crcs| ArrivingSums::of(head, crcs)),
        }
    }

    /// Seals a sink's answer.
    pub fn seal_answer(&self, request: RequestId, words: &[u8]) -> Result<Vec<u8>, String> {
        let id = self.next_id();
        let key = self.kept(name_of(Direction::Answer, id));
        let key = key.unwrap_or_else(|| self.keep(Direction::Answer, id, self.derive(Direction::Answer, id)));
        let mut sealed = Vec::with_capacity(ANSWER_HEADER_BYTES + words.len() + TAG_BYTES);
        sealed.extend_from_slice(&id.sealer);
        sealed.extend_from_slice(&id.count.to_le_bytes());
        sealed.extend_from_slice(words);
        let tag = key
            .seal_in_place_separate_tag(nonce(id.count, 0), answer_data(request), &mut sealed[ANSWER_HEADER_BYTES..])
            .map_err(|_| "cannot seal it".to_owned())?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a sink's answer. Also returns which process sealed it.
    ///
    /// # Errors
    /// It was changed on the way, or answers another request.
    pub fn open_answer(&self, request: RequestId, sealed: &[u8]) -> Result<([u8; SEALER_ID_BYTES], Vec<u8>), Failure> {
        let broken = || Failure::damaged("an answer was changed in transit");
        let (sealer, rest) = sealed.split_first_chunk().ok_or_else(broken)?;
        let (count, words) = rest.split_first_chunk().ok_or_else(broken)?;
        let id = SealId { sealer: *sealer, count: u64::from_le_bytes(*count) };
        let kept = self.kept(name_of(Direction::Answer, id));
        let is_new = kept.is_none();
        let key = kept.unwrap_or_else(|| self.derive(Direction::Answer, id));
        let mut words = words.to_vec();
        let length =
            key.open_in_place(nonce(id.count, 0), answer_data(request), &mut words).map_err(|_| broken())?.len();
        words.truncate(length);
        if is_new {
            self.keep(Direction::Answer, id, key);
        }
        Ok((id.sealer, words))
    }

    fn kept(&self, name: KeyName) -> Option<Arc<LessSafeKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }

    fn keep(&self, direction: Direction, id: SealId, key: Arc<LessSafeKey>) -> Arc<LessSafeKey> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS_MAX {
            keys.clear();
        }
        keys.insert(name_of(direction, id), key.clone());
        key
    }

    fn derive(&self, direction: Direction, id: SealId) -> Arc<LessSafeKey> {
        let epoch = (id.count / EPOCH_MESSAGES).to_le_bytes();
        let info = [direction.label(), &id.sealer, &epoch];
        // HKDF fails only for outputs far longer than a key.
        #[expect(clippy::expect_used, reason = "a key has a fixed length")]
        let key = self.secret.expand(&info, &AES_256_GCM).expect("an AES key is short enough for HKDF");
        Arc::new(LessSafeKey::new(UnboundKey::from(key)))
    }
}

const fn name_of(direction: Direction, id: SealId) -> KeyName {
    (direction, id.sealer, id.count / EPOCH_MESSAGES)
}

fn nonce(count: u64, segment: u32) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&count.to_be_bytes());
    nonce[8..].copy_from_slice(&segment.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn answer_data(request: RequestId) -> Aad<[u8; 8]> {
    Aad::from(request.0.to_le_bytes())
}

/// The segments of one body, in order.
struct BodyCipher {
    key: Arc<LessSafeKey>,
    count: u64,
    segment: u32,
    last_segment: u32,
    /// Head, index of the segment, whether it is the last.
    associated: Vec<u8>,
}

impl BodyCipher {
    fn new(key: Arc<LessSafeKey>, head: &Head, content_bytes: u64) -> Self {
        let segments = content_bytes.div_ceil(SEGMENT_PLAIN_BYTES as u64).max(1);
        // Serializing our own types into memory cannot fail; if it did, the body would only fail to open.
        let mut associated = postcard::to_stdvec(head).unwrap_or_default();
        associated.extend_from_slice(&[0; 5]);
        Self { key, count: head.seal.count, segment: 0, last_segment: (segments - 1) as u32, associated }
    }

    /// Seals the next segment, `first` and then `second`, into `sealed`, which has room for them and the tag.
    fn seal(&mut self, first: &[u8], second: &[u8], sealed: &mut [u8]) -> Result<(), String> {
        let nonce = self.next();
        let associated = Aad::from(&self.associated);
        let (of_first, rest) = sealed.split_at_mut(first.len());
        let done = self.key.seal_out_of_place_scatter(nonce, associated, first, of_first, second, rest);
        done.map_err(|_| "cannot seal a segment".to_owned())
    }

    /// Seals the next segment in place.
    fn seal_in_place(&mut self, segment: &mut [u8], tag: &mut [u8]) -> Result<(), String> {
        let nonce = self.next();
        let associated = Aad::from(&self.associated);
        let sealed = self.key.seal_in_place_separate_tag(nonce, associated, segment);
        tag.copy_from_slice(sealed.map_err(|_| "cannot seal a segment".to_owned())?.as_ref());
        Ok(())
    }

    /// Opens the next segment in place. Returns the length of its content, or `None` if it is not authentic.
    fn open(&mut self, segment: &mut [u8]) -> Option<usize> {
        let nonce = self.next();
        let associated = Aad::from(&self.associated);
        self.key.open_in_place(nonce, associated, segment).ok().map(|content| content.len())
    }

    /// Returns the nonce of the next segment, whose associated data are set.
    fn next(&mut self) -> Nonce {
        let segment = self.segment;
        self.segment += 1;
        let tail = self.associated.len() - 5;
        self.associated[tail..tail + 4].copy_from_slice(&segment.to_le_bytes());
        self.associated[tail + 4] = u8::from(segment == self.last_segment);
        nonce(self.count, segment)
    }
}

/// A body that is being sealed.
pub struct Sealing<'a> {
    cipher: BodyCipher,
    head: &'a Head,
    pieces: &'a [Bytes],
    /// Bytes of the first piece that are sealed.
    at: usize,
    content_left: u64,
    /// `None` if no checksums follow the content.
    summing: Option<Summing>,
}

/// Removes the last bytes of a body; `None` if it is shorter.
fn split_tail(body: &mut Vec<Bytes>, length: usize) -> Option<Vec<u8>> {
    let mut tail = Vec::new();
    while tail.len() < length {
        let mut last = body.pop()?;
        let taken = last.split_off(last.len().saturating_sub(length - tail.len()));
        tail.splice(..0, taken);
        if !last.is_empty() {
            body.push(last);
        }
    }
    Some(tail)
}

impl Sealing<'_> {
    /// Returns the head of the request.
    pub fn head(&self) -> &Head {
        self.head
    }

    /// Returns the sealed length of the rest.
    pub fn wire_bytes_left(&self) -> u64 {
        sealed_bytes(self.content_left)
    }

    /// Fills `wire` with sealed segments: all that are left, or as many as fit. Returns the number of bytes.
    ///
    /// # Errors
    /// The cipher refused, which it never does for segments of this length.
    pub fn fill(&mut self, wire: &mut [u8]) -> Result<usize, String> {
        let mut filled = 0;
        while self.content_left > 0 {
            let content_bytes = self.content_left.min(SEGMENT_PLAIN_BYTES as u64) as usize;
            let Some(segment) = wire.get_mut(filled..filled + content_bytes + TAG_BYTES) else { break };
            self.segment(segment)?;
            filled += segment.len();
            self.content_left -= content_bytes as u64;
        }
        Ok(filled)
    }

    fn segment(&mut self, segment: &mut [u8]) -> Result<(), String> {
        let content_bytes = segment.len() - TAG_BYTES;
        let first = self.pieces.first().map_or(&[][..], |piece| &piece[self.at..]);
        let first = &first[..first.len().min(content_bytes)];
        let missing = content_bytes - first.len();
        let second = if missing == 0 { Some(&[][..]) } else { self.pieces.get(1).and_then(|next| next.get(..missing)) };
        if let Some(second) = second {
            if let Some(summing) = &mut self.summing {
                summing.update(first);
                summing.update(second);
            }
            self.cipher.seal(first, second, segment)?;
            self.pass(first.len());
            self.pass(second.len());
            return Ok(());
        }
        let (content, tag) = segment.split_at_mut(content_bytes);
        let mut copied = 0;
        while copied < content.len()
            && let Some(piece) = self.pieces.first()
        {
            let piece = &piece[self.at..];
            let length = piece.len().min(content.len() - copied);
            content[copied..copied + length].copy_from_slice(&piece[..length]);
            copied += length;
            self.pass(length);
        }
        if let Some(summing) = &mut self.summing {
            summing.update(&content[..copied]);
            if copied < content.len() {
                // What the pieces lack are the checksums, or their rest if they began in a segment before.
                let checksums = encode_checksums(summing.computed());
                let rest = checksums.len().saturating_sub(self.content_left as usize);
                content[copied..].iter_mut().zip(&checksums[rest..]).for_each(|(to, from)| *to = *from);
            }
        }
        self.cipher.seal_in_place(content, tag)
    }

    /// Passes over content that is in a segment now.
    fn pass(&mut self, bytes: usize) {
        self.at += bytes;
        while self.pieces.first().is_some_and(|piece| self.at >= piece.len()) {
            self.at -= self.pieces[0].len();
            self.pieces = &self.pieces[1..];
        }
    }
}

/// A body that arrives and is opened segment by segment.
pub struct Opening {
    /// Keeps the key when it has opened the first segment; `None` if the key is kept already.
    seal: Option<Arc<Seal>>,
    cipher: BodyCipher,
    head: Head,
    wire_left: u64,
    /// Content of the segments that are open.
    pieces: Vec<Bytes>,
    /// The beginning of a segment that has not arrived as a whole.
    partial: BytesMut,
    is_broken: bool,
    /// `None` if the checksums of the objects are not wanted.
    sums: Option<ArrivingSums>,
}

impl Opening {
    /// Returns the request that the body belongs to.
    pub fn request(&self) -> RequestId {
        self.head.request
    }

    /// Takes the next bytes of the body. After a segment that does not open, the rest is dropped.
    pub fn push(&mut self, mut piece: BytesMut) {
        while !piece.is_empty() && self.wire_left > 0 && !self.is_broken {
            let segment_bytes = self.wire_left.min(SEGMENT_BYTES as u64) as usize;
            let missing = segment_bytes - self.partial.len();
            // Pieces that were read into one buffer, one after the other, are joined without a copy.
            self.partial.unsplit(piece.split_to(missing.min(piece.len())));
            if self.partial.len() == segment_bytes {
                let segment = std::mem::take(&mut self.partial);
                self.open(segment);
            }
        }
    }

    fn open(&mut self, mut segment: BytesMut) {
        self.wire_left -= segment.len() as u64;
        let Some(content_bytes) = self.cipher.open(&mut segment) else {
            self.is_broken = true;
            self.pieces.clear();
            return;
        };
        segment.truncate(content_bytes);
        if let Some(sums) = &mut self.sums {
            sums.update(&segment);
        }
        let is_small = content_bytes < PIECE_BYTES_MIN || self.head.wire_bytes < BODY_BYTES_MIN;
        self.pieces.push(if is_small { Bytes::copy_from_slice(&segment) } else { segment.freeze() });
        if let Some(seal) = self.seal.take() {
            seal.keep(Direction::Body, self.head.seal, self.cipher.key.clone());
        }
    }

    /// Returns the opened body.
    ///
    /// # Errors
    /// `Lost` if the body, or its head, is not what the source sealed.
    pub fn finish(mut self) -> Result<Coded, Failure> {
        let broken = |why: &str| Failure::damaged(format!("a chunk was damaged in transit: {why}"));
        if self.is_broken || self.wire_left > 0 || self.head.wire_bytes == 0 {
            return Err(broken("its seal is broken"));
        }
        let tail = split_tail(&mut self.pieces, self.head.checksums_bytes() as usize);
        let followed = parse_checksums(&tail.ok_or_else(|| broken("it is too short"))?);
        let (manifest, computed) = self.sums.map(ArrivingSums::finish).unwrap_or_default();
        let arrived = Arrived { manifest, followed, computed };
        Ok(Coded { head: self.head, body: self.pieces, objects: Vec::new(), arrived })
    }
}

/// A process of the run that tests in this crate imitate.
#[cfg(test)]
pub(crate) fn of_tests() -> Arc<Seal> {
    Arc::new(Seal::from_hex(&"0a".repeat(32)).unwrap())
}

#[cfg(test)]
impl Coded {
    /// Returns the whole sealed body.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let mut wire = vec![0; self.head.wire_bytes as usize];
        let filled = of_tests().sealing(self).fill(&mut wire).unwrap();
        assert_eq!(filled, wire.len());
        wire
    }
}

#[cfg(test)]
mod tests;
