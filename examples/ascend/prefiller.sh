#!/usr/bin/env bash
# The prefiller, with the plugin. NOT RUN ON AN NPU.
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh

connector='{
  "kv_connector": "MooncakeConnectorV1",
  "kv_role": "kv_producer",
  "kv_port": "30000",
  "kv_connector_extra_config": {"prefill": {"dp_size": 1, "tp_size": 1}, "decode": {"dp_size": 1, "tp_size": 1}}
}'

arguments=(
  --served-model-name Qwen3-8B
  --host 0.0.0.0 --port "$PREFILLER_PORT"
  --tensor-parallel-size 1 --dtype bfloat16 --seed 1024
  --block-size 128
  # vLLM-Ascend's pages switch it off on both sides; here the prefiller exists for it.
  --enable-prefix-caching
  --kv-cache-memory-bytes "$KV_BYTES"
  --max-model-len "$MAX_MODEL_LEN" --max-num-batched-tokens 16384
  # Each answer then says how much of the prompt was cached, which checks the plugin from outside.
  --enable-prompt-tokens-details
  --kv-transfer-config "$connector"
  --plugin hitratio --hitratio-target "$HITRATIO_TARGET" --hitratio-port "$HITRATIO_PORT"
)
ASCEND_RT_VISIBLE_DEVICES=$PREFILLER_NPU exec vllm serve "$MODEL" "${arguments[@]}"
