//! Packets as the kernel delivers them through a TUN device: a virtio header and an IPv4 packet. A TCP packet may be a
//! super-packet: up to 64 KiB of one flow, which a network card would cut into segments.
//!
//! Super-packets cross in one call and are only cut if some of their segments are dropped. The receiving kernel
//! completes their checksums; the virtio header marks them as partial.

use crate::engine::Parcel;
use std::net::Ipv4Addr;
use std::ops::Range;

/// Length of the virtio header (`struct virtio_net_hdr` of `linux/virtio_net.h`).
pub const VIRTIO_HEADER_BYTES: usize = 10;
/// Most bytes that one read returns: the header and the longest IPv4 packet.
pub const READ_BYTES_MAX: usize = VIRTIO_HEADER_BYTES + 65_535;
/// Bytes added to each IP packet on the wire: Ethernet's header 14, checksum 4, preamble 8, gap 12. With it and
/// timestamps, TCP's payload at MTU 1500 is 1448 of 1538 bytes: 94.15% of the wire rate.
pub const FRAMING_BYTES: u64 = 38;
/// Memory of a parcel in addition to its bytes.
const HELD_OVERHEAD_BYTES: u64 = 160;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_ECN: u8 = 0x80;
const IPV4_HEADER_BYTES_MIN: usize = 20;
const TCP_HEADER_BYTES_MIN: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
const TCP_CWR: u8 = 0x80;

/// One IPv4 packet or super-packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Virtio header and IP packet.
    bytes: Vec<u8>,
    /// Length of the IP and TCP headers, which each segment repeats.
    header_bytes: usize,
    /// Payload of each segment; the last may be shorter.
    segment_bytes: usize,
    segments: u32,
}

impl Packet {
    /// Parses what was read. `None` for data that is not IPv4 or is inconsistent.
    pub fn parse(read: &[u8]) -> Option<Self> {
        let ip = read.get(VIRTIO_HEADER_BYTES..)?;
        let ip_header_bytes = usize::from(ip.first()? & 0x0f) * 4;
        if ip[0] >> 4 != 4 || ip_header_bytes < IPV4_HEADER_BYTES_MIN || ip.len() < ip_header_bytes {
            return None;
        }
        let kind = read[1] & !GSO_ECN;
        if kind == GSO_NONE {
            let (header_bytes, segment_bytes) = (ip_header_bytes, (ip.len() - ip_header_bytes).max(1));
            return Some(Self { bytes: read.to_vec(), header_bytes, segment_bytes, segments: 1 });
        }
        if kind != GSO_TCPV4 || ip[9] != PROTOCOL_TCP || ip.len() < ip_header_bytes + TCP_HEADER_BYTES_MIN {
            return None;
        }
        let tcp_header_bytes = usize::from(ip[ip_header_bytes + 12] >> 4) * 4;
        let header_bytes = ip_header_bytes + tcp_header_bytes;
        let segment_bytes = usize::from(u16::from_le_bytes([read[4], read[5]]));
        if tcp_header_bytes < TCP_HEADER_BYTES_MIN || ip.len() <= header_bytes || segment_bytes == 0 {
            return None;
        }
        let segments = (ip.len() - header_bytes).div_ceil(segment_bytes) as u32;
        Some(Self { bytes: read.to_vec(), header_bytes, segment_bytes, segments })
    }

    /// The bytes to write to a TUN device.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The destination address.
    pub fn destination(&self) -> Ipv4Addr {
        let ip = &self.bytes[VIRTIO_HEADER_BYTES..];
        Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19])
    }

    /// Returns whether the packet requests a new TCP connection.
    pub fn opens_connection(&self) -> bool {
        let ip = &self.bytes[VIRTIO_HEADER_BYTES..];
        let flags = ip.get(usize::from(ip[0] & 0x0f) * 4 + 13);
        ip[9] == PROTOCOL_TCP && flags.is_some_and(|flags| flags & (TCP_SYN | TCP_ACK) == TCP_SYN)
    }

    fn payload_bytes(&self) -> usize {
        self.bytes.len() - VIRTIO_HEADER_BYTES - self.header_bytes
    }
}

