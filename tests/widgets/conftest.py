"""One of each widget, on small data."""

import pytest
from small_model import NEW, PROMPT, make_model, pieces


@pytest.fixture(scope="session")
def model():
    return make_model()


@pytest.fixture(scope="session")
def trace(model):
    from tinymodels.widgets import record

    return record(model, PROMPT, NEW, pieces)


@pytest.fixture(params=["explorer", "ladder", "xray", "ledger"])
def widget(request):
    from tinymodels import widgets

    match request.param:
        case "explorer":
            return widgets.BytesExplorer("Qwen2 7B (GQA)", context=8192)
        case "ladder":
            return widgets.Ladder()
        case "xray":
            return widgets.XRay(request.getfixturevalue("trace"))
        case "ledger":
            return widgets.ledger_widget(through="12")
