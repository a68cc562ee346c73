//! The TLS 1.3 record layer on the hot path (RFC 8446 §5.2), with keys that rustls negotiated.
//!
//! rustls does the handshake, certificates and key schedule. This module seals and opens only application data, that
//! is, control frames. The bodies between them are already sealed end to end and are not in records, so records must
//! be read from the stream one by one (see `docs/decisions/0007-record-layer.md`). After the handshake only
//! application data is accepted: tickets are off, a key update ends the connection, and a connection is retired long
//! before its keys reach their limit ([`RECORDS_MAX`]).

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use bytes::BytesMut;
use rustls::ConnectionTrafficSecrets;
use std::io;

/// Longest plaintext of a record (RFC 8446 §5.1).
pub(super) const RECORD_PLAIN_BYTES_MAX: usize = 16 << 10;
/// Header of a record: type, version, length.
const RECORD_HEADER_BYTES: usize = 5;
/// Inner content type and AEAD tag.
const RECORD_TAIL_BYTES: usize = 1 + TAG_BYTES;
const TAG_BYTES: usize = 16;
/// Longest accepted record on the wire: senders of this protocol never pad.
pub(super) const RECORD_WIRE_BYTES_MAX: usize = RECORD_HEADER_BYTES + RECORD_PLAIN_BYTES_MAX + RECORD_TAIL_BYTES;
/// Records after which a sender must stop using its keys: 2^23, far below the 2^24.5 of RFC 8446 §5.5 (128 GiB).
pub(super) const RECORDS_MAX: u64 = 1 << 23;
const APPLICATION_DATA: u8 = 23;
const ALERT: u8 = 21;

/// Key and record number of one direction.
struct Traffic {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Traffic {
    fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Self> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(io::Error::other("cipher suite not supported")),
        };
        let unbound = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| io::Error::other("bad traffic key"))?;
        let iv = iv.as_ref().try_into().map_err(|_| io::Error::other("bad traffic iv"))?;
        Ok(Self { key: LessSafeKey::new(unbound), iv, sequence })
    }

    /// Nonce of the next record (RFC 8446 §5.3).
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

fn header(inner_bytes: usize) -> [u8; RECORD_HEADER_BYTES] {
    let length = (inner_bytes + TAG_BYTES) as u16;
    let [high, low] = length.to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// Seals outgoing data.
pub(super) struct Sealer(Traffic);

impl Sealer {
    pub(super) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Self> {
        Traffic::new(sequence, secrets).map(Self)
    }

    /// Returns the wire length of `plain_bytes` in one record.
    pub(super) const fn wire_bytes(plain_bytes: usize) -> usize {
        RECORD_HEADER_BYTES + plain_bytes + RECORD_TAIL_BYTES
    }

    /// Returns whether the keys are too near their limit for another request.
    pub(super) fn is_worn(&self) -> bool {
        self.0.sequence >= RECORDS_MAX
    }

    /// Seals `plain` (at most [`RECORD_PLAIN_BYTES_MAX`]) into `wire`, which is exactly `wire_bytes(plain.len())` long.
    pub(super) fn seal(&mut self, plain: &[u8], wire: &mut [u8]) -> io::Result<()> {
        let header = header(plain.len() + 1);
        let (head, rest) = wire.split_at_mut(RECORD_HEADER_BYTES);
        let (cipher, tail) = rest.split_at_mut(plain.len());
        head.copy_from_slice(&header);
        let nonce = self.0.next_nonce();
        self.0
            .key
            .seal_out_of_place_scatter(nonce, Aad::from(header), plain, cipher, &[APPLICATION_DATA], tail)
            .map_err(|_| io::Error::other("cannot seal a record"))
    }
}

/// Result of [`Opener::open_next`].
pub(super) struct Opened {
    /// Wire bytes that were processed.
    pub(super) consumed: usize,
    /// The peer closed its side properly.
    pub(super) closed: bool,
}

/// Opens incoming data.
pub(super) struct Opener(Traffic);

impl Opener {
    pub(super) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Self> {
        Traffic::new(sequence, secrets).map(Self)
    }

    /// Opens the first record of `wire`, if it is complete, and appends its plaintext to `plain`.
    ///
    /// # Errors
    /// `InvalidData` when the record is not authentic, too long, or of a type that is not allowed here. Nothing of it is
    /// in `plain`.
    pub(super) fn open_next(&mut self, wire: &[u8], plain: &mut BytesMut) -> io::Result<Opened> {
        let Some(record) = next_record(wire)? else { return Ok(Opened { consumed: 0, closed: false }) };
        let closed = self.open(record, plain)? == ALERT;
        Ok(Opened { consumed: record.len(), closed })
    }

    /// Opens one record and returns its inner content type. An alert of any kind ends the stream; its content is
    /// dropped.
    fn open(&mut self, record: &[u8], plain: &mut BytesMut) -> io::Result<u8> {
        let (head, sealed) = record.split_at(RECORD_HEADER_BYTES);
        let (cipher, tag) = sealed.split_at(sealed.len() - TAG_BYTES);
        let before = plain.len();
        plain.resize(before + cipher.len(), 0);
        let nonce = self.0.next_nonce();
        let opened = self.0.key.open_separate_gather(nonce, Aad::from(head), cipher, tag, &mut plain[before..]);
        if opened.is_err() {
            plain.truncate(before);
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS record is not authentic"));
        }
        let inner_type = plain[plain.len() - 1];
        plain.truncate(plain.len() - 1);
        match inner_type {
            APPLICATION_DATA => Ok(APPLICATION_DATA),
            ALERT => {
                plain.truncate(before);
                Ok(ALERT)
            }
            other => {
                plain.truncate(before);
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected TLS record of type {other}")))
            }
        }
    }
}

/// Returns the first record of `wire`, if it is complete.
fn next_record(wire: &[u8]) -> io::Result<Option<&[u8]>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if wire.len() < RECORD_HEADER_BYTES {
        return Ok(None);
    }
    if wire[0] != APPLICATION_DATA {
        return Err(invalid("not a TLS 1.3 application record"));
    }
    let length = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([wire[3], wire[4]]));
    if !(RECORD_HEADER_BYTES + RECORD_TAIL_BYTES..=RECORD_WIRE_BYTES_MAX).contains(&length) {
        return Err(invalid("a TLS record has an impossible length"));
    }
    Ok(wire.get(..length))
}
