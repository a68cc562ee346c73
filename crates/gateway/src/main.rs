//! The `tradewind-gateway` program.

fn main() {}
