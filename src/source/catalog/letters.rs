//! `outboxd.dead_letter`, the relay's side: stores letters, claims those that are due, writes what became of them.
//!
//! Everything that the relay writes is one statement, so all of it happens or nothing, also when whoever waits for it
//! gives up. Each is conditional on the relay's name in `outboxd.position`, locked for as long as the statement takes:
//! a successor's claim waits for it, and whoever was overtaken writes nothing. Only the server's clock counts. No
//! letter can fail to be stored because of what is in it.

mod sql;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use tokio_postgres::types::{PgLsn, ToSql};

use super::{Catalog, Claim};
use crate::column::Type;
use crate::dead_letter::{
    Claimed, Column, DeadLetter, KnownLetter, Lane, MESSAGE, OpenLane, Origin, Outcome, SWITCHED_OFF,
};
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::receipt::Fate;
use crate::source::System;

/// Whose letters, and who writes.
#[derive(Debug, Clone)]
pub struct Desk {
    /// The slot that the events come from.
    pub slot: String,
    /// The relay's name in the position table.
    pub leader: String,
    /// The history that new letters belong to.
    pub system: System,
    /// The relay's walsender, which has the slot.
    pub pid: i32,
}

/// How often a letter is tried before it waits for a person, and when first.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// All attempts, with the one that brought the letter here.
    pub attempts: u32,
    /// From the first attempt to the second.
    pub first: Duration,
    /// Until what waits for another configuration is looked at although nobody has said that it may be tried.
    pub longest: Duration,
}

/// Which letters to claim.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// How many at most.
    pub most: usize,
    /// How long they are ours.
    pub lease: Duration,
    /// How many bytes at most; one letter in any case.
    pub bytes: u64,
    /// Of this history, only letters that stand before it.
    pub before: Position,
    /// By which word they can be settled; another one each time.
    pub owner: &'a str,
    /// A letter that waits for a person holds back those behind it.
    pub failed_block: bool,
}

/// A letter that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledLetter {
    /// Its number in the store.
    pub id: i64,
    /// The word by which it was claimed.
    pub owner: String,
    /// What became of it.
    pub outcome: Outcome,
    /// How long until it may be tried again, if it may.
    pub pause: Duration,
}

/// Which letters settle a row that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// All: none is doubled.
    All,
    /// All but those that were delivered: where order is kept, a key that is repeated is repeated as a whole, or its last
    /// record would be an old one.
    Undelivered,
}

/// Whether it matters why an event was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// Its row is to say so.
    Wanted,
    /// They stay in the store: many of them are much to carry.
    Left,
}

/// How many letters there are of each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LetterCounts {
    /// Will be tried.
    pub pending: u64,
    /// Are being tried.
    pub retrying: u64,
    /// In Kafka.
    pub delivered: u64,
    /// Wait for a person.
    pub failed: u64,
    /// Given up by a person.
    pub discarded: u64,
    /// When the oldest was parked of those that are pending, retrying or failed.
    pub oldest: Option<SystemTime>,
}

impl Catalog {
    /// From now on, a letter is on disk, on synchronous standbys too, before its ticket is settled.
    pub async fn make_durable(&self) -> Result<()> {
        self.execute("cannot make the session durable", "SET synchronous_commit = on", self.limit).await
    }

