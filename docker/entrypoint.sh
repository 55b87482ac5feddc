#!/bin/sh
# What a container does: `serve [options of tools.serve]`, `part MODEL... [options of tools.serve_part]`, or any
# other command as it is.
#
# tools.serve refuses to start, with a cure, when the machine, the deployment, the models or a policy are not
# right; it revives models that die, and lets open streams finish on SIGTERM. tools.serve_part does so for some
# models of a deployment whose others run elsewhere. `exec` hands them the signal.
set -eu
cd "$(dirname "$0")/.."
command="${1:-serve}"
case "$command" in serve | part) ;; *) exec "$@" ;; esac
[ $# -eq 0 ] || shift
[ "$command" = serve ] || set -- --only "$@"

set -- \
  --host "${HOST:-0.0.0.0}" \
  --http-port "${HTTP_PORT:-8000}" \
  --grpc-port "${GRPC_PORT:-8001}" \
  --metrics-port "${METRICS_PORT:-8002}" \
  --drain-s "${DRAIN_S:-30}" \
  --ready-s "${READY_S:-900}" \
  ${API_KEYS:+--api-keys "$API_KEYS"} \
  "$@"

if [ "$command" = part ]; then
  exec python3 -m tools.serve_part "${MODEL_REPOSITORY:-model_repository}" \
    ${OPENAI_PORT:+--openai-port "$OPENAI_PORT"} \
    ${SETTINGS:+--settings "$SETTINGS"} \
    "$@"
fi
exec python3 -m tools.serve \
  --openai-port "${OPENAI_PORT:-8003}" \
  --repository "${MODEL_REPOSITORY:-model_repository}" \
  ${POLICY:+--policy "$POLICY"} \
  ${CUTOFF:+--cutoff "$CUTOFF"} \
  "$@"
