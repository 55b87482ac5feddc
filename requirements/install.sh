#!/usr/bin/env bash
# Makes $VENV with the pinned dependencies. Called by `make setup`; PYTHON, VENV and TORCH_INDEX come from it.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "make setup: $1" >&2; exit 1; }

command -v "$PYTHON" >/dev/null || fail "$PYTHON is not installed: apt-get install python3 python3-venv, or PYTHON=<another>"
"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' ||
  fail "$("$PYTHON" --version) cannot be used: Python 3.10, 3.11 or 3.12 is needed, choose it with PYTHON=python3.11"

version='import sys; print("%d.%d" % sys.version_info[:2])'
if [ -x "$VENV/bin/python" ] && [ "$("$VENV/bin/python" -c "$version")" != "$("$PYTHON" -c "$version")" ]; then
  echo "$VENV holds another Python: making it anew"
  rm -rf "$VENV"
fi
if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
  "$PYTHON" -m venv "$VENV" || fail "no virtual environment: apt-get install python3-venv"
fi

pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }

echo "Installing into $VENV (torch first; some minutes on a fresh machine)"
pip "pip>=24" "setuptools>=77" wheel
pip ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r requirements/torch.txt
pip -r requirements/all.txt
pip --no-deps -r requirements/triton.txt
PYTHONWARNINGS=ignore pip --no-deps --no-build-isolation --editable .
echo "Installed: $("$VENV/bin/python" --version), torch $("$VENV/bin/python" -c 'import torch; print(torch.__version__)')"
