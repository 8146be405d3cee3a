import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { EncodingError, Worker } from "../src/index.js";
import { pause } from "../src/http.js";
import { executed, Script } from "./server.js";

const HTML = { "content-type": "text/html", location: "/login" };
const PROBLEM = { "content-type": "application/problem+json" };
const bad = JSON.stringify({ code: "bad-value", detail: "no such thing" });

test("the answer of a proxy is no answer", async () => {
  const { script, last } = await executed((ctx) => ctx.step("a", () => 1), {}, (script) => {
    for (const status of [404, 302, 401, 403, 400, 500, 524]) script.proxied.push([status, HTML, "<html>"]);
    script.proxied.push([422, { "content-type": "application/json" }, bad], [200, HTML, ""], [200, HTML, "{}"]);
    script.proxied.push([404, PROBLEM, '{"code":"no-such-route"}'], [503, PROBLEM, '{"code":"bad-value"}']);
  });
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["checkpoint", 1], ["complete", 2]]);
  assert.deepEqual([last.result, script.proxied], [1, []]);
});

test("a problem refuses the item, and so does a plain 413", async () => {
  for (const [answer, kind] of [[[422, PROBLEM, bad], "usage"], [[413, HTML, "<html>"], "too_large"]] as const) {
    const { script, last } = await executed((ctx) => ctx.step("a", () => 1), {}, (one) => one.proxied.push([...answer]));
    assert.deepEqual([script.items.length, last.op, last.seq, last.error?.kind], [1, "fail", 1, kind]);
  }
});

test("a pause that is asked for has a bound", () => {
  const problem = { code: "rate-limit", status: 429 };
  assert.ok(pause(0, { ...problem, retry_after_ms: 3_600_000 }) <= 45_000);
  assert.ok(pause(0, { ...problem, retry_after_ms: -1 }) >= 50);
});

test("an item that cannot be written fails its run alone", async () => {
  const { script, last } = await executed((ctx) => ctx.awaitEvent("half \ud800", { key: "k" }));
  assert.deepEqual([script.items.length, last.op, last.seq, last.error?.kind], [1, "fail", 1, "usage"]);
  assert.match(last.error?.message ?? "", /surrogate/);
});

test("a key with half of a surrogate pair is refused", async () => {
  const { last } = await executed((ctx) => ctx.step("a", () => 1, { key: "half \ud800" }));
  assert.deepEqual([last.op, last.error?.kind], ["fail", "usage"]);
});

test("progress that cannot be written is an error where it is made", async () => {
  const { last } = await executed((ctx) => {
    ctx.progress(1, 2, "fine");
    for (const [done, note] of [[NaN, ""], [1, "half \ud800"]] as [number, string][]) {
      assert.throws(() => ctx.progress(done, 2, note), EncodingError);
    }
    return "ok";
  });
  assert.equal(last.result, "ok");
});

test("a heartbeat carries the progress as it was given", async () => {
  const { script } = await executed(async (ctx) => {
    ctx.progress(1, 2, "fine");
    await ctx.step("a", () => new Promise((resolve) => setTimeout(resolve, 400)));
  }, {}, (one) => (one.leaseMs = 600));
  const said = script.beats.flatMap(({ leases }) => leases).map((one) => (one as { progress?: unknown }).progress);
  assert.deepEqual(said.find((one) => one !== undefined), { done: 1, total: 2, note: "fine" });
});

test("a signal ends a worker whose server is away, and leaves no handlers", async () => {
  const code = `
    import { Worker } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const worker = new Worker({ url: "http://127.0.0.1:1", log: () => undefined });
    worker.workflow("test.flow.v1", () => 1);
    setTimeout(() => process.stdout.write("up"), 100);
    await worker.run();
    console.log(process.listenerCount("SIGTERM") + process.listenerCount("unhandledRejection"));`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (part: Buffer) => {
    said += part.toString();
    if (said === "up") child.kill("SIGTERM");
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  const [status] = (await once(child, "close")) as [number | null];
  clearTimeout(timer);
  assert.deepEqual([status, said.trim()], [0, "up0"]);
});

test("two workers with one name are told apart, and claim no more than the server gives", async () => {
  const script = new Script();
  await script.open();
  const made = (): Worker => new Worker({ url: script.url, name: "shop", slots: 5_000, log: () => undefined });
  const worker = made();
  assert.notEqual(worker.name, made().name);
  assert.match(worker.name, /^shop:/);
  worker.workflow("test.flow.v1", () => 1);
  const end = script.end();
  script.drains = 3;
  await worker.start();
  while (script.claims.length < 4) await new Promise((resolve) => setTimeout(resolve, 5));
  script.lease();
  await end;
  assert.equal(script.claims[0]!.slots, 1000);
  const [first, , third] = script.claims.map(({ at }) => at) as [number, number, number];
  assert.ok(third - first >= 140, "a server that stops is not asked in a tight loop");
  await worker.stop();
  script.close();
});

test("a run whose next crash is its last is claimed alone", async () => {
  const { script } = await executed(
    (ctx) => ctx.step("a", () => new Promise((resolve) => setTimeout(resolve, 100))),
    { crashes: 3 },
  );
  assert.deepEqual(script.claims.slice(0, 2).map(({ crashed }) => crashed[2]), [1, 0]);
});

test("at a stop, a run that the open claim may have brought is given back at once", async () => {
  const stray = { run: "01890a5d-ac96-774b-bcce-b302099a8058", fence: 1, token: "t" };
  const script = new Script();
  await script.open();
  const worker = new Worker({ url: script.url, log: () => undefined });
  worker.workflow("test.flow.v1", () => 1);
  await worker.start();
  while (script.claims.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  script.strays = [stray];
  await worker.stop();
  script.close();
  assert.deepEqual(script.items, [{ op: "release", ...stray, seq: 1 }]);
});

test("an answer to another item is no answer", async () => {
  let odd = 2;
  const { script } = await executed((ctx) => ctx.step("a", () => 1), {}, (script) =>
    script.answers.push((item) => (item.op === "checkpoint" && odd-- > 0 ? { seq: item.seq + odd, run: "another" } : undefined)),
  );
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["checkpoint", 1], ["checkpoint", 1], ["checkpoint", 1], ["complete", 2]]);
});

test("a number that is taken stops the run, and writes nothing more", async () => {
  const problem = { code: "conflict", status: 409, detail: "another item was applied" };
  const script = new Script();
  await script.open();
  const said: string[] = [];
  const worker = new Worker({ url: script.url, log: (line) => said.push(line) });
  worker.workflow("test.flow.v1", (ctx) => ctx.step("a", () => 1));
  script.answers.push(() => ({ problem }));
  script.lease();
  await worker.start();
  while (said.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await worker.stop();
  script.close();
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["checkpoint", 1]]);
});
