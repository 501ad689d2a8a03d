//! `outboxd dead-letters` and `outboxd resume`: what people do about events that could not be published.
//!
//! Arguments enter, letters are read and their states changed in the database, text or JSON leaves. Nothing is
//! published here: the relay that holds the slot tries every letter that it finds pending.
//!
//! A change of many letters is counted, shown and confirmed first, and then touches nothing that was parked since.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use outboxd::config::{Config, Outbox, Store};
use outboxd::dead_letter::{Claimed, Column};
use outboxd::error::{Error, Result};
use outboxd::pipeline;
use outboxd::source::catalog::{Catalog, Changed, Filter, LetterLine, LetterPage};
use outboxd::source::pg_micros;
use tokio::time::sleep;

use super::letters_view::{self, Deed, Ends, Listing, Plan, Sheet, Summary};
use super::{DeadLetters, Export, Failure, Filters, List, Outcome, Resume, Scope, Show, print, print_bytes};

/// The states that can be changed: the others are final.
const OPEN: [&str; 3] = ["pending", "retrying", "failed"];

/// How many letters one statement reads or changes.
const BATCH: usize = 500;

/// How often `retry --wait` looks, and for how many letters.
const INTERVAL: Duration = Duration::from_secs(1);
const WAITED_MAX: usize = 100_000;

/// `outboxd dead-letters`
pub async fn run(config: &Config, command: DeadLetters) -> Outcome {
    if let Store::Kafka(topic) = &config.dead_letter.store {
        return Err(kept_elsewhere(topic).into());
    }
    let office = Office::open(config).await?;
    match command {
        DeadLetters::List(args) => office.list(&args).await,
        DeadLetters::Show(args) => office.show(&args).await,
        DeadLetters::Retry(args) => {
            let attempts = config.dead_letter.max_attempts;
            office.change(&args.scope, Change::Retry { attempts, wait: args.wait }).await
        }
        DeadLetters::Discard(args) => {
            office.change(&args.scope, Change::Discard { note: &args.note, by: person() }).await
        }
        DeadLetters::Export(args) => office.export(&args).await,
    }
}

/// `outboxd resume`
pub async fn resume(config: &Config, args: &Resume) -> Outcome {
    let office = Office::open(config).await?;
    let pause = office.catalog.resume(office.slot()).await?;
    let pause = pause.as_ref().map(|(since, message)| (*since, message.as_str()));
    print(&match args.json {
        true => letters_view::resumed_json(office.slot(), pause),
        false => letters_view::resumed(office.slot(), pause, SystemTime::now()),
    })
}

/// What is done with letters.
enum Change<'a> {
    Retry { attempts: u32, wait: bool },
    Discard { note: &'a str, by: String },
}

impl Change<'_> {
    fn deed(&self) -> Deed {
        match self {
            Change::Retry { .. } => Deed::Retry,
            Change::Discard { .. } => Deed::Discard,
        }
    }

    /// Changes the first `most` letters behind `after` that can be.
    async fn make(&self, office: &Office<'_>, filter: &Filter, after: i64, most: usize) -> Result<Changed> {
        let (catalog, slot) = (&office.catalog, office.slot());
        match self {
            Change::Retry { attempts, .. } => catalog.retry_letters(slot, filter, after, most, *attempts).await,
            Change::Discard { note, by } => catalog.discard_letters(slot, filter, after, most, note, by).await,
        }
    }
}

/// Which letters are meant, as of the moment when somebody asked for them.
struct Query {
    filter: Filter,
    asked: Instant,
}

impl Query {
    fn new(filter: Filter) -> Query {
        Query { filter, asked: Instant::now() }
    }

    /// What to ask now, so that the same letters are meant as then.
    fn now(&self) -> Filter {
        as_of(&self.filter, self.asked.elapsed())
    }
}

/// A session with the database, and the configuration that says whose letters they are.
struct Office<'a> {
    config: &'a Config,
    catalog: Catalog,
}

