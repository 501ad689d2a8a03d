//! How the relay's state is shown: pure text and JSON from a relay's report, or from what the database knows.

use std::time::Duration;

use outboxd::lsn::Lsn;
use outboxd::status::{Report, SlotFacts, State, Status};
use serde::Serialize;

/// What `outboxd status` shows.
#[derive(Debug, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum View {
    /// What the running relay said.
    Relay(Box<Report>),
    /// What the database says when no relay answers.
    Database(Database),
}

/// What the database knows about a relay that does not answer.
#[derive(Debug, Serialize)]
pub struct Database {
    /// Which address was asked, and why no answer came.
    pub silence: String,
    /// The slot's configured name.
    pub slot: String,
    /// The slot, if it exists.
    pub found: Option<Slot>,
    /// The relay that claimed it last, if any.
    pub last: Option<Last>,
}

/// A slot as the database shows it.
#[derive(Debug, Serialize)]
pub struct Slot {
    /// Who streams from it.
    pub holder: Option<String>,
    /// `confirmed_flush_lsn`
    pub confirmed: Lsn,
    /// The server's end of WAL.
    pub server: Lsn,
    /// What it keeps on disk.
    #[serde(flatten)]
    pub facts: SlotFacts,
}

/// The relay that had the slot last.
#[derive(Debug, Serialize)]
pub struct Last {
    /// Its name.
    pub leader: String,
    /// It settled everything and said goodbye.
    pub left_cleanly: bool,
}

impl View {
    /// One sentence, then a few aligned lines.
    pub fn text(&self) -> String {
        let mut text = self.sentence();
        for hint in self.hints() {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        for (name, value) in self.facts() {
            text.push_str(&format!("\n  {name:<12}{value}"));
        }
        text + "\n"
    }

    /// Everything in one line, for a log or a pipe.
    pub fn line(&self) -> String {
        let facts = self.facts().into_iter().map(|(name, value)| format!("; {name} {value}"));
        self.sentence() + &facts.collect::<String>() + "\n"
    }

    /// One JSON object in one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("maps with text keys are JSON") + "\n"
    }

    fn sentence(&self) -> String {
        match self {
            View::Relay(report) => relay_sentence(report),
            View::Database(database) => database.sentence(),
        }
    }

    fn hints(&self) -> Vec<&str> {
        match self {
            View::Relay(report) => report.status.reasons.iter().filter_map(|reason| reason.hint.as_deref()).collect(),
            View::Database(database) => vec![database.hint()],
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            View::Relay(report) => relay_facts(report),
            View::Database(database) => database.facts(),
        }
    }
}

impl Database {
    fn sentence(&self) -> String {
        let Database { silence, slot, found, .. } = self;
        match found {
            None => format!("{silence}; slot \"{slot}\" does not exist"),
            Some(found) if found.facts.wal_status == "lost" => {
                format!("{silence}; slot \"{slot}\" was invalidated (wal_status = lost)")
            }
            Some(Slot { holder: Some(holder), .. }) => format!("{silence}; slot \"{slot}\" is in use by {holder}"),
            Some(Slot { holder: None, .. }) => format!("{silence}; nobody reads from slot \"{slot}\""),
        }
    }

    fn hint(&self) -> &'static str {
        match &self.found {
            None => "outboxd init creates it",
            Some(slot) if slot.facts.wal_status == "lost" => {
                "events since its confirmed position are only in the outbox table; drop the slot, then outboxd init"
            }
            Some(Slot { holder: Some(_), .. }) => "ask where the relay runs, or set http.listen to where it listens",
            Some(Slot { holder: None, .. }) => "start the relay with outboxd run",
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(slot) = &self.found else { return vec![] };
        let last = self.last.as_ref().map(|last| match last.left_cleanly {
            true => format!("{}, left in good order", last.leader),
            false => format!("{}, left no goodbye", last.leader),
        });
        vec![
            ("slot", format!("{} ({})", self.slot, slot.facts.wal_status)),
            ("confirmed", slot.confirmed.to_string()),
            ("lag", bytes(slot.server.bytes_since(slot.confirmed))),
            ("retained", retained(&slot.facts)),
            ("last relay", last.unwrap_or("none yet".into())),
        ]
    }
}

