//! `--explain`: why a key is taken or left.

use super::text::escaped;
use super::{Streams, TaskResult};
use crate::lead::select::Selector;
use std::io::Write;
use tradewind_contract::ObjectFilter;

/// Prints one line: the verdict and the rule that decided.
pub(super) fn explain(name: &str, size_bytes: Option<u64>, filter: &ObjectFilter, streams: &mut Streams) -> TaskResult {
    let explanation = Selector::new(filter)?.explain(name, size_bytes, None);
    let verdict = if explanation.taken { "taken" } else { "left" };
    writeln!(streams.data, "{verdict}: {}: {}", escaped(name), explanation.because)?;
    let depends_on_size = filter.size_min_bytes.is_some() || filter.size_max_bytes.is_some();
    let depends_on_time = filter.newer_than_unix_ms.is_some() || filter.older_than_unix_ms.is_some();
    if explanation.taken && (depends_on_time || depends_on_size && size_bytes.is_none()) {
        streams.say("note: its size or time, which were not given, may still leave it out");
    }
    Ok(())
}
