"""Jobs made from public dimensions: parameters, bytes and work against numbers computed by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from testbed.core.errors import RequestError
from testbed.traces import matching, model_files, model_jobs, model_layers, recommenders
from testbed.traces.model_files import Transformer
from testbed.traces.trace import Operation, Trace, load, save

# As published: the paper's or the model card's total.
PARAMETERS = {
    "gpt2": 124.4e6, "gpt2-xl": 1.558e9, "gpt3": 175e9, "llama-7b": 6.74e9, "llama-13b": 13.02e9, "llama-70b": 68.98e9, "llama3-8b": 8.03e9,
    "llama3-405b": 405e9, "mixtral-8x7b": 46.7e9, "vit": 304.3e6, "vit-huge": 632e6, "t5": 11.3e9, "t5-large": 737.7e6, "dlrm": 26.1e9,
}  # fmt: skip


def test_parameters_are_those_published() -> None:
    assert set(PARAMETERS) == set(model_jobs.names())
    for name, published in PARAMETERS.items():
        model = model_files.load(name)
        found = (model_layers if isinstance(model, Transformer) else recommenders).parameters(model)
        assert found == pytest.approx(published, rel=0.01), name
    assert model_layers.parameters(transformer("llama-70b")) == 68_976_648_192
    assert model_layers.parameters(transformer("t5")) == 11_307_321_344


def transformer(name: str) -> Transformer:
    model = model_files.load(name)
    assert isinstance(model, Transformer)
    return model


def operations(trace: Trace, role: int = 0) -> tuple[Operation, ...]:
    return trace.all_roles[role].operations


def totals(trace: Trace, role: int = 0) -> dict[tuple[str, str], int]:
    """Tensor bytes of one rank in an iteration, by group and kind."""
    found: Counter[tuple[str, str]] = Counter()
    for op in operations(trace, role):
        if not op.computes:
            found[op.group or "", op.kind] += op.size
    return dict(found)


def counts(trace: Trace, role: int = 0) -> dict[tuple[str, str], int]:
    return dict(Counter((op.group or "", op.kind) for op in operations(trace, role) if not op.computes))


@pytest.mark.parametrize("detail", ["stage", "layer"])
def test_tensor_pipeline_and_data_parallel(detail: str) -> None:
    """Llama 2 70B on 512 ranks: 20 of 80 layers a stage, 16 micro-batches of 4096 tokens of 8192 numbers of 2 bytes."""
    dp = 16 if detail == "stage" else 1
    trace = model_jobs.build("llama-70b", tp=8, pp=4, dp=dp, micro_batches=16, detail=detail)
    activation = 67_108_864
    layer = (
        8_388_608 + 2 * 1_048_576 + 8_388_608 + 88_080_384 + 2 * 8192
    )  # q; k and v; out; three of 8192 × 28672; norms
    embedding = 4000 * 8192
    for stage, extra in enumerate((embedding, 0, 0, embedding + 8192)):
        reduces = 4 * 20 * 16 + (
            16 if stage in (0, 3) else 0
        )  # the embedding's in the forward pass, the head's in the backward pass
        expected = {("tp", "all_reduce"): reduces * activation}
        sends = 16 * ((stage < 3) + (stage > 0))
        expected |= {("pp", "send"): sends * activation, ("pp", "recv"): sends * activation}
        if dp > 1:
            expected["dp", "all_reduce"] = (20 * layer + extra) * 2
        assert totals(trace, stage) == expected
        if detail == "layer":
            assert counts(trace, stage)["tp", "all_reduce"] == reduces
    assert trace.ranks == 8 * 4 * dp and [len(role.ranks) for role in trace.roles] == [8 * dp] * 4
    assert trace.placement is not None and trace.placement.inside == ("tp",)


def test_ranks_of_groups() -> None:
    trace = model_jobs.build("gpt2", tp=2, pp=2, dp=2)
    assert trace.groups == {
        "tp": ((0, 1), (2, 3), (4, 5), (6, 7)), "dp": ((0, 2), (1, 3), (4, 6), (5, 7)), "pp": ((0, 4), (1, 5), (2, 6), (3, 7)),
        "embedding": ((0, 4), (1, 5), (2, 6), (3, 7)),
    }  # fmt: skip
    sparse = model_jobs.build("mixtral-8x7b", dp=4, ep=2, tp=2)
    assert sparse.groups["ep"] == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert sparse.groups["edp"] == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert sparse.groups["dp"] == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_the_embedding_that_first_and_last_stage_share() -> None:
    trace = model_jobs.build("gpt3", tp=8, pp=8, dp=2, micro_batches=8, gradients="fp32")
    rows = 6283  # of 50257, over 8 ranks
    assert (
        totals(trace, 0)["embedding", "all_reduce"] == totals(trace, 7)["embedding", "all_reduce"] == rows * 12288 * 4
    )
    assert ("embedding", "all_reduce") not in totals(trace, 3)


def test_data_parallel_alone_is_an_all_reduce_of_all_parameters() -> None:
    trace = model_jobs.build("gpt2", dp=8)
    assert totals(trace) == {("dp", "all_reduce"): 124_439_808 * 2}
    assert totals(model_jobs.build("gpt2", dp=8, gradients="fp32")) == {("dp", "all_reduce"): 124_439_808 * 4}
    assert trace.alike and trace.ranks == 8


def test_zero() -> None:
    whole = 6_738_415_616
    first = totals(model_jobs.build("llama-7b", dp=4, zero=1, gradients="fp32"))
    assert first == {("dp", "reduce_scatter"): whole * 4, ("dp", "all_gather"): whole * 2}
    second = totals(model_jobs.build("llama-7b", dp=4, zero=2, micro_batches=3, gradients="fp32"))
    assert second == {("dp", "reduce_scatter"): 3 * whole * 4, ("dp", "all_gather"): whole * 2}
    third = totals(model_jobs.build("llama-7b", dp=4, zero=3, micro_batches=2))
    assert third == {("dp", "reduce_scatter"): 2 * whole * 2, ("dp", "all_gather"): 2 * 2 * whole * 2}


def test_sequence_parallel_gathers_and_scatters() -> None:
    """A layer of Llama 2 7B: 4096 tokens of 4096 numbers; the embedding scatters, the head gathers."""
    trace = model_jobs.build("llama-7b", tp=4, pp=2, dp=1, micro_batches=4, sequence_parallel=True)
    activation = 33_554_432
    layers = 16 * 4
    assert totals(trace, 0)["tp", "reduce_scatter"] == (4 * layers + 4) * activation
    assert totals(trace, 0)["tp", "all_gather"] == ((2 + 4) * layers + 4) * activation
    assert totals(trace, 0)["pp", "send"] == 4 * activation // 4


def test_experts() -> None:
    """Mixtral: each of 4096 tokens goes to two experts and comes back, in both passes of 32 layers."""
    trace = model_jobs.build("mixtral-8x7b", ep=4, dp=8)
    expert = 3 * 4096 * 14336
    dense = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096) + 2 * 32000 * 4096 + 4096
    assert totals(trace) == {
        ("ep", "all_to_all"): 4 * 32 * 4096 * 2 * 4096 * 2,
        ("dp", "all_reduce"): dense * 2,
        ("edp", "all_reduce"): 32 * 2 * expert * 2,
    }
    assert counts(trace)["ep", "all_to_all"] == 4 * 32
    both = totals(model_jobs.build("mixtral-8x7b", ep=4, dp=4, tp=2, sequence_parallel=True))
    assert both["ep", "all_to_all"] == 4 * 32 * 4096 * 2 * 4096 * 2 // 2
    assert ("edp", "all_reduce") not in both


def test_context_parallel() -> None:
    """Llama 3 8B: keys and values, 8 heads of 128 each, of all 8192 tokens."""
    found = totals(model_jobs.build("llama3-8b", cp=2, dp=1))
    keys = 8192 * 2 * 8 * 128 * 2
    assert found["cp", "all_gather"] == 2 * 32 * keys and found["cp", "reduce_scatter"] == 32 * keys
    assert found["dp", "all_reduce"] == 8_030_261_248 * 2


def test_an_encoder_and_a_decoder() -> None:
    """T5-11B, 8 × 512 tokens of 1024 numbers: decoder stages hand on the encoder's output, too, whose gradient is summed by itself."""
    trace = model_jobs.build("t5", tp=8, pp=4, dp=1, micro_batches=1)
    activation = 8_388_608
    assert [totals(trace, stage)["pp", "send"] // activation for stage in range(4)] == [1, 2, 3, 2]
    assert [totals(trace, stage)["tp", "all_reduce"] // activation for stage in range(4)] == [
        49,
        48,
        12 * 7 + 1,
        12 * 7 + 1,
    ]
    assert trace.groups["embedding"][0] == (0, 16, 24)


def test_a_recommender() -> None:
    assert totals(model_jobs.build("dlrm", dp=8)) == {
        ("mp", "all_to_all"): 2 * 8192 * 26 * 128 * 2,
        ("dp", "all_reduce"): 2_368_897 * 4,
    }


def test_work_is_that_of_the_formula() -> None:
    """Narayanan et al., arXiv 2104.04473, without recomputation: 72 B s l h² (1 + s / 6h + V / 12lh)."""
    trace = model_jobs.build("gpt2", dp=2, micro_batch_size=8)
    formula = 72 * 8 * 1024 * 12 * 768**2 * (1 + 1024 / (6 * 768) + 50257 / (12 * 12 * 768))
    assert sum(op.flops or 0 for op in operations(trace)) == pytest.approx(formula, rel=1e-9)
    again = model_jobs.build("gpt2", dp=2, micro_batch_size=8, recompute=True)
    formula = 96 * 8 * 1024 * 12 * 768**2 * (1 + 1024 / (6 * 768) + 50257 / (16 * 12 * 768))
    assert sum(op.flops or 0 for op in operations(again)) == pytest.approx(formula, rel=1e-9)
    assert counts(model_jobs.build("gpt2", tp=2, dp=1, recompute=True))["tp", "all_reduce"] == 6 * 12 + 2
    split = model_jobs.build("llama-7b", dp=1, tp=2, pp=2, micro_batches=2)
    single = model_jobs.build("llama-7b", dp=2)
    of_rank = sum(op.flops or 0 for role in split.roles for op in role.operations)
    assert of_rank * 2 == pytest.approx(2 * sum(op.flops or 0 for op in operations(single)), rel=1e-9)


def test_a_stage_alternates_between_forward_and_backward() -> None:
    trace = model_jobs.build("gpt2", pp=3, dp=1, micro_batches=4, detail="stage")

    def order(role: int) -> list[str]:
        names = [op.id.partition("/")[0] for op in operations(trace, role) if op.computes and op.id != "optimizer"]
        return [f"{name[0]}{name[-1]}" for name in dict.fromkeys(names)]

    assert order(0) == ["f0", "f1", "f2", "b0", "f3", "b1", "b2", "b3"]
    assert order(2) == ["f0", "b0", "f1", "b1", "f2", "b2", "f3", "b3"]


def test_interleaved_stages() -> None:
    """GPT-2 in 4 stages of 3 parts; between two parts go 8 × 1024 tokens of 768 numbers of 2 bytes, both ways."""
    trace = model_jobs.build("gpt2", pp=4, dp=2, virtual_stages=3, micro_batches=8)
    activation = 12_582_912
    messages = [3 + 2, 3 + 3, 3 + 3, 2 + 3]  # forward and backward: all of a stage's parts but the first, and the last
    assert [totals(trace, stage)["pp", "send"] for stage in range(4)] == [8 * one * activation for one in messages]
    assert [totals(trace, stage)["pp", "recv"] for stage in range(4)] == [8 * one * activation for one in messages]
    straight = model_jobs.build("gpt2", pp=4, dp=2, micro_batches=8)
    for group in ("dp", "embedding"):
        summed = [
            sum(totals(one, stage).get((group, "all_reduce"), 0) for stage in range(4)) for one in (trace, straight)
        ]
        assert summed[0] == summed[1] > 0
    assert trace.groups == straight.groups


def test_the_order_of_interleaved_stages() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 4: the first device and the last one."""
    trace = model_jobs.build("gpt2", pp=4, dp=1, virtual_stages=2, micro_batches=8, detail="stage")

    def order(role: int) -> list[str]:
        words = [op.id.split("/")[0].split() for op in operations(trace, role) if op.computes and op.id != "optimizer"]
        return [f"{which[0]}{batch}{'ab'[int(part)]}" for which, batch, _, part in words]

    warm = "f0a f1a f2a f3a f0b f1b f2b f3b f4a f5a"
    steady = "f6a b0b f7a b1b f4b b2b f5b b3b f6b b0a f7b b1a"
    assert " ".join(dict.fromkeys(order(0))) == f"{warm} {steady} b2a b3a b4b b5b b6b b7b b4a b5a b6a b7a"
    assert " ".join(dict.fromkeys(order(3))).startswith("f0a f1a f2a f3a f0b b0b f1b b1b f2b b2b f3b b3b f4a b0a")


def test_all_of_it_can_be_written_read_and_timed(tmp_path: Path) -> None:
    lines = (
        "--model gpt2 --dp 8 --device a100 --mfu 30%", "--model llama-7b --tp 2 --pp 2 --dp 2 --peak 312tflops --memory 2tb/s --schedule gpipe",
        "--model mixtral-8x7b --ep 2 --tp 2 --sequence-parallel on --zero 1 --detail stage", "--model dlrm --device h100",
        "--model t5 --pp 4 --dp 2 --tp 8 --virtual-stages 3 --micro-batches 4 --zero 1 --device h100", "--model gpt2 --zero 2 --micro-batches 2 --device h100",
        "--model llama3-8b --dp 2 --zero 3 --cp 2 --tp 2 --device h100", "--model vit --pp 5 --device h100 --dp 1",
    )  # fmt: skip
    for line in lines:
        assert model_jobs.is_line(line)
        trace = model_jobs.from_line(line)
        save(trace, tmp_path / "trace.json")
        assert load(str(tmp_path / "trace.json")) == trace
        if trace.device is not None:
            timed = trace.timed(None)
            assert not any(op.by_work for op in timed.all_operations)
            assert matching.ends_s(matching.times(timed.matched, [0.0] * len(timed.matched.exchanges))) > 0
        else:
            with pytest.raises(RequestError):
                trace.timed(None)


@pytest.mark.parametrize(
    "line",
    [
        "--model lama-7b", "--model gpt2 --tp 5", "--model gpt2 --pp 13", "--model gpt2 --ep 2", "--model mixtral-8x7b --ep 3 --dp 3",
        "--model mixtral-8x7b --ep 4 --dp 6", "--model llama-70b --tp 16", "--model gpt2 --sequence 4096", "--model gpt2 --dp 1",
        "--model gpt2 --tp 0", "--model gpt2 --tp two", "--model gpt2 --tensor 2", "--model gpt2 --sequence-parallel on", "--model vit --tp 2 --sequence-parallel on",
        "--model llama-7b --zero 3 --pp 2", "--model llama-7b --zero 2 --pp 2", "--model llama-7b --zero 4", "--model llama-7b --virtual-stages 2", "--model llama-7b --pp 2 --virtual-stages 17",
        "--model llama-7b --pp 2 --virtual-stages 2 --micro-batches 3", "--model llama-7b --pp 2 --virtual-stages 2 --schedule gpipe", "--model dlrm --virtual-stages 2", "--model llama-7b --dp 1 --tp 2 --zero 1", "--model llama-7b --cp 3", "--model t5 --cp 2",
        "--model vit --sequence 64", "--model dlrm --tp 2", "--model dlrm --micro-batches 2", "--model gpt2 --device abacus", "--model gpt2 --mfu 40%",
        "--model gpt2 --device h100 --mfu 0%", "--model gpt2 --peak 312", "--model ./none.toml", "--model", "--tp 2", "--model 'gpt2", "--model gpt2 extra",
        "--model gpt2 --dp 65536 --tp 2", "--model llama-7b --micro-batches 10000", "--model gpt2 --gradients fp8", "--model gpt2 --help", "--model ../x",
    ],
)  # fmt: skip
def test_refuses_what_cannot_be_trained(line: str) -> None:
    with pytest.raises(RequestError) as error:
        model_jobs.from_line(line)
    assert error.value.exit_code == 2 and "\n" not in str(error.value)


def test_keywords_are_those_of_a_line() -> None:
    assert model_jobs.build("llama-7b", tp="2", sequence_parallel=True, mfu=0.4, device="H100") == model_jobs.from_line(
        "--model llama-7b --tp 2 --sequence-parallel on --mfu 40% --device h100"
    )
    with pytest.raises(RequestError):
        model_jobs.build("llama-7b", tensor=2)
