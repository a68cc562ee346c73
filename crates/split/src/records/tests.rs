//! The rules of records, against a peer that breaks them.

use super::*;
use crate::fuzz::known;

/// Opens `wire` at a client. Returns its data, and the result.
fn open(records: &mut Records, wire: &[u8]) -> (Vec<u8>, Result<usize, Fault>) {
    let (mut bytes, mut parts) = (wire.to_vec(), Vec::new());
    let opened = records.open(&mut bytes, &mut parts);
    (parts.into_iter().flat_map(|part| bytes[part].to_vec()).collect(), opened)
}

fn sealed(records: &mut Records, data: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    records.seal(data, |record| wire.extend(record)).unwrap();
    wire
}

/// The alert for a client that gets one record of a server after the data `good`.
fn alert_for(typ: ContentType, content: &[u8]) -> Option<AlertDescription> {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    let mut wire = sealed(&mut server, b"good");
    wire.extend(server.seal_content(typ, content).unwrap());
    wire.extend(sealed(&mut server, b"never"));
    let (data, opened) = open(&mut client, &wire);
    assert_eq!(data, b"good");
    opened.unwrap_err().alert()
}

#[test]
fn data_of_any_length_arrives_in_few_parts() {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    for length in [1, 100, DATA_BYTES_MAX - 1, DATA_BYTES_MAX, DATA_BYTES_MAX + 1, 5 * DATA_BYTES_MAX + 7] {
        let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let wire = sealed(&mut server, &data);
        let (opened, used) = open(&mut client, &wire);
        assert!(opened == data && used.unwrap() == wire.len());
    }
    let mut wire: Vec<u8> = (0..5000).flat_map(|_| sealed(&mut server, b"short")).collect();
    let mut parts = Vec::new();
    client.open(&mut wire, &mut parts).unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!(wire[parts[0].clone()], b"short".repeat(5000));
}

#[test]
fn a_record_opens_once_it_is_complete() {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    let wire = sealed(&mut server, b"good");
    for length in 0..wire.len() {
        assert_eq!(open(&mut client, &wire[..length]).1.unwrap(), 0);
    }
    assert_eq!(open(&mut client, &wire).0, b"good");
}

#[test]
fn records_that_are_altered_repeated_omitted_or_swapped_are_refused() {
    let sealed_twice = || {
        let mut server = known(Side::Server);
        (sealed(&mut server, b"one"), sealed(&mut server, b"two"))
    };
    let (one, two) = sealed_twice();
    for at in 0..one.len() {
        for bit in 0..8 {
            let mut altered = one.clone();
            altered[at] ^= 1 << bit;
            let (data, opened) = open(&mut known(Side::Client), &altered);
            // Another length may announce bytes that never come.
            assert!(data.is_empty() && (opened.is_err() || at == 3 || at == 4), "bit {bit} of byte {at}");
        }
    }
    for (wire, good) in [([&one[..], &one].concat(), &b"one"[..]), ([&two[..], &one].concat(), b""), (two, b"")] {
        let (data, opened) = open(&mut known(Side::Client), &wire);
        assert_eq!((&data[..], opened.unwrap_err().alert()), (good, Some(AlertDescription::BadRecordMac)));
    }
}

#[test]
fn records_of_this_side_are_not_taken_for_those_of_the_peer() {
    let mut client = known(Side::Client);
    let own = sealed(&mut client, b"own");
    assert_eq!(open(&mut client, &own).1.unwrap_err().alert(), Some(AlertDescription::BadRecordMac));
}

#[test]
fn records_that_are_not_sealed_or_too_long_are_refused_at_their_header() {
    for (header, alert) in [
        (&[20, 3, 3, 0, 1][..], AlertDescription::UnexpectedMessage),
        (&[21, 3, 3, 0, 2], AlertDescription::UnexpectedMessage),
        (&[22, 3, 3, 0, 5], AlertDescription::UnexpectedMessage),
        (&[23, 3, 1, 0, 40], AlertDescription::UnexpectedMessage),
        (&[23, 3, 3, 0x41, 0x01], AlertDescription::RecordOverflow),
        (&[23, 3, 3, 0xff, 0xff], AlertDescription::RecordOverflow),
    ] {
        assert_eq!(open(&mut known(Side::Client), header).1.unwrap_err().alert(), Some(alert), "{header:?}");
    }
    for length in 0..17 {
        let wire = [&[23, 3, 3, 0, length][..], &vec![0; length.into()]].concat();
        assert_eq!(open(&mut known(Side::Client), &wire).1.unwrap_err().alert(), Some(AlertDescription::BadRecordMac));
    }
}

