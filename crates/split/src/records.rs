//! The TLS 1.3 records of a connection after its handshake (RFC 8446, sections 4.6, 5 and 6).
//!
//! rustls does the handshake, derives every key, and its ciphers seal and open each record, with its nonce and its padding.
//! This module counts the records of each key, finds where records begin and end, and obeys the messages between those
//! that carry data. It does no I/O. Records are opened in place, so that nothing is copied before it is written.
//!
//! A connection has no use after the first [`Fault`]: its caller sends the alert of the fault, and closes it.

use crate::limits::RECORDS_WITHOUT_DATA_MAX;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, ProtocolVersion, Side,
    Tls13CipherSuite,
};
use std::ops::Range;

/// Header of a record: type, version, length.
pub(crate) const HEADER_BYTES: usize = 5;
/// The start of each record after the handshake.
const SEALED_RECORD: [u8; 3] = [23, 3, 3];
/// Most data in a record.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 14;
/// Bytes of a record with the most data and without padding, its header included.
pub(crate) const RECORD_BYTES: usize = HEADER_BYTES + DATA_BYTES_MAX + 17;
/// Most bytes of a record, its header included. A longer one is refused when its header has arrived.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + DATA_BYTES_MAX + 256;
/// Data of a record that is shorter is moved next to that of the record before, so that there are few parts.
const PART_BYTES_MIN: usize = 4 << 10;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The peer said so.
    #[error("the other side ended the TLS connection: {0:?}")]
    Received(AlertDescription),
    /// Something that the peer must not send.
    #[error("the other side broke the rules of TLS: {0}")]
    Sent(&'static str, AlertDescription),
    /// A record is not authentic, or its content is not allowed.
    #[error("a TLS record cannot be opened: {0}")]
    Opening(Error),
    /// A key cannot be derived or used.
    #[error("TLS keys cannot be used: {0}")]
    Keys(Error),
}

impl Fault {
    /// The alert for the peer.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::Received(_) => None,
            Self::Sent(_, alert) => Some(*alert),
            Self::Opening(Error::DecryptError) => Some(AlertDescription::BadRecordMac),
            Self::Opening(Error::PeerSentOversizedRecord) => Some(AlertDescription::RecordOverflow),
            Self::Opening(_) => Some(AlertDescription::UnexpectedMessage),
            Self::Keys(_) => Some(AlertDescription::InternalError),
        }
    }
}

fn unexpected(what: &'static str) -> Fault {
    Fault::Sent(what, AlertDescription::UnexpectedMessage)
}

fn malformed(what: &'static str) -> Fault {
    Fault::Sent(what, AlertDescription::DecodeError)
}

/// The secrets of a connection, which rustls keeps.
pub(crate) trait Secrets: Send + Sync {
    /// Derives the next keys to seal with.
    ///
    /// # Errors
    /// rustls refuses it.
    fn update_to_seal(&mut self) -> Result<ConnectionTrafficSecrets, Error>;

    /// Derives the next keys to open with.
    ///
    /// # Errors
    /// rustls refuses it.
    fn update_to_open(&mut self) -> Result<ConnectionTrafficSecrets, Error>;
}

impl<Data: Send + Sync> Secrets for KernelConnection<Data> {
    fn update_to_seal(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.update_tx_secret().map(|(_zero, keys)| keys)
    }

    fn update_to_open(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.update_rx_secret().map(|(_zero, keys)| keys)
    }
}

/// Counts the records of one key. A number is never given twice, so that a nonce is never used twice.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> Result<u64, Error> {
        let number = self.0;
        self.0 = number.checked_add(1).ok_or(Error::EncryptError)?;
        Ok(number)
    }
}

struct Sealer {
    cipher: Box<dyn MessageEncrypter>,
    numbers: Numbers,
}

impl Sealer {
    fn new(suite: &Tls13CipherSuite, first: u64, keys: ConnectionTrafficSecrets) -> Result<Self, Error> {
        let (key, iv) = parts_of(keys)?;
        Ok(Self { cipher: suite.aead_alg.encrypter(key, iv), numbers: Numbers(first) })
    }

    fn seal(&mut self, typ: ContentType, content: &[u8]) -> Result<Vec<u8>, Error> {
        let number = self.numbers.next()?;
        let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_3, payload: content.into() };
        Ok(self.cipher.encrypt(message, number)?.encode())
    }
}

struct Opener {
    cipher: Box<dyn MessageDecrypter>,
    numbers: Numbers,
}

impl Opener {
    fn new(suite: &Tls13CipherSuite, first: u64, keys: ConnectionTrafficSecrets) -> Result<Self, Error> {
        let (key, iv) = parts_of(keys)?;
        Ok(Self { cipher: suite.aead_alg.decrypter(key, iv), numbers: Numbers(first) })
    }

