"""API keys and the audit log in random histories, and runs that count under a key."""

from __future__ import annotations

from holdfast.records import ANY, NewApiKey, Scope
from holdfast.testing.contract.keys import act, hashed

IDS = ("k00000000001", "k00000000002", "k00000000003")
SCOPES = ((Scope.WORK,), (Scope.RUNS_READ, Scope.ADMIN), (Scope.OPERATOR,))


def counted(pick):
    """Return who starts a run, and now and then the API key that it counts under."""
    by = {"by": pick("", "", "ann")}
    return by | pick({}, {}, {"api_key": IDS[0], "open_runs_max": pick(None, 1, 3)})


class ApiKeys:
    """The verbs of keys, on both stores."""

    def change_key(self, pick, data):
        tenant, audit = pick(ANY, ANY, "default", "acme"), pick(None, act("change", tenant=pick("", "ops")))
        one, by, now = pick(*IDS), pick("", "ann"), self.pair.drivers[0].clock.now
        new = NewApiKey(
            id=one, tenant=pick("default", "acme"), name=pick("a", "b"), scopes=pick(*SCOPES),
            patterns=pick((), ("shop.%",)), secret_hash=hashed(pick("s", "t")),
            expires_at=pick(None, None, now, now + 10_000_000), rate=pick(None, 0.5),
            open_runs_max=pick(None, 3), by=by,
        )  # fmt: skip
        rotated = one, tenant, hashed(pick("s", "t", "u")), pick(0.0, 7.5), audit
        match pick("create", "create", "rotate", "revoke", "use", "note"):
            case "create":
                self.pair.do(lambda driver: driver.run(driver.store.create_key(new, audit)))
            case "rotate":
                self.pair.do(lambda driver: driver.run(driver.store.rotate_key(*rotated)))
            case "revoke":
                self.pair.do(lambda driver: driver.run(driver.store.revoke_key(one, tenant, by, audit)))
            case "use":
                self.pair.do(lambda driver: driver.run(driver.store.use_keys(IDS[:2])))
            case _:
                self.pair.do(lambda driver: driver.run(driver.store.note_audit([act("x"), act("y", "acme")])))

    def look_at_keys(self, pick, data):
        tenant, limit, last = pick(ANY, "default", "acme"), pick(1, 2, 100), pick(None, IDS[0])
        after, actions = pick(None, 3), pick((), ("change", "x"))
        self.pair.do(lambda driver: driver.run(driver.store.keys(tenant, limit, last)))
        self.pair.do(lambda driver: [driver.run(driver.store.find_key(one)) for one in IDS])
        self.pair.do(lambda driver: driver.run(driver.store.audit(tenant, limit, after, actions)))
