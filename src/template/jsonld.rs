//! JSON-LD as filters: `payload | jsonld_expand("context.jsonld")` and `| jsonld_compact("context.jsonld")`.
//!
//! Contexts come from files that were read at the start. There is no loader for the network: a context that a document
//! refers to must be mapped to one of the files.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use json_ld::syntax::{IntoJsonWithContext, Parse, Print, Value as Document};
use json_ld::{
    ExtractContext, IriBuf, JsonLdProcessor, Options, RemoteContext, RemoteContextReference, RemoteDocument,
};
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, State};

use super::json;
use super::row::run_of;

/// The processor calls itself on every level of a document, with 250 KiB a level in a build without optimization; a
/// thread's stack would end with the eighth. A document has at most 128 levels. What is not used takes no memory.
const STACK: usize = 64 << 20;

/// The contexts that templates and documents may name.
#[derive(Debug, Default)]
pub struct Contexts {
    files: BTreeMap<String, RemoteContext>,
    /// What a document finds under an IRI.
    mapped: HashMap<IriBuf, RemoteDocument>,
}

impl Contexts {
    /// Contexts from files by name and text, and which of them stands for an IRI; or the file that is wrong, and why.
    pub fn new(
        files: impl IntoIterator<Item = (String, String)>,
        mapped: &BTreeMap<String, String>,
    ) -> Result<Contexts, (String, String)> {
        let mut documents = BTreeMap::new();
        let mut contexts = Contexts::default();
        for (file, text) in files {
            let (document, _) =
                Document::parse_str(&text).map_err(|error| (file.clone(), format!("not JSON: {error}")))?;
            let context = document.clone().into_ld_context();
            let context = context.map_err(|error| (file.clone(), format!("not a JSON-LD context: {error}")))?;
            contexts.files.insert(file.clone(), RemoteContext::new(None, None, context));
            documents.insert(file, document);
        }
        for (iri, file) in mapped {
            let name = IriBuf::new(iri.clone()).map_err(|_| (file.clone(), format!("\"{iri}\" is not an IRI")))?;
            let document = documents.get(file).ok_or_else(|| (file.clone(), format!("no file to stand for {iri}")))?;
            contexts.mapped.insert(name.clone(), RemoteDocument::new(Some(name), None, document.clone()));
        }
        Ok(contexts)
    }

    /// A file's context, or a reference to one that is mapped, which then stays a reference in what is compacted.
    fn named(&self, name: &str) -> Result<RemoteContextReference, Error> {
        if let Some(context) = self.files.get(name) {
            return Ok(RemoteContextReference::Loaded(context.clone()));
        }
        let iri = IriBuf::new(name.to_owned()).ok().filter(|iri| self.mapped.contains_key(iri));
        iri.map(RemoteContextReference::Iri).ok_or_else(|| failed(&format!("there is no context \"{name}\"")))
    }

    fn expand(&self, document: Document, context: Option<&str>) -> Result<Document, Error> {
        let expand_context = context.map(|name| self.named(name)).transpose()?;
        // Never in the order of a hash: a replay gives the same bytes.
        let options = Options { expand_context, ordered: true, ..Options::default() };
        let document = RemoteDocument::new(None, None, document);
        let expanded = at_once(document.expand_using(&self.mapped, options))?.map_err(|error| failed(&error))?;
        Ok(Document::Array(expanded.into_iter().map(|object| object.into_json_with(&())).collect()))
    }

    fn compact(&self, document: Document, context: &str) -> Result<Document, Error> {
        let options = Options { ordered: true, ..Options::default() };
        let document = RemoteDocument::new(None, None, document);
        let reference = self.named(context)?;
        let by_iri = matches!(reference, RemoteContextReference::Iri(_));
        let compacted = at_once(document.compact_using(reference, &self.mapped, options))?;
        let mut compacted = compacted.map_err(|error| failed(&error))?;
        if let (true, Document::Object(members)) = (by_iri, &mut compacted) {
            // The specification gives back the context as it was given; the crate, what it found there.
            members.get_mut("@context").for_each(|value| *value = Document::String(context.into()));
        }
        Ok(compacted)
    }
}

/// Makes the filters known.
pub fn add_to(environment: &mut Environment<'static>, contexts: Contexts) {
    let contexts = Arc::new(contexts);
    let shared = contexts.clone();
    environment.add_filter("jsonld_expand", move |state: &State<'_, '_>, value: &Value, context: Option<&str>| {
        stacker::grow(STACK, || back(state, &shared.expand(document(state, value)?, context)?))
    });
    environment.add_filter("jsonld_compact", move |state: &State<'_, '_>, value: &Value, context: &str| {
        stacker::grow(STACK, || back(state, &contexts.compact(document(state, value)?, context)?))
    });
}

fn document(state: &State<'_, '_>, value: &Value) -> Result<Document, Error> {
    let text = json::write(value, None, &*run_of(state)?)?;
    let (document, _) = Document::parse_str(&text).map_err(|error| failed(&error))?;
    Ok(document)
}

