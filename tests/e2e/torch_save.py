"""Writes files as torch.save does, without PyTorch: its names are modules that are made here.

    torch_save.py FROM.safetensors OUT.pt [prefix=model.] [ema] [optimizer] [evil] [no-storage] [deflated] [cut=N]
"""
import collections
import json
import pickle
import struct
import sys
import types
import zipfile

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})


class FloatStorage:
    pass


def _rebuild_tensor_v2(*arguments):
    pass


FloatStorage.__module__, FloatStorage.__qualname__ = "torch", "FloatStorage"
_rebuild_tensor_v2.__module__ = "torch._utils"
torch.FloatStorage, utils._rebuild_tensor_v2 = FloatStorage, _rebuild_tensor_v2


class Storage:
    def __init__(self, key, count):
        self.key, self.count = key, count


class Tensor:
    def __init__(self, storage, shape):
        self.storage, self.shape = storage, tuple(shape)

    def __reduce__(self):
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.insert(0, step)
            step *= extent
        return _rebuild_tensor_v2, (self.storage, 0, self.shape, tuple(strides), False,
                                    collections.OrderedDict())


class Evil:
    def __reduce__(self):
        return print, ("this ran",)


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return "storage", FloatStorage, value.key, "cpu", value.count
        return None


source, out = sys.argv[1:3]
options = dict(word.partition("=")[::2] for word in sys.argv[3:])
with open(source, "rb") as file:
    size, = struct.unpack("<Q", file.read(8))
    header, content = json.loads(file.read(size)), file.read()
header.pop("__metadata__", None)
prefix = options.get("prefix", "")
tables, data = collections.OrderedDict(), {}
for number, (name, array) in enumerate(sorted(header.items())):
    begin, end = array["data_offsets"]
    data[str(number)] = content[begin:end]
    tables[prefix + name] = Tensor(Storage(str(number), (end - begin) // 4), array["shape"])
whole = tables
if "ema" in options:
    whole = {"ema": {"params": tables, "decay": 0.999}, "epoch": 3, "hyper_parameters": None}
if "optimizer" in options:
    first = next(iter(tables.values()))
    whole["optimizer"] = {"state": {0: {"step": 7, "exp_avg": first}}, "groups": [1, 2.5, True]}
if "evil" in options:
    whole["more"] = Evil()
path = f"{out}.pkl"
with open(path, "wb") as file:
    Pickler(file, protocol=2).dump(whole)
with open(path, "rb") as file:
    text = file.read()
if "cut" in options:
    text = text[:int(options["cut"])]
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if "deflated" in options else
                     zipfile.ZIP_STORED) as archive:
    archive.writestr("archive/data.pkl", text)
    archive.writestr("archive/byteorder", "little")
    for key, value in data.items():
        if not ("no-storage" in options and key == "0"):
            archive.writestr(f"archive/data/{key}", value)