impl Parcel for Packet {
    fn packets(&self) -> u32 {
        self.segments
    }

    fn wire_bytes(&self) -> u64 {
        self.payload_bytes() as u64 + u64::from(self.segments) * (self.header_bytes as u64 + FRAMING_BYTES)
    }

    fn packet_bytes(&self) -> u64 {
        (self.segment_bytes.min(self.payload_bytes()) + self.header_bytes) as u64 + FRAMING_BYTES
    }

    fn held_bytes(&self) -> u64 {
        self.bytes.capacity() as u64 + HELD_OVERHEAD_BYTES
    }

    fn cut(&self, range: Range<u32>) -> Self {
        if range == (0..self.segments) {
            return self.clone();
        }
        let headers = VIRTIO_HEADER_BYTES + self.header_bytes;
        let start = range.start as usize * self.segment_bytes;
        let end = (range.end as usize * self.segment_bytes).min(self.payload_bytes());
        let mut bytes = Vec::with_capacity(headers + end - start);
        bytes.extend_from_slice(&self.bytes[..headers]);
        bytes.extend_from_slice(&self.bytes[headers + start..headers + end]);
        let segments = range.end - range.start;
        if segments == 1 {
            // No longer a super-packet. The flag for a partial checksum stays.
            bytes[1] = GSO_NONE;
            bytes[4..6].fill(0);
        }
        let (first, last) = (range.start == 0, range.end == self.segments);
        rewrite_ip(&mut bytes[VIRTIO_HEADER_BYTES..], range.start);
        rewrite_tcp(&mut bytes[VIRTIO_HEADER_BYTES..], start as u32, first, last);
        Self { bytes, header_bytes: self.header_bytes, segment_bytes: self.segment_bytes, segments }
    }
}

