//! The messages of an enrolment, which come from peers that have proved nothing, and the owner's check of a claim.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tradewind_gateway::enrol::messages::{Claim, Done, Grant, Opening, parse};
use tradewind_gateway::enrol::token::Step;
use tradewind_gateway::enrol::{JoinToken, Roll};

/// Parses `data` as each message. A parsed message must survive writing and parsing unchanged, and no claim may be
/// admitted, because nobody has proved the token.
pub(crate) fn run(data: &[u8]) {
    survives::<Opening>(data);
    survives::<Grant>(data);
    survives::<Done>(data);
    if let Some(claim) = survives::<Claim>(data) {
        let mut roll = Roll::new(claim.fleet.clone());
        let token = JoinToken::from_hex(&"5a".repeat(32)).expect("64 digits");
        roll.add(&claim.key.name, token, u64::MAX, 0);
        for step in [Step::DialledClaim, Step::CallingClaim] {
            assert!(roll.admit(&claim, step, &[0x5a; 32], None, 0).is_err());
        }
        assert!(!roll.is_used(&claim.key.name));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        JoinToken::from_hex(text);
    }
}

fn survives<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<T> {
    let parsed: T = parse(data).ok()?;
    let text = serde_json::to_vec(&parsed).expect("what was parsed can be written");
    assert_eq!(parse::<T>(&text).expect("what was written parses"), parsed);
    Some(parsed)
}
