//! The control API from outside: over sockets with a staged node, and as the real program.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod access;
mod control;
mod credentials;
mod http;
mod join_again;
mod owner;
mod serve;
mod serving;
