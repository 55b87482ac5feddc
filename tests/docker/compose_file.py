"""What `docker compose config` does to a file, as far as ours needs it: merge, fill in variables, check.

The check is the compose specification's, by the package compose-spec; it knows the whole language and refuses
a key or a value that is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from compose_spec import PyCompose

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def configured(text: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The file as compose would act on it; ValueError says what is wrong."""
    filled = _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2] or "", text)
    merged = {key: value for key, value in yaml.safe_load(filled).items() if not key.startswith("x-")}
    PyCompose.from_yaml(yaml.safe_dump(merged))
    return merged
