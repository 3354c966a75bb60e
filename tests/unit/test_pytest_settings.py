"""What a test of a user's gives to ``slipway_deploy`` by mistake is answered in three lines."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import UsageError
from deploy.pytest_plugin import settings_of


@pytest.mark.parametrize(
    ("options", "what", "cause"),
    [
        (
            {"num_execution": 2},
            "slipway_deploy has no setting 'num_execution'.",
            "did you mean num_executions? it has ",
        ),
        ({"zzz": 2}, "slipway_deploy has no setting 'zzz'.", "it has "),
        ({"num_executions": "many"}, "slipway_deploy does not take num_executions='many'.", "Input should be"),
    ],
)
def test_a_wrong_setting(options: dict[str, Any], what: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(options)
    assert caught.value.what == what
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint
