#!/bin/sh
# The relay's login, made once when the data directory is new. What it may do is granted by `outboxd init`.
set -eu
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --no-psqlrc --set ON_ERROR_STOP=1 \
  --set password="$(cat /run/secrets/outboxd_password)" <<'SQL'
CREATE ROLE outboxd LOGIN REPLICATION PASSWORD :'password';
SQL
