#!/usr/bin/env bash
# Makes the primary wait for the standby with every commit. Not in the primary's own settings: a new primary
# would wait for a standby that cannot copy it before it is there.
set -euo pipefail

until [ "$(psql --tuples-only --no-align --command="SELECT state FROM pg_stat_replication WHERE application_name = 'standby'")" = streaming ]; do
    sleep 1
done
psql --set=ON_ERROR_STOP=1 --command="ALTER SYSTEM SET synchronous_standby_names = 'standby'" \
    --command="SELECT pg_reload_conf()"
until [ "$(psql --tuples-only --no-align --command="SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'")" = sync ]; do
    sleep 1
done
