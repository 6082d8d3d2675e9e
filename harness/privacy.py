"""What a record may say about a machine: records get published, so names of people, hosts and single units stay out.

UUIDs, PCI addresses and serial numbers become `salted:` and 16 hex digits of an HMAC with a secret salt. The salt lies in
the user's state folder and is never published (a PCI address has few values: whoever held the salt could try them all).
One user on one machine therefore gets one name for a unit in every record, and nobody else can tell which unit it is.
A runner that throws its state folder away gets new names each time: let it keep $SAMEBITS_STATE_DIR.
"""

import contextlib
import getpass
import hashlib
import hmac
import os
import platform
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import InputRefused, UsageError
from harness.folders import state_folder

PREFIX = "salted:"
SALT_BYTES = 32

_VARIABLES = """
VK_DRIVER_FILES VK_ADD_DRIVER_FILES VK_ICD_FILENAMES VK_LOADER_DRIVERS_SELECT VK_LOADER_DRIVERS_DISABLE VK_INSTANCE_LAYERS
VK_LOADER_LAYERS_ENABLE VK_LAYER_PATH WGPU_BACKEND WGPU_BACKEND_TYPE
LP_NUM_THREADS LP_NATIVE_VECTOR_WIDTH LP_PERF GALLIUM_DRIVER GALLIVM_DEBUG GALLIVM_PERF LIBGL_ALWAYS_SOFTWARE
MESA_LOADER_DRIVER_OVERRIDE MESA_SHADER_CACHE_DISABLE MESA_VK_DEVICE_SELECT DRI_PRIME
RADV_DEBUG RADV_PERFTEST ANV_DEBUG INTEL_DEBUG NIR_DEBUG ACO_DEBUG AMD_DEBUG NVK_DEBUG AMD_VULKAN_ICD
OCL_ICD_VENDORS OCL_ICD_FILENAMES OCL_ICD_ENABLE_TRACE OPENCL_VENDOR_PATH
RUSTICL_ENABLE RUSTICL_FEATURES RUSTICL_DEVICE_TYPE
POCL_DEVICES POCL_DEBUG POCL_MAX_PTHREAD_COUNT POCL_WORK_GROUP_METHOD POCL_CACHE_DIR POCL_KERNEL_CACHE
POCL_MAX_WORK_GROUP_SIZE POCL_EXTRA_BUILD_FLAGS POCL_FULL_REPLICATION_THRESHOLD POCL_WILOOPS_MAX_UNROLL_COUNT
OCLGRIND_NUM_THREADS OCLGRIND_UNIFORM_WRITES VK_LOADER_LAYERS_DISABLE
__EGL_VENDOR_LIBRARY_FILENAMES __EGL_VENDOR_LIBRARY_DIRS EGL_PLATFORM
CL_CONFIG_CPU_TARGET_ARCH CL_CONFIG_CPU_VECTORIZER_MODE CL_CONFIG_USE_VECTORIZER
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT CUDA_CACHE_DISABLE
CUDA_CACHE_PATH CUDA_PATH CUPY_CACHE_DIR CUPY_ACCELERATORS NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES
HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL HSA_OVERRIDE_GFX_VERSION HSA_XNACK HSA_ENABLE_SDMA
AMD_SERIALIZE_KERNEL ZE_AFFINITY_MASK ONEAPI_DEVICE_SELECTOR NEOReadDebugKeys OverrideGpuAddressSpace IGC_EnableDPEmulation
OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OMP_NUM_THREADS
LD_LIBRARY_PATH LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS SAMEBITS_EXPECT
"""
DRIVER_VARIABLES = tuple(_VARIABLES.split())
"""The environment variables that a record may hold. Exact names: NVIDIA_API_KEY is a secret, NVIDIA_VISIBLE_DEVICES is not."""

_SECRET_KEY = re.compile(
    r"uuid|luid|serial|pci.?(bus|address|addr|device.?address)|bus.?(id|address)|topology", re.IGNORECASE
)
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_PCI = re.compile(r"\b(?:[0-9a-f]{4}(?:[0-9a-f]{4})?:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]\b", re.IGNORECASE)
# At least one folder and something after it; `https://` and `n/a` are no paths.
_PATH = re.compile(r"(?<![\w./~-])(?!(?<=:)//)~?/+(?:[^\s/\"':;,()<>|]+/+)+|\b[A-Za-z]:\\(?:[^\\\s\"':;,()<>|]+\\)+")
_MAX_DEPTH = 8


