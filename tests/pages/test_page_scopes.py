"""Rights on pages: no button that would be refused, nothing of other tenants, no values without the scope."""

from __future__ import annotations

import re
from html import unescape

import pytest

from holdfast.http.operation import all_operations
from holdfast.records import Scope
from tests.http.kit import CANARY, OTHERS, Kit
from tests.pages.kit import Visit, mounted

SEEING = [one for one in Scope if one not in {Scope.WORK, Scope.PAYLOADS_READ}]  # which alone show no page
READER = (Scope.RUNS_READ,)
OPERATOR = (*(one for one in Scope if one is not Scope.WORK),)
MINE = ["/approvals", "/workflows", "/workflows/shop.quick.v1", "/schedules", "/schedules/nightly%20default",
        "/outbox?status=pending&status=sent", "/events"]  # fmt: skip
OPERATORS = ["/limits", "/workers"]
ADMINS = ["/keys", "/audit"]


@pytest.fixture(scope="module")
def furnished():
    with Kit() as kit:
        yield Visit(kit.furnish())


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("path", MINE)
def test_a_reader_sees_no_buttons_and_no_values(furnished, path):
    furnished.sign_in(*READER)
    text = furnished.text(path)
    assert "/do/" not in text
    assert CANARY not in text


@pytest.mark.parametrize("path", [*OPERATORS, *ADMINS])
def test_a_reader_is_refused_at_pages_of_operators_and_admins(furnished, path):
    furnished.sign_in(*READER)
    assert furnished.get(path).status_code == 403
    assert f'href="/ui{path}"' not in furnished.text("/runs")


@pytest.mark.slow
@pytest.mark.parametrize("scopes", [*((one,) for one in SEEING), (Scope.METRICS, Scope.APPROVALS_DECIDE)])
def test_no_link_is_refused(furnished, scopes):
    """A link of a page leads to a page that the visitor may see. Links are followed once."""
    furnished.sign_in(*scopes)
    pages, seen = ["/ui/"], set()
    while pages:
        path = pages.pop()
        response = furnished.client.get(path)
        assert response.status_code not in {403, 404, 500}, (path, response.text)
        for link in re.findall(r'<a [^>]*href="(/ui[^"#]*)', response.text):
            shape = re.sub(r"[0-9a-f-]{36}|cursor=[^&]*|before=\d+|link=.*", "*", link)
            if shape not in seen:
                seen.add(shape)
                pages.append(unescape(link))


ACTIONS = ["approve", "reject", "register", "unregister", "start", "fire_schedule", "pause_schedule",
           "resume_schedule", "unschedule", "limit", "unlimit", "pause_key", "resume_key", "resend", "emit",
           "create_key", "rotate_key", "revoke_key"]  # fmt: skip


@pytest.mark.parametrize("name", ACTIONS)
def test_a_form_of_a_reader_is_refused(furnished, name):
    furnished.sign_in(*READER)
    furnished.text("/runs")
    furnished.do(name, back="/ui/runs")
    assert "this needs the scope" in furnished.said


def test_these_are_all_actions_of_the_pages(furnished):
    furnished.sign_in(*OPERATOR)
    furnished.kit.run(furnished.kit.app.limit, key="k", concurrency=1)
    furnished.kit.run(furnished.kit.app.register, "shop.quick.v1", enabled=True)
    found = set()
    for path in (*MINE, *OPERATORS, *ADMINS):
        found |= set(re.findall(r'action="/ui/do/(\w+)', furnished.text(path)))
    assert found <= set(ACTIONS) | {"approve"}
    assert found <= set(all_operations())


@pytest.mark.spec("TEN-1")
@pytest.mark.parametrize("path", [*MINE, *ADMINS])
def test_another_tenant_sees_nothing(furnished, path):
    furnished.sign_in(*(one for one in Scope if one is not Scope.OPERATOR), tenant="stranger")
    response = furnished.get(path)
    assert response.status_code == (404 if "nightly" in path else 200)
    for one in (furnished.kit.mine, furnished.kit.others):
        for hidden in (*map(str, one.runs.values()), one.message, one.key, CANARY):
            assert hidden not in response.text
    assert "/ui/schedules/nightly" not in response.text


def test_an_operator_looks_at_one_tenant_or_at_all(furnished):
    furnished.sign_in(*OPERATOR)
    gates = {
        one: furnished.text(f"/approvals?tenant={one}").count("<article") for one in ("default", OTHERS, "*")
    }
    assert gates == {"default": 3, OTHERS: 3, "*": 6}
    text = furnished.text("/schedules?tenant=*")
    assert f"/schedules/nightly%20{OTHERS}?tenant={OTHERS}" in text
    assert "/do/" not in text  # a schedule is changed in its own tenant


def test_all_pages_work_below_a_prefix():
    with Kit(open=True) as kit:
        kit.furnish()
        kit.client.app = kit.client._transport.app = mounted(kit.client.app, "/in/side")
        visit = Visit(kit, "/in/side")
        for path in (*MINE, *OPERATORS, *ADMINS):
            text = visit.text(path)
            for one in re.findall(r'(?:href|src|action|formaction)="([^"#][^"]*)"', text):
                assert one.startswith(("/in/side/ui/", "/in/side/ui?")), one
