"""prime-rl's loss with what is not yet known kept open: named in its settings, as a loss of one's own."""

from dataclasses import replace

from prime_rl.configs.trainer import DefaultLossConfig
from prime_rl.trainer.rl.loss import LossInputs, LossOutputs, default_loss_fn


def open_loss(inputs: LossInputs, openness: float) -> LossOutputs:
    """prime-rl's own, of advantages that are the higher the less likely a token was.

    That is the gradient of what entropy would be worth, estimated from the sampled tokens.

    Args:
        inputs: of one sample; float (tokens), as prime-rl says.
        openness: what a nat is worth, beside a reward of 1.
    """
    worth = inputs.advantages - openness * inputs.inference_logprobs
    return default_loss_fn(replace(inputs, advantages=worth), DefaultLossConfig())
