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
const JOIN: &str = "src/pipeline/join.rs";
const OUTBOX: &str = "src/source/outbox/mod.rs";
const LETTERS: &str = "src/pipeline/letters.rs";

pub const MUTANTS: [Mutant; 58] = [
    Mutant {
        name: "confirm the largest instead of the contiguous position",
        file: LEDGER,
        text: "        let (entry, receipt) = self.leave_flight(ticket, State::Settled)?;\n",
        instead: "        let (entry, receipt) = self.leave_flight(ticket, State::Settled)?;\n        \
                  self.confirmed = self.confirmed.max(Lsn(entry.position.commit.0 + 1));\n",
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
        instead: "        let Some(Answered { entry, .. }) = self.ledger.settle(ticket) else { return };\n",
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
        text: "        let history = if same && ours && !went_back {\n",
        instead: "        let history = if same && (ours || self.history.is_some()) && !went_back {\n",
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
        text: "        self.known_types.clear();\n        self.transaction = None;\n",
        instead: "        self.known_types.clear();\n",
    },
    Mutant {
        name: "leave careful mode behind the first record",
        file: CAREFUL,
        text: "        self.0.retain(|search| position <= search.until || !search.inflight.is_empty());\n",
        instead: "        self.0.retain(|search| position == search.until);\n",
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
        text: "        if ticket.generation != self.generation {\n",
        instead: "        if ticket.number < self.base {\n",
    },
    Mutant {
        name: "offer before the fence opens",
        file: PIPELINE,
        // Without waiting for the letters, which nobody can load before: with a store that cannot be read there are none.
        text: "        self.is_ours(now) && self.producer.is_good() && self.letters.is_loaded()\n",
        instead: "        self.lease.is_some_and(|asked| now < asked + self.lease_lasts) && self.producer.is_good()\n",
    },
    Mutant {
        name: "offer without the lease",
        file: PIPELINE,
        text: "        open && self.lease.is_some_and(|asked| now < asked + self.lease_lasts)\n",
        instead: "        open\n",
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
        text: "        nothing_on_its_way && self.retiring == 0 && self.unknown_until.is_none_or(|end| now >= end)\n",
        instead: "        nothing_on_its_way && self.unknown_until.is_none_or(|end| now <= end)\n",
    },
    Mutant {
        name: "leave the clean mark while a former producer may still send",
        file: PIPELINE,
        text: "        nothing_on_its_way && self.retiring == 0 && self.unknown_until.is_none_or(|end| now >= end)\n",
        instead: "        nothing_on_its_way && self.unknown_until.is_none_or(|end| now >= end)\n",
    },
    Mutant {
        name: "take a status that was sent for one that was read",
        file: SESSION,
        text: "            session.reported = confirmed;\n",
        instead: "            session.reported = confirmed;\n            self.told = confirmed;\n            \
                  self.ledger.told(confirmed);\n",
    },
    Mutant {
        name: "settle a rejected row before its letter is stored",
        file: LETTERS,
        text: "        self.letters.pending.insert(number, Pending { row, lane });\n",
        instead: "        self.letters.pending.insert(number, Pending { row, lane });\n        self.ledger.parked(row);\n",
    },
    Mutant {
        name: "publish a row whose letter is stored",
        file: LETTERS,
        text: "        let same = known.is_current || known.event.is_some() && known.event == event();\n",
        instead: "        let same = known.is_current && known.event.is_none() && event().is_none();\n",
    },
    Mutant {
        name: "take a row for the one that had its position in another history",
        file: LETTERS,
        text: "        let same = known.is_current || known.event.is_some() && known.event == event();\n",
        instead: "        let same = known.is_current || known.event.is_some() || known.event == event();\n",
    },
    Mutant {
        name: "offer before the letters are loaded",
        file: PIPELINE,
        text: "        self.is_ours(now) && self.producer.is_good() && self.letters.is_loaded()\n",
        instead: "        self.is_ours(now) && self.producer.is_good()\n",
    },
    Mutant {
        name: "forget the parked keys at a take-over",
        file: LETTERS,
        text: "                letters.lanes.park(lane_name(&topic, &key), first.unwrap_or_default());\n",
        instead: "                drop((topic, key, first));\n",
    },
    Mutant {
        name: "let a key go live while its letter is on its way to the store",
        file: LETTERS,
        text: "        for lane in letters.pending.values().filter_map(|pending| pending.lane.as_ref()) {\n",
        instead: "        for lane in letters.pending.values().filter_map(|pending| pending.lane.as_ref()).take(0) {\n",
    },
    Mutant {
        name: "park what stands before a key's first letter",
        file: LETTERS,
        text: "        self.parked.get(&self.scratch).is_some_and(|first| position > *first)\n",
        instead: "        self.parked.get(&self.scratch).is_some_and(|first| position != *first)\n",
    },
    Mutant {
        name: "wait for a key although letters stand further on",
        file: LETTERS,
        text: "                letters.lanes.newest = letters.lanes.newest.max(letter.position);\n",
        instead: "",
    },
    Mutant {
        name: "let a refused row wait for a key that only its letter can free",
        file: LETTERS,
        text: "        self.letters.pause.take_if(|pause| pause.why == Why::Keys && pause.at.is_some_and(|at| position < at));\n",
        instead: "",
    },
    Mutant {
        name: "try a letter before what stands before it",
        file: LEDGER,
        text: "        self.oldest_open().map_or(end, |oldest| oldest.entry.position)\n",
        instead: "        end.max(Position { commit: Lsn(u64::MAX), row: 0 })\n",
    },
    Mutant {
        name: "try a letter without the lease",
        file: LETTERS,
        text: "        (free && self.is_ours(now)).then(|| self.ledger.frontier())\n",
        instead: "        (free && now.elapsed() < Duration::MAX).then(|| self.ledger.frontier())\n",
    },
    Mutant {
        name: "leave the clean mark while a letter is being tried",
        file: PIPELINE,
        text: "        let nothing_on_its_way = self.ledger.is_idle() && !self.is_trying();\n",
        instead: "        let nothing_on_its_way = self.ledger.is_idle();\n",
    },
    Mutant {
        name: "forget which row the broker refused",
        file: PRODUCER,
        text: "            self.letters.condemned.insert(position, refusal(trouble));\n",
        instead: "            drop((position, refusal(trouble)));\n",
    },
    Mutant {
        name: "change the rules in the middle of a transaction",
        file: PIPELINE,
        text: "is_none_or(is_held) || self.outbox.is_between_transactions();\n",
        instead: "is_none_or(is_held) || self.outbox.in_transaction() || self.outbox.is_between_transactions();\n",
    },
    Mutant {
        name: "let rules wait for a row that waits for them",
        file: PIPELINE,
        text: "        let is_boundary = self.session.as_ref().is_none_or(is_held) || ",
        instead: "        let is_boundary = self.session.as_ref().is_none_or(|it| it.left && is_held(it)) || ",
    },
    Mutant {
        name: "go on by the old rules after a reload",
        file: PIPELINE,
        text: "        self.router = Router::new(&rules, self.outbox.outboxes(), &mut layout);\n",
        instead: "        drop(Router::new(&rules, self.outbox.outboxes(), &mut layout));\n",
    },
    Mutant {
        name: "forget new rules with the session",
        file: SESSION,
        text: "        self.session = None;\n        // What was decided",
        instead: "        self.session = None;\n        self.reload = None;\n        // What was decided",
    },
    Mutant {
        name: "park a row for what the old rules made of it",
        file: PIPELINE,
        text: "        self.letters.condemned.clear();\n",
        instead: "",
    },
    Mutant {
        name: "read a column in binary that the new rules need as text",
        file: PIPELINE,
        text: "        if let Some(column) = self.outbox.lay_out(layout) {\n",
        instead: "        if let Some(column) = self.outbox.lay_out(layout).filter(|_| self.session.is_none()) {\n",
    },
    Mutant {
        name: "let a row pass an event that waits for its payload",
        file: OUTBOX,
        text: "            && (mapping.on.is_some() || joins.is_waiting())\n",
        instead: "            && mapping.on.is_some()\n",
    },
    Mutant {
        name: "keep what waits across sessions",
        file: OUTBOX,
        text: "        self.transaction = None;\n        if let Some(joins) = &mut self.joins {\n            joins.clear();\n        }\n",
        instead: "        self.transaction = None;\n",
    },
    Mutant {
        name: "count a row again when it leaves",
        file: PIPELINE,
        text: "                Given::Waiting(_) => {}\n",
        instead: "                Given::Waiting(_) => self.outbox.take(),\n",
    },
    Mutant {
        name: "drop a row that waited and cannot leave yet",
        file: JOIN,
        text: "                    self.outbox.put_back(row);\n",
        instead: "                    self.outbox.released(row);\n",
    },
    Mutant {
        name: "a row counts as settled with the ack, whatever is to be written back",
        file: LEDGER,
        text: "            slot.state = State::Writing;\n",
        instead: "            slot.state = State::Settled;\n",
    },
    Mutant {
        name: "a new producer forgets what is to be written back",
        file: LEDGER,
        text: "        for slot in self.slots.iter_mut().filter(|slot| slot.state == State::InFlight) {\n",
        instead: "        for slot in self.slots.iter_mut().filter(|slot| matches!(slot.state, State::InFlight | State::Writing)) {\n",
    },
    Mutant {
        name: "a stop does not wait for write-back",
        file: PIPELINE,
        text: "        let nothing_open = self.ledger.is_idle() && self.ledger.writing() == 0;\n",
        instead: "        let nothing_open = self.ledger.is_idle();\n",
    },
    Mutant {
        name: "a stop does not wait for the rows of letters that were tried",
        file: PIPELINE,
        text: "        let settled = nothing_open && !owes && ",
        instead: "        let settled = nothing_open && (!owes || true) && ",
    },
    Mutant {
        name: "what is to be written back is forgotten with its session",
        file: SESSION,
        text: "            Action::WriteBack(..) => true,\n",
        instead: "            Action::WriteBack(..) => false,\n",
    },
    Mutant {
        name: "a row that comes again is not marked, because it has its letter",
        file: PIPELINE,
        text: "        let Answered { receipt, .. } = self.ledger.pass(entry, receipt);\n",
        instead: "        let Answered { receipt, .. } = self.ledger.pass(entry, receipt.filter(|_| false));\n",
    },
    Mutant {
        name: "what a retry led to is not written back",
        file: LETTERS,
        text: "        let receipt = fate.and_then(|fate| self.receipt(row, None, fate));\n",
        instead: "        let receipt = fate.filter(|_| false).and_then(|fate| self.receipt(row, None, fate));\n",
    },
];
