r"""The paper's counts: :math:`N_P = \lambda L_{in}/TP_P`, :math:`N_D = \lambda L_{out}/TP_D`.

Reference: arXiv 2603.04716, equations 1, 2 and 5.
"""

from __future__ import annotations

import sympy
from sympy import Eq, Rational, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, mu, n, tau, overhead = symbols("lambda mu n tau o", positive=True)
prompt, output, peak, decode = symbols("L_in L_out TP_max TP_D", positive=True)
rho, z, k = symbols("rho z k", positive=True)

# M/M/1 with arrivals x = lambda / n per replica.
x = lam / n
law = (1 - rho) * rho**k
generating = (1 - rho) / (1 - rho * z)
mean_number = sympy.diff(generating, z).subs(z, 1)
sojourn = (1 + mean_number.subs(rho, x / mu)) / mu
(count,) = sympy.solve(Eq(sojourn + overhead, tau), n)

effective = peak - prompt / (tau - overhead)
prefill_count = lam * prompt / effective
decode_count = lam * output / decode
sizes = {"rate": lam, "prompt": prompt, "output": output}
throughputs = {"prefill_throughput": effective, "decode_throughput": decode}

THEOREM = Theorem(
    name="paper",
    statement=(
        "Prefill replicas that keep a mean TTFT of tau with transfer overhead o number "
        "N_P = lambda / (mu - 1/(tau - o)) = lambda L_in / TP_P with TP_P = TP_max - "
        "L_in/(tau - o); decode replicas number N_D = lambda L_out / TP_D."
    ),
    assumptions=(
        "each replica is an M/M/1 queue with rate mu = TP_max / L_in, fed lambda/n by random split",
        "the overhead o is constant and tau - o > 1/mu",
        "a decode replica makes TP_D tokens/s at the batch whose step takes the TPOT bound",
    ),
    steps=(
        Step(
            "Birth and death balance under pi_k = (1 - rho) rho^k, rho = x/mu.",
            Eq(rho * mu * law, mu * law.subs(k, k + 1)),
        ),
        Step(
            "The generating function of pi is G(z) = (1 - rho)/(1 - rho z): "
            "G(z) = (1 - rho) + rho z G(z).",
            generating - (1 - rho) - rho * z * generating,
        ),
        Step("The mean number is G'(1) = rho/(1 - rho).", Eq(mean_number, rho / (1 - rho))),
        Step(
            "An arrival sees pi (PASTA), so its mean sojourn (1 + N)/mu is 1/(mu - lambda/n).",
            Eq(sojourn, 1 / (mu - lam / n)),
        ),
        Step(
            "Sojourn plus overhead equals tau at one n only.",
            Eq(count, lam / (mu - 1 / (tau - overhead))),
        ),
        Step(
            "With mu = TP_max / L_in the count is the offered prompt tokens over TP_P.",
            Eq(count.subs(mu, peak / prompt), prefill_count),
        ),
        Step(
            "TP_P is the load in tokens/s of a replica at that count.",
            Eq(lam / count.subs(mu, peak / prompt) * prompt, effective),
        ),
        Step(
            "N_D replicas of TP_D tokens/s make the offered output tokens.",
            Eq(decode_count * decode, lam * output),
        ),
        Step(
            "The ratio N_P / N_D does not depend on the rate.",
            sympy.diff(prefill_count / decode_count, lam),
        ),
    ),
    formulas=(
        Formula(
            symbols("TP_P"),
            effective,
            "effective_prefill_throughput",
            {"peak": peak, "prompt": prompt, "ttft": tau, "overhead": overhead},
        ),
        Formula(
            symbols("N_P"),
            lam / (mu - 1 / (tau - overhead)),
            "mm1_count",
            {"rate": lam, "service_rate": mu, "sojourn": tau - overhead},
        ),
        Formula(symbols("N_P"), prefill_count, "paper_counts.prefill", sizes | throughputs),
        Formula(symbols("N_D"), decode_count, "paper_counts.decode", sizes | throughputs),
        Formula(
            symbols("R"), prefill_count / decode_count, "paper_counts.ratio", sizes | throughputs
        ),
    ),
    source="arXiv 2603.04716, eqs. 1, 2, 5; Kleinrock (1975), vol. 1, eq. 3.26",
)

PAPER_CASE = {
    lam: Rational(5_000_000, 60 * 6656),
    peak: Rational(28309),
    prompt: Rational(6144),
    output: Rational(512),
    tau: Rational(2),
    overhead: Rational(1, 10),
    decode: Rational(1714),
}
"""The paper's own numbers: 5 Mtoken/min of 6144 + 512 tokens, TTFT 2 s, overhead 0.1 s."""
