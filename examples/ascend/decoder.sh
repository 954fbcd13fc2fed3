#!/usr/bin/env bash
# Decoder number $1 (0, 1, ...), one NPU each. It needs neither a prefix cache nor the plugin. NOT RUN ON AN NPU.
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh

number=${1:-0}
IFS=, read -ra npus <<<"$DECODER_NPUS"
[ "$number" -lt "${#npus[@]}" ] || { echo "DECODER_NPUS=$DECODER_NPUS has no number $number" >&2; exit 2; }

connector='{
  "kv_connector": "MooncakeConnectorV1",
  "kv_role": "kv_consumer",
  "kv_port": "'$((30100 + 100 * number))'",
  "kv_connector_extra_config": {"prefill": {"dp_size": 1, "tp_size": 1}, "decode": {"dp_size": 1, "tp_size": 1}}
}'

arguments=(
  --served-model-name Qwen3-8B
  --host 0.0.0.0 --port "$((DECODER_PORT + number))"
  --tensor-parallel-size 1 --dtype bfloat16 --seed 1024
  --block-size 128 --no-enable-prefix-caching
  --gpu-memory-utilization 0.9
  --max-model-len "$MAX_MODEL_LEN" --max-num-batched-tokens 16384
  --kv-transfer-config "$connector"
)
ASCEND_RT_VISIBLE_DEVICES=${npus[$number]} exec vllm serve "$MODEL" "${arguments[@]}"
