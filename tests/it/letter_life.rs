//! The life of a dead letter in the store: claimed, tried, given up, waited behind, and at last forgotten.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use crate::letters::{good, insert, old, strict};
use crate::support::scene::{Letter, Scene};
use crate::support::{PATIENCE, eventually, throughout};

/// So long that the relay has looked at its open letters in the meantime, which it does every second.
const LOOKS: Duration = Duration::from_secs(2);

/// A strict scene whose relay tries no letter again until somebody says so.
pub(crate) fn patient() -> Scene {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.backoff.first", "1h");
    scene
}

/// An event that is older than the topic takes.
pub(crate) fn old_with_key(scene: &Scene, key: &str) -> String {
    let key = format!("'{key}'");
    insert(scene, ["current_database()", &key, "'1'", "null", "now() - interval '2 days'", "null"])
}

/// One without a key, which is of another type than the others and concerns no lane.
pub(crate) fn keyless(scene: &Scene) -> String {
    let sql = "insert into outbox (aggregate_type, event_type, payload)
               values (current_database(), 'cancelled', '1') returning id";
    scene.database.ask(sql).expect("the row has an id")
}

/// From now on the topic takes events of any age.
pub(crate) fn mend(scene: &Scene) {
    scene.kafka.alter_topic(&scene.topic, &[("message.timestamp.before.max.ms", "9223372036854775807")]);
}

fn retry(scene: &Scene, letter: &Letter) {
    scene.config.run(&["dead-letters", "retry", &letter.id.to_string()]).assert_success();
}

/// State and attempts of the event's letter.
fn standing(scene: &Scene, event: &str) -> (String, i32) {
    let Letter { state, attempts, .. } = scene.wait_letter(event);
    (state, attempts)
}

fn is(state: &str, attempts: i32) -> (String, i32) {
    (state.to_string(), attempts)
}

fn arrives(scene: &Scene, event: &str) -> bool {
    scene.reader.wait_all(&HashSet::from([event]), PATIENCE)
}

/// What was written down of one try.
#[derive(Debug)]
struct Attempt {
    number: i32,
    at: SystemTime,
    reason: String,
    message: String,
}

fn attempts(scene: &Scene, event: &str) -> Vec<Attempt> {
    let sql = "select a.number, a.at, a.reason, a.message
               from outboxd.dead_letter_attempt as a join outboxd.dead_letter as d on d.id = a.letter
               where d.event_id = $1 order by a.number";
    let rows = scene.database.connect().query(sql, &[&event]).unwrap();
    let attempt =
        |row: &postgres::Row| Attempt { number: row.get(0), at: row.get(1), reason: row.get(2), message: row.get(3) };
    rows.iter().map(attempt).collect()
}

#[test]
fn a_claim_whose_relay_died_runs_out_and_the_next_relay_tries_the_letter() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.backoff.first", "100ms");
    // What became of a try cannot be written down: so the relay has a claim whenever it dies.
    scene.database.exec(
        "create function keep_claim() returns trigger language plpgsql as
             $$ begin raise exception 'the claim is kept'; end $$;
         create trigger keep_claim before update on outboxd.dead_letter for each row
             when (old.state = 'retrying') execute function keep_claim()",
    );
    let mut relay = scene.relay();
    let bad = old(&scene);
    scene.wait_state(&bad, "retrying");
    relay.sigkill();
    scene.database.exec("drop trigger keep_claim on outboxd.dead_letter");
    mend(&scene);

    let relay = scene.relay();
    throughout("the claim of the dead one counts", LOOKS, || standing(&scene, &bad) == is("retrying", 1));
    assert_eq!(scene.reader.count(), 0);
    scene.database.exec("update outboxd.dead_letter set lease_until = clock_timestamp() - interval '1 second'");
    assert!(arrives(&scene, &bad), "{:#?}\n{}", scene.dead_letters(), relay.log());
    scene.wait_state(&bad, "delivered");
    let reasons: Vec<String> = attempts(&scene, &bad).into_iter().map(|attempt| attempt.reason).collect();
    assert_eq!(reasons, ["timestamp", "delivered"], "what the dead one found out is not known");
}

