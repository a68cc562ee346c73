//! Decides whether the peer of a connection is alive.

/// Tracks whether the peer of one connection is alive. Both sides ping when they have sent nothing for a third of the
/// limit, so silence means death. Times are milliseconds of any monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    silence_ms_max: u64,
    heard_ms: u64,
    sent_ms: u64,
}

impl Liveness {
    /// Returns the state of a fresh connection.
    pub fn new(now_ms: u64, silence_ms_max: u64) -> Self {
        Self { silence_ms_max, heard_ms: now_ms, sent_ms: now_ms }
    }

    /// Records that something arrived. Returns false if it came too late: the peer has then already closed this
    /// connection (for example because *this* process was frozen), so ignore this data and all that follows.
    #[must_use]
    pub fn heard(&mut self, now_ms: u64) -> bool {
        let alive = !self.is_dead(now_ms);
        if alive {
            self.heard_ms = now_ms;
        }
        alive
    }

    /// Records that this side paused reading on purpose (back-pressure), so the silence does not count against the
    /// peer.
    pub fn not_listening(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// Records that something was sent.
    pub fn sent(&mut self, now_ms: u64) {
        self.sent_ms = now_ms;
    }

    /// Returns whether a ping is due.
    pub fn ping_due(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.sent_ms) >= self.silence_ms_max / 3
    }

    /// Returns whether the peer has been silent for too long.
    pub fn is_dead(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.heard_ms) > self.silence_ms_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MS_MAX: u64 = 15_000;

    #[test]
    fn two_sides_that_ping_when_due_never_count_as_dead() {
        let mut sides = [Liveness::new(0, SILENCE_MS_MAX); 2];
        let mut pings = 0;
        for now_ms in (0..600_000).step_by(500) {
            for speaker in 0..2 {
                assert!(!sides[speaker].is_dead(now_ms));
                if sides[speaker].ping_due(now_ms) {
                    sides[speaker].sent(now_ms);
                    assert!(sides[1 - speaker].heard(now_ms + 400));
                    pings += 1;
                }
            }
        }
        assert_eq!(pings, 2 * 119);
    }

    #[test]
    fn an_abandoned_connection_stays_abandoned() {
        let mut live = Liveness::new(0, SILENCE_MS_MAX);
        assert!(live.heard(SILENCE_MS_MAX));
        let thawed_ms = 3 * SILENCE_MS_MAX;
        assert!(!live.heard(thawed_ms));
        // The rest of the socket's buffer follows immediately after the first piece, and must be ignored too.
        assert!(!live.heard(thawed_ms));
        assert!(live.is_dead(thawed_ms));
    }

    #[test]
    fn silence_while_not_listening_is_not_death() {
        let mut live = Liveness::new(0, SILENCE_MS_MAX);
        live.not_listening(SILENCE_MS_MAX);
        assert!(!live.is_dead(2 * SILENCE_MS_MAX));
        assert!(live.is_dead(2 * SILENCE_MS_MAX + 1));
    }
}
