"""A parametric law of conversations that resembles ShareGPT, for where no file of turn lengths is at hand."""

from math import lgamma

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.replay.turns import Turn, Turns

MIN_TURNS = 2
MAX_TURNS = 37

_SHAPE = 1.1089412
_SUCCESS = 0.3098969
_PROMPT_MEAN, _PROMPT_SIGMA = 90.0, 1.3
_RESPONSE_MEAN, _RESPONSE_SIGMA = 380.0, 0.8
_LENGTH_EXPONENT = -0.5


def turn_distribution() -> Array:
    """P(M = 2), ..., P(M = 37): M - 2 is negative binomial, cut at 37 turns.

    Shape and success probability are solved for the paper's measurement set (figure 2): E[M] = 4.4694, var M = 7.9659.
    """
    extra = np.arange(MAX_TURNS - MIN_TURNS + 1)
    log_weights = np.array([lgamma(_SHAPE + k) - lgamma(k + 1) for k in extra]) + extra * np.log1p(-_SUCCESS)
    weights = np.exp(log_weights - log_weights.max())
    probabilities: Array = weights / weights.sum()
    return probabilities


def sharegpt_like(rng: np.random.Generator, count: int) -> list[Turns]:
    """Draw ``count`` conversations of 2 to 37 turns.

    Prompts and answers are log-normal in tokens (means 90 and 380 for a conversation of 4.47 turns; σ 1.3 and 0.8, as
    in the public ShareGPT lengths). Long conversations have shorter messages: both means go with M^-1/2, without which
    E[B] and A_R can't both be the paper's. In blocks of 128: E[B] = 12.9, A_R = 39.0, A_H^hash = 22.6 (paper: 12.92,
    38.91, 22.52).
    """
    lengths = rng.choice(np.arange(MIN_TURNS, MAX_TURNS + 1), size=count, p=turn_distribution())
    typical = float(np.arange(MIN_TURNS, MAX_TURNS + 1) @ turn_distribution())
    scale = np.repeat((lengths / typical) ** _LENGTH_EXPONENT, lengths)
    prompts = np.rint(scale * _lognormal(rng, _PROMPT_MEAN, _PROMPT_SIGMA, len(scale))).clip(min=1).astype(int)
    responses = np.rint(scale * _lognormal(rng, _RESPONSE_MEAN, _RESPONSE_SIGMA, len(scale))).astype(int)
    turns = [Turn(*lengths) for lengths in zip(prompts.tolist(), responses.tolist(), strict=True)]
    ends = np.cumsum(lengths).tolist()
    return [turns[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _lognormal(rng: np.random.Generator, mean: float, sigma: float, count: int) -> Array:
    return rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
