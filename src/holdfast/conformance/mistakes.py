"""The mistakes that the kit can name: each with the way to mend it, and the section of the protocol.

A sentence is made of three parts: the mistake, what was seen, and how to mend it.
"""

from __future__ import annotations

from typing import NamedTuple

DOC = "docs/worker-protocol.md"


class Mistake(NamedTuple):
    """One mistake: what the worker does, how to mend it, and the anchor of the section that says so."""

    what: str
    mend: str
    section: str


_LIFE, _BASICS, _BATCH, _BEAT = "life-of-a-lease", "basics", "batch", "heartbeat"
_KEYS, _WAITS, _CLAIM = "keys-of-steps", "steps-retries-and-waits", "claim"

MISTAKES: dict[str, Mistake] = {
    # The program.
    "not-started": Mistake("does not begin to work", "let it register and claim as soon as it runs", _CLAIM),
    "ended": Mistake("ends by itself", "work until SIGTERM, whatever a single request or run does", _BASICS),
    "gives-up": Mistake(
        "stops claiming",
        "claim again after every answer, problem or broken connection, while a slot is free",
        _CLAIM,
    ),
    "ignores-401": Mistake(
        "goes on although its key is refused",
        "on 401 and 403 stop with one line on stderr and an exit code other than 0",
        _BASICS,
    ),
    "not-graceful": Mistake(
        "does not stop gracefully",
        "on SIGTERM claim no more, let steps end, send their results, release the rest, then exit with 0",
        _WAITS,
    ),
    # Requests.
    "no-register": Mistake(
        "claims without having registered", "send POST /workers/register before the first claim", "register"
    ),
    "no-version": Mistake(
        "does not say which protocol it speaks", "send the header `Holdfast-Protocol: 1`", _BASICS
    ),
    "no-key": Mistake(
        "sends a request without its key", "send `Authorization: Bearer` with HOLDFAST_KEY always", _BASICS
    ),
    "refused-request": Mistake(
        "sends a request that the server refuses", "send what the page says, field by field", _BASICS
    ),
    "refused-item": Mistake(
        "sends an item that the server refuses", "send what the tables of items and steps say", _BATCH
    ),
    "wrong-lease-time": Mistake(
        "asks for another lease time than HOLDFAST_LEASE_MS",
        "give `lease_ms` in every claim, heartbeat and item; left out, it means 30,000",
        _BATCH,
    ),
    "too-eager": Mistake(
        "sends a request again too soon", "wait for `retry_after_ms`, else 50 ms, doubled up to 2 s", _BASICS
    ),
    "unknown-fields": Mistake(
        "stumbles over fields that it does not know", "ignore unknown fields in every answer", _BASICS
    ),
    "wrong-clock": Mistake(
        "compares its clock with the server's",
        "measure lease time with a monotonic clock, and give delays as durations (`delay_ms`)",
        _BASICS,
    ),
    "time-ahead": Mistake(
        "counts the time of a run from before its claim",
        "count lease time from the moment at which the answer of the claim was received; only the end of the "
        "lease counts from before the claim was sent",
        _BASICS,
    ),
    "time-back": Mistake(
        "gives a run an earlier time than before",
        "take the latest recorded `now` when the time of the lease is earlier",
        _KEYS,
    ),
    "cut-claim": Mistake(
        "counts a lease from a claim that was cut off",
        "take the time anew for each claim that is sent, also when it is the same request again",
        _CLAIM,
    ),
    # Writes.
    "no-fence": Mistake(
        "writes without fence",
        "send the `fence` of the lease, unchanged, with every item and every entry of a heartbeat",
        _LIFE,
    ),
    "no-token": Mistake(
        "writes without token",
        "send the `token` of the lease, unchanged, with every item and every entry of a heartbeat",
        _LIFE,
    ),
    "wrong-fence": Mistake(
        "writes with a fence or token that is not of its lease",
        "take `run`, `fence` and `token` from one and the same lease",
        _LIFE,
    ),
    "two-items": Mistake(
        "sends two items of one run in one batch",
        "send the next item of a run only after the answer to the one before",
        _BATCH,
    ),
    "wrong-seq": Mistake(
        "numbers its items wrongly",
        "begin with `seq` 1 under each fence, and count one up after each answer",
        _BATCH,
    ),
    "changed-item": Mistake(
        "sends another item under a `seq` that it has used",
        "after a lost answer send the same item, with the same `seq` and the same content",
        _BATCH,
    ),
    "next-too-soon": Mistake(
        "sends the next item before the answer to the one before",
        "wait for the answer; when none comes, send the same item with the same `seq` again",
        _BATCH,
    ),
    "writes-after-end": Mistake(
        "writes for a run that it does not hold any more",
        "forget a run when an answer has another status than `leased`, or the problem `lease-lost`",
        _LIFE,
    ),
    "dropped-result": Mistake(
        "drops a result after a lost answer",
        "keep every item until an answer to it has come, and send the same item again until then",
        _BASICS,
    ),
    "hoards": Mistake(
        "claims more runs than it has free slots",
        "give in `slots` of a claim the number of slots that are free at that moment",
        _CLAIM,
    ),
    "lost-claim": Mistake(
        "does not get over the lost answer of a claim",
        "claim again; the lost leases come back after their time, or as `strays` of a heartbeat",
        _BEAT,
    ),
    "batch-as-one": Mistake(
        "lets one refused item of a batch harm the others",
        "read the answers one by one: each item is applied or refused on its own",
        _BATCH,
    ),
    # Leases.
    "heartbeat-blocked": Mistake(
        "sends heartbeats from the work thread",
        "send heartbeats from a thread of their own, which no step can hold up",
        _BEAT,
    ),
    "no-heartbeat": Mistake(
        "lets a lease run out while it works",
        "send a heartbeat for all held runs every third of the lease, whatever else is on its way",
        _BEAT,
    ),
    "works-without-lease": Mistake(
        "goes on with a run whose lease it has lost",
        "stop the run at the problem `lease-lost` or the state `lost`: begin no step, write nothing",
        _LIFE,
    ),
    "cancel-ignored": Mistake(
        "goes on with a run that was cancelled",
        "stop the run when a heartbeat says `cancelled`: drop what its step returns, write nothing",
        _BEAT,
    ),
    "pause-ignored": Mistake(
        "goes on with a run that was paused",
        "stop the run at the answer `paused`; it comes back with a later claim",
        _BATCH,
    ),
    "drain-ignored": Mistake(
        "loses work when the server stops",
        "claim at once again after `drain`, retry while no server answers, and keep the leases",
        _CLAIM,
    ),
    # Steps and values.
    "step-repeated": Mistake(
        "runs a recorded step again",
        "answer a step whose key is recorded from the record, and do not call its function",
        _KEYS,
    ),
    "step-unrecorded": Mistake(
        "goes on before a step is recorded",
        "give the code the value of a step only when the answer to its checkpoint has come",
        _WAITS,
    ),
    "wrong-step-key": Mistake(
        "forms the key of a step wrongly",
        "count uses of a name in one execution: NAME, NAME#2, NAME#3, as the table says",
        _KEYS,
    ),
    "wrong-idempotency-key": Mistake(
        "gives a step another idempotency key than RUN:KEY",
        "join the run id in lower case, a colon, and the key of the step; the same at every try",
        _KEYS,
    ),
    "changed-value": Mistake(
        "changes a value on its way",
        "read and write JSON with a parser that keeps whole numbers of any size and all text",
        _BASICS,
    ),
    "large-step": Mistake(
        "cannot record a step of 4 MiB", "take values up to `value_bytes`; let requests take so long", _BASICS
    ),
    "too-large": Mistake(
        "does not fail a run whose value is too large",
        "at the problem `too-large` send `fail` with the same `seq` and the kind `too_large`",
        _BATCH,
    ),
    "too-much-at-once": Mistake(
        "fails a run because it sends too many of its results in one item",
        "count the bytes of an item in UTF-8, and send with the next item what does not fit",
        _BATCH,
    ),
    "odd-name": Mistake(
        "records a step under another name than its own",
        "refuse a name that JSON cannot carry as it is, with kind `usage`, before its function runs",
        _KEYS,
    ),
    "not-loaded": Mistake(
        "does not read a large record to its end",
        "when a lease says `unread`, load page after page while `more` is true, then begin",
        "load",
    ),
    "wrong-tries": Mistake(
        "does not try a failing step as often as it should",
        "record a failed try with `retry` and a step `ready`, the last one with a step `failed`",
        _WAITS,
    ),
    "fatal-retried": Mistake(
        "tries a step again that failed for good",
        "record an error that is fatal with a step `failed`, kind `fatal`, at its first try",
        _WAITS,
    ),
    "body-error": Mistake(
        "does not end a run whose code fails",
        "send `retry` while tries of the run are left, then `fail` with the error",
        _WAITS,
    ),
    "wrong-error": Mistake(
        "records an error wrongly", "send `kind`, `type` and `message` as the table of errors says", "errors"
    ),
    # Waits.
    "wait-held": Mistake(
        "keeps a run that can only wait",
        "send `park` with the open waits, and forget the run when the answer says `waiting`",
        _WAITS,
    ),
    "wrong-wait": Mistake(
        "opens a wait wrongly", "send the fields of the step that the table of its kind names", _BATCH
    ),
    "already-there": Mistake(
        "does not go on when a park is answered `leased`",
        "put the steps of `settled` and `kept` into the record, and go on under the same lease",
        _WAITS,
    ),
    "wrong-outcome": Mistake(
        "reads the outcome of a wait wrongly", "take the value from `output` as the table says", "outputs"
    ),
    "other-record": Mistake(
        "cannot continue what another worker has begun",
        "form keys as the page says, and answer every recorded step from the record",
        _KEYS,
    ),
    # Everything else.
    "stuck": Mistake(
        "does not bring a run to its end",
        "look at the last requests of the run, shown by --show-traffic",
        _LIFE,
    ),
    "wrong-result": Mistake(
        "completes a run with a wrong result", "return the list that the script describes", _BATCH
    ),
    "wrong-status": Mistake(
        "ends a run with a wrong status", "complete what succeeds, and fail only what failed", _BATCH
    ),
}


class Wrong(Exception):
    """A mistake of the worker, with what was seen."""

    def __init__(self, name: str, seen: str) -> None:
        self.name, self.seen, self.mistake = name, seen, MISTAKES[name]
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """The mistake, what was seen, and how to mend it."""
        return f"the worker {self.mistake.what} ({self.seen}): {self.mistake.mend}"

    @property
    def see(self) -> str:
        """The place in the documentation."""
        return f"{DOC}#{self.mistake.section}"
