#!/usr/bin/env bash
# vLLM-Ascend's example proxy in front of both. NOT RUN ON AN NPU.
#
# It is part of vLLM-Ascend's repository (examples/disaggregated_prefill_v1/); VLLM_ASCEND is a clone of tag v0.22.1rc1.
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh

: "${VLLM_ASCEND:?set it to a clone of vllm-ascend, tag v0.22.1rc1}"
IFS=, read -ra npus <<<"$DECODER_NPUS"
hosts=() ports=()
for number in "${!npus[@]}"; do
  hosts+=("$IP")
  ports+=("$((DECODER_PORT + number))")
done
exec python "$VLLM_ASCEND/examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py" \
  --host "$IP" --port "$PROXY_PORT" \
  --prefiller-hosts "$IP" --prefiller-ports "$PREFILLER_PORT" \
  --decoder-hosts "${hosts[@]}" --decoder-ports "${ports[@]}"
