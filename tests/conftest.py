"""What all tests share."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from chromium import chromium
from playwright.sync_api import Browser

os.environ.setdefault("TQDM_DISABLE", "1")
torch.set_num_threads(1)  # the models are small: more threads would only wait


@pytest.fixture(autouse=True)
def _own_random_state() -> Iterator[None]:
    """Let no test's random numbers depend on which tests ran before it."""
    with torch.random.fork_rng():
        yield


@pytest.fixture
def untouched_random_state() -> Iterator[None]:
    """Fail a test that moves a global random state."""

    def states() -> tuple[object, ...]:
        numpy_state = np.random.get_state()  # noqa: NPY002
        return bytes(torch.get_rng_state()), str(numpy_state), random.getstate()

    before = states()
    yield
    assert states() == before, "a global random state was changed"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium; without one the tests fail, they are not skipped."""
    with chromium() as running:
        yield running
