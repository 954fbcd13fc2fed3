#!/usr/bin/env bash
# Checks what must be right before and after the servers start. NOT RUN ON AN NPU.
#
#   ./check.sh before      the installation
#   ./check.sh prefiller   a running prefiller
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh

good() { printf 'ok    %s\n' "$*"; }
bad() { printf 'wrong %s\n' "$*"; failed=1; }
failed=0

metric() { awk -v name="$1" '$1 ~ "^" name "[{]?" { print $NF; exit }' <<<"$page"; }

expect() { # name value words
  local found
  found=$(metric "$1")
  if [ "${found%.0}" = "$2" ]; then good "$1 is $2: $3"; else bad "$1 is ${found:-absent}, not $2: $3"; fi
}

case ${1:-} in
  before)
    versions=$(python -c 'from importlib.metadata import version as v; print(v("vllm"), v("vllm-ascend"))') ||
      { bad "vllm and vllm-ascend are not both installed"; exit 1; }
    good "vllm and vllm-ascend: $versions (the paper's pair: 0.22.1 and 0.22.1rc1)"
    plugins=$(python -c 'from importlib.metadata import entry_points as e
print(*sorted(p.name for g in ("vllm.platform_plugins", "vllm.general_plugins") for p in e(group=g)))')
    for name in ascend ascend_kv_connector hitratio; do
      case " $plugins " in
        *" $name "*) good "plugin $name is installed" ;;
        *) bad "plugin $name is not installed" ;;
      esac
    done
    vllm serve --help=hitratio 2>/dev/null | grep -q -- --hitratio-target &&
      good "vllm serve knows --hitratio-target" || bad "vllm serve does not know --hitratio-target"
    command -v npu-smi >/dev/null && good "npu-smi is installed" || bad "npu-smi is not installed: no driver?"
    ;;
  prefiller)
    page=$(curl -fsS "http://127.0.0.1:$HITRATIO_PORT/metrics") ||
      { bad "no exporter on port $HITRATIO_PORT: was the prefiller started with --plugin hitratio?"; exit 1; }
    expect hitratio_block_size_tokens 128 "the only block size with prefix caching on an NPU"
    expect hitratio_capacity_blocks 2274 "40 GiB in blocks of 18 MiB, without vLLM's null block"
    off=$(grep 'hitratio_degraded{.*prefix_caching_off' <<<"$page" | awk '{ print $NF }')
    [ "${off%.0}" = 0 ] && good "prefix caching is on" ||
      bad "prefix caching is off: vLLM-Ascend's pages say --no-enable-prefix-caching, but a prefiller needs it on"
    for reason in $(grep '^hitratio_degraded{' <<<"$page" | awk '$NF != 0' | sed 's/.*reason="\([^"]*\)".*/\1/'); do
      bad "degraded: $reason (the server's log explains it)"
    done
    tail=$(grep '^hitratio_build_info' <<<"$page" | sed 's/.*unhashed="\([^"]*\)".*/\1/')
    good "partly filled blocks go to the $tail of the free queue (vLLM 0.22.1: tail, the paper's setting)"
    printf '      requests so far %s, observed %s\n' "$(metric hitratio_requests_total)" \
      "$(metric hitratio_observed_ratio || true)"
    ;;
  *)
    echo "usage: ./check.sh before|prefiller" >&2
    exit 2
    ;;
esac
exit "$failed"
