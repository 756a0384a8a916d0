#!/bin/bash
# What a careful operator writes by hand: the same image, Ray and vLLM on two nodes, until a first chat answer.
# The command lines are the plan's own, so that both start the same: start.py takes them from it.
# Usage: HEAD=… WORKER=… SERVE=… RAY=HOST:PORT ENGINE=URL MODEL=NAME rival.sh SSH_1 SSH_2 up|down
set -eu
one=$1 two=$2

if [ "$3" = down ]; then
    $one docker rm --force rival >/dev/null; $two docker rm --force rival >/dev/null; exit
fi
$one "$HEAD" >/dev/null
until $one "bash -c '</dev/tcp/${RAY/://}'" 2>/dev/null; do sleep 0.5; done
$two "$WORKER" >/dev/null
until $one docker exec rival ray status 2>/dev/null | grep -q '/2.0 GPU'; do sleep 0.5; done
$one "$SERVE"
until $one curl -sf -m 2 "$ENGINE/health" >/dev/null; do sleep 0.5; done
ask="{\"model\":\"$MODEL\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello fox\"}],\"max_tokens\":4}"
$one "curl -sf -m 60 $ENGINE/v1/chat/completions -H 'content-type: application/json' -d '$ask'" >/dev/null
