-- The types of a letter's columns: a record that writes a number as a number must do so when its event is tried again, too.
-- Each is the type's OID in the upper and its modifier in the lower 32 bits; letters of before have none.

ALTER TABLE outboxd.dead_letter ADD COLUMN column_types bigint[] NOT NULL DEFAULT '{}';
