//! `outboxd registry check`: what sample events would become by the routes, without a server.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use outboxd::config::{Config, Outbox};
use outboxd::dead_letter::Rejection;
use outboxd::error::Error;
use outboxd::record::Preview;
use outboxd::route::sample;
use outboxd::source::pg_micros;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Failure, Outcome, RegistryCheck, letters_json, letters_view, print};

/// One event of a file.
struct Verdict {
    /// File and number in it.
    place: String,
    record: Result<Preview, Rejection>,
}

/// `outboxd registry check`
pub fn check(config: &Config, args: &RegistryCheck) -> Outcome {
    let outbox = find(config, args.outbox.as_deref())?;
    let now = pg_micros(SystemTime::now());
    let mut verdicts = Vec::new();
    for file in &args.files {
        for (number, event) in events(file)?.iter().enumerate() {
            let place = format!("{}, event {}", file.display(), number + 1);
            verdicts.push(Verdict { place, record: sample(&config.rules, outbox, event.get().as_bytes(), now) });
        }
    }
    print(&if args.json { as_json(&verdicts) } else { as_text(&verdicts) })?;
    let is_good = verdicts.iter().all(|verdict| verdict.record.is_ok());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find<'a>(config: &'a Config, named: Option<&str>) -> Result<&'a Outbox, Failure> {
    let names = || config.outbox.iter().map(|outbox| outbox.source.to_string()).collect::<Vec<_>>().join(", ");
    match (named, config.outbox.as_slice()) {
        (None, [outbox]) => Ok(outbox),
        (None, _) => Err(Failure::Usage(
            Error::definite("there are several outboxes").hint(format!("--outbox names one: {}", names())),
        )),
        (Some(wanted), outboxes) => Outbox::find(outboxes, wanted).ok_or_else(|| {
            Failure::Usage(
                Error::definite(format!("there is no outbox \"{wanted}\"")).hint(format!("known: {}", names())),
            )
        }),
    }
}

/// One JSON object, several one behind the other, or an array of them.
fn events(file: &Path) -> Result<Vec<Box<RawValue>>, Failure> {
    let wrong = |what: &str| Error::definite(format!("{} {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| Failure::Usage(wrong("cannot be read").because(error)))?;
    let hint = "an event is a JSON object whose members are the row's columns";
    let parsed: Result<Vec<Box<RawValue>>, _> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(&text),
        false => serde_json::Deserializer::from_str(&text).into_iter().collect(),
    };
    let events = parsed.map_err(|error| Failure::Usage(wrong("is not JSON").because(error).hint(hint)))?;
    if events.is_empty() {
        // Whoever lets a script look at samples would take nothing for well.
        let hint = format!("a file has one, several one behind the other, or an array of them; {hint}");
        return Err(Failure::Usage(wrong("has no event").hint(hint)));
    }
    Ok(events)
}

fn as_text(verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    for Verdict { place, record } in verdicts {
        match record {
            Ok(record) => out.push_str(&format!("ok      {place}\n{}", letters_view::record(record))),
            Err(Rejection { reason, message }) => {
                out.push_str(&format!("parked  {place}\n  reason     {reason}: {message}\n"));
            }
        }
    }
    let parked = verdicts.iter().filter(|verdict| verdict.record.is_err()).count();
    out.push_str(&format!("{} ok, {parked} parked\n", verdicts.len() - parked));
    out
}

fn as_json(verdicts: &[Verdict]) -> String {
    let event = |Verdict { place, record }: &Verdict| {
        let mut event = letters_json::preview(record);
        event["event"] = json!(place);
        if let Ok(Preview { value, .. }) = record {
            event["record"]["value"] = outboxd::dead_letter::readable(value.as_deref());
        }
        event
    };
    let events: Vec<Value> = verdicts.iter().map(event).collect();
    format!("{}\n", json!({ "events": events }))
}