#[test]
fn after_its_last_attempt_a_letter_is_left_alone_until_a_person_retries_it() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.max_attempts", 2).set("dead_letter.backoff.first", "100ms");
    let _relay = scene.relay();
    let bad = old(&scene);
    scene.wait_state(&bad, "failed");
    assert_eq!(standing(&scene, &bad), is("failed", 2));
    mend(&scene);
    // That another one is parked and tried to its end shows that the relay looks at its letters.
    let other = keyless(&scene);
    scene.wait_state(&other, "failed");
    assert_eq!((standing(&scene, &bad), scene.reader.count()), (is("failed", 2), 0));

    retry(&scene, &scene.wait_letter(&bad));
    assert!(arrives(&scene, &bad), "{:#?}", scene.dead_letters());
    scene.wait_state(&bad, "delivered");
    assert_eq!((standing(&scene, &bad), standing(&scene, &other)), (is("delivered", 3), is("failed", 2)));
}

#[test]
fn a_key_whose_first_letter_failed_waits_for_a_person() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.order", "park-key").set("dead_letter.max_attempts", 1);
    let _relay = scene.relay();
    let bad = old(&scene);
    let behind = good(&scene);
    let other = old_with_key(&scene, "other");
    assert_eq!(scene.wait_letter(&behind).reason, "behind");
    assert_eq!((standing(&scene, &bad), standing(&scene, &other)), (is("failed", 1), is("failed", 1)));
    mend(&scene);

    // Nothing is wrong with the one behind, and it is due since it was parked: whoever takes the other key's letter
    // would have taken it before.
    retry(&scene, &scene.wait_letter(&other));
    scene.wait_state(&other, "delivered");
    assert_eq!((standing(&scene, &bad), standing(&scene, &behind)), (is("failed", 1), is("pending", 0)));

    retry(&scene, &scene.wait_letter(&bad));
    assert!(arrives(&scene, &behind), "{:#?}", scene.dead_letters());
    let seen = scene.reader.seen();
    let seen: Vec<&str> = seen.iter().filter(|seen| seen.key() == "k").map(|seen| seen.id()).collect();
    assert_eq!(seen, [bad, behind], "in order, each once");
}

#[test]
fn with_skip_a_failed_letter_holds_nobody_back() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.order", "skip").set("dead_letter.max_attempts", 1);
    let _relay = scene.relay();
    let (first, second) = (old(&scene), old(&scene));
    let later = good(&scene);
    assert!(arrives(&scene, &later), "{:#?}", scene.dead_letters());
    scene.wait_state(&first, "failed");
    mend(&scene);
    retry(&scene, &scene.wait_letter(&second));
    assert!(arrives(&scene, &second), "{:#?}", scene.dead_letters());
    scene.wait_state(&second, "delivered");
    assert_eq!(standing(&scene, &first), is("failed", 1));
}

#[test]
fn one_parked_key_too_many_makes_the_line_stand_until_a_letter_is_discarded() {
    let mut scene = patient();
    scene.config = scene.config.set("dead_letter.order", "park-key").set("dead_letter.max_parked_keys", 2);
    let mut relay = scene.relay();
    let first = old_with_key(&scene, "first");
    let second = old_with_key(&scene, "second");
    let third = old_with_key(&scene, "third");
    let later = good(&scene);
    relay.wait_unready("paused", PATIENCE);
    let (_, readiness) = relay.readiness().expect("the relay answers");
    assert!(readiness["reasons"].to_string().contains("dead_letter.max_parked_keys"), "{readiness}");
    assert_eq!((standing(&scene, &first), standing(&scene, &second)), (is("pending", 1), is("pending", 1)));
    let stands = || scene.dead_letters().len() == 2 && scene.reader.count() == 0;
    throughout("the line stands", LOOKS, stands);

    let number = scene.wait_letter(&first).id.to_string();
    scene.config.run(&["dead-letters", "discard", &number, "--note", "test"]).assert_success();
    assert!(arrives(&scene, &later), "{:#?}\n{}", scene.dead_letters(), relay.log());
    assert_eq!(scene.wait_letter(&third).reason, "timestamp");
    relay.wait_ready();
}

