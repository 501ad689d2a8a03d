//! What a reload may not change: the old configuration and the new one enter, the names of fields leave.

use std::fmt::Debug;

use super::Config;

impl Config {
    /// The fields in which the new configuration differs from this one, and that need a restart. Routes, registry, templates,
    /// the log and most of `[dead_letter]` do not.
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let (a, b) = (&self.postgres, &new.postgres);
        let (c, d) = (&self.kafka, &new.kafka);
        let (e, f) = (&self.limits, &new.limits);
        let [g, h] = [&self.dead_letter, &new.dead_letter];
        // Not every one of these can be compared; what is printed of them is all that was typed, but for secrets.
        let other = |old: &dyn Debug, new: &dyn Debug| format!("{old:?}") != format!("{new:?}");
        let reveals =
            |kafka: &super::Kafka| kafka.properties.values().map(|value| value.reveal().to_owned()).collect::<Vec<_>>();
        let fields = [
            ("postgres.url", other(&a.connection, &b.connection)),
            ("postgres.password", a.connection.password != b.connection.password),
            ("postgres.slot", a.slot != b.slot),
            ("postgres.publication", a.publication != b.publication),
            ("postgres.sender_timeout", a.sender_timeout != b.sender_timeout),
            ("outbox", other(&self.outbox, &new.outbox)),
            ("kafka.brokers", c.brokers != d.brokers),
            ("kafka.create_topics", other(&c.create_topics, &d.create_topics)),
            ("kafka.properties", other(&c.properties, &d.properties) || reveals(c) != reveals(d)),
            ("dead_letter.store", g.store != h.store),
            ("dead_letter.order", g.order != h.order),
            ("http.listen", self.http.listen != new.http.listen),
            ("limits.memory", e.memory != f.memory),
            ("limits.window", e.window != f.window),
            ("limits.event", e.event != f.event),
            ("limits.join", e.join != f.join),
            ("limits.settle", e.settle != f.settle),
            ("limits.shutdown", e.shutdown != f.shutdown),
            ("limits.primary_grace", e.primary_grace != f.primary_grace),
            ("limits.backoff", e.backoff != f.backoff),
            ("limits.probe", e.probe != f.probe),
            ("limits.sql", e.sql != f.sql),
            ("limits.slot_creation", e.slot_creation != f.slot_creation),
        ];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text =
            format!("[postgres]\nurl = \"postgres://a@b/c\"\npassword = \"x\"\n[kafka]\nbrokers = \"b:1\"\n{more}");
        Config::from_toml(&text, "o.toml", std::iter::empty()).unwrap()
    }

    #[test]
    fn routes_and_numbers_of_letters_change_without_a_restart_and_all_else_is_named() {
        let old = config("");
        for (more, names) in [
            ("", vec![]),
            ("[[route]]\ntopic = \"x\"", vec![]),
            ("[registry]\nunmatched = \"reject\"\n[log]\nlevel = \"debug\"", vec![]),
            (
                "[dead_letter]\nmax_attempts = 3\nmax_rate = 50\nretention = \"1d\"\nbackoff = { first = \"2s\" }",
                vec![],
            ),
            ("[dead_letter]\nunknown_topic = \"park\"", vec![]),
            ("[dead_letter]\nstore = \"kafka\"", vec!["dead_letter.store"]),
            ("[dead_letter]\norder = \"park-key\"\n[[route]]\nkey = \"{aggregate_id}\"", vec!["dead_letter.order"]),
            ("properties = { \"sasl.password\" = \"y\" }", vec!["kafka.properties"]),
            ("[[outbox]]\ntable = \"a.b\"\n[limits]\nwindow = 5", vec!["outbox", "limits.window"]),
            ("[http]\nlisten = \"127.0.0.1:1\"", vec!["http.listen"]),
        ] {
            assert_eq!(old.needs_restart(&config(more)), names, "{more}");
        }
        let mut other = config("");
        other.postgres.connection.password = Some(super::super::Secret::new("y"));
        assert_eq!(old.needs_restart(&other), ["postgres.password"], "a secret counts, and is not shown");
        let with = |secret: &str| config(&format!("properties = {{ \"sasl.password\" = \"{secret}\" }}"));
        assert_eq!(with("y").needs_restart(&with("z")), ["kafka.properties"]);
    }
}
