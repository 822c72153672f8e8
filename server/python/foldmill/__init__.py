"""foldmill: AlphaFold2 training samples from a feature server, and chains from a cache.

    import foldmill

    stream = foldmill.Stream("unix:/run/foldmill.sock", plan="af2-initial", steps=1000)
    for features in stream:      # OpenFold's keys, shapes and dtypes
        train(features)

    cache = foldmill.Cache("/fast/cache")
    cache["1abc_A"]["msa"]       # features before random transforms
    for name, features in foldmill.open_snapshot("/fast/cache", "train").items():
        print(name, features["aatype"].shape)

Arrays are NumPy's. Where PyTorch is imported, a Stream is an IterableDataset, and `tensors="torch"`
gives tensors without a copy.
"""

from ._core import __version__
from .cache import Cache, Snapshot, open_snapshot
from .errors import Error
from .sample import Sample, Skipped
from .stream import Stream

__all__ = ["Cache", "Error", "Sample", "Skipped", "Snapshot", "Stream", "__version__",
           "open_snapshot"]
