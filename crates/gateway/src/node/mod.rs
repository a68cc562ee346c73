//! The node: one gateway's part in one job, assembled from its program.
//!
//! ```text
//!   lead ──orders──▶ source ──chunks──▶ relay … ──chunks──▶ sink
//!        ◀──acks───         ◀──acks───           ◀──acks───
//! ```
//!
//! The path of a byte: [`source`] reads it, [`parcel`] encodes it (without what the sink has: [`dedup`]), [`hop`] sends
//! it over connections that [`dial`] opens; [`inbound`] forwards it (relay) or collects it for [`sink`], which writes and
//! proves it.
//! [`passing`] computes checksums while a body is sealed and opened.
//! [`expected`](self::expected) handles writes whose destination was in an unexpected state. [`reply`] carries the
//! answer back. [`work`] has the messages that lead, source and sink exchange. [`budget`] and [`adaptive_limit`] limit
//! the memory; [`attempts`], [`throttle`] and [`tuner`] the requests in flight, of which [`load`] and
//! [`hop_reports`] tell the lead; [`lanes`] work on the objects of a bundle.
//!
//! Stations in the same process are connected through memory and run the same code without sockets.

mod adaptive_limit;
pub mod attempts;
pub mod budget;
pub mod bundle_order;
pub mod clock;
pub mod dedup;
pub mod dial;
#[cfg(test)]
mod drops;
mod expected;
pub mod hop;
pub mod hop_reports;
pub mod inbound;
mod lanes;
pub mod load;
pub mod parcel;
pub mod passing;
pub mod replay;
pub mod reply;
pub mod scope;
pub mod seal;
pub mod sink;
pub mod source;
pub mod table;
pub mod throttle;
mod tuner;
pub mod work;
