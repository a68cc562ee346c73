//! The control API from outside: over sockets with a staged node, and as the real program.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod control;
mod credentials;
mod http;
mod owner;
mod serve;
