# Settings of the paper's set-up, sourced by the other scripts. NOT RUN ON AN NPU: they come from vLLM-Ascend's
# documentation and source. What the plugin does there is tested on a CPU (tests/ascend).
#
#   vLLM-Ascend 0.22.1rc1 with vLLM 0.22.1, Mooncake 0.3.9, CANN 9.0.0; Qwen3-8B in bfloat16, blocks of 128 tokens

# Change these to fit the machine.
export MODEL=${MODEL:-/models/Qwen3-8B}
export NIC=${NIC:-eth0}
export IP=${IP:-$(ip -4 -o addr show "$NIC" 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')}

# One NPU each: prefiller, then the decoders.
export PREFILLER_NPU=${PREFILLER_NPU:-0}
export DECODER_NPUS=${DECODER_NPUS:-1}

export PREFILLER_PORT=${PREFILLER_PORT:-13700}
export DECODER_PORT=${DECODER_PORT:-13800} # and the next ones
export PROXY_PORT=${PROXY_PORT:-8080}

# The paper's prefix cache: 40 GiB in blocks of 18 MiB are 2,275 blocks, 2,274 of which hold content.
export KV_BYTES=${KV_BYTES:-40G}
export MAX_MODEL_LEN=${MAX_MODEL_LEN:-32768}

export HITRATIO_TARGET=${HITRATIO_TARGET:-0.8}
export HITRATIO_PORT=${HITRATIO_PORT:-9577}

export HCCL_IF_IP=$IP GLOO_SOCKET_IFNAME=$NIC TP_SOCKET_IFNAME=$NIC HCCL_SOCKET_IFNAME=$NIC
export OMP_PROC_BIND=false OMP_NUM_THREADS=10

# One list filters plugins of all kinds: a list of this plugin alone would turn the NPU platform off.
unset VLLM_PLUGINS
# vLLM's default, spawn, loads both projects' plugins in the right order.
unset VLLM_WORKER_MULTIPROC_METHOD
