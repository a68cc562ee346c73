//! Drives the fuzz entries (`fuzz/entries`) with mutated good input, so that every test run covers them on stable Rust.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/entries/split_headers.rs"]
mod split_headers;
#[path = "../../../fuzz/entries/split_hosts.rs"]
mod split_hosts;
#[path = "../../../fuzz/entries/split_records.rs"]
mod split_records;
#[path = "../../../fuzz/entries/split_ways.rs"]
mod split_ways;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::Ipv4Addr;
use tradewind_split::allow::AllowList;
use tradewind_split::destination::Destination;
use tradewind_split::header::{Request, VERSION, read_answer, write_answer};
use tradewind_split::{Cause, proxy_protocol};

const INPUTS: u64 = 5_000;

fn request(route: usize) -> Request {
    Request {
        destination: "[2001:db8::1]:443".parse().unwrap(),
        route: (0..route).map(|index| format!("proxy-{index}")).collect(),
        client: "10.0.0.1:40000".parse().unwrap(),
        entry: "[::1]:1080".parse().unwrap(),
        within_ms: 10_000,
    }
}

async fn good() -> Vec<Vec<u8>> {
    let mut good = vec![Vec::new(); 4];
    request(0).write(&mut good[0]).await.unwrap();
    request(3).write(&mut good[1]).await.unwrap();
    write_answer(&mut good[2], Ok(())).await.unwrap();
    write_answer(&mut good[3], Err(Cause::Refused)).await.unwrap();
    good
}

#[tokio::test]
async fn headers_survive_and_bad_ones_are_refused() {
    let good = good().await;
    assert_eq!(Request::read(&mut &*good[1]).await.unwrap(), request(3));
    assert_eq!(read_answer(&mut &*good[3]).await.unwrap(), Err(Cause::Refused));
    let mut too_long = Vec::new();
    request(8).write(&mut too_long).await.unwrap();
    let other_version = [&[VERSION + 1], &good[0][1..]].concat();
    let announces_too_much = [VERSION, 1, 0xff, 0xff];
    let mut trailing = good[0].clone();
    trailing.push(0);
    trailing[3] += 1;
    for bad in [&too_long[..], &other_version, &announces_too_much, &trailing, &good[2], &good[0][..20]] {
        assert!(Request::read(&mut &*bad).await.is_err(), "{bad:?}");
    }
}

#[test]
fn headers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    drive("split_headers", &runtime.block_on(good()), split_headers::run);
}

#[test]
fn ways() {
    let socks5 = b"\x01\x05\x01\x02\x01\x03ann\x06secret\x05\x01\x00\x03\x0bexample.com\x01\xbb".to_vec();
    let plain = b"\x00\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x01\xbb".to_vec();
    let connect = b"\x02CONNECT a.example:443 HTTP/1.1\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n".to_vec();
    let mut hello = vec![3];
    hello.extend(split_ways::hello("a.example"));
    let proxied = |client: &str, entry: &str| {
        [&[4][..], &proxy_protocol::encode(client.parse().unwrap(), entry.parse().unwrap())].concat()
    };
    let (v4, v6) = (proxied("10.0.0.1:4", "10.0.0.2:5"), proxied("[2001:db8::1]:4", "10.0.0.2:5"));
    let reached = b"\x05\x05\x00\x05\x00\x00\x03\x01a\x01\xbb".to_vec();
    let established = b"\x06HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\n".to_vec();
    drive("split_ways", &[socks5, plain, connect, hello, v4, v6, reached, established], split_ways::run);
}

#[test]
fn records() {
    let script: Vec<u8> = (0..41).map(|step: u8| step.wrapping_mul(37)).collect();
    let good_only: Vec<u8> = std::iter::once(9).chain((0..40).map(|step| step / 2 * (step % 2) * 6)).collect();
    let long = [&[23, 3, 3, 0x41, 0x01][..], &[0; 300]].concat();
    let plain = b"\x15\x03\x03\x00\x02\x01\x00".to_vec();
    let forged = [&[23, 3, 3, 0, 40][..], &[7; 80]].concat();
    drive("split_records", &[script, good_only, long, plain, forged], split_records::run);
}

#[test]
fn hosts() {
    let texts = ["a.example:443", "127.0.0.1:80", "[::ffff:127.0.0.1]:1", "[64:ff9b::7f00:1]:65535", "127.1.:080"];
    drive("split_hosts", &texts.map(|text| text.as_bytes().to_vec()), split_hosts::run);
}

/// All texts that some resolver, library or translator takes for the address.
fn disguises(address: Ipv4Addr) -> Vec<String> {
    let ([a, b, c, d], whole) = (address.octets(), address.to_bits());
    let (high, low) = (whole >> 16, whole & 0xffff);
    let mut found = vec![
        format!("{whole}"),
        format!("{whole:#x}"),
        format!("{whole:#X}"),
        format!("0{whole:o}"),
        format!("{a}.{}", whole & 0xff_ffff),
        format!("{a}.{b}.{low}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        format!("{a}.{b}.{c}.{d}."),
    ];
    for prefix in ["::ffff:", "::", "::ffff:0:", "64:ff9b::", "64:ff9b:1::"] {
        found.push(format!("[{prefix}{address}]"));
        found.push(format!("[{prefix}{high:x}:{low:x}]"));
    }
    found.push(format!("[2002:{high:x}:{low:x}::1]"));
    found
}

#[test]
fn no_disguise_of_a_special_address_passes_wide_rules() {
    let wide = ["0.0.0.0/0:*", "[::/0]:*", "*.example:80"].map(|rule| rule.parse().unwrap());
    let wide = AllowList::new(wide.into());
    let mut rng = StdRng::seed_from_u64(2);
    for round in 0..INPUTS {
        let network = [[127, 0], [169, 254]][usize::from(round % 2 == 0)];
        let address = Ipv4Addr::new(network[0], network[1], rng.random(), rng.random());
        for text in disguises(address) {
            // A text that is refused leads nowhere.
            let Ok(destination) = format!("{text}:80").parse::<Destination>() else { continue };
            assert!(!wide.allows_request(&destination), "{text} is allowed as {destination}");
        }
    }
}

/// Runs an entry with good input, and with mutations of it.
fn drive(name: &str, good: &[Vec<u8>], run: impl Fn(&[u8])) {
    seeds::keep(name, good);
    good.iter().for_each(|input| run(input));
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..INPUTS {
        let mut input = good[rng.random_range(0..good.len())].clone();
        for _ in 0..rng.random_range(1..5) {
            let at = rng.random_range(0..input.len());
            match rng.random_range(0..3) {
                0 => input[at] = rng.random(),
                1 => input.truncate(at.max(1)),
                _ => input.insert(at, rng.random()),
            }
        }
        run(&input);
    }
}