fn back(state: &State<'_, '_>, document: &Document) -> Result<Value, Error> {
    json::parse(document.compact_print().to_string().as_bytes(), &run_of(state)?).map_err(|what| failed(&what))
}

/// The crate's functions wait for loaders only, and ours has everything at hand.
fn at_once<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err(failed("it waits for something")),
    }
}

fn failed(what: &(impl Display + ?Sized)) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("JSON-LD: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Columns, Templates, Typed};
    use super::*;

    /// The context of the specification's examples 5 and 6.
    const PERSON: &str = r#"{"@context": {"name": "http://schema.org/name",
        "image": {"@id": "http://schema.org/image", "@type": "@id"},
        "homepage": {"@id": "http://schema.org/url", "@type": "@id"}}}"#;

    const IRI: &str = "https://json-ld.org/contexts/person.jsonld";

    fn rendered(source: &str, payload: &str) -> Result<String, String> {
        let mapped = [(IRI.to_owned(), "person.jsonld".to_owned())].into();
        let contexts = Contexts::new([("person.jsonld".to_owned(), PERSON.to_owned())], &mapped).unwrap();
        let templates = Templates::with_contexts([("t".to_owned(), source.to_owned())], contexts).unwrap();
        let mut out = Vec::new();
        let columns = Columns(vec![("payload", Typed::Json(payload.as_bytes()))]);
        templates.render("t", &columns, &mut out, 100_000).map_err(|problem| problem.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    const EXPANDED: &str = r#"[{"http://schema.org/name":[{"@value":"Manu Sporny"}],"http://schema.org/url":[{"@id":"http://manu.sporny.org/"}],"http://schema.org/image":[{"@id":"http://manu.sporny.org/images/manu.png"}]}]"#;

    #[test]
    fn a_document_is_expanded_with_a_file_with_a_mapped_context_or_with_its_own() {
        let members = r#""name": "Manu Sporny", "homepage": "http://manu.sporny.org/",
            "image": "http://manu.sporny.org/images/manu.png""#;
        let plain = format!("{{{members}}}");
        assert_eq!(rendered("{{ payload | jsonld_expand('person.jsonld') }}", &plain).as_deref(), Ok(EXPANDED));
        let referring = format!("{{\"@context\": \"{IRI}\", {members}}}");
        assert_eq!(rendered("{{ payload | jsonld_expand }}", &referring).as_deref(), Ok(EXPANDED));
        let own = PERSON.trim_end_matches('}').to_owned() + "}}, " + members + "}";
        assert_eq!(rendered("{{ payload | jsonld_expand }}", &own).as_deref(), Ok(EXPANDED));
    }

    #[test]
    fn a_document_is_compacted_and_a_mapped_context_stays_a_reference() {
        let members = r#""image":"http://manu.sporny.org/images/manu.png","name":"Manu Sporny","homepage":"http://manu.sporny.org/""#;
        let by_file = rendered("{{ payload | jsonld_compact('person.jsonld') }}", EXPANDED).unwrap();
        assert!(by_file.starts_with(r#"{"@context":{"name":"http://schema.org/name","#), "{by_file}");
        assert!(by_file.ends_with(&format!(",{members}}}")), "{by_file}");
        let by_iri = rendered(&format!("{{{{ payload | jsonld_compact('{IRI}') }}}}"), EXPANDED).unwrap();
        assert_eq!(by_iri, format!("{{\"@context\":\"{IRI}\",{members}}}"));
    }

    #[test]
    fn a_replay_gives_the_same_bytes() {
        let members: Vec<_> =
            (0..40).map(|n| format!("\"http://x/{}\":[{n},{{\"@id\":\"http://y/{n}\"}}]", n * 7 % 40)).collect();
        let payload = format!("{{{}}}", members.join(","));
        for source in ["{{ payload | jsonld_expand }}", "{{ payload | jsonld_compact('person.jsonld') }}"] {
            let first = rendered(source, &payload).unwrap();
            assert!((0..50).all(|_| rendered(source, &payload).unwrap() == first), "{first}");
        }
    }

    /// Typed values, language maps, lists, sets, reverse properties and graphs: sections 4.2 to 4.9 of JSON-LD 1.1.
    #[test]
    fn the_shapes_of_the_specification_expand() {
        for (payload, expected) in [
            (
                r#"{"@context": {"modified": {"@id": "http://purl.org/dc/terms/modified", "@type": "http://www.w3.org/2001/XMLSchema#dateTime"}},
                    "@id": "http://example.com/docs/1", "modified": "2010-05-29T14:17:39+02:00"}"#,
                r#"[{"@id":"http://example.com/docs/1","http://purl.org/dc/terms/modified":[{"@type":"http://www.w3.org/2001/XMLSchema#dateTime","@value":"2010-05-29T14:17:39+02:00"}]}]"#,
            ),
            (
                r#"{"@context": {"occupation": {"@id": "http://example.com/vocab/occupation", "@container": "@language"}},
                    "occupation": {"en": "Ninja", "cs": "Nindža"}}"#,
                r#"[{"http://example.com/vocab/occupation":[{"@language":"cs","@value":"Nindža"},{"@language":"en","@value":"Ninja"}]}]"#,
            ),
            (
                r#"{"@context": {"nick": {"@id": "http://xmlns.com/foaf/0.1/nick", "@container": "@list"}},
                    "@id": "http://example.org/people#joebob", "nick": ["joe", "bob", "jaybee"]}"#,
                r#"[{"@id":"http://example.org/people#joebob","http://xmlns.com/foaf/0.1/nick":[{"@list":[{"@value":"joe"},{"@value":"bob"},{"@value":"jaybee"}]}]}]"#,
            ),
            (
                r#"{"@context": {"@vocab": "http://example.com/vocab/"}, "price": 1.10, "n": 12345678901234567890, "big": 1e400, "none": null}"#,
                r#"[{"http://example.com/vocab/big":[{"@value":1e400}],"http://example.com/vocab/n":[{"@value":12345678901234567890}],"http://example.com/vocab/price":[{"@value":1.10}]}]"#,
            ),
        ] {
            let made = rendered("{{ payload | jsonld_expand }}", payload).unwrap();
            // The specification leaves the order of members open.
            let same =
                |text: &str| serde_json::from_str::<serde_json::Value>(&text.replace("1e400", "\"1e400\"")).unwrap();
            assert_eq!(same(&made), same(expected), "{made}");
        }
    }

    #[test]
    fn what_is_expanded_and_compacted_again_is_what_it_was_with_its_numbers() {
        let payload = r#"{"name": "Ann", "homepage": "http://a.example/", "image": "http://a.example/i.png"}"#;
        let source = "{% set doc = payload | jsonld_expand('person.jsonld') | jsonld_compact('person.jsonld') %}\
                      {{ doc.name }} {{ doc.homepage }} {{ doc.image }}";
        assert_eq!(rendered(source, payload).as_deref(), Ok("Ann http://a.example/ http://a.example/i.png"));
    }

    #[test]
    fn a_context_that_is_no_file_and_not_mapped_is_a_problem() {
        let elsewhere = r#"{"@context": "https://schema.org/", "name": "x"}"#;
        let problem = rendered("{{ payload | jsonld_expand }}", elsewhere).unwrap_err();
        assert!(problem.starts_with("template \"t\", line 1, column 14: JSON-LD: "), "{problem}");
        assert!(problem.contains("https://schema.org/"), "{problem}");
        let nosuch = rendered("{{ payload | jsonld_compact('nosuch.jsonld') }}", "{}").unwrap_err();
        assert!(nosuch.ends_with("JSON-LD: there is no context \"nosuch.jsonld\""), "{nosuch}");
        assert!(rendered("{{ payload | jsonld_expand }}", r#"{"@id": 1}"#).is_err());
    }

    #[test]
    fn the_deepest_document_does_not_end_the_process() {
        let deep = |open: &str, close: &str, levels| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        for payload in [
            deep(r#"{"http://x/p":"#, "}", 128),
            deep(r#"{"@type":"http://x/T","http://x/p":"#, "}", 128),
            deep(r#"{"http://x/p":{"@list":["#, "]}}", 42),
            deep(r#"{"@graph":[{"http://x/p":"#, "}]}", 42),
            deep(r#"{"@context":{"p":{"@id":"http://x/p","@context":{"q":"http://x/q"}}},"p":"#, "}", 124),
        ] {
            rendered("{{ payload | jsonld_compact('person.jsonld') | tojson | length }}", &payload).unwrap();
            // Expanded, it is deeper than a template may see.
            let problem = rendered("{{ payload | jsonld_expand }}", &payload).unwrap_err();
            assert!(problem.contains("JSON-LD: more than 128 levels"), "{problem}");
        }
    }

    #[test]
    fn a_context_file_that_is_wrong_is_refused_by_name() {
        let new = |text: &str, mapped: &[(&str, &str)]| {
            let mapped = mapped.iter().map(|(iri, file)| ((*iri).to_owned(), (*file).to_owned())).collect();
            Contexts::new([("c.jsonld".to_owned(), text.to_owned())], &mapped).unwrap_err()
        };
        assert!(new("{", &[]).1.starts_with("not JSON: "));
        assert!(new("[]", &[]).1.starts_with("not a JSON-LD context: "));
        let missing = ("d.jsonld".to_owned(), "no file to stand for http://x/".to_owned());
        assert_eq!(new(PERSON, &[("http://x/", "d.jsonld")]), missing);
        assert_eq!(new(PERSON, &[("no iri", "c.jsonld")]).1, "\"no iri\" is not an IRI");
    }
}
