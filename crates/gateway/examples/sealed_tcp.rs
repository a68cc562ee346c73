//! The least that source and sink must do: CRC-64/NVME, AES-256-GCM and TCP over loopback, without any protocol.
//! `cargo run --release -p tradewind-gateway --example sealed_tcp -- BYTES CONNECTIONS`. The benchmark `chain` measures
//! its CPU time beside ours. Blocks stay in the cache, so this is a lower bound. The congestion control is CUBIC if the
//! system allows it, as on hops inside one host.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use crc_fast::{CrcAlgorithm, Digest};
use socket2::{Domain, Socket, Type};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

const BLOCK_BYTES: usize = 256 << 10;
const TAG_BYTES: usize = 16;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let [bytes, connections] = std::env::args()
        .skip(1)
        .map(|word| word.parse::<usize>())
        .collect::<Result<Vec<_>, _>>()?
        .try_into()
        .map_err(|_| "usage: sealed_tcp BYTES CONNECTIONS")?;
    if connections == 0 {
        return Err("CONNECTIONS must be at least 1".into());
    }
    let blocks = bytes.div_ceil(BLOCK_BYTES).div_ceil(connections);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut ends = Vec::new();
    for _ in 0..connections {
        let source = connect(listener.local_addr()?)?;
        let (sink, _) = listener.accept()?;
        ends.push((thread::spawn(move || send(source, blocks)), thread::spawn(move || receive(sink, blocks))));
    }
    for (source, sink) in ends {
        let sent = source.join().map_err(|_| "a sender panicked")??;
        let received = sink.join().map_err(|_| "a receiver panicked")??;
        if sent != received {
            return Err("the checksums differ".into());
        }
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let _ = socket.set_tcp_congestion(b"cubic");
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Send that many blocks, sealed; return the checksum of their clear bytes.
fn send(mut connection: TcpStream, blocks: usize) -> Result<u64, Failure> {
    let (key, mut checksum) = (key()?, Digest::new(CrcAlgorithm::Crc64Nvme));
    let mut block = vec![1; BLOCK_BYTES];
    for number in 0..blocks {
        checksum.update(&block);
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::empty(), &mut block)?;
        // What was sealed is the clear text of the next block, so no copy is needed.
        connection.write_all(&block)?;
        connection.write_all(tag.as_ref())?;
    }
    Ok(checksum.finalize())
}

/// Receive and open that many blocks; return the checksum of their clear bytes.
fn receive(mut connection: TcpStream, blocks: usize) -> Result<u64, Failure> {
    let (key, mut checksum) = (key()?, Digest::new(CrcAlgorithm::Crc64Nvme));
    let mut block = vec![0; BLOCK_BYTES + TAG_BYTES];
    for number in 0..blocks {
        connection.read_exact(&mut block)?;
        let clear = key.open_in_place(nonce(number), Aad::empty(), &mut block)?;
        checksum.update(clear);
    }
    Ok(checksum.finalize())
}

/// Each connection begins with the same key and nonce: the bytes are worth nothing.
fn key() -> Result<LessSafeKey, Failure> {
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32])?))
}

fn nonce(number: usize) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
