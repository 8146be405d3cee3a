"""Driver functions for API keys and the audit log, with the usual arguments filled in."""

from __future__ import annotations

from hashlib import sha256

from holdfast.records import ANY, AuditWrite, NewApiKey, Scope

ID, OTHER_ID = "k00000000001", "k00000000002"


def hashed(secret):
    return sha256(secret.encode()).hexdigest()


def new(id=ID, **fields):
    standard = {
        "tenant": "default",
        "name": "ci",
        "scopes": (Scope.RUNS_READ, Scope.RUNS_WRITE),
        "secret_hash": hashed(f"secret of {id}"),
    }
    return NewApiKey(id=id, **{**standard, **fields})


def create(driver, id=ID, audit=None, **fields):
    return driver.run(driver.store.create_key(new(id, **fields), audit))


def find(driver, id=ID):
    return driver.run(driver.store.find_key(id))


def listed(driver, tenant=ANY, **fields):
    return driver.run(driver.store.keys(tenant, **fields))


def rotate(driver, id=ID, secret="new", overlap=0.0, tenant=ANY, **fields):
    return driver.run(driver.store.rotate_key(id, tenant, hashed(secret), overlap, **fields))


def revoke(driver, id=ID, tenant=ANY, **fields):
    return driver.run(driver.store.revoke_key(id, tenant, **fields))


def use(driver, *ids):
    driver.run(driver.store.use_keys(ids))


def act(action="start", tenant="default", **fields):
    return AuditWrite(action=action, tenant=tenant, **fields)


def note(driver, *entries):
    driver.run(driver.store.note_audit(entries))


def audit(driver, tenant=ANY, **fields):
    return driver.run(driver.store.audit(tenant, **fields))


def actions(driver, tenant=ANY, **fields):
    return [entry.action for entry in audit(driver, tenant, **fields)]
