#!/bin/sh
# What a container does: `serve [options of tools.serve]`, or any other command as it is.
#
# tools.serve refuses to start, with a cure, when the machine, the deployment, the models or a policy are not
# right; it revives models that die, and lets open streams finish on SIGTERM. `exec` hands it the signal.
set -eu
cd "$(dirname "$0")/.."
[ "${1:-serve}" = serve ] || exec "$@"
[ $# -eq 0 ] || shift

exec python3 -m tools.serve \
  --host "${HOST:-0.0.0.0}" \
  --http-port "${HTTP_PORT:-8000}" \
  --grpc-port "${GRPC_PORT:-8001}" \
  --metrics-port "${METRICS_PORT:-8002}" \
  --openai-port "${OPENAI_PORT:-8003}" \
  --repository "${MODEL_REPOSITORY:-model_repository}" \
  --drain-s "${DRAIN_S:-30}" \
  ${POLICY:+--policy "$POLICY"} \
  ${CUTOFF:+--cutoff "$CUTOFF"} \
  ${API_KEYS:+--api-keys "$API_KEYS"} \
  "$@"
