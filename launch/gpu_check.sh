#!/usr/bin/env bash
# The GPU check under its documented name; see benchmarks/gpu/check.sh.
exec "$(dirname "$0")/../benchmarks/gpu/check.sh" "$@"
