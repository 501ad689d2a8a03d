//! What the relay says about itself: the snapshot for health and metrics, and the log's changes of state.

use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::lsn::Lsn;
use crate::status::{Reason, Role, SlotFacts, State, Status};

/// The last thing said, and what it is made of.
pub(super) struct Board {
    sender: watch::Sender<Status>,
    pub(super) status: Status,
}

impl Board {
    pub(super) fn new(slot: &str) -> (Board, watch::Receiver<Status>) {
        let status = Status {
            state: State::Connecting,
            since: SystemTime::now(),
            role: Role::Leader,
            reasons: Vec::new(),
            slot: slot.to_owned(),
            confirmed: Lsn::ZERO,
            received: Lsn::ZERO,
            server: Lsn::ZERO,
            oldest_unsettled: None,
            inflight_events: 0,
            inflight_bytes: 0,
            unmarked_events: 0,
            slot_facts: None,
            published: 0,
            dead_letters: None,
        };
        let (sender, receiver) = watch::channel(status.clone());
        (Board { sender, status }, receiver)
    }

    /// The relay is in this state, for these reasons. A change is logged.
    pub(super) fn state(&mut self, state: State, role: Role, reasons: Vec<Reason>) {
        let codes = |reasons: &[Reason]| reasons.iter().map(|reason| reason.code.clone()).collect::<Vec<_>>();
        let changed = self.status.state != state || codes(&self.status.reasons) != codes(&reasons);
        if self.status.state != state {
            self.status.since = SystemTime::now();
        }
        self.status.state = state;
        self.status.role = role;
        self.status.reasons = reasons;
        if changed {
            self.log();
        }
    }

    pub(super) fn slot_facts(&mut self, facts: SlotFacts, wal_end: Lsn) {
        self.status.slot_facts = Some(facts);
        self.status.server = self.status.server.max(wal_end);
    }

    /// Shows the snapshot to those who look.
    pub(super) fn show(&self) {
        self.sender.send_replace(self.status.clone());
    }

    fn log(&self) {
        let state = self.status.state.name();
        if self.status.reasons.is_empty() {
            tracing::info!(state, slot = self.status.slot, "state changed");
        }
        for reason in &self.status.reasons {
            let hint = reason.hint.as_deref().unwrap_or_default();
            tracing::warn!(state, slot = self.status.slot, reason = reason.code, hint, "{}", reason.message);
        }
    }
}

/// A PostgreSQL time as the system's.
pub(super) fn system_time(unix_ms: i64) -> SystemTime {
    let distance = Duration::from_millis(unix_ms.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    if unix_ms >= 0 { epoch + distance } else { epoch.checked_sub(distance).unwrap_or(epoch) }
}
