//! The records of a peer, for fuzzing (`fuzz/entries`). Not part of the public interface.

use crate::records::{RECORD_BYTES_MAX, Records, Secrets};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, Side, SupportedCipherSuite};

/// Unit of the length of data, so that one byte of input determines it.
const DATA_UNIT_BYTES: usize = 128;
/// Most steps of a script: fewer than the records without data that end a connection.
const STEPS_MAX: usize = 32;

/// Keys that everybody knows. The first byte of a key says whose it is, and the second counts its updates.
struct KnownSecrets {
    seal: [u8; 2],
    open: [u8; 2],
}

fn keys(key: [u8; 2]) -> ConnectionTrafficSecrets {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&key);
    ConnectionTrafficSecrets::Aes256Gcm { key: AeadKey::from(bytes), iv: Iv::from([9; 12]) }
}

impl Secrets for KnownSecrets {
    fn update_to_seal(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.seal[1] = self.seal[1].wrapping_add(1);
        Ok(keys(self.seal))
    }

    fn update_to_open(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.open[1] = self.open[1].wrapping_add(1);
        Ok(keys(self.open))
    }
}

/// One side of a connection with known keys.
///
/// # Panics
/// If the library cannot use the keys.
pub(crate) fn known(side: Side) -> Records {
    let (client, server) = ([1, 0], [2, 0]);
    let (seal, open) = if side == Side::Client { (client, server) } else { (server, client) };
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_256_GCM_SHA384 else { unreachable!("a suite of TLS 1.3") };
    let first = ExtractedSecrets { tx: (0, keys(seal)), rx: (0, keys(open)) };
    Records::new(side, suite, first, Box::new(KnownSecrets { seal, open })).expect("keys of the right length")
}

/// Opens `data` as records, and also uses it as a script that damages good records.
///
/// # Panics
/// If a byte comes out that was not sealed, or comes out in the wrong place.
pub fn records(data: &[u8]) {
    opens_nothing_that_was_not_sealed(data);
    opens_what_was_sealed_up_to_the_first_damage(data);
}

fn opens_nothing_that_was_not_sealed(data: &[u8]) {
    let (mut bytes, mut parts) = (data.to_vec(), Vec::new());
    if let Ok(opened) = known(Side::Client).open(&mut bytes, &mut parts) {
        assert_eq!(opened, 0);
        assert!(bytes.len() < RECORD_BYTES_MAX);
    }
    assert!(parts.is_empty());
}

/// Each pair of bytes is a step: it sends a good record, or damages what is sent.
fn opens_what_was_sealed_up_to_the_first_damage(script: &[u8]) {
    let Some((&piece, script)) = script.split_first() else { return };
    let mut client = known(Side::Client);
    // Records with their data, and the first that is damaged.
    let (mut sent, mut damaged) = (Vec::<(Vec<u8>, Vec<u8>)>::new(), usize::MAX);
    for step in script.chunks_exact(2).take(STEPS_MAX) {
        let (kind, amount, next) = (step[0] % 8, usize::from(step[1]), sent.len());
        match (kind, sent.last_mut()) {
            (0..=2, _) => {
                let data = vec![step[1]; (amount % 129) * DATA_UNIT_BYTES];
                sent.push((sealed(&mut client, ContentType::ApplicationData, &data), data));
            }
            (3, _) if amount % 4 > 0 => {
                let update = client.update_keys_to_seal().expect("keys can be updated");
                sent.push((update, Vec::new()));
            }
            // A ticket, which a server must not get.
            (3, _) => {
                sent.push((sealed(&mut client, ContentType::Handshake, &[4, 0, 0, 0]), Vec::new()));
                damaged = damaged.min(next);
            }
            // Repeated.
            (4, Some((record, _))) => {
                let repeated = (record.clone(), Vec::new());
                sent.push(repeated);
                damaged = damaged.min(next);
            }
            // Omitted.
            (5, Some(_)) => {
                sealed(&mut client, ContentType::ApplicationData, &[1; 10]);
                damaged = damaged.min(next);
            }
            // Altered.
            (6, Some((record, _))) if !record.is_empty() => {
                let at = amount % record.len();
                // Repeated steps must not undo it.
                record[at] = record[at].wrapping_add(1);
                damaged = damaged.min(next - 1);
            }
            // Cut.
            (7, Some((record, _))) if !record.is_empty() => {
                record.truncate(amount % record.len());
                damaged = damaged.min(next - 1);
            }
            _ => {}
        }
    }
    let wire: Vec<u8> = sent.iter().flat_map(|(record, _)| record).copied().collect();
    let good: Vec<u8> = sent.iter().take(damaged).flat_map(|(_, data)| data).copied().collect();
    assert!(opened(&wire, usize::from(piece) * usize::from(piece) + 1) == good);
}

fn sealed(records: &mut Records, typ: ContentType, content: &[u8]) -> Vec<u8> {
    records.seal_content(typ, content).expect("a record can be sealed")
}

/// The data that a server opens of bytes that arrive in pieces.
fn opened(wire: &[u8], piece: usize) -> Vec<u8> {
    let (mut server, mut partial, mut data) = (known(Side::Server), Vec::new(), Vec::new());
    for piece in wire.chunks(piece) {
        let mut parts = Vec::new();
        partial.extend_from_slice(piece);
        let opened = server.open(&mut partial, &mut parts);
        parts.into_iter().for_each(|part| data.extend_from_slice(&partial[part]));
        match opened {
            Ok(opened) => drop(partial.drain(..opened)),
            Err(_) => break,
        }
    }
    data
}
