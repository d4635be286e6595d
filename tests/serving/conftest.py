import os

import pytest

from tinymodels.serving import entries


@pytest.fixture(scope="module")
def no_waiting():
    """Do not wait for the disk: where nobody pulls the plug, that is most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(entries, "SYNCHRONOUS", "OFF")
        yield
