//! Who runs this PostgreSQL, and what its owner must do there instead of editing `postgresql.conf`.

use crate::source::catalog::survey::Setup;

/// A provider with ways of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Own,
    Rds,
    Aurora,
    CloudSql,
    Azure,
    Neon,
    Supabase,
}

impl Provider {
    /// By the settings, functions and roles that only this provider has.
    pub(super) fn of(setup: &Setup) -> Provider {
        let has = |prefix: &str| setup.settings.keys().any(|name| name.starts_with(prefix));
        if setup.aurora {
            Provider::Aurora
        } else if has("rds.") {
            Provider::Rds
        } else if has("cloudsql.") {
            Provider::CloudSql
        } else if has("azure.") {
            Provider::Azure
        } else if has("neon.") {
            Provider::Neon
        } else if setup.supabase {
            Provider::Supabase
        } else {
            Provider::Own
        }
    }

    /// How logical decoding is switched on.
    pub(super) fn wal_level(self) -> &'static str {
        match self {
            Provider::Own => "ALTER SYSTEM SET wal_level = logical;  -- then restart the server",
            Provider::Rds => "set rds.logical_replication = 1 in the instance's parameter group, then reboot it",
            Provider::Aurora => {
                "set rds.logical_replication = 1 in the cluster's parameter group, then reboot the writer"
            }
            Provider::CloudSql => {
                "gcloud sql instances patch INSTANCE --database-flags=cloudsql.logical_decoding=on  # restarts it, \
                 and replaces the flags you do not repeat"
            }
            Provider::Azure => {
                "az postgres flexible-server parameter set -g GROUP -s SERVER -n wal_level -v logical  # then \
                 restart it"
            }
            Provider::Neon => {
                "enable logical replication in the project's settings of the console (restarts the computes, cannot \
                 be undone)"
            }
            Provider::Supabase => {
                "Supabase sets wal_level = logical by itself: ask its support why this project differs"
            }
        }
    }

    /// How the role gets the right to replicate.
    pub(super) fn replication_role(self, role: &str) -> String {
        match self {
            Provider::Rds | Provider::Aurora => format!("GRANT rds_replication TO {role};"),
            Provider::CloudSql => format!("ALTER USER {role} WITH REPLICATION;"),
            Provider::Own | Provider::Azure | Provider::Neon | Provider::Supabase => {
                format!("ALTER ROLE {role} REPLICATION;")
            }
        }
    }

    /// How the WAL that a slot may keep is bounded.
    pub(super) fn slot_cap(self) -> &'static str {
        match self {
            Provider::Own => {
                "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();  -- below the free disk"
            }
            Provider::Rds => "set max_slot_wal_keep_size in the parameter group, below the free storage",
            Provider::Aurora => "set max_slot_wal_keep_size in the cluster's parameter group, below the free storage",
            Provider::CloudSql => {
                "gcloud sql instances patch INSTANCE --database-flags=max_slot_wal_keep_size=51200  # MB; repeat \
                 your other flags"
            }
            Provider::Azure => {
                "az postgres flexible-server parameter set -g GROUP -s SERVER -n max_slot_wal_keep_size -v 51200  # MB"
            }
            Provider::Neon => "Neon bounds it itself, and removes a slot that was inactive for about 40 hours",
            Provider::Supabase => {
                "supabase postgres-config update --project-ref REF --config max_slot_wal_keep_size=50GB"
            }
        }
    }

    /// How the slot survives a failover.
    pub(super) fn failover(self) -> &'static str {
        match self {
            Provider::Own | Provider::Supabase => {
                "on each standby: sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name and a \
                 dbname in primary_conninfo"
            }
            Provider::Rds => {
                "also set hot_standby_feedback, rds.logical_slot_sync_dbname and synchronized_standby_slots in the \
                 parameter group; Multi-AZ fails over to its standby, never to a read replica"
            }
            Provider::Aurora => "connect through the cluster's writer endpoint, whose storage keeps the slot",
            Provider::CloudSql => {
                "failover slots need Enterprise Plus with advanced disaster recovery, and its DNS write endpoint"
            }
            Provider::Azure => "also set sync_replication_slots and hot_standby_feedback on the server",
            Provider::Neon => "restoring a branch drops its slots: run outboxd init afterwards",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::catalog::survey::Setting;

    #[test]
    fn each_provider_is_known_by_what_only_it_has() {
        let with = |name: &str| Setup { settings: [(name.to_owned(), Setting::default())].into(), ..Setup::default() };
        assert_eq!(Provider::of(&with("wal_level")), Provider::Own);
        assert_eq!(Provider::of(&with("rds.logical_replication")), Provider::Rds);
        assert_eq!(Provider::of(&Setup { aurora: true, ..with("rds.logical_replication") }), Provider::Aurora);
        assert_eq!(Provider::of(&with("cloudsql.logical_decoding")), Provider::CloudSql);
        assert_eq!(Provider::of(&with("azure.extensions")), Provider::Azure);
        assert_eq!(Provider::of(&with("neon.max_file_cache_size")), Provider::Neon);
        assert_eq!(Provider::of(&Setup { supabase: true, ..Setup::default() }), Provider::Supabase);
    }
}
