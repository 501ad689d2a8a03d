//! The mutants: each a defect that somebody could write, as a text of the sources and what stands there instead.

/// One defect.
#[derive(Debug)]
pub struct Mutant {
    pub name: &'static str,
    pub file: &'static str,
    /// Occurs exactly once.
    pub text: &'static str,
    pub instead: &'static str,
}

const LEDGER: &str = "src/ledger.rs";
const PIPELINE: &str = "src/pipeline/mod.rs";
const SESSION: &str = "src/pipeline/session.rs";
const PRODUCER: &str = "src/pipeline/producer.rs";
const CAREFUL: &str = "src/pipeline/careful.rs";
const OUTBOX: &str = "src/source/outbox/mod.rs";

pub const MUTANTS: [Mutant; 28] = [
    Mutant {
        name: "confirm the largest instead of the contiguous position",
        file: LEDGER,
        text: "        let entry = slot.entry;\n        self.advance();\n",
        instead: "        let entry = slot.entry;\n        \
                  self.confirmed = self.confirmed.max(Lsn(entry.position.commit.0 + 1));\n        self.advance();\n",
    },
    Mutant {
        name: "confirm a keepalive's position although earlier tickets are open",
        file: LEDGER,
        text: "            _ => self.marks.push_back(Mark { before, lsn }),\n",
        instead: "            _ => self.marks.push_back(Mark { before: self.base, lsn }),\n",
    },
    Mutant {
        name: "confirm a keepalive's position inside a transaction",
        file: SESSION,
        text: "        if !self.outbox.in_transaction() {\n",
        instead: "        {\n",
    },
    Mutant {
        name: "confirm the commit before its last row is settled",
        file: LEDGER,
        text: "mark.before <= self.base)",
        instead: "mark.before <= self.base + 1)",
    },
    Mutant {
        name: "mark the transaction when it begins",
        file: OUTBOX,
        text: "rows: 0 });\n                Ok(Step::Nothing)",
        instead: "rows: 0 });\n                Ok(Step::Mark(Lsn(commit_lsn.0 + 1)))",
    },
    Mutant {
        name: "drop the ticket of a failed delivery",
        file: PIPELINE,
        text: "        let Some(entry) = self.ledger.lose(ticket) else { return };\n",
        instead: "        let Some(entry) = self.ledger.settle(ticket) else { return };\n",
    },
    Mutant {
        name: "drop the ticket of a refused offer",
        file: PIPELINE,
        text: "            Err(Refused::Full(ticket) | Refused::Unready(ticket)) => {\n                \
               self.ledger.withdraw(ticket);\n",
        instead: "            Err(Refused::Full(ticket) | Refused::Unready(ticket)) => {\n                \
                  ticket.into_parts();\n",
    },
    Mutant {
        name: "offer a row again that is in flight",
        file: LEDGER,
        text: "            Some(index) if self.slots[index].state == State::Lost => Known::Lost,\n",
        instead: "            Some(index) if self.slots[index].state != State::Settled => Known::Lost,\n",
    },
    Mutant {
        name: "treat the first row of a transaction as all of them",
        file: LEDGER,
        text: "position > newest)",
        instead: "position.commit > newest.commit)",
    },
    Mutant {
        name: "keep settled positions across a timeline change",
        file: SESSION,
        text: "        let same = self.history.is_none_or(|history| history == start.system);\n",
        instead: "        let same = self.history.is_none_or(|history| history.id == start.system.id);\n",
    },
    Mutant {
        name: "keep settled positions when another relay had the slot",
        file: SESSION,
        text: "        if same && ours && !went_back {\n",
        instead: "        if same && (ours || self.history.is_some()) && !went_back {\n",
    },
    Mutant {
        name: "forget the relation cache reset",
        file: OUTBOX,
        text: "        self.relations.clear();\n",
        instead: "",
    },
    Mutant {
        name: "keep an open transaction across sessions",
        file: OUTBOX,
        text: "        self.relations.clear();\n        self.transaction = None;\n",
        instead: "        self.relations.clear();\n",
    },
    Mutant {
        name: "leave careful mode behind the first record",
        file: CAREFUL,
        text: "        self.0.retain(|search| position <= search.until || !search.inflight.is_empty());\n",
        instead: "        self.0.retain(|search| search.event.is_empty());\n",
    },
    Mutant {
        name: "leave careful mode with the producer",
        file: CAREFUL,
        text: "        self.0.iter_mut().for_each(|search| search.inflight.clear());\n",
        instead: "        self.0.clear();\n",
    },
    Mutant {
        name: "accuse the last of several",
        file: CAREFUL,
        text: "            Some(search) if search.limit == 1 =>",
        instead: "            Some(search) if search.limit <= 2 =>",
    },
    Mutant {
        name: "count a former producer's answers",
        file: LEDGER,
        text: "        if ticket.generation != self.generation || ticket.number < self.base {\n",
        instead: "        if ticket.number < self.base {\n",
    },
    Mutant {
        name: "offer before the fence opens",
        file: PIPELINE,
        text: "is_some_and(|session| session.fence.is_open());\n        ours &&",
        instead: "is_some();\n        ours &&",
    },
    Mutant {
        name: "offer without the lease",
        file: PIPELINE,
        text: "        ours && self.producer.is_good() && self.lease.is_some_and(|asked| now < asked + self.settings.lease())\n",
        instead: "        ours && self.producer.is_good()\n",
    },
    Mutant {
        name: "date the lease by when a frame is read",
        file: SESSION,
        text: "            self.renew_lease(proof.min(now));\n",
        instead: "            self.renew_lease(proof.max(now));\n",
    },
    Mutant {
        name: "leave a lost slot with records in flight",
        file: SESSION,
        text: "        if self.ledger.inflight() > 0 {\n",
        instead: "        if false {\n",
    },
    Mutant {
        name: "go on with a session that is left",
        file: PIPELINE,
        text: "        if session.left {\n            return Ok(Flow::Held);\n        }\n",
        instead: "",
    },
    Mutant {
        name: "go on without a replay after a failed delivery",
        file: PRODUCER,
        text: "                if self.ledger.lost() > 0 {\n",
        instead: "                if self.ledger.lost() > 1 {\n",
    },
    Mutant {
        name: "never renew the lease by answers",
        file: SESSION,
        text: "        if let Some(proof) = self.session.as_ref().and_then(|session| session.clock.earliest(sent_at)) {\n",
        instead: "        if let Some(proof) = self.lease.filter(|_| sent_at < 0) {\n",
    },
    Mutant {
        name: "purge at once instead of draining",
        file: PRODUCER,
        text: "            State::Draining { cause, deadline } if nothing_left || over(deadline) => {\n",
        instead: "            State::Draining { cause, deadline } if nothing_left || deadline > now || over(deadline) => {\n",
    },
    Mutant {
        name: "leave the clean mark although something was purged lately",
        file: PIPELINE,
        text: "        self.ledger.inflight() == 0 && self.retiring == 0 && self.unknown_until.is_none_or(|end| now >= end)\n",
        instead: "        self.ledger.inflight() == 0 && self.unknown_until.is_none_or(|end| now <= end)\n",
    },
    Mutant {
        name: "leave the clean mark while a former producer may still send",
        file: PIPELINE,
        text: "        self.ledger.inflight() == 0 && self.retiring == 0 && self.unknown_until.is_none_or(|end| now >= end)\n",
        instead: "        self.ledger.inflight() == 0 && self.unknown_until.is_none_or(|end| now >= end)\n",
    },
    Mutant {
        name: "take a status that was sent for one that was read",
        file: SESSION,
        text: "            session.reported = confirmed;\n",
        instead: "            session.reported = confirmed;\n            self.told = confirmed;\n            \
                  self.ledger.told(confirmed);\n",
    },
];