#[test]
fn delivered_and_discarded_letters_are_forgotten_in_time_and_no_others() {
    let mut scene = patient();
    scene.config = scene.config.set("dead_letter.retention", "1h");
    let mut relay = scene.relay();
    // How each of them stands, since when, and whether it is kept.
    let ends = [
        ("delivered", "2 hours", false),
        ("discarded", "2 hours", false),
        ("delivered", "30 minutes", true),
        ("discarded", "30 minutes", true),
        ("failed", "", true),
        ("pending", "", true),
        ("discarded", "2 hours", true),
    ];
    let events = ends.map(|_| keyless(&scene));
    events.iter().for_each(|event| drop(scene.wait_letter(event)));
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    relay.sigkill();
    for (event, (state, since, _)) in events.iter().zip(ends) {
        scene.database.exec(&format!(
            "update outboxd.dead_letter
             set state = '{state}', parked_at = parked_at - interval '10 years',
                 settled_at = clock_timestamp() - nullif('{since}', '')::interval
             where event_id = '{event}'"
        ));
    }
    // The slot has not passed the last one's event, and may send it again: without its letter it would be published.
    let place = "update outboxd.dead_letter set commit_lsn = 'FFFFFFFF/0' where event_id = ";
    scene.database.exec(&format!("{place} '{}'", events[6]));

    let relay = scene.relay();
    let kept: Vec<&String> =
        events.iter().zip(ends).filter(|(_, (_, _, is_kept))| *is_kept).map(|(event, _)| event).collect();
    eventually("what is old is forgotten", PATIENCE, || scene.dead_letters().len() <= kept.len());
    let left: Vec<String> = scene.dead_letters().into_iter().filter_map(|letter| letter.event).collect();
    assert_eq!(left.iter().collect::<Vec<_>>(), kept, "{}", relay.log());
    let attempts = scene.database.ask("select count(*) from outboxd.dead_letter_attempt");
    assert_eq!(attempts, Some(kept.len().to_string()), "attempts go with their letters");
}

#[test]
fn every_attempt_is_written_down_and_the_pauses_between_them_grow() {
    let mut scene = strict();
    scene.config = scene
        .config
        .set("dead_letter.backoff.first", "10s")
        .set("dead_letter.backoff.factor", 3)
        .set("dead_letter.backoff.max", "60s");
    let begun = SystemTime::now();
    let _relay = scene.relay();
    let bad = old(&scene);
    let make_due = format!("update outboxd.dead_letter set next_attempt = clock_timestamp() where event_id = '{bad}'");
    let ask_pause = format!(
        "select extract(epoch from d.next_attempt - max(a.at))
         from outboxd.dead_letter as d join outboxd.dead_letter_attempt as a on a.letter = d.id
         where d.event_id = '{bad}' group by d.id"
    );
    // 90 seconds would be the third pause.
    for (number, longest) in [(1, 10.0), (2, 30.0), (3, 60.0)] {
        eventually("the next attempt", PATIENCE, || standing(&scene, &bad) == is("pending", number));
        let pause: f64 = scene.database.ask(&ask_pause).unwrap().parse().unwrap();
        // Up to half of it is chance, and writing it down takes a moment.
        assert!(pause > longest / 2.0 - 1.0 && pause <= longest, "{pause} s after attempt {number}");
        if number == 3 {
            mend(&scene);
        }
        scene.database.exec(&make_due);
    }
    scene.wait_state(&bad, "delivered");

    let attempts = attempts(&scene, &bad);
    let told: Vec<(i32, &str)> = attempts.iter().map(|attempt| (attempt.number, attempt.reason.as_str())).collect();
    assert_eq!(told, [(1, "timestamp"), (2, "timestamp"), (3, "timestamp"), (4, "delivered")]);
    let says_why = |attempt: &Attempt| attempt.message.contains("is outside what the topic accepts");
    assert_eq!(attempts.iter().map(says_why).collect::<Vec<_>>(), [true, true, true, false], "{attempts:#?}");
    assert!(attempts.is_sorted_by(|one, next| one.at < next.at), "{attempts:#?}");
    assert!(attempts[0].at > begun && attempts[3].at <= SystemTime::now(), "{attempts:#?}");
}