impl<'a> Office<'a> {
    async fn open(config: &'a Config) -> Result<Office<'a>> {
        let catalog = Catalog::connect(&config.postgres.connection, config.limits.sql).await?;
        Ok(Office { config, catalog })
    }

    fn slot(&self) -> &str {
        &self.config.postgres.slot
    }

    async fn list(&self, args: &List) -> Outcome {
        let filter = args.filters.filter();
        let groups = self.catalog.letter_groups(self.slot(), &filter).await?;
        // One more than is shown tells whether there are more.
        let most = args.limit as usize;
        let mut letters = self.catalog.list_letters(self.slot(), &filter, args.after, most + 1).await?;
        let is_all = letters.len() <= most;
        letters.truncate(most);
        let next = letters.last().map(|letter| letter.id).filter(|_| !is_all);
        let listing = Listing { slot: self.slot(), groups: &groups, letters: &letters, next };
        print(&if args.json { listing.json() } else { listing.text(SystemTime::now()) })
    }

    async fn show(&self, args: &Show) -> Outcome {
        let page = self.catalog.letter(self.slot(), args.id).await?;
        let page = page.ok_or_else(|| unknown(args.id, self.slot()))?;
        let outbox = pipeline::block(&self.config.outbox, &page.line.origin);
        let again = match outbox {
            Some(outbox) => self.read_again(&page, outbox).await,
            None => Vec::new(),
        };
        if args.payload {
            return write_payload(&page, &again, outbox);
        }
        let preview = pipeline::preview(&self.config.outbox, &self.config.rules, &claimed(&page, &again));
        let payload = outbox.map(pipeline::payload_column);
        let (slot, payload) = (self.slot(), payload.as_deref());
        let sheet = Sheet { slot, page: &page, again: &again, payload, preview: &preview };
        print(&if args.json { sheet.json() } else { sheet.text(SystemTime::now()) })
    }

    /// What was not kept of a letter, from the table's row, if that is still there. The letter can be shown without it.
    async fn read_again(&self, page: &LetterPage, outbox: &Outbox) -> Vec<Column> {
        if page.not_kept.is_empty() {
            return Vec::new();
        }
        let lacks = pipeline::lacks(&self.config.outbox, &self.config.rules, &claimed(page, &[]));
        let further = lacks.into_iter().filter(|name| !page.not_kept.contains(name));
        let wanted: Vec<String> = page.not_kept.iter().cloned().chain(further).collect();
        match self.catalog.read_again(outbox, &page.columns, &wanted, u64::MAX).await {
            Ok(columns) => columns,
            Err(error) => {
                note(&format!("what was not kept cannot be read from the table: {}", error.chain()));
                Vec::new()
            }
        }
    }

    async fn change(&self, scope: &Scope, change: Change<'_>) -> Outcome {
        let deed = change.deed();
        let query = self.meant(scope, deed).await?;
        let groups = self.catalog.letter_groups(self.slot(), &query.now()).await?;
        let plan = Plan { deed, groups: &groups };
        if scope.dry_run {
            return print(&if scope.json { plan.json() } else { plan.text(SystemTime::now()) });
        }
        let count = plan.count();
        if scope.which.all_matching && count > 0 {
            note(plan.text(SystemTime::now()).trim_end());
            confirm(scope, deed, count)?;
        }
        let waited = match change {
            Change::Retry { wait: true, .. } => Some(self.ids(&query).await?),
            Change::Retry { wait: false, .. } | Change::Discard { .. } => None,
        };
        let changed = self.carry_out(&query, &change, scope.rate, count).await?;
        let ends = match waited {
            Some(ids) => Some(self.wait(ids).await.map_err(unseen)?),
            None => None,
        };
        let summary = Summary { deed, changed, left: count.saturating_sub(changed), ends };
        print(&if scope.json { summary.json() } else { summary.text() })?;
        Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The letters that a change is about: only those whose state can be changed, and nothing parked from now on.
    async fn meant(&self, scope: &Scope, deed: Deed) -> Result<Query> {
        let mut filter = scope.filters.filter();
        filter.states = changeable(&filter.states, deed)?;
        filter.ids = scope.which.ids.clone();
        filter.ids.sort_unstable();
        filter.ids.dedup();
        if !filter.ids.is_empty() {
            let asked = Filter { ids: filter.ids.clone(), ..Filter::default() };
            let found = self.catalog.list_letters(self.slot(), &asked, 0, filter.ids.len()).await?;
            let states: HashMap<i64, &str> = found.iter().map(|letter| (letter.id, letter.state.as_str())).collect();
            examine(self.slot(), &filter.ids, &states, deed)?;
        }
        Ok(Query::new(filter))
    }

    /// Changes them in batches; how many.
    async fn carry_out(&self, query: &Query, change: &Change<'_>, rate: Option<NonZeroU32>, count: u64) -> Result<u64> {
        let (start, progress) = (Instant::now(), Progress::new());
        let (mut done, mut after) = (0, 0);
        loop {
            let made = change.make(self, &query.now(), after, batch(rate)).await;
            let changed = made.map_err(|error| stopped(error, change.deed(), done))?;
            done += changed.count;
            let Some(last) = changed.last else { break };
            after = last;
            progress.show(&format!("{done} of {count} letters"));
            sleep(due(done, rate).saturating_sub(start.elapsed())).await;
        }
        Ok(done)
    }

    /// The numbers of the letters that are meant, as many as are waited for.
    async fn ids(&self, query: &Query) -> Result<Vec<i64>> {
        let mut ids: Vec<i64> = Vec::new();
        while ids.len() < WAITED_MAX {
            let letters = self.next(query, ids.last().copied().unwrap_or_default()).await?;
            if letters.is_empty() {
                return Ok(ids);
            }
            ids.extend(letters.iter().map(|letter| letter.id));
        }
        note(&format!("only the first {} letters are waited for", ids.len()));
        Ok(ids)
    }

    /// The next letters that are meant, behind this one.
    async fn next(&self, query: &Query, after: i64) -> Result<Vec<LetterLine>> {
        self.catalog.list_letters(self.slot(), &query.now(), after, BATCH).await
    }

    /// Looks until none of the letters is open any more. Whoever interrupts it stops waiting, not the relay.
    async fn wait(&self, mut ids: Vec<i64>) -> Result<Ends> {
        let progress = Progress::new();
        let mut ends = Ends::default();
        loop {
            ids = self.still_open(&ids, &mut ends).await?;
            if ids.is_empty() {
                return Ok(ends);
            }
            progress.show(&format!("{} letters are not settled yet; Ctrl-C stops waiting, not the relay", ids.len()));
            sleep(INTERVAL).await;
        }
    }

    /// Counts how letters ended, and gives the others back.
    async fn still_open(&self, ids: &[i64], ends: &mut Ends) -> Result<Vec<i64>> {
        let mut open = Vec::new();
        for ids in ids.chunks(BATCH) {
            let filter = Filter { ids: ids.to_vec(), ..Filter::default() };
            let letters = self.catalog.list_letters(self.slot(), &filter, 0, ids.len()).await?;
            ends.forgotten += ids.len().saturating_sub(letters.len()) as u64;
            for letter in letters {
                match letter.state.as_str() {
                    "delivered" => ends.delivered += 1,
                    "failed" => ends.failed += 1,
                    "discarded" => ends.discarded += 1,
                    _ => open.push(letter.id),
                }
            }
        }
        Ok(open)
    }

    async fn export(&self, args: &Export) -> Outcome {
        let query = Query::new(args.filters.filter());
        let mut target = Target::open(args.output.as_deref())?;
        let progress = target.file.filter(|_| !args.json).map(|_| Progress::new());
        let (mut written, mut after) = (0, 0);
        loop {
            let letters = self.next(&query, after).await?;
            let Some(last) = letters.last() else { break };
            after = last.id;
            for letter in &letters {
                // A letter that was settled long ago may be forgotten at any time.
                if let Some(page) = self.catalog.letter(self.slot(), letter.id).await? {
                    target.put(&letters_view::export_line(&page, self.slot()))?;
                    written += 1;
                }
            }
            if let Some(progress) = &progress {
                progress.show(&format!("{written} letters written"));
            }
        }
        drop(progress);
        target.finish()?;
        note(&format!("{} exported", letters_view::letters(written)));
        Ok(ExitCode::SUCCESS)
    }
}

impl Filters {
    fn filter(&self) -> Filter {
        Filter {
            ids: Vec::new(),
            states: self.states.clone(),
            reason: self.reason.clone(),
            topic: self.topic.clone(),
            event_type: self.event_type.clone(),
            event: self.event.clone(),
            key: self.key.clone().map(String::into_bytes),
            older_than: self.older_than,
            newer_than: self.newer_than,
        }
    }
}

/// Where exported letters go.
struct Target<'a> {
    /// `None` is stdout.
    file: Option<&'a Path>,
    out: BufWriter<Box<dyn Write>>,
}

impl<'a> Target<'a> {
    fn open(file: Option<&'a Path>) -> std::result::Result<Target<'a>, Failure> {
        let out: Box<dyn Write> = match file {
            Some(path) => Box::new(File::create(path).map_err(|error| unwritten(Some(path), error))?),
            None => Box::new(io::stdout()),
        };
        Ok(Target { file, out: BufWriter::new(out) })
    }

    fn put(&mut self, line: &str) -> std::result::Result<(), Failure> {
        self.out.write_all(line.as_bytes()).map_err(|error| unwritten(self.file, error))
    }

    fn finish(mut self) -> std::result::Result<(), Failure> {
        self.out.flush().map_err(|error| unwritten(self.file, error))
    }
}

/// A line on stderr that is rewritten, if somebody watches.
struct Progress {
    is_watched: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { is_watched: io::stderr().is_terminal() }
    }

