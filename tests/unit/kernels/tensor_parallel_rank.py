"""One rank of a tensor-parallel logprob: saves its result and gradient.

``python tensor_parallel_rank.py RANK RANKS INITFILE OUTPUT [DEVICE]``
"""

import sys

import torch
from torch import distributed

from rltune_kernels.logprob import tensor_parallel_logprob
from tests.unit.kernels.logprob_checks import logits_and_ids, slopes

VOCAB_SIZE, PADDED, TOKENS = 1000, 1024, 7


def main() -> None:
    rank, ranks, init, output, device = sys.argv[1:]
    backend = "gloo" if device == "cpu" else "nccl"
    distributed.init_process_group(
        backend, init_method=f"file://{init}", rank=int(rank), world_size=int(ranks)
    )
    logits, ids = logits_and_ids(TOKENS, PADDED, torch.bfloat16, device)
    ids = torch.where(ids < 0, ids, ids % VOCAB_SIZE)
    width = PADDED // int(ranks)
    own = logits[:, int(rank) * width :][:, :width].detach().requires_grad_()
    with torch.no_grad():
        alone = tensor_parallel_logprob(own, ids, vocab_size=VOCAB_SIZE)
    result = tensor_parallel_logprob(own, ids, vocab_size=VOCAB_SIZE)
    result.backward(slopes(ids))
    assert torch.equal(alone.view(torch.int32), result.detach().view(torch.int32))
    assert own.grad is not None
    torch.save((result.detach().cpu(), own.grad.cpu()), f"{output}.{rank}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