    /// Opens the body of a record in place. Returns the type of its content, and where that is in the body.
    fn open(&mut self, body: &mut [u8]) -> Result<(ContentType, Range<usize>), Error> {
        let (number, start, length) = (self.numbers.next()?, body.as_ptr().addr(), body.len());
        let message = InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, body);
        let opened = self.cipher.decrypt(message, number)?;
        // A cipher may leave bytes before the content, so it is not assumed to be at the start.
        let from = opened.payload.as_ptr().addr().checked_sub(start);
        let content = from.map(|from| from..from + opened.payload.len()).filter(|content| content.end <= length);
        Ok((opened.typ, content.ok_or(Error::DecryptError)?))
    }
}

fn parts_of(keys: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    match keys {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(Error::General("unknown kind of keys".to_owned())),
    }
}

/// Both directions of a connection after its handshake.
pub(crate) struct Records {
    side: Side,
    secrets: Box<dyn Secrets>,
    suite: &'static Tls13CipherSuite,
    sealer: Sealer,
    opener: Opener,
    /// Records that may be sealed with one key.
    records_per_key_max: u64,
    /// A key update must precede the next data, because the peer asked for it, or because of [`Records::new`].
    owes_key_update: bool,
    /// Records in a row that carried no data.
    without_data: u32,
    closed: bool,
}

impl Records {
    /// Takes over from rustls, with the keys that it uses now and the secrets for later ones.
    ///
    /// # Errors
    /// The keys cannot be used.
    pub(crate) fn new(
        side: Side,
        suite: &'static Tls13CipherSuite,
        keys: ExtractedSecrets,
        secrets: Box<dyn Secrets>,
    ) -> Result<Self, Error> {
        // The cipher of aws-lc requires that numbers begin at 0, or soon refuses to seal. So other keys are updated at once.
        let owes_key_update = keys.tx.0 > 0;
        let sealer = Sealer::new(suite, keys.tx.0, keys.tx.1)?;
        let opener = Opener::new(suite, keys.rx.0, keys.rx.1)?;
        // The other half is for alerts and for the key update itself.
        let records_per_key_max = suite.common.confidentiality_limit / 2;
        let (without_data, closed) = (0, false);
        Ok(Self { side, secrets, suite, sealer, opener, records_per_key_max, owes_key_update, without_data, closed })
    }

    /// True if the peer has closed its side. What follows is ignored.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Updates keys after so few records.
    #[cfg(test)]
    pub(crate) fn update_keys_after(&mut self, records: u64) {
        self.records_per_key_max = records;
    }

    /// Seals data, and gives each record to `put`.
    ///
    /// # Errors
    /// A key cannot be derived or used.
    pub(crate) fn seal(&mut self, data: &[u8], mut put: impl FnMut(Vec<u8>)) -> Result<(), Fault> {
        for data in data.chunks(DATA_BYTES_MAX) {
            if self.owes_key_update || self.sealer.numbers.0 >= self.records_per_key_max {
                put(self.update_keys_to_seal().map_err(Fault::Keys)?);
            }
            put(self.seal_content(ContentType::ApplicationData, data)?);
        }
        Ok(())
    }

    /// Seals one record with any content, as a peer that breaks the rules could.
    ///
    /// # Errors
    /// The key cannot be used.
    pub(crate) fn seal_content(&mut self, typ: ContentType, content: &[u8]) -> Result<Vec<u8>, Fault> {
        self.sealer.seal(typ, content).map_err(Fault::Keys)
    }

    /// Seals the end of what this side sends.
    ///
    /// # Errors
    /// The key cannot be used.
    pub(crate) fn seal_close(&mut self) -> Result<Vec<u8>, Fault> {
        self.seal_alert(WARNING, AlertDescription::CloseNotify)
    }

    /// Seals the reason why this side ends the connection.
    ///
    /// # Errors
    /// The key cannot be used.
    pub(crate) fn seal_fatal(&mut self, alert: AlertDescription) -> Result<Vec<u8>, Fault> {
        self.seal_alert(FATAL, alert)
    }

    fn seal_alert(&mut self, level: u8, alert: AlertDescription) -> Result<Vec<u8>, Fault> {
        self.seal_content(ContentType::Alert, &[level, alert.into()])
    }

