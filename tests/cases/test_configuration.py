"""Field cases of configuration: what could hang is refused at load, by its key."""

from __future__ import annotations

import pytest

from python_backend.config import parse_deployment
from router_backend.core.errors import ConfigError

PAIR = "models:\n  - name: small\n  - {{name: large, {0}}}\n"


@pytest.mark.case("F50")
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("threshold: 0", "models.1.threshold: Input should be greater than or equal to 1"),
        ("threshold: -3", "models.1.threshold: Input should be greater than or equal to 1"),
        ("threshold: 9, batch_max: 8", "models.1: .*threshold 9 exceeds batch_max 8"),
        ("batch_max: 0", "models.1.batch_max: Input should be greater than or equal to 1"),
        ("batch_max: 8, batch_tokens_max: 7", "models.1: .*batch_tokens_max 7 is below batch_max 8"),
        ("threshhold: 2", "models.1.threshhold: Extra inputs are not permitted"),
    ],
)
def test_a_threshold_or_a_batch_that_could_hang_is_refused_by_its_key(setting: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"deployment.yaml: {complaint}"):
        parse_deployment(PAIR.format(setting), "deployment.yaml")
