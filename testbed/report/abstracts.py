"""The sentences of papers' abstracts, and the claims of the report that judge each: what becomes of a sentence follows from their verdicts.

Sentences are in our words. Both abstracts are published: DLCP's with arXiv 2008.08445, MLT's at usenix.org/conference/nsdi24/presentation/wang-hao.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed import registry
from testbed.report.chapters import Chapter, Claim
from testbed.report.finding import VERDICTS, Verdict

lossy = registry.find(registry.FIGURE, "lossy")
mlt_accuracy = registry.find(registry.FIGURE, "mlt_accuracy")
mlt_bounds = registry.find(registry.FIGURE, "mlt_bounds")
mlt_components = registry.find(registry.FIGURE, "mlt_components")
mlt_fct = registry.find(registry.FIGURE, "mlt_fct")
mlt_loss = registry.find(registry.FIGURE, "mlt_loss")
mlt_rto = registry.find(registry.FIGURE, "mlt_rto")
mlt_speedup = registry.find(registry.FIGURE, "mlt_speedup")

Judges = Mapping[str, tuple[Chapter, Claim]]  # by claim


@dataclass(frozen=True)
class Sentence:
    """What it says, the claims that judge it, and what of it nothing here can judge (without claims: why nothing does)."""

    says: str
    claims: tuple[str, ...] = ()
    but: str = ""


@dataclass(frozen=True)
class Abstract:
    paper: str  # whose claims these are, as figures say (`PAPER`)
    title: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Judged:
    """A sentence with its verdict (None: nothing judges it), and its claims as they were found; None: not by this report."""

    sentence: Sentence
    verdict: Verdict | None
    claims: tuple[tuple[str, tuple[Chapter, Claim] | None], ...]


PREMISE = "A premise, not a result."
DROPPED = (mlt_bounds.AWARE, mlt_bounds.MAGNITUDE, mlt_bounds.LAYERS, mlt_accuracy.SELECTIVE, mlt_accuracy.CHOSEN)
REORDERED = "Sprayed alike, TCP shows what reordering costs: the second verdict."
SWITCHES = "Switches here are queues of Linux."
ABSTRACTS = (
    Abstract("MLT", "DLCP (2020)", (
        Sentence("Communication stands in the way of distributed training, and draws more and more attention.", but=PREMISE),
        Sentence(
            "What there is (compressed gradients, overlap with computing, an order of layers' flows) is too coarse, above all under pressure from the network.",
            (mlt_components.WHOLE, mlt_fct.BANDS, lossy.COMPRESSED),
        ),
        Sentence(
            "DLCP makes communication cheaper by what is special about deep learning, and does so in a fine-grained way.",
            but="What it is; the next sentences say how.",
        ),
        Sentence(
            "Training by gradient descent tolerates losses up to a bound; that shortens a tail of latency which compression alone cannot avoid.",
            (mlt_rto.TIMEOUT, mlt_rto.MLT),
        ),
        Sentence(
            "Packets rather than flows have priorities, and are dropped, by layer and magnitude of their gradients: models converge sooner and are no less accurate.",
            DROPPED,
        ),
        Sentence(
            "Since the order of packets does not matter, each takes a path of its own, without the trouble of reordering.",
            (mlt_components.ORDER, mlt_components.SPRAYED), REORDERED,
        ),
        Sentence("It works with parameter servers and with collectives.", (mlt_speedup.SERVERS, mlt_speedup.RING)),
        Sentence(
            "It is built with commodity switches, for TensorFlow, MXNet and PyTorch, and runs on ten V100 GPUs.",
            but=f"What its authors built and where; there is no artefact. {SWITCHES}",
        ),
        Sentence(
            "In the testbed and in large simulations training is up to 84.3 % faster than by the best solutions there are.",
            (mlt_speedup.MOST_OF_DLCP,), "Judged by runs of MLT, and of DLCP with 8 workers.",
        ),
    )),
    Abstract("MLT", "MLT (NSDI 2024)", (
        Sentence("Machine learning has properties that a transport could use, and hardly any does.", but=PREMISE),
        Sentence("MLT is a transport for this domain, distributed training.", but="What it is; the next sentences say how."),
        Sentence(
            "Three simple techniques, one after the other, act against the long tail of latency that transient drops and queues cause.",
            (mlt_fct.TAIL, mlt_components.ORDER),
        ),
        Sentence(
            "Updates do not depend on each other: packets are balanced one by one, which keeps hot spots small, and may come in any order.",
            (mlt_components.ORDER, mlt_components.SPRAYED), REORDERED,
        ),
        Sentence(
            "At a hot spot, packets queue and are dropped by layer and magnitude of their gradients, for the sake of convergence and accuracy.",
            DROPPED,
        ),
        Sentence(
            "Where packets are dropped nevertheless, a bounded share of gradients may be lost without harm to the final model.",
            (mlt_accuracy.SELECTIVE, mlt_accuracy.LOOP, mlt_accuracy.FINAL, mlt_loss.STAYS),
        ),
        Sentence(
            "It is deployed with commodity switches and few changes to libraries and to routines (parameter servers, ring all-reduce).",
            (mlt_speedup.SERVERS, mlt_speedup.RING), f"Of the routines alone. {SWITCHES}",
        ),
        Sentence(
            "In testbed and simulations tails of latency are shorter, and the time of a training end to end is up to 62.2 % better than by prior work.",
            (mlt_fct.TAIL, mlt_speedup.MOST),
        ),
    )),
)  # fmt: skip


def judges(found: Iterable[Chapter]) -> Judges:
    """Every claim of a report."""
    return {claim.claim: (chapter, claim) for chapter in found for claim in chapter.claims}


def judged(abstract: Abstract, by: Judges) -> list[Judged]:
    """Its sentences, in order."""
    return [_judged(sentence, by) for sentence in abstract.sentences]


def _judged(sentence: Sentence, by: Judges) -> Judged:
    claims = tuple((claim, by.get(claim)) for claim in sentence.claims)
    verdicts: list[Verdict] = [found[1].verdict if found else "not measured" for _, found in claims]
    return Judged(sentence, together(verdicts) if verdicts else None, claims)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a sentence that needs several claims: theirs if they agree, partly if any holds at least in part, else the worst that was measured."""
    measured = [verdict for verdict in verdicts if verdict != "not measured"]
    if len(set(verdicts)) == 1 or not measured:
        return verdicts[0]
    return "partly" if {"reproduced", "partly"} & set(measured) else max(measured, key=VERDICTS.index)