    /// Seals a key update with the old key, and takes the next one. The peer's keys are its own concern.
    ///
    /// # Errors
    /// A key cannot be derived or used.
    pub(crate) fn update_keys_to_seal(&mut self) -> Result<Vec<u8>, Error> {
        let next = Sealer::new(self.suite, 0, self.secrets.update_to_seal()?)?;
        let update = self.sealer.seal(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0])?;
        self.sealer = next;
        self.owes_key_update = false;
        Ok(update)
    }

    /// Opens the complete records at the start of `bytes` in place, and appends to `parts` where their data is. Returns
    /// how many bytes they took. After a fault, the data of earlier records is still good.
    ///
    /// # Errors
    /// The peer's alert, or a record that it must not send.
    pub(crate) fn open(&mut self, bytes: &mut [u8], parts: &mut Vec<Range<usize>>) -> Result<usize, Fault> {
        let mut at = 0;
        while !self.closed
            && let Some(length) = record_bytes(&bytes[at..])?
        {
            let (body, end) = (at + HEADER_BYTES, at + length);
            let (typ, content) = self.opener.open(&mut bytes[body..end]).map_err(Fault::Opening)?;
            let content = body + content.start..body + content.end;
            if typ == ContentType::ApplicationData && !content.is_empty() {
                self.without_data = 0;
                append(bytes, parts, content);
            } else {
                self.obey(typ, &bytes[content])?;
            }
            at = end;
        }
        Ok(if self.closed { bytes.len() } else { at })
    }

    /// Obeys a record without data.
    fn obey(&mut self, typ: ContentType, content: &[u8]) -> Result<(), Fault> {
        self.without_data += 1;
        if self.without_data > RECORDS_WITHOUT_DATA_MAX {
            return Err(unexpected("too many records without data"));
        }
        match typ {
            ContentType::ApplicationData => Ok(()),
            ContentType::Alert => self.obey_alert(content),
            ContentType::Handshake => self.obey_messages(content),
            _ => Err(unexpected("a record of an unknown type")),
        }
    }

    fn obey_alert(&mut self, content: &[u8]) -> Result<(), Fault> {
        let [_level, alert] = content else { return Err(malformed("an alert of a wrong length")) };
        match AlertDescription::from(*alert) {
            AlertDescription::CloseNotify => self.closed = true,
            // Announces the end, which a close follows.
            AlertDescription::UserCanceled => {}
            alert => return Err(Fault::Received(alert)),
        }
        Ok(())
    }

    /// Obeys the handshake messages of one record. Proxies send no long ones, so none may span two records.
    fn obey_messages(&mut self, mut messages: &[u8]) -> Result<(), Fault> {
        if messages.is_empty() {
            return Err(unexpected("a handshake record without a message"));
        }
        while let Some((&[kind, high, middle, low], rest)) = messages.split_first_chunk() {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let spans = || unexpected("a handshake message that spans records");
            let (message, rest) = rest.split_at_checked(length).ok_or_else(spans)?;
            match (kind, self.side) {
                // The new key begins with the next record (RFC 8446, section 5.1).
                (KEY_UPDATE, _) if !rest.is_empty() => return Err(unexpected("a key update within a record")),
                (KEY_UPDATE, _) => self.obey_key_update(message)?,
                // Sessions are not resumed.
                (NEW_SESSION_TICKET, Side::Client) => {}
                _ => return Err(unexpected("a handshake message after the handshake")),
            }
            messages = rest;
        }
        if messages.is_empty() { Ok(()) } else { Err(unexpected("a handshake message that spans records")) }
    }

    fn obey_key_update(&mut self, message: &[u8]) -> Result<(), Fault> {
        match message {
            [0] => {}
            [1] => self.owes_key_update = true,
            [_] => return Err(Fault::Sent("an unknown key update", AlertDescription::IllegalParameter)),
            _ => return Err(malformed("a key update of a wrong length")),
        }
        let keys = self.secrets.update_to_open().map_err(Fault::Keys)?;
        self.opener = Opener::new(self.suite, 0, keys).map_err(Fault::Keys)?;
        Ok(())
    }
}

/// The length of the first record, if it is complete.
fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some((&[kind, major, minor, high, low], _)) = bytes.split_first_chunk() else { return Ok(None) };
    if [kind, major, minor] != SEALED_RECORD {
        return Err(unexpected("a record that is not sealed"));
    }
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > RECORD_BYTES_MAX {
        return Err(Fault::Sent("a record that is too long", AlertDescription::RecordOverflow));
    }
    Ok((length <= bytes.len()).then_some(length))
}

/// Appends the place of data. A short part is moved next to the part before it.
fn append(bytes: &mut [u8], parts: &mut Vec<Range<usize>>, data: Range<usize>) {
    match parts.last_mut() {
        Some(last) if data.len() < PART_BYTES_MIN => {
            let length = data.len();
            bytes.copy_within(data, last.end);
            last.end += length;
        }
        _ => parts.push(data),
    }
}

#[cfg(test)]
mod tests;
