"""The codec of an app: values are sealed before a store sees them, and opened after. A value is always text,
never a pickle.
"""

from .encrypt import Encrypt
from .hooks import CodecHook, Compress, Where
from .store import Sealed

__all__ = ["CodecHook", "Compress", "Encrypt", "Sealed", "Where"]
