//! The parsers of a peer's data, for fuzzing (`fuzz/entries`). Not part of the public interface.

use super::link::Link;
use super::record::{Opener, RECORD_PLAIN_BYTES_MAX, Sealer};
use super::{Connection, ConnectionError, Incoming, Security};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tradewind_wire::WIRE_VERSION_MAJOR;
use tradewind_wire::frame::{BODY_BYTES_MAX, Hello, HopEnd};

/// Unit of a record's plaintext length, so that one byte of input determines the length.
const PLAIN_UNIT_BYTES: usize = RECORD_PLAIN_BYTES_MAX / 128;

/// Opens `data` as TLS records of the data port, and also uses it as a script that damages good records in transit.
///
/// # Panics
/// If a byte comes out that was not sealed, or comes out in the wrong place.
pub fn records(data: &[u8]) {
    opens_nothing_that_was_not_sealed(data);
    opens_what_was_sealed_up_to_the_first_damage(data);
}

pub(super) fn secrets(chacha: bool) -> ConnectionTrafficSecrets {
    let (key, iv) = (AeadKey::from([7; 32]), Iv::from([9; 12]));
    if chacha {
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }
    } else {
        ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    }
}

fn opens_nothing_that_was_not_sealed(data: &[u8]) {
    let mut opener = Opener::new(0, &secrets(false)).expect("a key of the right length");
    let mut plain = BytesMut::from(&b"before"[..]);
    if let Ok(opened) = opener.open_next(data, &mut plain) {
        assert!(opened.consumed == 0 && !opened.closed);
    }
    assert_eq!(&plain[..], b"before");
}

/// Each pair of bytes in `script` is a step: it sends a good record, or damages what is sent from there on.
fn opens_what_was_sealed_up_to_the_first_damage(script: &[u8]) {
    let Some((&first, script)) = script.split_first() else { return };
    let secrets = secrets(first % 2 == 1);
    let fragment = usize::from(first / 2) * PLAIN_UNIT_BYTES + 1;
    let mut sealer = Sealer::new(0, &secrets).expect("a key of the right length");
    let (mut wire, mut last, mut good, mut damaged) = (Vec::new(), Vec::new(), Vec::new(), false);
    for step in script.chunks_exact(2).take(64) {
        let (kind, amount) = (step[0] % 8, usize::from(step[1]));
        if kind <= 3 {
            let plain = vec![step[1]; (amount % 129) * PLAIN_UNIT_BYTES];
            last = vec![0; Sealer::wire_bytes(plain.len())];
            sealer.seal(&plain, &mut last).expect("a record can be sealed");
            wire.extend_from_slice(&last);
            if !damaged {
                good.extend_from_slice(&plain);
            }
            continue;
        }
        if last.is_empty() {
            continue;
        }
        damaged = true;
        match kind {
            // Repeated.
            4 => wire.extend_from_slice(&last),
            // Omitted.
            5 => {
                sealer.seal(&[1; 10], &mut vec![0; Sealer::wire_bytes(10)]).expect("a record can be sealed");
            }
            // Altered.
            6 => {
                let mut changed = vec![0; Sealer::wire_bytes(10)];
                sealer.seal(&[1; 10], &mut changed).expect("a record can be sealed");
                let at = amount % changed.len();
                changed[at] ^= 1 << (amount % 8);
                wire.extend_from_slice(&changed);
            }
            // Truncated.
            _ => {
                let mut cut = vec![0; Sealer::wire_bytes(10)];
                sealer.seal(&[1; 10], &mut cut).expect("a record can be sealed");
                wire.extend_from_slice(&cut[..amount % cut.len()]);
            }
        }
    }
    let mut opener = Opener::new(0, &secrets).expect("a key of the right length");
    assert!(opened_in_fragments(&mut opener, &wire, fragment) == good, "more or less came out than was good");
}

/// Returns the plaintext of `wire`, which arrives in pieces, up to the first error.
fn opened_in_fragments(opener: &mut Opener, wire: &[u8], fragment: usize) -> Vec<u8> {
    let (mut waiting, mut plain) = (Vec::new(), BytesMut::new());
    for piece in wire.chunks(fragment) {
        waiting.extend_from_slice(piece);
        loop {
            match opener.open_next(&waiting, &mut plain) {
                Ok(opened) if opened.closed => return plain.to_vec(),
                Ok(opened) if opened.consumed == 0 => break,
                Ok(opened) => drop(waiting.drain(..opened.consumed)),
                Err(_) => return plain.to_vec(),
            }
        }
    }
    plain.to_vec()
}

/// Reads all but the first byte of `data` as a peer's data on a plain connection, hello first. The first byte is the
/// length of the pieces in which the data arrives.
///
/// # Panics
/// If the result depends on the pieces, or a body is not as long as its head announced.
pub fn connection(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let whole = read_all(data, usize::MAX);
    let pieces = read_all(data, usize::from(first) + 1);
    assert!(whole == pieces, "in one piece it is read otherwise than in pieces of {} bytes", usize::from(first) + 1);
}

/// Returns the messages of the connection. Pieces of a body are joined.
fn read_all(data: &[u8], fragment: usize) -> Vec<String> {
    let hello =
        Hello { version: WIRE_VERSION_MAJOR, job: "job".to_owned(), node: "here".to_owned(), end: HopEnd::Upstream };
    let reader = Fragments { data: Bytes::copy_from_slice(data), fragment, ready: false };
    let link = Link::new(Box::new(reader), Box::new(tokio::io::sink()), String::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let accepted = runtime.block_on(Connection::accept(link, &Security::Plain, hello));
    let mut connection = match accepted {
        Ok(connection) => connection,
        Err(error) => return vec![error.to_string()],
    };
    let (mut story, mut body, mut announced) = (vec![connection.peer.clone()], Vec::new(), 0);
    loop {
        // Polling once and dropping the future must lose nothing.
        let Some(incoming) = connection.reader.next().now_or_never() else { continue };
        match incoming {
            Ok(Incoming::Begin(head)) => {
                announced = head.wire_bytes;
                assert!(announced <= BODY_BYTES_MAX);
                story.push(format!("{head:?}"));
            }
            Ok(Incoming::Piece { bytes, last, .. }) => {
                body.extend_from_slice(&bytes);
                assert!(!bytes.is_empty() && body.len() as u64 <= announced);
                assert_eq!(last, body.len() as u64 == announced);
                if last {
                    story.push(format!("{:?}", std::mem::take(&mut body)));
                }
            }
            Ok(Incoming::GiveUp) => story.push(format!("given up after {:?}", std::mem::take(&mut body))),
            Ok(Incoming::Piped { .. }) => unreachable!("only a socket fills a pipe"),
            Ok(Incoming::Frame(frame)) => story.push(format!("{frame:?}")),
            Err(error) => {
                assert!(!matches!(error, ConnectionError::Io(_)), "{error}");
                story.push(format!("{error} after {body:?}"));
                return story;
            }
        }
    }
}

/// Returns its data in pieces, and nothing at every other poll.
pub(super) struct Fragments {
    pub(super) data: Bytes,
    pub(super) fragment: usize,
    pub(super) ready: bool,
}

impl AsyncRead for Fragments {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.ready = !self.ready;
        if !self.ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = self.fragment.min(self.data.len()).min(buffer.remaining());
        buffer.put_slice(&self.data.split_to(length));
        Poll::Ready(Ok(()))
    }
}