    fn show(&self, line: &str) {
        if self.is_watched {
            // Without a stderr there is nobody to tell.
            let mut stderr = io::stderr().lock();
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush()).unwrap_or_default();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Says something on stderr.
fn note(text: &str) {
    writeln!(io::stderr(), "{text}").unwrap_or_default();
}

/// Who types this: a name and a machine.
fn person() -> String {
    let name = whoami::username().unwrap_or_else(|_| "unknown".into());
    let host = whoami::hostname().unwrap_or_else(|_| "unknown".into());
    format!("{name}@{host}")
}

/// Asks a person; elsewhere `--yes` has answered, or nothing is changed.
fn confirm(scope: &Scope, deed: Deed, count: u64) -> std::result::Result<(), Failure> {
    if scope.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let hint = "--yes agrees to it, --dry-run only looks";
        let what = format!("nothing was {}: there is no terminal to ask", deed.done());
        return Err(Failure::Usage(Error::definite(what).hint(hint)));
    }
    write!(io::stderr(), "type the number of letters to go on: ").unwrap_or_default();
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|error| Error::definite("the answer cannot be read").because(error))?;
    if !agrees(&answer, count) {
        let what = format!("nothing was {}: the answer was not {count}", deed.done());
        return Err(Error::definite(what).hint("--dry-run only looks").into());
    }
    Ok(())
}

fn agrees(answer: &str, count: u64) -> bool {
    answer.trim().parse::<u64>() == Ok(count)
}

/// The states to look for: those asked for, or all, as far as they can be changed.
fn changeable(asked: &[String], deed: Deed) -> Result<Vec<String>> {
    let is_asked = |state: &&str| asked.is_empty() || asked.iter().any(|one| one == state);
    let states: Vec<String> = OPEN.into_iter().filter(is_asked).map(str::to_owned).collect();
    if states.is_empty() {
        let what = format!("letters that are {} cannot be {}", asked.join(" or "), deed.done());
        return Err(Error::definite(what).hint(format!("those that are {} can be", OPEN.join(", "))));
    }
    Ok(states)
}

/// Objects to numbers that name no letter, or one whose state is final.
fn examine(slot: &str, ids: &[i64], states: &HashMap<i64, &str>, deed: Deed) -> Result<()> {
    for id in ids {
        let state = states.get(id).ok_or_else(|| unknown(*id, slot))?;
        if !OPEN.contains(state) {
            let what = format!("dead letter {id} is {state}, it cannot be {} any more", deed.done());
            return Err(Error::definite(what).hint("leave it out; nothing was changed"));
        }
    }
    Ok(())
}

/// The filter that means the same letters as `filter` did so long ago: what was parked since is none of them.
fn as_of(filter: &Filter, ago: Duration) -> Filter {
    Filter {
        older_than: Some(filter.older_than.unwrap_or_default().saturating_add(ago)),
        newer_than: filter.newer_than.map(|age| age.saturating_add(ago)),
        ..filter.clone()
    }
}

/// How many letters to change at once: no more than a second may have.
fn batch(rate: Option<NonZeroU32>) -> usize {
    rate.map_or(BATCH, |rate| BATCH.min(rate.get() as usize))
}

/// How long so many letters take at this rate.
fn due(count: u64, rate: Option<NonZeroU32>) -> Duration {
    rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(count as f64 / f64::from(rate.get())))
}