class Redactor:
    """Takes out of plain data what must not be published. Applying it twice changes nothing more.

    With `identify`, UUIDs, PCI addresses and serial numbers stay; paths, user and host names never do.
    """

    def __init__(self, salt: bytes, *, identify: bool = False, names: Iterable[str] | None = None) -> None:
        self.salt = salt
        self.identify = identify
        # One letter or two would blank out half of every message.
        words = [
            re.escape(n) for n in sorted(_own_names() if names is None else names, key=len, reverse=True) if len(n) > 2
        ]
        self._names = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE) if words else None

    def unit(self, identity: str | None) -> str | None:
        """The published name of one unit's UUID, PCI address or serial number."""
        if identity is None or self.identify or identity.startswith(PREFIX):
            return identity
        digest = hmac.new(self.salt, identity.strip().lower().encode("utf-8", "replace"), hashlib.sha256)
        return PREFIX + digest.hexdigest()[:16]

    def text(self, text: str, *, names: bool = True) -> str:
        """A message without folders, and (unless identified) UUIDs and PCI addresses.

        User and host names go too, but not where `names` is off: a Jetson's user is called nvidia, and so is its GPU.
        """
        text = _PATH.sub("", text.encode("utf-8", "replace").decode())
        if not self.identify:
            text = _UUID.sub(lambda m: str(self.unit(m.group())), text)
            text = _PCI.sub(lambda m: str(self.unit(m.group())), text)
        return self._names.sub("NAME", text) if self._names and names else text

    def data(self, value: Any, depth: int = 0) -> Any:
        """Plain data that JSON can carry, redacted throughout; what is nested too deep or of no JSON type becomes text."""
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**64 else str(value)
        if isinstance(value, bytes):
            return self.text(value.hex())
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            return {self.text(str(k), names=False): self._field(str(k), v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and depth < _MAX_DEPTH:
            return [self.data(v, depth + 1) for v in value]
        return self.text(str(value))

    def _field(self, key: str, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | Mapping) or not _SECRET_KEY.search(key):
            return self.data(value, depth)
        return self.unit(value.hex() if isinstance(value, bytes) else str(value))

    def arguments(self, argv: Iterable[str]) -> list[str]:
        """A command line whose paths are cut to their last part."""
        return [self.text(_last_part(argument)) for argument in argv]

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The driver variables among `environment`, paths in them cut to their last part."""
        return {
            name: self.text(os.pathsep.join(map(_last_part, environment[name].split(os.pathsep))))
            for name in DRIVER_VARIABLES
            if name in environment
        }


def _last_part(argument: str) -> str:
    """`--out=/home/x/records` -> `--out=records`; text without a slash stays."""
    head, equals, path = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    return head + equals + re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _own_names() -> set[str]:
    """The names of this user and this host, as far as the system tells them."""
    names = {platform.node(), platform.node().partition(".")[0], Path.home().name}
    with contextlib.suppress(Exception):  # no password entry for this user id: then there is no name to hide
        names.add(getpass.getuser())
    return names - {"localhost"}


def salt() -> bytes:
    """The secret of this user's state folder, made when first asked for; raises UsageError, InputRefused."""
    path = state_folder("salt")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".salt-") as f:
                f.write(secrets.token_bytes(SALT_BYTES))
                f.flush()
                os.fsync(f.fileno())
                # A link and not a rename: of two processes that start together, the first one's salt stays.
                with contextlib.suppress(FileExistsError):
                    os.link(f.name, path)
        found = path.read_bytes()
    except OSError as e:
        raise UsageError(
            f"state folder {path.parent}: {e.strerror}; name one that can be written in SAMEBITS_STATE_DIR"
        ) from e
    if len(found) != SALT_BYTES:
        raise InputRefused(
            f"salt file {path} has {len(found)} bytes, not {SALT_BYTES}; remove it (units get new names)"
        )
    return found
