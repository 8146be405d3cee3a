"""The codec of an app: values are sealed before a store sees them. Never pickle: what opens is text."""

from .encrypt import Encrypt
from .hooks import CodecHook, Compress, Where
from .store import Sealed

__all__ = ["CodecHook", "Compress", "Encrypt", "Sealed", "Where"]
