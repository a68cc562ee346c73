//! Cost of each AEAD of TLS 1.3 on this machine: CPU-seconds per GB, for sealing and opening records of 16 KiB.
//! `cargo run --release -p tradewind-gateway --example cipher_suites`. Figures in docs/decisions/0002-tls.md.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use std::time::Instant;

const RECORD_BYTES: usize = 16 << 10;
const RECORDS: usize = 1 << 16;
const ROUNDS: usize = 5;

fn main() -> Result<(), Unspecified> {
    println!("{:<20} {:>10} {:>10}   (CPU-s per GB, median of {ROUNDS})", "suite", "seal", "open");
    let suites =
        [("AES-128-GCM", &AES_128_GCM), ("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)];
    let mut figures = vec![Vec::new(); suites.len()];
    // Round by round, so that a busy moment of the machine does not fall on one suite alone.
    for _ in 0..ROUNDS {
        for (figures, (_, algorithm)) in figures.iter_mut().zip(suites) {
            figures.push(seal_and_open(algorithm)?);
        }
    }
    for ((name, _), figures) in suites.iter().zip(figures) {
        let median = |side: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(side).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!("{name:<20} {:>10.3} {:>10.3}", median(|figure| figure.0), median(|figure| figure.1));
    }
    Ok(())
}

fn seal_and_open(algorithm: &'static Algorithm) -> Result<(f64, f64), Unspecified> {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &vec![7; algorithm.key_len()])?);
    let mut record = vec![1; RECORD_BYTES];
    let (mut sealing_s, mut opening_s) = (0.0, 0.0);
    // One record after the other through one buffer that stays in the cache: the cipher's own cost, no memory's.
    for number in 0..RECORDS {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let start = Instant::now();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)?;
        let sealed = Instant::now();
        key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)?;
        opening_s += sealed.elapsed().as_secs_f64();
        sealing_s += (sealed - start).as_secs_f64();
        record.truncate(RECORD_BYTES);
    }
    let gigabytes = (RECORD_BYTES * RECORDS) as f64 / 1e9;
    Ok((sealing_s / gigabytes, opening_s / gigabytes))
}
