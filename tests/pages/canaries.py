"""Texts that would run a script, or load something, on a page that does not escape them."""

from __future__ import annotations

import asyncio

import holdfast as hf

_RUN = "window.hacked=1"
CANARIES = (
    f"<script>{_RUN}</script>",
    f"<ScRiPt>{_RUN}</sCrIpT>",
    f"<script src=data:,{_RUN}></script>",
    f"<img src=x onerror={_RUN}>",
    f'<img src="x" onerror="{_RUN}">',
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg/onload={_RUN}//",
    f"<body onload={_RUN}>",
    f"<iframe src=javascript:{_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'>",
    f"<a href=javascript:{_RUN}>x</a>",
    f"javascript:{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f'"><script>{_RUN}</script>',
    f"'><script>{_RUN}</script>",
    f'" onmouseover="{_RUN}',
    f"' onfocus='{_RUN}",
    f'" autofocus onfocus="{_RUN}',
    f"</title><script>{_RUN}</script>",
    f"</textarea><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</pre><script>{_RUN}</script>",
    f"<!--><script>{_RUN}</script>-->",
    f"]]><script>{_RUN}</script>",
    f"<math><mtext></mtext><script>{_RUN}</script>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<form action=javascript:{_RUN}><button>x",
    f"<object data=javascript:{_RUN}>",
    f"<embed src=javascript:{_RUN}>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<img src=//evil.example/x.png>",
    "<style>body{background:url(//evil.example/x)}</style>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{{ page.api.store }}",
    "${7*7}",
    "<%= 7*7 %>",
    "\u202e<script>",
    "\x00<script>x",
    "\ud7ff\u2028<script>\u2029",
    "<x onclick=alert(1)>".upper(),
    "\\u003cscript\\u003e",
)
KEPT = tuple(one for one in CANARIES if "\0" not in one)  # no store keeps NUL


def hostile_app(store="memory://"):
    """An app whose runs bring canaries into every text that producers control."""
    app = hf.App(store)

    @app.workflow("hostile.waits.v1")
    async def waits(ctx, text: str):
        ctx.progress(1, 2, text)
        ctx.log(text, note=text)
        await ctx.step(f"step {text}"[:200], lambda: text)
        await ctx.await_event(f"topic {text}"[:200])

    @app.workflow("hostile.fails.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def fails(ctx, text: str):
        raise hf.Fatal(text, text)

    @app.workflow("hostile.gate.v1")
    async def gate(ctx, text: str):
        await ctx.approval(f"gate {text}"[:200], ask=text, data={text: text})

    @app.workflow("hostile.done.v1")
    async def done(ctx, text: str):
        ctx.send("mail", {"to": text})
        return {text: text}

    return app


async def fill(app):
    """Start runs with each canary, and execute them until nothing moves."""
    kinds, runs = ("waits", "fails", "gate", "done"), []
    async with app.worker(poll=0.01):
        for number, text in enumerate(KEPT):
            kind = kinds[number % 4]
            label = {"canary": text[:200]}
            runs.append(await app.start(f"hostile.{kind}.v1", text, key=text[:200], labels=label))
        for run in runs:
            while (await app.known(run.id)).status in {"pending", "leased"}:  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)
    await app.schedule("hostile <script>", "hostile.done.v1", KEPT[0], every=3600)
    return [one.id for one in runs]