/// The letter as the relay would claim it now.
fn claimed(page: &LetterPage, again: &[Column]) -> Claimed {
    let is_missing = |name: &&String| !again.iter().any(|column| column.name == **name);
    Claimed {
        id: page.line.id,
        owner: String::new(),
        attempts: page.line.attempts,
        lane: page.line.lane.clone(),
        // A record looks the same in every history.
        is_current: true,
        origin: page.line.origin.clone(),
        event: page.line.event.clone(),
        position: page.line.position,
        committed_at: pg_micros(page.committed_at),
        columns: page.columns.iter().chain(again).cloned().collect(),
        not_kept: page.not_kept.iter().filter(is_missing).cloned().collect(),
    }
}

fn write_payload(page: &LetterPage, again: &[Column], outbox: Option<&Outbox>) -> Outcome {
    let id = page.line.id;
    let Some(outbox) = outbox else {
        let what = format!("no [[outbox]] block says which column of dead letter {id} is the payload");
        let hint = format!("outboxd dead-letters show {id} prints all columns");
        return Err(Error::definite(what).hint(hint).into());
    };
    let name = &pipeline::payload_column(outbox);
    match page.columns.iter().chain(again).find(|column| column.name == *name) {
        Some(Column { value: Some(bytes), .. }) => print_bytes(bytes),
        Some(Column { value: None, .. }) => {
            note(&format!("the payload of dead letter {id} is NULL"));
            Ok(ExitCode::SUCCESS)
        }
        None if page.not_kept.contains(name) => {
            let what = format!("the payload of dead letter {id} was not kept, and the table's row cannot be read");
            Err(Error::definite(what)
                .hint("it is not there, or not any more: only a backup of the table has it")
                .into())
        }
        None => {
            let what = format!("dead letter {id} has no column \"{name}\", which is the payload");
            let hint = format!("outboxd dead-letters show {id} prints all columns");
            Err(Error::definite(what).hint(hint).into())
        }
    }
}

