"""Stand-ins for the libraries of an NPU, so that vLLM-Ascend's Python can be imported on a machine without one.

Python imports this by itself where the folder is on PYTHONPATH, in child processes too. Only what touches the device is
replaced: whatever is asked of these modules exists and does nothing. vLLM, vLLM-Ascend and torch are the real ones.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

#: Top-level modules that need a device, its drivers or its compiler.
ABSENT = (
    "acl",
    "torch_npu",
    "torchair",
    "mooncake",
    "memcache_hybrid",
    "memfabric_hybrid",
    "ms_service_profiler",
    "msmodelslim",
    "lmcache_ascend",
    "yuanrong",
    "datasystem",
    "custom_ops",
)

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
os.environ.setdefault("SOC_VERSION", "ascend910b1")


class Nothing:
    """Can be called, indexed, entered and asked for anything; numbers made of it are 0."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        # Used as a decorator it leaves the function alone.
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return args[0]
        return Nothing()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __getitem__(self, key):
        return Nothing()

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __int__(self):
        return 0

    __index__ = __int__

    def __float__(self):
        return 0.0

    def __eq__(self, other):
        # A return code of "done".
        return self is other or other == 0

    def __hash__(self):
        return id(self)

    def __bool__(self):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __or__(self, other):
        return self

    __ror__ = __or__


class Absent(types.ModuleType):
    """A module whose names all exist: capital ones are classes, the others do nothing."""

    __file__ = __file__

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (Nothing,), {}) if name[:1].isupper() else Nothing()
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT or name.startswith("torch.npu"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        if module.__name__ == "torch_npu":
            prepare_torch(module)


def prepare_torch(torch_npu):
    """``torch.npu``, as importing the real torch_npu leaves it: one device of the A2 generation, with memory."""
    import importlib

    import torch

    torch.utils.rename_privateuse1_backend("npu")
    npu = importlib.import_module("torch.npu")
    torch.npu = torch_npu.npu = npu
    npu.is_available = lambda: True
    npu.device_count = lambda: 1
    npu.current_device = lambda: 0
    npu.get_device_name = lambda *args: "Ascend910B1"
    npu.mem_get_info = lambda *args: (60 << 30, 64 << 30)
    torch_npu.__version__ = "2.10.0"
    torch.distributed.is_hccl_available = lambda: True
    if not hasattr(torch.version, "cann"):
        torch.version.cann = "9.0.0"


class BuildInfo(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """``vllm_ascend._build_info``, which its build writes: an sdist that is not built has none."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "vllm_ascend._build_info" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__device_type__ = "A2"


sys.meta_path.insert(0, Finder())
sys.meta_path.append(BuildInfo())