/// Rewrites length, identification and checksum of an IPv4 header, as segmentation in a network card would.
fn rewrite_ip(ip: &mut [u8], segments_before: u32) {
    let header_bytes = usize::from(ip[0] & 0x0f) * 4;
    let length = ip.len() as u16;
    let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(segments_before as u16);
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let checksum = !folded_sum(&ip[..header_bytes], 0);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Rewrites sequence number, flags and the partial checksum (of the pseudo-header alone) of a TCP header.
fn rewrite_tcp(ip: &mut [u8], payload_before: u32, first: bool, last: bool) {
    let tcp_at = usize::from(ip[0] & 0x0f) * 4;
    let tcp_bytes = (ip.len() - tcp_at) as u32;
    let pseudo = folded_sum(&ip[12..20], u32::from(PROTOCOL_TCP) + tcp_bytes);
    let tcp = &mut ip[tcp_at..];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(payload_before);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !last {
        tcp[13] &= !TCP_FIN_PSH;
    }
    if !first {
        tcp[13] &= !TCP_CWR;
    }
    tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
}

/// Returns the ones' complement sum of 16-bit words (RFC 1071).
fn folded_sum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum = start + words.sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP super-packet as the kernel makes it: 32 bytes of TCP header, checksum partial.
    fn super_packet(payload: usize, segment: u16, flags: u8) -> Vec<u8> {
        let mut bytes = vec![0; VIRTIO_HEADER_BYTES];
        bytes[0] = 1;
        bytes[1] = if payload > usize::from(segment) { GSO_TCPV4 } else { GSO_NONE };
        if bytes[1] == GSO_TCPV4 {
            bytes[4..6].copy_from_slice(&segment.to_le_bytes());
        }
        let mut ip = vec![0; 52];
        ip[0] = 0x45;
        ip[4..6].copy_from_slice(&65_530_u16.to_be_bytes());
        ip[9] = PROTOCOL_TCP;
        ip[12..16].copy_from_slice(&[10, 77, 1, 1]);
        ip[16..20].copy_from_slice(&[10, 77, 2, 1]);
        ip[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
        ip[32] = 8 << 4;
        ip[33] = flags;
        ip.extend((0..payload).map(|index| index as u8));
        rewrite_ip(&mut ip, 0);
        rewrite_tcp(&mut ip, 0, true, true);
        bytes.extend(ip);
        bytes
    }

    fn payload(packet: &Packet) -> &[u8] {
        &packet.bytes[VIRTIO_HEADER_BYTES + packet.header_bytes..]
    }

    #[test]
    fn wire_bytes_count_every_header() {
        let packet = Packet::parse(&super_packet(1448 * 10 + 1, 1448, 0x10)).unwrap();
        assert_eq!(packet.packets(), 11);
        assert_eq!(packet.packet_bytes(), 1538);
        assert_eq!(packet.wire_bytes(), 1538 * 10 + 91);
        assert_eq!(packet.destination(), Ipv4Addr::new(10, 77, 2, 1));
    }

    #[test]
    fn other_packets_than_ipv4_are_refused() {
        let good = super_packet(3000, 1448, 0x10);
        for (at, value) in [(10, 0x60), (10, 0x41), (1, 4), (19, 17), (42, 1 << 4)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Packet::parse(&bad), None, "byte {at}");
        }
        for length in 0..VIRTIO_HEADER_BYTES + 20 {
            assert_eq!(Packet::parse(&good[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn only_a_syn_without_an_ack_opens_a_connection() {
        let opens = |flags| Packet::parse(&super_packet(0, 1448, flags)).unwrap().opens_connection();
        assert!(opens(TCP_SYN) && opens(TCP_SYN | TCP_CWR));
        assert!(!opens(TCP_SYN | TCP_ACK) && !opens(TCP_ACK) && !opens(0));
        let mut other = super_packet(0, 1448, TCP_SYN);
        other[VIRTIO_HEADER_BYTES + 9] = 17;
        assert!(!Packet::parse(&other).unwrap().opens_connection());
    }

    #[test]
    fn flags_stay_where_they_belong() {
        let packet = Packet::parse(&super_packet(3000, 1000, 0x10 | TCP_FIN_PSH | TCP_CWR)).unwrap();
        let flags = |range| packet.cut(range).bytes[VIRTIO_HEADER_BYTES + 33];
        assert_eq!(flags(0..1), 0x10 | TCP_CWR);
        assert_eq!(flags(1..2), 0x10);
        assert_eq!(flags(2..3), 0x10 | TCP_FIN_PSH);
    }

    #[test]
    fn a_piece_of_one_segment_is_an_ordinary_packet() {
        let piece = Packet::parse(&super_packet(3000, 1000, 0x10)).unwrap().cut(1..2);
        assert_eq!(piece.bytes[..6], [1, GSO_NONE, 0, 0, 0, 0]);
        assert_eq!(Packet::parse(&piece.bytes).unwrap().packets(), 1);
    }

    proptest! {
        #[test]
        fn pieces_join_to_what_was_cut(length in 2_u32..60_000, segment in 500_u16..9_000, at in 0_u32..120) {
            let whole = Packet::parse(&super_packet(length as usize, segment, 0x10)).unwrap();
            prop_assume!(whole.packets() > 1);
            let at = 1 + at % (whole.packets() - 1);
            let pieces = [whole.cut(0..at), whole.cut(at..whole.packets())];
            let joined: Vec<u8> = pieces.iter().flat_map(|piece| payload(piece).to_vec()).collect();
            prop_assert_eq!(joined, payload(&whole));
            prop_assert_eq!(pieces[0].wire_bytes() + pieces[1].wire_bytes(), whole.wire_bytes());
            let sequence = |packet: &Packet| u32::from_be_bytes(packet.bytes[34..38].try_into().unwrap());
            prop_assert_eq!(sequence(&pieces[1]), sequence(&whole).wrapping_add(payload(&pieces[0]).len() as u32));
            for piece in &pieces {
                let ip = &piece.bytes[VIRTIO_HEADER_BYTES..];
                prop_assert_eq!(folded_sum(&ip[..20], 0), 0xffff, "the IP checksum is right");
                prop_assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                // A kernel that reads the piece sees the same packets.
                prop_assert_eq!(Packet::parse(&piece.bytes).unwrap().packets(), piece.packets());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.packets() >= 1 && packet.wire_bytes() >= packet.packet_bytes());
            }
        }
    }
}