#[test]
fn what_was_not_kept_is_read_from_the_table_again_and_a_letter_says_when_its_row_is_gone() {
    let scene = patient();
    let _relay = scene.relay();
    let large = ["current_database()", "'large'", "to_jsonb(repeat('x', 70000))", "null", "now()", "null"];
    let (mended, gone) = (insert(&scene, large), insert(&scene, large));
    for event in [&mended, &gone] {
        assert_eq!(scene.wait_letter(event).reason, "too_large");
    }
    scene.database.exec(&format!(
        "update outbox set payload = '\"small\"' where id = '{mended}'; delete from outbox where id = '{gone}'"
    ));
    scene.retry_letters();
    assert!(arrives(&scene, &mended), "{:#?}", scene.dead_letters());
    eventually("the other one is tried, too", PATIENCE, || scene.wait_letter(&gone).attempts == 2);
    let letter = scene.wait_letter(&gone);
    assert_eq!((letter.state.as_str(), letter.reason.as_str()), ("pending", "unreadable"));
    for words in ["column \"payload\" was not kept", "the row is gone"] {
        assert!(letter.message.contains(words), "{letter:?}");
    }
    scene.reader.catch_up(PATIENCE);
    let seen = scene.reader.seen();
    assert_eq!(seen.iter().map(|seen| (seen.id(), seen.value())).collect::<Vec<_>>(), [(mended.as_str(), "\"small\"")]);
}

#[test]
fn payloads_that_were_not_kept_all_arrive_however_many_letters_are_tried_at_once() {
    let mut scene = patient();
    let mut relay = scene.relay();
    let payload = "to_jsonb(repeat('x', 70000))";
    let events =
        ["'a'", "'b'", "'c'"].map(|key| insert(&scene, ["current_database()", key, payload, "null", "now()", "null"]));
    for event in &events {
        assert_eq!(scene.wait_letter(event).reason, "too_large");
    }
    relay.sigkill();
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "1000000")]);
    // Enough for each of them, and too little for two.
    scene.config = scene.config.set("limits.event", "100KiB");
    let _relay = scene.relay();
    scene.retry_letters();
    for event in &events {
        assert!(arrives(&scene, event), "{:#?}", scene.dead_letters());
        scene.wait_state(event, "delivered");
        assert_eq!(standing(&scene, event), is("delivered", 2), "to wait for others is no attempt");
    }
}

#[test]
fn columns_of_domains_that_were_not_kept_make_the_record_that_they_make_in_the_stream() {
    let ddl = "create domain raw as bytea; create domain scan as raw check (length(value) > 0);
               create domain amount as numeric; create domain document as json;
               create table parcels (id int primary key, aggregate_type text default current_database(),
                   payload scan, weight amount, label document, sealed document)";
    let columns = "{ aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }";
    let mut scene = Scene::with_outboxes(ddl, &[&format!("table = \"public.parcels\"\ncolumns = {columns}")]);
    let route = "key = \"{id}\"\nvalue = \"envelope\"\nenvelope = { weight = \"weight\", label = \"label\", sealed = \"sealed\" }";
    scene.config = scene
        .config
        .without("route")
        .add("route", route)
        .set("limits.event", "64KiB")
        .set("dead_letter.backoff.first", "1h");
    // Two of a kind, each of whose columns but the last is too large to be kept of an event that is too large.
    let write = |id: u32| {
        scene.database.exec(&format!(
            "insert into parcels (id, payload, weight, label, sealed) values ({id}, decode(repeat('00ff', 35000), 'hex'),
                 repeat('9', 5000)::numeric, ('[\"' || repeat('x', 5000) || '\", 1.50]')::json, '{{ \"by\":  1 }}')"
        ));
    };
    let mut relay = scene.relay();
    write(1);
    assert_eq!(scene.wait_letter("1").reason, "too_large");
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    scene.config = scene.config.set("limits.event", "1MiB");
    let _relay = scene.relay();
    write(2);
    scene.retry_letters();
    let seen = scene.reader.wait_count(2, PATIENCE);
    let value = |id: &str| seen.iter().find(|seen| seen.key() == id).expect("both arrive").value().to_owned();
    let (retried, streamed) = (value("1"), value("2"));
    let forms = ["AP8A/wD/", ":9999", "1.50]"];
    assert!(forms.iter().all(|form| streamed.contains(form)), "{streamed:.200}");
    assert!(retried == streamed, "{retried:.200}\n{streamed:.200}");
}
