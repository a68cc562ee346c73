//! One suite for all stores.
//!
//! Files and memory always run. Servers are named in `TRADEWIND_TEST_STORES`, a JSON list of
//! `{"name", "url", "endpoint"?, "region"?, "profile"?, "ca_file"?, "anonymous"?, "lacks"?}`; their buckets must exist.
//! `lacks` names what a server cannot do (see [`harness::Ability`]); without it, what is known of the testbed's servers
//! by the names `versitygw`, `moto`, `gcs` and `azurite`. A test that needs more reports that it was skipped.
//! Credentials come from the environment, as in production.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "conformance/harness.rs"]
mod harness;

#[path = "conformance/attributes.rs"]
mod attributes;
#[path = "conformance/conditions.rs"]
mod conditions;
#[path = "conformance/copies.rs"]
mod copies;
#[path = "conformance/errors.rs"]
mod errors;
#[path = "conformance/files.rs"]
mod files;
#[path = "conformance/keys.rs"]
mod keys;
#[path = "conformance/links.rs"]
mod links;
#[path = "conformance/listing.rs"]
mod listing;
#[path = "conformance/memory.rs"]
mod memory;
#[path = "conformance/objects.rs"]
mod objects;
#[path = "conformance/uploads.rs"]
mod uploads;
