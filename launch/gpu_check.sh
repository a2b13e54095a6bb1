#!/usr/bin/env bash
# The check of GPUs by the name that its users know; benchmarks/gpu/check.sh says what it does.
exec "$(dirname "$0")/../benchmarks/gpu/check.sh" "$@"
