"""The theorems of the planner: what each says, its formulas from sympy, and how it is known.

    python paper/tables/table_theorems.py

Reads nothing; checks every step and writes paper/generated/table_theorems.tex (needs booktabs
and array).
"""

from __future__ import annotations

from pathlib import Path

from pdalloc.theory import theorems
from pdalloc.theory.theorem import Theorem

ROOT = Path(__file__).resolve().parents[2]
NAME = "table_theorems"
SAYS = {
    "paper": r"Replicas under a mean TTFT $\tau$ with overhead $o$, and their ratio (M/M/1)",
    "percentile": r"Prefill: sojourn at most $\tau$ with probability $p$ (M/M/1)",
    "wait_percentile": r"Prefill: wait at most $t$ with probability $p$; $W$ is Lambert's function",
    "batch_law": r"Decode: mean TPOT at step time $a+bk$, whatever the law of answer lengths",
    "decode_count": r"Decode: replicas under a mean TPOT $\tau$",
    "itl_percentile": r"Decode: replicas under an ITL percentile, normal of quantile $z$ "
    r"(exact by the beta function)",
    "shared_budget": r"Stages under one mean budget, $n=\lambda(\alpha+\beta/(T-f))/c$; $\sigma$ "
    r"is the budget less all floors",
    "price_of_latency": r"What a second of a shared budget is worth, the same at every stage",
    "three_bounds": r"Bounds on both roles and on E2E, prefill at its own ($u$ its slack): price "
    r"of E2E, and a ratio free of prices",
    "golden_ratio": r"P/D of least cost under $A/P+B/D\le\tau$: the tight limit for queues, and "
    r"without their load",
    "pd_ratio": r"P/D of least cost under a mean E2E: from golden (tight) to load matching "
    r"(loose), monotone; $\kappa_d=1+a/b$",
    "merit_order": r"Least cost of a role with real counts: cheapest $c/\kappa$ first",
    "rounding": r"Share of the cost that whole replicas can add",
    "two_types": r"Types in one role under a mean over all requests: slow from $T_1^*$ on, fast "
    r"up to $T_2^*$, else both; never three",
    "mixing_gain": r"One type alone costs at most $G$ times the best mix, "
    r"$C=\sqrt{c_2/c_1}$, $M=\sqrt{\mu_2/\mu_1}$; $G<G_0$ at any speed",
    "dual_cut": r"A fleet keeps a mean $\tau$ iff $\sum_k n_k D_k(\nu)\ge\lambda(\nu-\tau)$ for "
    r"all $\nu$; $q=\sqrt{1+(\nu-f)^+w/g}$",
    "square_root": r"Pooled servers $a+\beta\sqrt a$: limit of $P(W>0)$; $\Phi,\phi$ normal at "
    r"$\beta$",
}
"""What each theorem says, in the order of the table."""


def table() -> str:
    """The LaTeX tabular: a theorem's words, its formulas, steps checked, source."""
    known = theorems()
    rows = [_row(words, known[name]) for name, words in SAYS.items()]
    return "\n".join(
        [
            r"\begin{tabular}{>{\raggedright}p{0.3\linewidth}l"
            r"r>{\raggedright\arraybackslash}p{0.2\linewidth}}",
            r"\toprule",
            r"theorem & formula & steps & source \\ \midrule",
            "\n\\addlinespace\n".join(rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _row(words: str, theorem: Theorem) -> str:
    """One theorem; raises FalseStepError if a step of its proof does not hold."""
    theorem.check()
    formulas = [rf"$\displaystyle {formula.latex}$" for formula in theorem.formulas]
    stacked = r" \\[1ex] ".join(formulas)
    cell = rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}{stacked}\end{{tabular}}"
    return rf"{words} & {cell} & {len(theorem.steps)} & {_escaped(theorem.source)} \\"


def _escaped(text: str) -> str:
    """Text of a theorem as LaTeX: names of theorems have underscores."""
    return text.replace("_", r"\_").replace("&", r"\&")


def main(folder: Path = ROOT / "paper" / "generated") -> None:
    """Write the table to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.tex").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
