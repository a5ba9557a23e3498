#!/usr/bin/env bash
# Patroni runs this once, in a new cluster, with the leader's connection string: makes the service's role and
# database. The role sees the standbys' state (pg_monitor) and is no superuser.
set -euo pipefail

psql --set=ON_ERROR_STOP=1 --dbname="$1" --set=password="$DPLEDGER_PASSWORD" <<'SQL'
CREATE ROLE dpledger WITH LOGIN PASSWORD :'password';
GRANT pg_monitor TO dpledger;
CREATE DATABASE dpledger OWNER dpledger;
SQL