#[test]
fn content_that_must_not_follow_a_handshake_is_refused() {
    let (unexpected, malformed) = (AlertDescription::UnexpectedMessage, AlertDescription::DecodeError);
    let too_long = vec![0; DATA_BYTES_MAX + 1];
    for (typ, content, alert) in [
        (ContentType::ApplicationData, &too_long[..], AlertDescription::RecordOverflow),
        (ContentType::ChangeCipherSpec, &[1], unexpected),
        (ContentType::Heartbeat, &[1, 0, 0], unexpected),
        (ContentType::Unknown(0), &[0; 8], unexpected),
        (ContentType::Unknown(99), &[1], unexpected),
        (ContentType::Alert, &[], malformed),
        (ContentType::Alert, &[1], malformed),
        (ContentType::Alert, &[1, 0, 1, 0], malformed),
        (ContentType::Handshake, &[], unexpected),
        // Messages that span records, of a kind that must not come, and key updates that are odd or within a record.
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0], unexpected),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1], unexpected),
        (ContentType::Handshake, &[NEW_SESSION_TICKET, 0xff, 0xff, 0xff, 0], unexpected),
        (ContentType::Handshake, &[1, 0, 0, 1, 0], unexpected),
        (ContentType::Handshake, &[13, 0, 0, 1, 0], unexpected),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 2], AlertDescription::IllegalParameter),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 0], malformed),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 2, 0, 0], malformed),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0], unexpected),
        (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0, 0], unexpected),
    ] {
        assert_eq!(alert_for(typ, content), Some(alert), "{typ:?} {:?}", &content[..content.len().min(8)]);
    }
}

#[test]
fn an_alert_ends_the_connection_and_is_not_answered() {
    for content in [[FATAL, 20], [WARNING, 20], [7, 99]] {
        assert_eq!(alert_for(ContentType::Alert, &content), None);
    }
}

#[test]
fn a_ticket_is_ignored_by_a_client_and_refused_by_a_server() {
    for (side, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
        let (mut receiver, mut sender) = (known(side), known(other));
        let tickets = [NEW_SESSION_TICKET, 0, 0, 2, 7, 7].repeat(2);
        let mut wire = sender.seal_content(ContentType::Handshake, &tickets).unwrap();
        wire.extend(sealed(&mut sender, b"data"));
        let (data, opened) = open(&mut receiver, &wire);
        assert_eq!((opened.is_ok(), data == b"data"), (side == Side::Client, side == Side::Client));
    }
}

#[test]
fn records_without_data_are_limited_between_those_with_data() {
    let empty: [fn(&mut Records) -> Vec<u8>; 3] = [
        |records| records.seal_content(ContentType::ApplicationData, &[]).unwrap(),
        |records| records.seal_content(ContentType::Alert, &[WARNING, 90]).unwrap(),
        |records| records.update_keys_to_seal().unwrap(),
    ];
    for seal in empty {
        let (mut client, mut server) = (known(Side::Client), known(Side::Server));
        for _ in 0..3 {
            for _ in 0..RECORDS_WITHOUT_DATA_MAX {
                open(&mut client, &seal(&mut server)).1.unwrap();
            }
            open(&mut client, &sealed(&mut server, b"data")).1.unwrap();
        }
        for _ in 0..RECORDS_WITHOUT_DATA_MAX {
            open(&mut client, &seal(&mut server)).1.unwrap();
        }
        assert!(open(&mut client, &seal(&mut server)).1.is_err());
    }
}

#[test]
fn a_key_is_replaced_before_it_is_worn_out() {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    assert!(client.records_per_key_max < 1 << 24);
    client.records_per_key_max = 3;
    for round in 0..50_u8 {
        assert!(client.sealer.numbers.0 <= 3);
        let wire = sealed(&mut client, &[round]);
        assert_eq!(open(&mut server, &wire).0, [round]);
    }
}

#[test]
fn a_requested_key_update_comes_before_the_next_data_and_only_once() {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    for _ in 0..5 {
        let request = server.seal_content(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 1]).unwrap();
        server.sealer = Sealer::new(server.suite, 0, server.secrets.update_to_seal().unwrap()).unwrap();
        open(&mut client, &request).1.unwrap();
    }
    let plain = sealed(&mut known(Side::Client), b"data").len();
    let wire = sealed(&mut client, b"data");
    assert_eq!(wire.len(), 2 * plain + 1);
    assert_eq!(open(&mut server, &wire).0, b"data");
    assert_eq!(sealed(&mut client, b"data").len(), plain);
}

#[test]
fn a_number_is_never_used_twice() {
    let mut last = Numbers(u64::MAX - 1);
    assert_eq!(last.next().unwrap(), u64::MAX - 1);
    assert!(last.next().is_err() && last.next().is_err());
}

#[test]
fn nothing_after_the_close_is_read() {
    let (mut client, mut server) = (known(Side::Client), known(Side::Server));
    let mut wire = sealed(&mut server, b"data");
    wire.extend(server.seal_close().unwrap());
    wire.extend([0; 100]);
    let (data, opened) = open(&mut client, &wire);
    assert_eq!((&data[..], opened.unwrap(), client.is_closed()), (&b"data"[..], wire.len(), true));
    assert_eq!(open(&mut client, &[1; 10]).1.unwrap(), 10);
    // The other direction is still open.
    assert_eq!(open(&mut server, &sealed(&mut client, b"answer")).0, b"answer");
}
