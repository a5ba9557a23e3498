#!/usr/bin/env bash
# Runs a standby: copies the primary once, then follows it.
set -euo pipefail

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # The name is the one that synchronize.sh asks the primary to wait for.
    primary="host=$PRIMARY_HOST port=$PRIMARY_PORT user=replicator application_name=standby"
    until pg_basebackup --pgdata="$PGDATA" --wal-method=stream --checkpoint=fast --write-recovery-conf \
        --dbname="$primary"; do
        find "$PGDATA" -mindepth 1 -delete
        sleep 2
    done
    chmod 0700 "$PGDATA"
fi
exec postgres -D "$PGDATA" "$@"
