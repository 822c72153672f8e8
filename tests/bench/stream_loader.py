"""What synchronous ranks wait for samples from PyTorch DataLoaders, for bench_stream.

usage: stream_loader.py RANKS WORKERS STEP_MS WARM STEPS

Every rank is a process with a DataLoader of WORKERS processes over samples that take the times of
bench_stream.c (delay_ms). Prints one line: the exposed waits of the measured steps in ms, p50, p99,
max and mean. The exposed wait of a step is that of the slowest rank. Exit status 77 without PyTorch.
"""

import multiprocessing
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

RANKS, WORKERS, STEP_MS, WARM, STEPS = map(int, sys.argv[1:6])
MASK = (1 << 64) - 1


def delay_ms(index):
    """Returns the time of a sample; the same numbers as delay_ms of bench_stream.c."""
    word = (index + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    part = (word ^ word >> 31) % 1000
    return 2000 if part < 10 else 200 if part < 110 else 20


class Samples(torch.utils.data.Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return WARM + STEPS

    def __getitem__(self, step):
        time.sleep(delay_ms(step * RANKS + self.rank) / 1e3)
        return step


def use_samples(rank, barrier, waits):
    """One rank: takes a sample, waits for the others, and works for a step."""
    loader = iter(torch.utils.data.DataLoader(Samples(rank), batch_size=None, num_workers=WORKERS))
    barrier.wait()
    for step in range(WARM + STEPS):
        begin = time.monotonic()
        assert next(loader) == step
        waits[step * RANKS + rank] = (time.monotonic() - begin) * 1e3
        barrier.wait()
        time.sleep(STEP_MS / 1e3)


def main():
    barrier = multiprocessing.Barrier(RANKS)
    waits = multiprocessing.Array("d", RANKS * (WARM + STEPS), lock=False)
    ranks = [multiprocessing.Process(target=use_samples, args=(rank, barrier, waits))
             for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    slowest = sorted(max(waits[step * RANKS:(step + 1) * RANKS])
                     for step in range(WARM, WARM + STEPS))
    print(f"{slowest[STEPS // 2]:.3f} {slowest[STEPS * 99 // 100]:.3f} {slowest[-1]:.3f} "
          f"{sum(slowest) / STEPS:.3f}")


if __name__ == "__main__":
    main()
