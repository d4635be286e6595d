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


@pytest.fixture(scope="session")
def readings(model):
    """Two texts of different length; the second is shorter."""
    from tinymodels.widgets import lens_reading

    return [lens_reading(model, ids, pieces) for ids in ((0, 1, 3, 4, 6, 7), (*PROMPT, 2))]


@pytest.fixture(scope="session")
def recording():
    """Three pieces, two texts, each with one change of either kind; the numbers are made up."""
    from tinymodels.widgets.additions import PLAIN, Recording, Run, Text

    def run(change, place, *votes):
        return Run(change, place, votes, tuple(1.5 + abs(v) for v in votes), " key", 0.25)

    runs = (
        run(PLAIN, "", 0.25, -1.5, 6.75),
        run("without attention 0", "attention 0", 0.25, 0.0, -2.5),
        run("ffn 0 from the other text", "ffn 0", 0.25, -1.5, -7.75),
    )
    texts = tuple(Text(f"{who} has the", "key", "lamp", runs) for who in ("Ada", "Ben"))
    return Recording(("embedding", "attention 0", "ffn 0"), texts)


@pytest.fixture(scope="session")
def balance():
    """A router of seven experts, six batches of eleven tokens, three sizes of step."""
    import torch

    from tinymodels.config import MoE
    from tinymodels.moe import Router
    from tinymodels.widgets.router_load import record

    config = MoE(8, 7, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True)
    router = Router(5, config)
    draw = torch.Generator().manual_seed(2)
    router.gate.weight.data.normal_(generator=draw)
    batches = [0.6 + torch.randn(11, 5, generator=draw) for _ in range(6)]
    return record(router, batches, gammas=(0.0, 0.01, 0.2))


@pytest.fixture(
    params=["explorer", "ladder", "xray", "ledger", "lens", "additions", "router", "bill"]
)
def widget(request):
    from tinymodels import widgets

    match request.param:
        case "explorer":
            return widgets.BytesExplorer("Qwen2 7B (GQA)", context=8192)
        case "ladder":
            return widgets.Ladder()
        case "xray":
            return widgets.XRay(request.getfixturevalue("trace"))
        case "lens":
            return widgets.LogitLens(request.getfixturevalue("readings"))
        case "additions":
            return widgets.Additions(request.getfixturevalue("recording"))
        case "router":
            return widgets.RouterLoad(request.getfixturevalue("balance"))
        case "bill":
            return widgets.Bill("DeepSeek-V3", context=32768, batch=8, card="H200", cards=16)
        case "ledger":
            return widgets.ledger_widget(through="12")