fn relay_sentence(report: &Report) -> String {
    let Report { status, state_seconds, lag_seconds, .. } = report;
    let state = status.state.name();
    match status.reasons.split_first() {
        Some((first, others)) => {
            let others = others.iter().map(|reason| format!("; {}", reason.message)).collect::<String>();
            format!("{state} {}: {}{others}", age(*state_seconds), first.message)
        }
        None if status.state == State::Streaming && status.oldest_unsettled.is_none() => format!("{state}, up to date"),
        None if status.state == State::Streaming => format!("{state}, {} behind", age(*lag_seconds)),
        None => format!("{state} {}", age(*state_seconds)),
    }
}

fn relay_facts(report: &Report) -> Vec<(&'static str, String)> {
    let Status { slot, slot_facts, confirmed, inflight_events, inflight_bytes, published, .. } = &report.status;
    let slot = match slot_facts {
        Some(facts) => format!("{slot} ({})", facts.wal_status),
        None => slot.clone(),
    };
    vec![
        ("slot", slot),
        ("confirmed", confirmed.to_string()),
        ("lag", report.lag_bytes.map_or("unknown".into(), bytes)),
        ("in flight", format!("{inflight_events} events, {}", bytes(*inflight_bytes))),
        ("retained", slot_facts.as_ref().map_or("unknown".into(), retained)),
        ("published", format!("{published} events since the relay started")),
    ]
}

fn retained(facts: &SlotFacts) -> String {
    let retained = bytes(facts.retained_bytes);
    match facts.safe_bytes {
        None if facts.wal_status == "lost" => "nothing: the server removed WAL that the slot needs".into(),
        None => format!("{retained} of WAL, without a limit"),
        Some(safe @ 1..) => format!("{retained} of WAL, {} more before the slot is lost", bytes(safe.unsigned_abs())),
        Some(..=0) => format!("{retained} of WAL, the slot may be lost at the next checkpoint"),
    }
}

/// A duration in its largest unit, as a person would say it.
pub(super) fn age(seconds: f64) -> String {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        secs @ 10..120 => format!("{secs} s"),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs @ 7200..172_800 => format!("{} h", secs / 3600),
        secs => format!("{} d", secs / 86_400),
    }
}

