"""The chain of codec hooks: a value is sealed in the order of the hooks and opened in reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import decoding
from holdfast.codec import MARK, RESERVED
from holdfast.errors import CannotOpen, CannotSeal, NotSealed, UsageError
from holdfast.escaping import escaped, safe_logger
from holdfast.records import Json
from holdfast.records.fingerprints import SEALED, fingerprint

from .envelope import KEY_SHOWN, read, written
from .hooks import CodecHook, Where

log = safe_logger("holdfast.sealing")


class Chain:
    """The hooks of an app, in order."""

    def __init__(self, hooks: Sequence[CodecHook]) -> None:
        self._hooks = {hook.name: hook for hook in hooks}
        if not hooks or len(self._hooks) < len(hooks):
            raise UsageError(f"codec={list(hooks)!r}: at least one hook, and none twice")
        self._needed = frozenset(name for name, hook in self._hooks.items() if not hook.optional)

    def seal(self, text: Json, where: Where) -> Json:
        """Return the sealed form, or the text itself when no hook changes it. UsageError when it is not
        JSON."""
        if (why := decoding.fault(text)) is not None:
            raise UsageError(f"{where} is no JSON: {why}")
        value = text.encode()
        by: tuple[str, ...] = ()
        for hook in self._hooks.values():
            how, value = _sealed(hook, value, _within(where, by))
            by = (*by, how) if how else by
        return written(by, value) if by else text

    def open(self, text: Json, where: Where) -> Json:
        """Return the text that was sealed. CannotOpen says why it cannot be opened here."""
        if not text.startswith(MARK):
            if self._needed:
                raise NotSealed(
                    f"{where} is not encrypted, although this app encrypts: somebody else wrote it, or it is "
                    f"older than the codec (then say accept_plain=True until it is gone)"
                )
            return text
        seal = read(text)
        names = [how.partition(":")[0] for how in seal.by]
        missing = self._needed.difference(names)
        if missing:
            raise NotSealed(
                f"{where} is sealed, but not by {', '.join(sorted(missing))}, as this app demands"
            )
        if not names or len(set(names)) < len(names):
            # No Holdfast wrote this. The same hook a thousand times would be a thousand times its work.
            raise CannotOpen(f"{where} is damaged: it names no hook, or one of them twice")
        value = seal.data
        for n in range(len(seal.by) - 1, -1, -1):
            value = self._opened(seal.by[n], value, _within(where, seal.by[:n]))
        try:
            return value.decode()
        except UnicodeError:
            raise CannotOpen(f"{where} is damaged: it holds no text") from None

    def demand(self, where: Where) -> None:
        """Raise NotSealed for a value that is missing, unless values that are not sealed are accepted too."""
        if self._needed:
            raise NotSealed(f"{where} is not there, although this app has sealed it: somebody has removed it")

    def _opened(self, how: str, value: bytes, where: Where) -> bytes:
        hook = self._hooks.get(how.partition(":")[0])
        if hook is None:
            named = escaped(repr(how), KEY_SHOWN)
            raise CannotOpen(f"{where} is sealed by {named}, which this app's codec does not know")
        try:
            opened = hook.open(how, value, where)
            _check(hook, opened)
        except CannotOpen:
            raise
        except Exception as error:
            # A user's hook failed. One value that cannot be opened must not make the others unreadable.
            log.exception("%s: the hook %r failed", where, hook.name)
            raise CannotOpen(f"{where} does not open: {_failed(hook, error)}") from error
        return opened

    def veil(self, shown: dict[str, Any], text: Json, where: Where) -> Json | None:
        """Return an object with readable entries and the sealed text beside them. None: no hook changes
        the text."""
        sealed = self.seal(text, where)
        return (
            None if sealed is text else msgspec.json.encode({**shown, **msgspec.json.decode(sealed)}).decode()
        )

    def veil_error(self, shown: dict[str, Any], error: Json, text: Json, where: Where) -> Json | None:
        """Return a veiled error with a keyed digest of its fingerprint, by which lists find it."""
        digest = self.fingerprints(fingerprint(error) or "", where.tenant)[0]
        return self.veil({**shown, SEALED: digest}, text, where)

    def fingerprints(self, text: str, tenant: str) -> list[str]:
        """Return a fingerprint as it is stored now, then as older keys may have stored it."""
        return self.digests(text, Where(tenant=tenant, field="fingerprint"))

    def unveil(self, text: Json, where: Where) -> Json | None:
        """Return the text that `veil` has sealed. None: nothing is sealed."""
        found = decoded(text, Any) if RESERVED in text else None
        if not isinstance(found, dict) or RESERVED not in found:
            return None
        return self.open(msgspec.json.encode({RESERVED: found[RESERVED]}).decode(), where)

    def digests(self, digest: str, where: Where) -> list[str]:
        """Return the digest of a start as it is stored now, then as older keys may have stored it."""
        found = [digest]
        for hook in self._hooks.values():
            try:
                found = [each for one in found for each in hook.digests(one, where)]
            except Exception as error:
                log.exception("%s: the hook %r failed", where, hook.name)
                raise CannotSeal(f"{where} cannot be made: {_failed(hook, error)}") from error
        return found


def _sealed(hook: CodecHook, value: bytes, where: Where) -> tuple[str, bytes]:
    try:
        how, sealed = hook.seal(value, where)
        _check(hook, sealed, how)
    except CannotSeal:
        raise
    except Exception as error:
        log.exception("%s: the hook %r failed", where, hook.name)
        raise CannotSeal(f"{where} cannot be sealed: {_failed(hook, error)}") from error
    return how, sealed


def _check(hook: CodecHook, value: object, how: str = "") -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"the hook {hook.name!r} answered {type(value).__name__} in place of bytes")
    if how and how.partition(":")[0] != hook.name:
        raise ValueError(f"the hook {hook.name!r} said {how!r}, by which nobody could find it to open this")


def _failed(hook: CodecHook, error: Exception) -> str:
    """Return a message without the text of the error: that may contain the value, and this message is not
    sealed."""
    return f"the hook {hook.name!r} failed with {type(error).__name__}, and the log of this process says why"


def decoded(text: Json, wanted: Any) -> Any:
    """Return the decoded content of a text that Holdfast wrote. CannotOpen when it is damaged."""
    try:
        return decoding.decoded(text, wanted)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotOpen(f"a stored value is damaged: {escaped(error)}") from None


def _within(where: Where, by: tuple[str, ...]) -> Where:
    return msgspec.structs.replace(where, inner=by) if by else where