fn unknown(id: i64, slot: &str) -> Error {
    let what = format!("dead letter {id} does not exist in slot \"{slot}\"");
    Error::definite(what).hint("outboxd dead-letters list shows those that do")
}

fn kept_elsewhere(topic: &str) -> Error {
    let what = format!("dead letters are kept in topic \"{topic}\", and can only be read there");
    Error::definite(what).hint("for those in the database, set OUTBOXD_DEAD_LETTER__STORE=postgres")
}

fn stopped(error: Error, deed: Deed, done: u64) -> Error {
    let hint = error.hint_text().unwrap_or("the same command goes on with the rest").to_owned();
    let what = format!("stopped half-way: {}", letters_view::changed(done, deed));
    Error::definite(what).because(error).hint(hint)
}

fn unseen(error: Error) -> Error {
    let what = "the relay will try the letters, but what becomes of them cannot be seen";
    Error::definite(what).because(error).hint("outboxd dead-letters list shows it")
}

fn unwritten(file: Option<&Path>, error: io::Error) -> Failure {
    match file {
        Some(path) => Error::definite(format!("cannot write to {}", path.display())).because(error).into(),
        None => Failure::Output(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::Cli;

    fn typed(rest: &str) -> std::result::Result<Cli, clap::Error> {
        Cli::try_parse_from(["outboxd", "dead-letters"].into_iter().chain(rest.split(' ')))
    }

    #[test]
    fn a_change_names_letters_or_agrees_to_all_that_match() {
        for (rest, kind) in [
            ("retry", ErrorKind::MissingRequiredArgument),
            ("retry --reason key", ErrorKind::MissingRequiredArgument),
            ("retry 1 --all-matching", ErrorKind::ArgumentConflict),
            ("retry 1 --reason key", ErrorKind::ArgumentConflict),
            ("retry 1 --wait --dry-run", ErrorKind::ArgumentConflict),
            ("retry 0", ErrorKind::ValueValidation),
            ("retry 1 --rate 0", ErrorKind::ValueValidation),
            ("retry --all-matching --reason keys", ErrorKind::InvalidValue),
            ("discard 1", ErrorKind::MissingRequiredArgument),
            ("discard 1 --note ", ErrorKind::InvalidValue),
            ("list --limit 0", ErrorKind::ValueValidation),
            ("show 1 --payload --json", ErrorKind::ArgumentConflict),
        ] {
            let error = typed(rest).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{rest}: {error}");
        }
        for rest in [
            "list",
            "list --state failed --state pending --after 7 --json",
            "show 17 --payload",
            "retry 1 2 3 --wait",
            "retry --all-matching",
            "retry --all-matching --reason key --older-than 1h --dry-run",
            "discard --all-matching --key a --note test --yes --rate 10",
            "export --event 7 --output letters.jsonl",
        ] {
            assert!(typed(rest).is_ok(), "{rest}");
        }
    }

    #[test]
    fn a_filter_means_the_same_letters_however_long_the_work_takes() {
        let secs = Duration::from_secs;
        let filter = Filter { newer_than: Some(secs(60)), reason: Some("key".into()), ..Filter::default() };
        let later = as_of(&filter, secs(10));
        assert_eq!((later.older_than, later.newer_than), (Some(secs(10)), Some(secs(70))));
        assert_eq!(later.reason.as_deref(), Some("key"));
        let older = as_of(&Filter { older_than: Some(Duration::MAX), ..Filter::default() }, secs(1));
        assert_eq!((older.older_than, older.newer_than), (Some(Duration::MAX), None));
    }

    #[test]
    fn a_rate_bounds_the_batch_and_the_pace() {
        let paces = [(None, 1000, 500, 0), (Some(10), 25, 10, 2), (Some(9000), 9000, 500, 1)];
        for (rate, letters, batched, seconds) in paces {
            let rate = rate.and_then(NonZeroU32::new);
            assert_eq!((batch(rate), due(letters, rate).as_secs()), (batched, seconds));
        }
    }

    #[test]
    fn only_the_very_number_is_a_yes() {
        for (answer, is_yes) in [("12\n", true), (" 12 ", true), ("", false), ("y\n", false), ("13", false)] {
            assert_eq!(agrees(answer, 12), is_yes, "{answer:?}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_named() {
        assert_eq!(changeable(&[], Deed::Retry).unwrap(), OPEN);
        assert_eq!(changeable(&["delivered".into(), "failed".into()], Deed::Retry).unwrap(), ["failed"]);
        let error = changeable(&["delivered".into()], Deed::Discard).unwrap_err();
        assert_eq!(error.to_string(), "letters that are delivered cannot be discarded");

        let states = HashMap::from([(1, "failed"), (2, "retrying"), (3, "delivered")]);
        assert!(examine("orders", &[1, 2], &states, Deed::Retry).is_ok());
        let error = examine("orders", &[1, 3], &states, Deed::Retry).unwrap_err();
        assert_eq!(error.to_string(), "dead letter 3 is delivered, it cannot be retried any more");
        let error = examine("orders", &[1, 17], &states, Deed::Retry).unwrap_err();
        assert_eq!(error.to_string(), "dead letter 17 does not exist in slot \"orders\"");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("list")));
    }
}