/// A size in its largest unit.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = (count.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", count as f64 / 1024_f64.powi(power as i32), UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use outboxd::status::{Reason, Role};

    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    fn facts(safe_bytes: Option<i64>) -> SlotFacts {
        SlotFacts { at: AT, retained_bytes: 64 << 20, safe_bytes, wal_status: "reserved".into() }
    }

    fn status() -> Status {
        Status {
            state: State::Streaming,
            since: AT,
            role: Role::Leader,
            reasons: vec![],
            slot: "orders".into(),
            confirmed: Lsn(0x1600_0000),
            received: Lsn(0x1600_0800),
            server: Lsn(0x1600_0800),
            oldest_unsettled: Some(AT),
            inflight_events: 2,
            inflight_bytes: 900,
            unmarked_events: 0,
            slot_facts: Some(facts(Some(1 << 30))),
            published: 7,
            dead_letters: None,
        }
    }

    fn view(status: Status, age: Duration) -> View {
        View::Relay(Box::new(status.report(AT + age)))
    }

    fn database(found: Option<Slot>) -> View {
        let silence = "no relay answers at 127.0.0.1:9187 (connection refused)".into();
        let last = Some(Last { leader: "relay-1".into(), left_cleanly: false });
        View::Database(Database { silence, slot: "orders".into(), found, last })
    }

    #[test]
    fn a_stream_is_told_in_a_sentence_and_a_few_aligned_lines() {
        let expected = "\
streaming, 0.2 s behind
  slot        orders (reserved)
  confirmed   0/16000000
  lag         2.0 KiB
  in flight   2 events, 900 B
  retained    64.0 MiB of WAL, 1.0 GiB more before the slot is lost
  published   7 events since the relay started
";
        assert_eq!(view(status(), Duration::from_millis(200)).text(), expected);
    }

    #[test]
    fn a_relay_that_waits_says_how_long_why_and_what_to_do() {
        let reason = |message: &str, hint: Option<&str>| Reason {
            code: "x".into(),
            message: message.into(),
            hint: hint.map(Into::into),
        };
        let reasons = vec![reason("topic \"x\" does not exist", Some("create it")), reason("and more", None)];
        let text = view(Status { state: State::Waiting, reasons, ..status() }, Duration::from_secs(250)).text();
        assert!(text.starts_with("waiting 4 min: topic \"x\" does not exist; and more\n  hint: create it\n"), "{text}");
    }

    #[test]
    fn nothing_unsettled_is_up_to_date_and_unknown_is_said() {
        let quiet = Status { oldest_unsettled: None, slot_facts: None, confirmed: Lsn::ZERO, ..status() };
        let text = view(quiet, Duration::from_secs(9)).text();
        assert!(text.starts_with("streaming, up to date\n"), "{text}");
        assert!(text.contains("lag         unknown\n") && text.contains("retained    unknown\n"), "{text}");
        let standby = view(Status { state: State::Standby, ..status() }, Duration::from_secs(9)).line();
        assert!(standby.starts_with("standby 9.0 s; slot orders (reserved); confirmed 0/16000000; lag"), "{standby}");
        assert_eq!(standby.matches('\n').count(), 1);
    }

    #[test]
    fn without_a_relay_the_database_tells_the_next_step() {
        let slot = |holder: Option<&str>, wal_status: &str| {
            let facts = SlotFacts { wal_status: wal_status.into(), ..facts(None) };
            Some(Slot { holder: holder.map(Into::into), confirmed: Lsn(1024), server: Lsn(4096), facts })
        };
        for (found, sentence, hint) in [
            (None, "slot \"orders\" does not exist\n", "outboxd init"),
            (slot(None, "reserved"), "nobody reads from slot \"orders\"\n", "outboxd run"),
            (slot(Some("pid 42"), "reserved"), "is in use by pid 42\n", "http.listen"),
            (slot(None, "lost"), "slot \"orders\" was invalidated (wal_status = lost)\n", "drop the slot"),
        ] {
            let text = database(found).text();
            assert!(text.contains(sentence) && text.contains(hint), "{text}");
        }
        let text = database(slot(None, "reserved")).text();
        assert!(text.contains("lag         3.0 KiB\n  retained    64.0 MiB of WAL, without a limit\n"), "{text}");
        assert!(text.ends_with("last relay  relay-1, left no goodbye\n"), "{text}");
    }

    #[test]
    fn json_says_where_it_comes_from() {
        let relay = view(status(), Duration::from_secs(1)).json();
        assert!(relay.starts_with("{\"source\":\"relay\",\"ready\":true,") && relay.ends_with("}\n"), "{relay}");
        let none = database(None).json();
        assert!(none.contains("\"source\":\"database\"") && none.contains("\"found\":null"), "{none}");
    }

    #[test]
    fn ages_and_sizes_are_told_in_their_largest_unit() {
        for (seconds, text) in [
            (0.0, "0.0 s"),
            (9.96, "10.0 s"),
            (10.4, "10 s"),
            (119.0, "119 s"),
            (250.0, "4 min"),
            (7200.0, "2 h"),
            (1e6, "11 d"),
            (-1.0, "0.0 s"),
            (f64::NAN, "0.0 s"),
        ] {
            assert_eq!(age(seconds), text);
        }
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 << 10, "1.5 MiB"),
            (3 << 40, "3.0 TiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert!(retained(&facts(Some(-5))).contains("next checkpoint"));
        assert!(retained(&SlotFacts { wal_status: "lost".into(), ..facts(None) }).starts_with("nothing"));
    }
}
