#!/bin/bash
# What a careful operator writes by hand: the same image, Ray and vLLM with the same arguments on two nodes, until a
# first chat answer. Usage: rival.sh SSH_1 SSH_2 ADDRESS_1 ADDRESS_2 IMAGE MODEL_DIRECTORY up|down
set -eu
one=$1 two=$2 first=$3 second=$4 image=$5 model=$6

if [ "$7" = down ]; then
    $one docker rm --force rival >/dev/null; $two docker rm --force rival >/dev/null; exit
fi
env="-e VLLM_CPU_KVCACHE_SPACE=1 -e VLLM_CPU_OMP_THREADS_BIND=nobind -e OMP_NUM_THREADS=1 -e TORCH_COMPILE_DISABLE=1 \
  -e HF_HUB_OFFLINE=1 -e VLLM_NO_USAGE_STATS=1 -e DO_NOT_TRACK=1 -e RAY_USAGE_STATS_ENABLED=0 \
  -e RAY_memory_monitor_refresh_ms=0 -e GLOO_SOCKET_IFNAME=enp1s0f0np0"
run="docker run --detach --name rival --network host --shm-size 2000000000 -v $model:/model:ro $env"
ray="--num-cpus=1 --num-gpus=1 --memory=2000000000 --object-store-memory=100000000 --disable-usage-stats"
$one "$run -e VLLM_HOST_IP=$first -e RAY_ADDRESS=$first:6379 $image ray start --block --head --port=6379 \
  --include-dashboard=false --node-ip-address=$first $ray" >/dev/null
until $one "bash -c '</dev/tcp/$first/6379'" 2>/dev/null; do sleep 0.5; done
$two "$run -e VLLM_HOST_IP=$second $image ray start --block --address=$first:6379 --node-ip-address=$second $ray" >/dev/null
until $one docker exec rival ray status 2>/dev/null | grep -q '/2.0 GPU'; do sleep 0.5; done
$one "docker exec --detach rival vllm serve /model --host $first --port 8001 --served-model-name tiny \
  --max-model-len 512 --max-num-seqs 8 --enable-expert-parallel --enforce-eager --tensor-parallel-size 2 \
  --distributed-executor-backend ray"
until $one curl -sf -m 2 "http://$first:8001/health" >/dev/null; do sleep 0.5; done
ask='{"model":"tiny","messages":[{"role":"user","content":"Hello fox"}],"max_tokens":4}'
$one "curl -sf -m 60 http://$first:8001/v1/chat/completions -H 'content-type: application/json' -d '$ask'" >/dev/null
