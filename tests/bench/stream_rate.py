"""Samples per second of the Python package's Stream, for bench_stream.

usage: stream_rate.py PACKAGE_DIR URL PLAN BATCH STEPS SEED

Prints samples per second and the processor time of a sample in ms, of this process alone. Imports do
not count. Exit status 77 where the package cannot be imported.
"""

import sys
import time

sys.path.insert(0, sys.argv[1])
try:
    import foldmill
except ImportError as error:
    print(error)
    sys.exit(77)

url, plan, batch, steps, seed = sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])
stream = foldmill.Stream(url, plan=plan, batch=batch, steps=steps, seed=seed, raw=True, ahead=16)
begin, processor = time.monotonic(), time.process_time()
count = sum(1 for _ in stream)
print(f"{count / (time.monotonic() - begin):.3f} "
      f"{(time.process_time() - processor) / count * 1e3:.3f}")
