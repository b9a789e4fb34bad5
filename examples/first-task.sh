#!/bin/sh
# A first task by hand: a daemon, an agent that pretends to have two GPUs, one task, its log. Ends what it started.
#
#   make setup && examples/first-task.sh
set -eu

hetsched=${HETSCHED:-$(dirname "$0")/../.venv/bin/hetsched}
HETSCHED_DATA=$(mktemp -d)
export HETSCHED_DATA
trap 'kill $agent $daemon 2>/dev/null; wait; rm -rf "$HETSCHED_DATA"' EXIT

"$hetsched" serve --listen 127.0.0.1:0 2>"$HETSCHED_DATA/daemon.log" &
daemon=$!
until [ -s "$HETSCHED_DATA/url" ]; do sleep 0.1; done

# On the daemon's machine an agent finds address and token by itself; elsewhere: --server URL and HETSCHED_TOKEN.
"$hetsched" agent --name here --fake gpu:A100:2,cpu:8,memory:16Gi 2>"$HETSCHED_DATA/agent.log" &
agent=$!

# stdout is the id alone, so that a script can keep it.
id=$("$hetsched" submit --gpu 0.5 --memory 1Gi -- sh -c 'echo "on $HETSCHED_NODE with $HETSCHED_DEVICES"')
"$hetsched" wait "$id"
"$hetsched" logs "$id"
"$hetsched" show "$id"
