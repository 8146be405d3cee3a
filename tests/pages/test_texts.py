"""Texts of producers on pages: JSON that was cut, and commands that people paste into a terminal."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import time
from html import unescape
from types import SimpleNamespace
from urllib.parse import quote

import click
import pytest

import holdfast as hf
from holdfast.cli.main import cli
from holdfast.http.pages.json_text import INDENTED, json_html, laid_out
from holdfast.http.pages.rendering import ENVIRONMENT, marked
from holdfast.http.pages.run.param_form import BASE_MAX, FIELDS_MAX, bare_params, composed, fields
from holdfast.http.pages.run.timeline import number_of
from holdfast.http.problems import Refusal
from holdfast.records import RunFilter
from holdfast.shell import command_of, line_of, quoted

PASTED = "x\x03\nrm -rf ~\x1b[201~\n'\\ \u202e"
OPTION = "--store=https://evil.example"  # with it, the command would send an API key there


def test_a_string_of_quotes_that_was_cut_is_laid_out_at_once():
    began = time.process_time()
    shown = laid_out('{"a": "' + '\\"' * 10_000)
    assert time.process_time() - began < 0.5  # it took some seconds when each quote was a new beginning
    assert shown.count("j-string") == 2
    assert shown.count("&#34;") == 10_003


@pytest.mark.parametrize("end", ["", "\\", '\\"', '"', '"}'])
def test_a_cut_text_loses_nothing(end):
    text = '{"a": [1, "b' + end
    assert re.sub(r"<[^>]*>|\s", "", unescape(str(laid_out(text)))) == re.sub(r"\s", "", text)


def test_deep_values_do_not_blow_up_the_page():
    deep = "[" * 60 + ",".join(["1"] * 5_000) + "]" * 60
    assert len(json_html(deep.encode())) < 70 * 5_000
    assert f"\n{'  ' * INDENTED}<span" in json_html(deep.encode())


@pytest.mark.parametrize("word", ["plain", "two words", "it's", "$HOME;`x`", PASTED, "\U000e0001"])
def test_a_word_of_a_command_is_plain_text_that_a_shell_reads(word):
    assert quoted(word).isprintable()
    if (bash := shutil.which("bash")) is not None:
        printed = subprocess.run([bash, "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True)
        assert printed.stdout.decode() == word
    assert quoted("plain") == "plain"
    assert line_of("a", "b c") == "a 'b c'"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_another_shell_executes_no_part_of_a_word(shell):
    if (program := shutil.which(shell)) is not None:
        words = [quoted(one) for one in ("\x03'; echo hacked #", "\x03' `echo hacked`")]
        printed = subprocess.run(
            [program, "-c", f"printf %s {' '.join(words)}"], capture_output=True, check=True
        )
        assert printed.stdout.count(b"echo hacked") == 2


def test_a_name_with_a_dash_stands_behind_all_options():
    assert command_of("emit", "t", rest="'JSON'", options="--run x") == "holdfast emit t 'JSON' --run x"
    assert command_of("emit", "-t", rest="'JSON'", options="--run x") == "holdfast emit --run x -- -t 'JSON'"


@pytest.mark.parametrize("name", [PASTED, OPTION])
def test_a_command_on_a_page_takes_a_name_for_nothing_else(visit, name):
    """It has no control character, and no name in it is an option."""
    app, kit, segment = visit.kit.app, visit.kit, quote(name, safe="")

    @app.workflow("shop.odd.v1")
    async def odd(ctx):
        await ctx.step(name, lambda: 1)
        ctx.send(name, 1)
        await ctx.await_event(name)

    @app.workflow("shop.gate.v1")
    async def gate(ctx):
        await ctx.approval(name)

    async def fill():
        runs = [(await app.start(one)).id for one in (odd, gate)]
        async with app.worker(poll=0.01):
            for run in runs:
                while (await app.known(run)).status != "waiting":  # noqa: ASYNC110 - a worker is at it
                    await asyncio.sleep(0.01)
        await app.schedule(name, odd, every=3600)
        return runs

    waits, gated = kit.run(fill)
    paths = [f"/runs/{waits}?step={segment}", f"/runs/{gated}", "/approvals", "/schedules",
             f"/schedules/{segment}", f"/events?topic={segment}", "/outbox"]  # fmt: skip
    for path in paths:
        commands = [unescape(one) for one in re.findall(r'data-copy="(holdfast[^"]*)"', visit.text(path))]
        assert commands
        assert all(one.isprintable() for one in commands), path
        for words in map(shlex.split, commands):
            assert OPTION not in words or "--" in words[: words.index(OPTION)], path


def test_every_command_on_the_pages_is_one_of_the_command_line(furnished_visit):
    things = furnished_visit.kit.mine
    paths = ["/", "/runs", "/runs?status=failed&label=a", "/bulk", "/approvals", "/workflows",
             "/workflows/shop.quick.v1", "/schedules", "/limits", "/workers", "/outbox", "/events", "/keys",
             "/audit"]  # fmt: skip
    paths += [f"/runs/{things[name]}" for name in ("done", "broken", "waits", "gate", "pending")]
    found = set()
    for path in paths:
        found |= set(re.findall(r'data-copy="(holdfast [^"]*)"', furnished_visit.text(path)))
    assert len(found) > 20
    for command in sorted(unescape(one) for one in found):
        check_command(command)


def check_command(line):
    """Fail for a command or an option that is not there."""
    command, words = cli, shlex.split(line)[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, line
        command, words = found, words[1:]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    assert {one.partition("=")[0] for one in words if one.startswith("--")} <= known, line


def test_the_command_of_a_list_names_the_tenant(visit):
    visit.kit.run(visit.kit.app.of("acme").start, "shop.quick.v1", delay=60)
    assert "holdfast ls --tenant acme --status failed" in visit.text("/runs?tenant=acme&status=failed")
    assert "holdfast ls --status failed" in visit.text("/runs?status=failed")
    assert visit.kit.run(visit.kit.app.of("acme").list, RunFilter())


def test_text_of_a_user_in_a_sentence_looks_like_no_command(visit):
    """Between two backticks stand the program's own commands only."""
    app, kit, name = visit.kit.app, visit.kit, "a` or `holdfast purge --all` or `b"

    @app.workflow("shop.odd.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def odd(ctx, what):
        if what == "event":
            await ctx.await_event(name)
        elif what == "gate":
            await ctx.approval(name, ask=name)
        elif what == "child":
            await ctx.call(odd, "event", key=name)
        else:
            raise hf.Fatal(name)

    runs = [kit.run(app.start, odd, what).id for what in ("event", "gate", "child", "error")]
    kit.work(*runs)
    paused = kit.run(app.start, odd, "event", delay=60).id
    kit.run(app.pause, paused, by=name)
    for run in (*runs, paused):
        page = visit.text(f"/runs/{run}")
        line = unescape(re.search(r'<span class="why">(.*?)</span> <button', page, re.DOTALL)[1])
        assert "holdfast purge" in line, run
        codes = re.findall("<code>(.*?)</code>", line)
        assert [one for one in codes if "purge" in one and "approve" not in one] == [], run
        for command in re.findall(r'data-copy="(holdfast [^"]*)"', page):
            check_command(unescape(command))
            assert "purge" not in shlex.split(unescape(command))[1], command
    explained = kit.run(app.explain, runs[1]).text
    assert explained.count("`") == 4  # one command, and the word `reject`


@pytest.mark.parametrize("tenant", ["default", "acme", "*"])
def test_a_command_on_a_page_is_about_the_tenant_of_the_page(visit, tenant):
    """Some commands are about all tenants without `--tenant`, others about `default`."""
    app, kit = visit.kit.app, visit.kit
    kit.run(app.publish)
    run = kit.run(app.start, "shop.order.v1", {"id": 1}, tenant="acme").id
    kit.work(run, *(kit.run(app.start, "shop.quick.v1", tenant=one).id for one in ("acme", "default")))
    kit.run(app.schedule, "nightly", "shop.quick.v1", every=3600, tenant="acme")
    paths = ["/outbox", "/events", "/workflows/shop.quick.v1", "/audit", "/approvals", "/runs"]
    paths += ["/schedules", "/schedules/nightly", f"/runs/{run}"] if tenant == "acme" else []
    found = set()
    for path in paths:
        text = visit.text(path, params={"tenant": tenant})
        found |= {unescape(one) for one in re.findall(r'data-copy="(holdfast [^"]*)"', text)}
    verbs = ("outbox ls", "emit", "start", "audit", "approvals", "ls", "schedule ls", "schedule show",
             "schedule fire")  # fmt: skip
    about = [one for one in found if one.removeprefix("holdfast ").startswith(verbs)]
    assert len(about) >= 4
    assert all(("--tenant acme" in one) is (tenant == "acme") for one in about), about
    (resend,) = (one for one in found if "resend --dead" in one)
    end = "" if tenant == "*" else f" --tenant {tenant}"
    assert resend == f"holdfast outbox resend --dead{end}"


def test_a_value_of_many_tokens_is_cut():
    text = f"[{','.join(['1'] * 4_000)}]"
    shown = json_html(text.encode())
    assert shown.count("j-number") == 1_000
    assert "8,001 characters, the first 2,000 are shown" in shown
    assert "show all" in json_html(f'"{"x" * 3_000}"'.encode())
    assert "show the beginning" in json_html(f'"{"x" * 30_000}"'.encode())


@pytest.mark.slow
@pytest.mark.parametrize("value", [[1] * 100_000, "&" * 200_000, {str(n): [{}] for n in range(4_000)}])
def test_a_run_of_large_values_has_a_short_page(visit, value):
    app, kit = visit.kit.app, visit.kit

    @app.workflow("shop.large.v1")
    async def large(ctx, value):
        await ctx.step("large", lambda: value)
        for number in range(60):  # more than a page shows
            await ctx.step(f"step {number}", lambda: value)
        await ctx.approval("gate", ask=str(value)[:60_000], data=value)

    run = kit.run(app.start, large, value, labels={f"label {n}": "x" * 500 for n in range(1_000)}).id
    kit.work(run)
    page = visit.text(f"/runs/{run}?step=large&at=0")
    assert 'id="step"' in page
    assert len(page.encode()) < 500_000
    assert "950 more" in page
    inbox = visit.text("/approvals")
    assert len(inbox.encode()) < 60_000
    more = re.search(r'href="/ui(/runs/[^"]*step=gate)#step">See more of it</a>', inbox)[1]
    assert re.search("<h3>Question|A large value: <code>holdfast show", visit.text(more))


def test_a_number_that_is_too_large_is_no_number():
    """A plain-SQL role may write any JSON."""
    huge = 10**400
    assert [number_of(one) for one in (1, 2.5, huge, "3", None, True)] == [1, 2.5, None, None, None, 1]


def test_the_form_of_a_schema_is_bounded_whatever_the_schema_says():
    """Its references may make a form of a billion fields; JSON may have anything in its place."""
    many = {f"k{number}": {"$ref": "#/$defs/a"} for number in range(1_000)}
    assert fields({"$ref": "#/$defs/a", "$defs": {"a": {"properties": many}}}, b"{}") is None
    odd = {"properties": {"a": {"type": "string"}}, "required": [[], {}, "a"]}
    (field,) = fields(odd, b"{}")
    assert field.is_required


@pytest.mark.parametrize("given", [
    [("form:base", f'{{"a": "{"x" * BASE_MAX}"}}'), ("form:string:/b", "1")],
    [(f"form:string:/a{number}", "1") for number in range(FIELDS_MAX + 1)],
    [("form:string:" + "/a" * 500, "1")],
])  # fmt: skip
def test_a_form_of_params_that_no_page_has_made_is_refused_at_once(given):
    """Each field reads all params again: it took minutes."""
    with pytest.raises(Refusal, match="too large"):
        composed(given)


def test_a_field_that_nobody_changes_keeps_its_value():
    base = rb'{"a": "", "b": null, "c": 1.0, "d": "x\ry", "in": {"e": ""}, "f": 12345678901234567890123}'
    text, number = {"type": "string"}, {"type": "integer"}
    inner = {"properties": {"e": text}}
    maybe = {"anyOf": [number, {"type": "null"}]}
    schema = {"properties": {"a": text, "b": maybe, "c": number, "d": text, "in": inner, "f": number}}
    sent = [(one.name, one.text.replace("\r", "\r\n")) for one in fields(schema, base)]
    assert json.loads(bytes(composed([("form:base", base.decode()), *sent]))) == json.loads(base)


def test_a_form_without_values_has_the_objects_and_nulls_that_must_be_there():
    inner = {"properties": {"e": {"type": "string"}}}
    maybe, many = ({"anyOf": [*some, {"type": "null"}]} for some in ([inner], [inner, {"type": "integer"}]))
    parts = {"in": inner, "maybe": maybe, "many": many, "free": inner, "n": {"type": "string"}, "any": True}
    schema = {"properties": parts, "required": ["in", "maybe", "many", "n"]}
    made = fields(schema)
    assert [one.name for one in made][-1] == "form:json:/any"
    sent = [("form:base", bare_params(schema)), *((one.name, one.text) for one in made)]
    assert json.loads(bytes(composed(sent))) == {"in": {}, "maybe": None, "many": None}
    either = {"anyOf": [schema, {"type": "null"}]}
    sent[0] = ("form:base", bare_params(either))
    assert bytes(composed(sent)) == b"null"


def test_a_value_that_is_no_choice_any_more_stays_chosen():
    page = SimpleNamespace(typed=lambda _, text: text)
    forms = ENVIRONMENT.get_template("param_fields.html").make_module({"page": page})
    schema = {"properties": {"a": {"enum": ["x", "y  z"]}}, "required": ["a"]}
    shown = str(forms.fields(fields(schema, b'{"a": "gone"}')))
    assert re.findall('<option value="(.*?)"', shown) == ["gone", "x", "y  z"]
    assert '"gone" selected' in shown


def test_a_command_that_a_backtick_has_cut_cannot_be_copied():
    assert 'data-copy="holdfast approve R g"' in marked("`holdfast approve R g` decides")
    assert "data-copy" not in marked("`holdfast approve R 'a`b`c'` decides")
