import assert from "node:assert/strict";
import { test } from "node:test";
import { type Context, UsageError, Worker } from "../src/index.js";
import { read, write } from "../src/json.js";
import { executed, Script } from "./server.js";

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test("a slow claim uses up no time of its run", async () => {
  const { script, last } = await executed(
    async (ctx) => {
      const at = ctx.now();
      await ctx.step("a", () => 1);
      return at.getTime() - 1_700_000_000_000;
    },
    { timeout_ms: 200 },
    (script) => (script.claimMs = 300),
  );
  assert.equal(last.op, "complete", last.error?.message);
  assert.ok((last.result as number) < 200);
  const began = script.items[0]!.steps!.find(({ key }) => key === "a")!.started_ms!;
  assert.ok(began >= 0 && began < 200, String(began));
});

test("the end of a lease counts from before its claim was sent", async () => {
  let renewed = false;
  const { last } = await executed(
    (ctx) => ctx.step("a", () => renewed),
    { lease_ms: 300 },
    (script) => {
      Object.assign(script, { claimMs: 400, leaseMs: 300, renewed: false });
      setTimeout(() => (script.renewed = renewed = true), 1000);
    },
  );
  assert.equal(last.result, true);
});

test("large results that are not ASCII are divided by their bytes", async () => {
  const { script, last } = await executed(
    async (ctx) => {
      const found = await ctx.map("m", [0, 1, 2, 3, 4], async (n, step) => {
        await sleep(20);
        if (n > 2) step.emit("large", "漢".repeat(1_300_000));
        return n > 2 ? n : "漢".repeat(1_300_000);
      });
      return found.length;
    },
    {},
    (script) => (script.bodyMax = 16 * 1024 * 1024),
  );
  assert.deepEqual([last.op, last.result, script.items.flatMap(({ steps }) => steps ?? []).length], ["complete", 5, 5]);
});

test("an item that is too large is sent in parts before its run fails", async () => {
  const steps = (ctx: Context): Promise<unknown> =>
    Promise.all(["a", "b", "c"].map((key) => ctx.step(key, () => sleep(20).then(() => "x".repeat(key === "c" ? 100 : 400)))));
  const { script, last } = await executed(
    async (ctx) => (ctx.log("begun"), await steps(ctx), "done"),
    {},
    (script) => (script.bodyMax = 900),
  );
  assert.deepEqual([last.op, last.result], ["complete", "done"]);
  assert.deepEqual(script.items.flatMap(({ steps }) => steps?.map(({ key }) => key) ?? []), ["a", "b", "c"]);
  assert.deepEqual(script.items.map(({ seq }) => seq), script.items.map((_, n) => n + 1));
  assert.equal(script.items.flatMap(({ logs }) => logs ?? []).length, 1);
  const alone = await executed(steps, {}, (script) => (script.bodyMax = 400));
  assert.deepEqual([alone.last.op, alone.last.error?.kind], ["fail", "too_large"]);
});

test("a stop records a failed try whose retry is far away", async () => {
  const script = new Script();
  await script.open();
  const worker = new Worker({ url: script.url, log: () => undefined });
  let begun = (): void => undefined;
  const running = new Promise<void>((resolve) => (begun = resolve));
  worker.workflow("test.flow.v1", (ctx) =>
    Promise.all([
      ctx.step("failing", (step) => (step.log("tried"), Promise.reject(new Error("not yet"))), { retry: { delayMs: () => 60_000 } }),
      ctx.step("slow", () => (setTimeout(begun, 50), sleep(200))),
    ]),
  );
  const end = script.end();
  script.lease();
  await worker.start();
  await running;
  await worker.stop();
  const last = await end;
  script.close();
  assert.deepEqual([last.op, last.refund, last.delay_ms, last.logs?.length], ["retry", true, 0, 1]);
  const [ready] = last.steps!;
  assert.deepEqual([ready?.key, ready?.status, ready?.attempts, ready!.delay_ms! > 50_000], ["failing", "ready", 1, true]);
});

test("no step begins under a lease that ended while it waited for the budget", async () => {
  let sure = false;
  const { last } = await executed(
    (ctx) => Promise.all([ctx.step("a", () => sleep(600), { costMax: 1 }), ctx.step("b", () => sure, { costMax: 1 })]),
    { lease_ms: 300, cost: 0, budget: 1 },
    (script) => {
      Object.assign(script, { leaseMs: 300, renewed: false });
      setTimeout(() => (script.renewed = sure = true), 1200);
    },
  );
  assert.deepEqual(last.result, [null, true]);
});

test("a name has up to 640 characters, and a key 700", async () => {
  const name = "ä".repeat(640);
  const { script, last } = await executed(async (ctx) => {
    await ctx.step(name, () => 1);
    await ctx.step(name, () => 2);
    await ctx.map(name, [1], () => 3);
    assert.throws(() => ctx.step(`${name}a`, () => 4), UsageError);
    assert.throws(() => ctx.step("a", () => 4, { key: "k".repeat(701) }), UsageError);
    return ctx.step("a", () => 5, { key: "k".repeat(700) });
  });
  assert.equal(last.result, 5);
  assert.deepEqual(script.items.flatMap(({ steps }) => steps?.map(({ key }) => key) ?? []), [name, `${name}#2`, `${name}#3[0]`, "k".repeat(700)]);
});

test("a topic that would not come back is refused where it is given", async () => {
  const { last } = await executed((ctx) => {
    for (const topic of ["half \ud800", "nul \0", "", "t".repeat(513)]) {
      assert.throws(() => ctx.emit(topic, 1, { name: "k" }), UsageError);
      assert.throws(() => ctx.awaitEvent(topic, { key: "k" }), UsageError);
    }
    return ctx.step("a", (step) => step.emit("half \ud800"));
  });
  assert.deepEqual([last.op, last.error?.kind, last.error?.step], ["fail", "usage", "a"]);
  assert.match(last.error?.message ?? "", /a topic has 1 to 512 characters/);
});

test("a number that is no safe integer stays a number", () => {
  for (const value of [1e17, -1e17, 2 ** 53, 1.5e20, 1e21, 1e300, 2 ** 53 - 1, 0.1]) assert.equal(read(write(value)), value);
  assert.equal(read(write(2n ** 60n)), 2n ** 60n);
});

test("whatever the code throws ends the run", async () => {
  const odd = [Object.create(null), { toString: null }, Object.assign(new Error(), { message: 5, name: null, stack: {} })];
  for (const thrown of odd) {
    for (const fn of [() => Promise.reject(thrown), (ctx: Context) => ctx.step("a", () => Promise.reject(thrown))]) {
      const { last } = await executed(fn, { max_attempts: 1 });
      assert.deepEqual([last.op, last.error?.kind, typeof last.error?.message], ["fail", "exhausted", "string"]);
    }
  }
});
