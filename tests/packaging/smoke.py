"""A smoke test of an installed Holdfast. `./hf package` runs it in an environment without the checkout.

The argument names the environment: `no extra`, the name of an extra, or `pytest`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

# The package that each extra brings.
BROUGHT = {
    "client": "httpx2",
    "crypto": "cryptography",
    "dev": "watchfiles",
    "http": "starlette",
    "metrics": "prometheus_client",
    "otel": "opentelemetry",
    "postgres": "asyncpg",
    "redis": "redis",
    "uvloop": "uvloop",
}

PLUGIN_TEST = """
import holdfast as hf

app = hf.App("memory://")


@app.workflow("shop.nap.v1")
async def nap(ctx: hf.Context) -> str:
    await ctx.sleep(days=30)
    return "rested"


def test_a_nap(rehearsal):
    stage = rehearsal(app)
    run = stage.start(nap)
    stage.advance(days=30)
    assert run.status == "succeeded"
"""


def program(*arguments: str, code: int = 0) -> str:
    """Call the installed program `holdfast` and return its output."""
    command = [str(Path(sys.prefix) / "bin" / "holdfast"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_files() -> None:
    package = importlib.resources.files("holdfast")
    assert Path(str(package)).is_relative_to(sys.prefix), f"holdfast comes from {package}"
    assert package.joinpath("py.typed").is_file()
    for store in ("sqlite", "postgres"):
        assert list(Path(str(package.joinpath("stores", store))).rglob("*.sql")), f"no .sql for {store}"


def check_program() -> None:
    assert importlib.metadata.version("holdfast") in program("--version")
    assert "worker" in program("--help")


def check_workflow() -> None:
    import holdfast as hf

    async def order(ctx: hf.Context, number: int) -> str:
        receipt = await ctx.step("charge", lambda: f"receipt {number}")
        await ctx.sleep(seconds=0.01)
        return f"{receipt}, shipped"

    async def play() -> None:
        app = hf.App("sqlite:///smoke.db")
        workflow = app.workflow("shop.order.v1")(order)
        async with asyncio.timeout(30), app.worker():
            run = await app.start(workflow, 7)
            assert await run.result() == "receipt 7, shipped"
        await app.close()

    asyncio.run(play())
    assert "succeeded" in program("--store", "sqlite:///smoke.db", "ls")


def check_extras(name: str) -> None:
    """The extra brings its package, and no other environment has it."""
    for extra, module in BROUGHT.items():
        found = importlib.util.find_spec(module) is not None
        assert found == (extra == name), f"{module} is {'here' if found else 'missing'} in {name!r}"


def check_no_extra() -> None:
    refused = program("--store", "postgresql://localhost/none", "ls", code=2)
    assert "pip install asyncpg" in refused, refused
    for command in (["serve", "--port", "0"], ["--store", "http://127.0.0.1:1", "ls"]):
        refused = program(*command, code=2)
        assert "needs the extra" in refused, refused


def check_http() -> None:
    """A server answers, and stops at a signal."""
    command = [str(Path(sys.prefix) / "bin" / "holdfast"), "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("serving "))
        url = line.split()[1].rstrip(";")
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert json.load(answer) == {"status": "ok"}
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        assert server.wait(30) == 0


def check_client() -> None:
    """The library of the client is there, so that only the server is missing."""
    refused = program("--store", "http://127.0.0.1:1", "ls", code=3)
    assert "cannot be reached" in refused, refused


def check_crypto() -> None:
    import holdfast as hf

    async def seal() -> None:
        app = hf.App("memory://", codec=hf.Encrypt({"2026": hf.Encrypt.new_key()}))

        async def echo(ctx: hf.Context, word: str) -> str:
            return word

        workflow = app.workflow("shop.echo.v1")(echo)
        async with asyncio.timeout(30), app.worker():
            run = await app.start(workflow, "secret")
            assert await run.result() == "secret"
        await app.close()

    asyncio.run(seal())


def check_postgres() -> None:
    from holdfast.stores.postgres import PostgresStore

    assert PostgresStore("postgresql://localhost/none")
    # The driver is there, so that only the server is missing.
    refused = program("--store", "postgresql://127.0.0.1:1/none", "ls", code=3)
    assert "pip install" not in refused, refused


def check_redis() -> None:
    """The scripts are in the package, and the driver is there, so that only the server is missing."""
    assert "redis.call" in program("redis", "producer")
    refused = program("--store", "redis://127.0.0.1:1/0", "ls", code=3)
    assert "pip install" not in refused, refused


def check_metrics() -> None:
    """The metrics can be added to a registry of prometheus_client."""
    from prometheus_client import CollectorRegistry, generate_latest

    from holdfast.telemetry.prometheus import collector

    registry = CollectorRegistry()
    registry.register(collector())
    assert b"holdfast_worker_slots" in generate_latest(registry)


def check_otel() -> None:
    """The API alone records nothing; a start passes a context on that came from elsewhere."""
    from opentelemetry import trace

    import holdfast as hf

    async def look(ctx: hf.Context) -> bool:
        return trace.get_current_span().get_span_context().is_valid

    app = hf.App("sqlite:///traces.db")
    workflow = app.workflow("shop.look.v1")(look)

    async def play() -> None:
        async with asyncio.timeout(30), app.worker():
            assert await (await app.start(workflow)).result() is False
        await app.close()

    asyncio.run(play())


def check_uvloop() -> None:
    """A worker uses the loop of uvloop when it is installed."""
    import holdfast as hf

    modules = []

    async def look(ctx: hf.Context) -> None:
        modules.append(type(asyncio.get_running_loop()).__module__)
        os.kill(os.getpid(), signal.SIGTERM)

    app = hf.App("sqlite:///loop.db")
    app.sync.start(app.workflow("shop.look.v1")(look))
    app.run()
    assert modules[0].startswith("uvloop"), modules


def check_dev() -> None:
    """`holdfast dev` can watch the files of an app."""
    import watchfiles

    assert callable(watchfiles.watch)


def check_pytest() -> None:
    Path("test_nap.py").write_text(PLUGIN_TEST, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nap.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout, done.stdout


def main(name: str) -> None:
    check_files()
    check_program()
    check_workflow()
    check_extras(name)
    more = {
        "no extra": check_no_extra,
        "client": check_client,
        "crypto": check_crypto,
        "dev": check_dev,
        "http": check_http,
        "metrics": check_metrics,
        "otel": check_otel,
        "postgres": check_postgres,
        "redis": check_redis,
        "uvloop": check_uvloop,
        "pytest": check_pytest,
    }
    more[name]()


if __name__ == "__main__":
    main(sys.argv[1])