    /// Stores letters, all or none, each with the attempt that brought it here. One that is there already is left as it
    /// is. `Claim::Lost`: nothing was stored.
    ///
    /// A letter that is only behind another has not been tried, and is due at once. One whose route is switched off has not been
    /// tried either, and is due when it is woken.
    pub async fn store_letters(&self, desk: &Desk, letters: &[DeadLetter], patience: Patience) -> Result<Claim> {
        let sheet = Sheet::of(letters, patience);
        let (system, timeline) = desk.history();
        let attempts = i32::try_from(patience.attempts).unwrap_or(i32::MAX);
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&desk.slot, &desk.leader, &system, &timeline, &attempts, &sheet.pauses];
        parameters.extend(sheet.parameters());
        let row = self.row(&about("store", &desk.slot), &sql::store(desk.pid), &parameters).await?;
        Ok(if row.is_some() { Claim::Ours } else { Claim::Lost })
    }

    /// The letters at or above `from`, of all histories, in the order of their positions, at most `most`.
    pub async fn letters_from(
        &self,
        desk: &Desk,
        from: Position,
        most: usize,
        of: Letters,
        words: Words,
    ) -> Result<Vec<KnownLetter>> {
        // Messages of former versions may be of any length.
        let sql = "SELECT d.commit_lsn, d.row_number, d.system_id = $2, d.event_id, d.state = 'delivered', \
                       CASE WHEN $7 THEN d.reason || ': ' || left(d.message, $8) ELSE '' END, d.attempts \
                   FROM outboxd.dead_letter AS d \
                   WHERE d.slot = $1 AND ($6 OR d.state <> 'delivered') \
                     AND (d.commit_lsn, d.row_number) >= ($3::pg_lsn, $4::bigint) \
                   ORDER BY d.commit_lsn, d.row_number, d.id LIMIT $5";
        let (system, _) = desk.history();
        let (commit, number) = place(from);
        let (most, all, words, longest) = (saturated(most), of == Letters::All, words == Words::Wanted, MESSAGE as i32);
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&desk.slot, &system, &commit, &number, &most, &all, &words, &longest];
        let rows = self.rows(&about("read", &desk.slot), sql, &parameters).await?;
        let known = |row: &Row| KnownLetter {
            position: position(row.get(0), row.get(1)),
            is_current: row.get(2),
            event: row.get(3),
            fate: match row.get(4) {
                true => Fate::Published,
                false => Fate::Rejected { why: row.get(5), attempts: row.get::<_, i32>(6).cast_unsigned() },
            },
        };
        Ok(rows.iter().map(known).collect())
    }

    /// The lanes, of known topic and key, that have an open letter: pending, retrying or failed.
    pub async fn open_lanes(&self, desk: &Desk) -> Result<Vec<OpenLane>> {
        let (system, _) = desk.history();
        let what = about("list the lanes of", &desk.slot);
        let rows = self.rows(&what, &sql::open_lanes(), &[&desk.slot, &system]).await?;
        let lane = |row: &Row| OpenLane {
            topic: row.get(0),
            key: row.get(1),
            first: row.get::<_, Option<PgLsn>>(2).map(|commit| position(commit, row.get(3))),
        };
        Ok(rows.iter().map(lane).collect())
    }

    /// Claims letters that are due, or whose owner is gone, for `wanted.lease`; in the order of their ids. None when
    /// another leader has claimed the slot since.
    ///
    /// Of a lane, only a run from its oldest open letter on is claimed: never a letter while an older one of its lane
    /// is open and not among the claimed. Letters without a lane are free.
    pub async fn claim_letters(&self, desk: &Desk, wanted: &Wanted<'_>) -> Result<Vec<Claimed>> {
        let (system, _) = desk.history();
        let (commit, number) = place(wanted.before);
        let bytes = i64::try_from(wanted.bytes).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &desk.slot,
            &desk.leader,
            &system,
            &commit,
            &number,
            &wanted.owner,
            &seconds(wanted.lease),
            &saturated(wanted.most),
            &wanted.failed_block,
            &bytes,
        ];
        let rows = self.rows(&about("claim", &desk.slot), &sql::claim(desk.pid), &parameters).await?;
        let mut letters: Vec<Claimed> = rows.iter().map(|row| claimed(row, wanted.owner)).collect();
        letters.sort_by_key(|letter| (letter.is_current, letter.position, letter.id));
        Ok(letters)
    }

    /// Writes what became of tries, all or none; of letters only that are still ours. `Claim::Lost`: nothing was written.
    pub async fn settle_letters(&self, desk: &Desk, settled: &[SettledLetter]) -> Result<Claim> {
        let ids: Vec<i64> = settled.iter().map(|letter| letter.id).collect();
        let owners: Vec<&str> = settled.iter().map(|letter| letter.owner.as_str()).collect();
        let pauses: Vec<f64> = settled.iter().map(|letter| seconds(letter.pause)).collect();
        let mut outcomes: Vec<&str> = Vec::new();
        let mut reasons: Vec<&str> = Vec::new();
        let mut messages: Vec<Cow<'_, str>> = Vec::new();
        for letter in settled {
            let (outcome, reason, message) = match &letter.outcome {
                Outcome::Delivered => ("delivered", "delivered", ""),
                Outcome::Rejected(rejection) => ("rejected", rejection.reason, rejection.message.as_str()),
                Outcome::Waits(rejection) => ("waits", rejection.reason, rejection.message.as_str()),
                Outcome::PutBack => ("put back", "", ""),
            };
            outcomes.push(outcome);
            reasons.push(reason);
            messages.push(storable(message));
        }
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&desk.slot, &desk.leader, &ids, &outcomes, &reasons, &messages, &pauses, &owners];
        let row = self.row(&about("settle", &desk.slot), &sql::settle(desk.pid), &parameters).await?;
        Ok(if row.is_some() { Claim::Ours } else { Claim::Lost })
    }

    /// Makes letters due whose routes were switched off, at most `most`; how many, or `Claim::Lost`. With none, nothing is written.
    pub async fn wake_letters(&self, desk: &Desk, most: usize) -> Result<(Claim, usize)> {
        let what = about("wake", &desk.slot);
        let parameters: [&(dyn ToSql + Sync); 4] = [&desk.slot, &desk.leader, &SWITCHED_OFF, &saturated(most)];
        let row = self.row(&what, &sql::wake(desk.pid), &parameters).await?;
        let (count, is_ours) = row.map_or((0, false), |row| (row.get::<_, i64>(0), row.get(1)));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok((if is_ours || count == 0 { Claim::Ours } else { Claim::Lost }, count))
    }

    /// How many letters there are of each state, and when the oldest open one was parked.
    pub async fn count_letters(&self, slot: &str) -> Result<LetterCounts> {
        let sql = "SELECT count(*) FILTER (WHERE d.state = 'pending'), count(*) FILTER (WHERE d.state = 'retrying'), \
                       count(*) FILTER (WHERE d.state = 'delivered'), count(*) FILTER (WHERE d.state = 'failed'), \
                       count(*) FILTER (WHERE d.state = 'discarded'), \
                       least((SELECT min(o.parked_at) FROM outboxd.dead_letter AS o \
                              WHERE o.slot = $1 AND o.state = 'pending'), \
                             (SELECT min(o.parked_at) FROM outboxd.dead_letter AS o \
                              WHERE o.slot = $1 AND o.state = 'retrying'), \
                             (SELECT min(o.parked_at) FROM outboxd.dead_letter AS o \
                              WHERE o.slot = $1 AND o.state = 'failed')) \
                   FROM outboxd.dead_letter AS d WHERE d.slot = $1";
        let Some(row) = self.row(&about("count", slot), sql, &[&slot]).await? else {
            return Ok(LetterCounts::default());
        };
        let count = |column: usize| row.get::<_, i64>(column).cast_unsigned();
        Ok(LetterCounts {
            pending: count(0),
            retrying: count(1),
            delivered: count(2),
            failed: count(3),
            discarded: count(4),
            oldest: row.get(5),
        })
    }

    /// Deletes delivered and discarded letters that were settled longer than `older_than` ago and lie before
    /// `confirmed`, at most `most`; how many.
    ///
    /// The slot may still send what lies behind `confirmed`, and the letter says then that its event is done. A slot of
    /// another cluster sends nothing of this one.
    pub async fn forget_letters(&self, desk: &Desk, confirmed: Lsn, older_than: Duration, most: usize) -> Result<u64> {
        // A delivered letter opens again only when its row is repeated, by whoever asks this one errand later.
        let sql = format!(
            "WITH old AS MATERIALIZED ( \
                 SELECT d.id FROM outboxd.dead_letter AS d \
                 WHERE d.slot = $1 AND d.state IN ('delivered', 'discarded') \
                   AND d.settled_at < (SELECT clock_timestamp()) - make_interval(secs => $5::float8) \
                   AND (d.system_id <> $3 OR d.commit_lsn < $4::pg_lsn) LIMIT $6), \
             {} \
             DELETE FROM outboxd.dead_letter AS d \
             WHERE d.id = ANY (ARRAY(SELECT old.id FROM old)) AND EXISTS (SELECT FROM leader)",
            sql::leader_if(desk.pid, "AND EXISTS (SELECT FROM old)")
        );
        let (system, _) = desk.history();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&desk.slot, &desk.leader, &system, &PgLsn::from(confirmed.0), &seconds(older_than), &saturated(most)];
        self.affected(&about("forget", &desk.slot), &sql, &parameters).await
    }

    /// Up to where every standby that `synchronized_standby_slots` (PostgreSQL 17) names has all WAL; `None` when it names none, and
    /// when `slot` is no failover slot: then nobody is waited for.
    pub async fn standbys_at(&self, slot: &str) -> Result<Option<Lsn>> {
        // A name without a physical slot, or one whose slot has lost its WAL, has nothing: the server judges the same way.
        let sql = "SELECT min(coalesce(p.restart_lsn, '0/0'::pg_lsn)), pg_is_in_recovery() \
                   FROM unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) AS named (entry) \
                   LEFT JOIN pg_replication_slots AS p ON p.slot_type = 'physical' \
                       AND p.slot_name::text = lower(btrim(named.entry, E' \"\\t\\n\\r') COLLATE \"C\") \
                   WHERE btrim(named.entry, E' \"\\t\\n\\r') <> '' \
                     AND coalesce((SELECT (to_jsonb(s) ->> 'failover')::boolean FROM pg_replication_slots AS s \
                                   WHERE s.slot_name::text = $1), false)";
        let what = format!("cannot ask how far the standbys of slot \"{slot}\" are");
        let row = self.row(&what, sql, &[&slot]).await?.expect("an aggregate has a row");
        if row.get(1) {
            // One address may lead to several servers. A standby names none whom its primary waits for.
            return Err(Error::transient(format!("{what}: a standby answers, and only its primary knows"))
                .hint("let postgres.url lead to the primary only"));
        }
        Ok(row.get::<_, Option<PgLsn>>(0).map(|lsn| Lsn(lsn.into())))
    }

    /// Up to where the WAL is on disk: behind all that was seen committed, but for what somebody committed with `synchronous_commit`
    /// off, which outboxd never does.
    pub async fn wal_end(&self) -> Result<Lsn> {
        let row = self.row("cannot ask where the WAL ends", "SELECT pg_current_wal_flush_lsn()", &[]).await?;
        Ok(row.map_or(Lsn::ZERO, |row| Lsn(row.get::<_, PgLsn>(0).into())))
    }

    /// Leaves word that the relay has paused; a pause that is there already stays as it is. `Claim::Lost`: no word was left.
    pub async fn pause(&self, desk: &Desk, message: &str) -> Result<Claim> {
        let sql = format!(
            "WITH {}, word AS (INSERT INTO outboxd.pause (slot, message) SELECT leader.slot, $3::text FROM leader \
             ON CONFLICT (slot) DO NOTHING) SELECT leader.slot FROM leader",
            sql::leader_if(desk.pid, "")
        );
        let what = format!("cannot pause slot \"{}\"", desk.slot);
        let row = self.row(&what, &sql, &[&desk.slot, &desk.leader, &storable(message)]).await?;
        Ok(if row.is_some() { Claim::Ours } else { Claim::Lost })
    }

    /// Why the relay of `slot` has paused, if it has and nobody has resumed it.
    pub async fn is_paused(&self, slot: &str) -> Result<Option<String>> {
        let sql = "SELECT message FROM outboxd.pause WHERE slot = $1";
        let what = format!("cannot ask whether slot \"{slot}\" is paused");
        Ok(self.row(&what, sql, &[&slot]).await?.map(|row| row.get(0)))
    }

    /// The topics that are known to have existed, at most `most`.
    pub async fn known_topics(&self, slot: &str, most: usize) -> Result<Vec<String>> {
        let sql = "SELECT topic FROM outboxd.known_topic WHERE slot = $1 LIMIT $2";
        let what = format!("cannot read the topics of slot \"{slot}\"");
        let rows = self.rows(&what, sql, &[&slot, &saturated(most)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Writes down that these topics exist.
    pub async fn know_topics(&self, slot: &str, topics: &[String]) -> Result<()> {
        let sql = "INSERT INTO outboxd.known_topic (slot, topic) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING \
                   RETURNING slot";
        self.rows(&format!("cannot write the topics of slot \"{slot}\""), sql, &[&slot, &topics]).await.map(drop)
    }
}

impl Desk {
    /// The table's columns are signed, as `pg_control_system()` is: the same bits.
    fn history(&self) -> (i64, i32) {
        (self.system.id.cast_signed(), self.system.timeline.cast_signed())
    }
}

/// Letters as the arrays that one statement takes.
#[derive(Default)]
struct Sheet<'a> {
    commits: Vec<PgLsn>,
    rows: Vec<i64>,
    committed: Vec<i64>,
    schemas: Vec<Option<Cow<'a, str>>>,
    names: Vec<Cow<'a, str>>,
    events: Vec<Option<Cow<'a, str>>>,
    types: Vec<Option<Cow<'a, str>>>,
    topics: Vec<Option<Cow<'a, str>>>,
    keys: Vec<Option<&'a [u8]>>,
    reasons: Vec<&'a str>,
    messages: Vec<Cow<'a, str>>,
    attempts: Vec<i32>,
    /// Seconds until each is due.
    pauses: Vec<f64>,
    /// The columns of all letters in a row, each with its letter's place from 1: SQL has no arrays of arrays that
    /// differ in length.
    column_places: Vec<i64>,
    column_names: Vec<Cow<'a, str>>,
    column_values: Vec<Option<&'a [u8]>>,
    column_types: Vec<i64>,
    /// Likewise.
    missing_places: Vec<i64>,
    missing_names: Vec<Cow<'a, str>>,
}

impl<'a> Sheet<'a> {
    fn of(letters: &'a [DeadLetter], patience: Patience) -> Sheet<'a> {
        let mut sheet = Sheet::default();
        for (place, letter) in (1..).zip(letters) {
            sheet.add(place, letter, patience);
        }
        sheet
    }

    fn add(&mut self, number: i64, letter: &'a DeadLetter, patience: Patience) {
        let (commit, row) = place(letter.position);
        let (schema, name) = match &letter.origin {
            Origin::Table(schema, name) => (Some(schema), name),
            Origin::Messages(prefix) => (None, prefix),
        };
        let text = |text: &'a Option<String>| text.as_deref().map(storable);
        self.commits.push(commit);
        self.rows.push(row);
        self.committed.push(letter.committed_at.clamp(-COMMITTED_MAX, COMMITTED_MAX));
        self.schemas.push(schema.map(|schema| storable(schema)));
        self.names.push(storable(name));
        self.events.push(text(&letter.event));
        self.types.push(text(&letter.event_type));
        self.topics.push(text(&letter.lane.topic));
        self.keys.push(letter.lane.key.as_deref());
        self.reasons.push(letter.rejection.reason);
        self.messages.push(storable(&letter.rejection.message));
        self.attempts.push(i32::from(letter.rejection.is_fault()));
        self.pauses.push(match letter.rejection.reason {
            SWITCHED_OFF => seconds(patience.longest),
            _ if letter.rejection.is_fault() => seconds(patience.first),
            _ => 0.0,
        });
        for column in &letter.columns {
            self.column_places.push(number);
            self.column_names.push(storable(&column.name));
            self.column_values.push(column.value.as_deref());
            self.column_types.push(column.kind.to_bits());
        }
        for name in &letter.not_kept {
            self.missing_places.push(number);
            self.missing_names.push(storable(name));
        }
    }

    /// As `sql::store` numbers them, from `$7` on.
    fn parameters(&self) -> [&(dyn ToSql + Sync); 18] {
        [
            &self.commits,
            &self.rows,
            &self.committed,
            &self.schemas,
            &self.names,
            &self.events,
            &self.types,
            &self.topics,
            &self.keys,
            &self.reasons,
            &self.messages,
            &self.attempts,
            &self.column_places,
            &self.column_names,
            &self.column_values,
            &self.missing_places,
            &self.missing_names,
            &self.column_types,
        ]
    }
}

/// Microseconds around 2000 that a `double precision` counts exactly and a `timestamptz` can be: 285 years.
const COMMITTED_MAX: i64 = 1 << 53;

fn claimed(row: &Row, owner: &str) -> Claimed {
    Claimed {
        id: row.get(0),
        owner: owner.to_owned(),
        attempts: row.get::<_, i32>(1).cast_unsigned(),
        is_current: row.get(2),
        origin: origin(row.get(3), row.get(4)),
        position: position(row.get(5), row.get(6)),
        committed_at: row.get(7),
        columns: columns(row.get(8), row.get(9), row.get(10)),
        not_kept: row.get(11),
        lane: Lane { topic: row.get(12), key: row.get(13) },
        event: row.get(14),
    }
}

pub(super) fn about(verb: &str, slot: &str) -> String {
    format!("cannot {verb} the dead letters of slot \"{slot}\"")
}

/// What a text column takes of a text: all but NUL, which it refuses.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// For `make_interval`, which fails beyond what an interval can be.
pub(super) fn seconds(duration: Duration) -> f64 {
    const CENTURY: f64 = 100.0 * 365.25 * 86_400.0;
    duration.as_secs_f64().min(CENTURY)
}

/// For `LIMIT`.
pub(super) fn saturated(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

pub(super) fn position(commit: PgLsn, row: i64) -> Position {
    Position { commit: Lsn(commit.into()), row: row.cast_unsigned() }
}

pub(super) fn origin(schema: Option<String>, name: String) -> Origin {
    match schema {
        Some(schema) => Origin::Table(schema, name),
        None => Origin::Messages(name),
    }
}

pub(super) fn columns(names: Vec<String>, values: Vec<Option<Vec<u8>>>, types: Vec<i64>) -> Vec<Column> {
    let kinds = types.into_iter().map(Type::from_bits).chain(std::iter::repeat(Type::default()));
    names.into_iter().zip(values).zip(kinds).map(|((name, value), kind)| Column { name, kind, value }).collect()
}

/// A position as the table has it; a row number beyond its range is the last there is.
fn place(position: Position) -> (PgLsn, i64) {
    (PgLsn::from(position.commit.0), i64::try_from(position.row).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::{BEHIND, Lane, Rejection};

    const PATIENCE: Patience =
        Patience { attempts: 25, first: Duration::from_secs(1), longest: Duration::from_secs(3600) };

    fn letter(reason: &'static str) -> DeadLetter {
        DeadLetter {
            position: Position { commit: Lsn(7), row: u64::MAX },
            committed_at: i64::MIN,
            origin: Origin::Table("public".to_owned(), "outbox".to_owned()),
            event: Some("a\0b".to_owned()),
            event_type: None,
            lane: Lane { topic: Some("orders".to_owned()), key: Some(vec![0, 255]) },
            columns: vec![
                Column { name: "id".to_owned(), kind: Type::of(25), value: Some(b"1\0".to_vec()) },
                Column { name: "payload".to_owned(), kind: Type::default(), value: None },
            ],
            not_kept: vec!["photo".to_owned()],
            rejection: Rejection { reason, message: "\0 is refused".to_owned() },
            xid: None,
        }
    }

    #[test]
    fn nothing_in_a_letter_keeps_it_from_being_stored() {
        let letters = [letter("key")];
        let sheet = Sheet::of(&letters, PATIENCE);
        assert_eq!((sheet.rows[0], sheet.committed[0]), (i64::MAX, -COMMITTED_MAX));
        assert_eq!((sheet.events[0].as_deref(), sheet.messages[0].as_ref()), (Some("ab"), " is refused"));
        // Bytes are kept as they are.
        assert_eq!((sheet.keys[0], sheet.column_values[0]), (Some(&[0, 255][..]), Some(&b"1\0"[..])));
        assert_eq!(seconds(Duration::MAX), seconds(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn the_columns_of_many_letters_are_told_apart_by_their_place() {
        let bare = DeadLetter { columns: Vec::new(), ..letter(BEHIND) };
        let letters =
            [letter("key"), bare, letter("topic"), DeadLetter { columns: Vec::new(), ..letter(SWITCHED_OFF) }];
        let sheet = Sheet::of(&letters, PATIENCE);
        assert_eq!(sheet.column_places, [1, 1, 3, 3]);
        assert_eq!(sheet.column_names, ["id", "payload", "id", "payload"]);
        assert_eq!(sheet.missing_places, [1, 2, 3, 4]);
        assert_eq!(sheet.attempts, [1, 0, 1, 0], "what is only behind, or switched off, was not tried");
        assert_eq!(sheet.pauses, [1.0, 0.0, 1.0, 3600.0]);
        let lengths = [sheet.commits.len(), sheet.schemas.len(), sheet.names.len(), sheet.types.len()];
        assert_eq!(lengths, [4; 4]);
        assert_eq!([sheet.topics.len(), sheet.reasons.len()], [4; 2]);
    }

    #[test]
    fn an_origin_without_a_schema_is_a_message() {
        assert_eq!(origin(None, "prefix".to_owned()), Origin::Messages("prefix".to_owned()));
        assert_eq!(origin(Some("s".to_owned()), "t".to_owned()), Origin::Table("s".to_owned(), "t".to_owned()));
    }
}
