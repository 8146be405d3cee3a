import assert from "node:assert/strict";
import { test } from "node:test";
import { type Context, Fatal, RetryAfter, StepFailed, Worker } from "../src/index.js";
import { executed, type Item, step } from "./server.js";

const never = (): never => assert.fail("this step is recorded and must not run");
const keys = (item: Item | undefined): string[] => (item?.steps ?? []).map((one) => one.key);

test("recorded steps are answered and not run", async () => {
  const { script, last } = await executed(
    async (ctx) => [await ctx.step("a", never), await ctx.step("b", () => 2n ** 64n), ctx.now()],
    { steps: [step(1, "a", 9007199254740993n), step(2, "now", 1700000000123456, { kind: "now" })] },
  );
  assert.deepEqual(script.items.map(keys), [["b"], []]);
  assert.deepEqual(last.result, [9007199254740993n, 2n ** 64n, "2023-11-14T22:13:20.123Z"]);
});

test("now never goes back within a run", async () => {
  const before = 1700000005000000; // an earlier lease was ahead of the store's clock
  const times = (ctx: Context): number[] => [ctx.now(), ctx.now(), ctx.now()].map(Number);
  const { script, last } = await executed(times, { claimed_at: 1700000001000000, steps: [step(1, "now", before, { kind: "now" })] });
  assert.deepEqual(last.result, [before / 1000, before / 1000, before / 1000]);
  assert.deepEqual(script.items[0]?.steps?.map(({ output }) => output), [before, before]);
});

/** The branch of `slow` needs many turns after its step to reach the race, the branch of `fast` needs none. */
const race = (ctx: Context, fn: () => unknown): Promise<string> => {
  const slow = async (): Promise<string> => {
    await ctx.step("slow", fn);
    for (let n = 0; n < 50; n++) await null;
    return "slow";
  };
  return Promise.race([slow(), ctx.step("fast", fn).then(() => "fast")]);
};

for (const [first, second] of [["slow", "fast"], ["fast", "slow"]] as const) {
  test(`in a race the step that was recorded first wins: ${first}`, async () => {
    const { last } = await executed((ctx) => race(ctx, never), { steps: [step(1, first, 0), step(2, second, 0)] });
    assert.equal(last.result, first);
  });
}

test("in the first execution the step that is committed first wins", async () => {
  const { script, last } = await executed((ctx) => race(ctx, () => 0));
  assert.deepEqual(keys(script.items[0]), ["slow", "fast"]);
  assert.equal(last.result, "slow");
});

test("outcomes of one commit are given in the order of the commit, waits by their number", async () => {
  const seen: string[] = [];
  const { script } = await executed(
    async (ctx) => {
      const note = (name: string, call: Promise<unknown>): Promise<unknown> => call.then(() => seen.push(name));
      await Promise.all([
        note("sleep", ctx.sleep(1)),
        note("long", ctx.step("long", () => new Promise((resolve) => setTimeout(resolve, 50)))),
      ]);
    },
    {},
    (script) =>
      script.answers.push((item) => {
        if (!keys(item).includes("long")) return item.known === undefined ? undefined : { known: 1 };
        return { known: 3, settled: [{ seq: 2, key: "sleep", kind: "sleep", status: "succeeded", attempts: 0 }] };
      }),
  );
  assert.deepEqual(script.items.map((item) => [item.op, ...keys(item), item.known]), [
    ["checkpoint", "sleep", 0],
    ["checkpoint", "long", 1],
    ["complete", undefined],
  ]);
  assert.deepEqual(seen, ["sleep", "long"]);
});

test("a lost answer: the same item again, with the same seq", async () => {
  let runs = 0;
  const { script, last } = await executed((ctx) => ctx.step("a", () => ++runs), {}, (script) => (script.lose = 2));
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [
    ["checkpoint", 1], ["checkpoint", 1], ["checkpoint", 1], ["complete", 2],
  ]);
  assert.deepEqual(script.items[0], script.items[2]);
  assert.deepEqual([runs, last.result], [1, 1]);
});

test("a wait that is settled already goes on under the same lease", async () => {
  const event = { id: "e1", topic: "paid", at: 1700000000000000, payload: { n: 9007199254740993n } };
  const { script, last } = await executed(
    async (ctx) => (await ctx.awaitEvent<{ n: bigint }>("paid")).payload.n,
    {},
    (script) =>
      script.answers.push((item) =>
        item.op === "park"
          ? { status: "leased", known: 2, settled: [step(2, "event:paid", event, { kind: "event" })] }
          : undefined,
      ),
  );
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["park", 1], ["complete", 2]]);
  assert.equal(last.result, 9007199254740993n);
});

test("a step is tried again in place, then its result counts", async () => {
  const { script, last } = await executed((ctx) =>
    ctx.step("a", (one) => (one.attempt < 3 ? Promise.reject(new Error(`try ${one.attempt}`)) : one.attempt)),
  );
  assert.deepEqual(script.items.map(({ op, in_place, steps }) => [op, in_place, steps?.[0]?.status]), [
    ["retry", true, "ready"], ["retry", true, "ready"], ["checkpoint", undefined, undefined], ["complete", undefined, undefined],
  ]);
  assert.equal(last.result, 3);
});

test("a long delay lets the run go, with the failed try", async () => {
  const { last } = await executed((ctx) => ctx.step("a", () => Promise.reject(new RetryAfter(90_000))));
  assert.deepEqual([last.op, last.in_place, last.steps?.[0]?.status], ["retry", undefined, "ready"]);
  assert.ok(last.delay_ms! > 89_000 && last.delay_ms! <= 90_000);
});

test("after the last try the code gets StepFailed, and may go on", async () => {
  const { script, last } = await executed(async (ctx) => {
    const failed = await ctx.step("a", () => Promise.reject(new Fatal("no"))).catch((error: unknown) => error);
    return failed instanceof StepFailed && [failed.step, failed.kind, failed.error.type];
  });
  assert.deepEqual(script.items[0]?.steps?.[0]?.status, "failed");
  assert.deepEqual(last.result, ["a", "fatal", "Fatal"]);
});

test("a recorded failure that nobody catches fails the run with its kind", async () => {
  const error = { kind: "exhausted", type: "Error", message: "no", attempt: 3, max_attempts: 3 };
  const steps = [{ seq: 1, key: "a", kind: "task", status: "failed", attempts: 3, error }];
  const { last } = await executed((ctx) => ctx.step("a", never), { steps });
  assert.deepEqual([last.op, last.error?.kind, last.error?.step], ["fail", "exhausted", "a"]);
});

test("a step that takes too long is aborted and has failed with kind timeout", async () => {
  let aborted = false;
  const { last } = await executed((ctx) =>
    ctx.step(
      "a",
      ({ signal }) => new Promise(() => signal.addEventListener("abort", () => (aborted = true))),
      { timeoutMs: 10, retry: { attempts: 1 } },
    ),
  );
  assert.deepEqual([last.op, last.error?.kind, aborted], ["fail", "timeout", true]);
});

test("code that throws is executed again, and logs once", async () => {
  let executions = 0;
  const { script, last } = await executed((ctx) => {
    ctx.log("begun");
    if (++executions < 3) throw new Error("again");
    return executions;
  });
  assert.deepEqual(script.items.flatMap(({ logs }) => logs ?? []).map(({ log_no }) => log_no), [1]);
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["retry", 1], ["retry", 2], ["complete", 3]]);
  assert.equal(last.result, 3);
});

test("a recorded value that the code has changed is read anew", async () => {
  const steps = [step(1, "a", { n: 1 })];
  let executions = 0;
  const changed = async (ctx: Context): Promise<number> => {
    const value = await ctx.step<{ n: number }>("a", never);
    value.n++;
    if (++executions < 2) throw new Error("again");
    return value.n;
  };
  const { last } = await executed(changed, { steps }, (script) => (script.loaded = structuredClone(steps)));
  assert.equal(last.result, 2);
});

test("a step that was recorded before counts, with its failure", async () => {
  const error = { kind: "exhausted", message: "no" };
  const { last } = await executed((ctx) => ctx.step("a", () => 1), {}, (script) => {
    script.loaded = [{ seq: 1, key: "a", kind: "task", status: "failed", attempts: 3, error }];
    script.answers.push((item) => (item.op === "checkpoint" ? { kept: [{ key: "a", output: null }] } : undefined));
  });
  assert.deepEqual([last.op, last.error?.kind, last.error?.step], ["fail", "exhausted", "a"]);
});

test("a failed try that has waited beside another branch is due when its delay is over", async () => {
  const { last } = await executed((ctx) =>
    Promise.all([
      ctx.step("a", () => Promise.reject(new RetryAfter(90_000))),
      ctx.step("b", () => new Promise((resolve) => setTimeout(resolve, 200))),
    ]),
  );
  const [due] = last.steps?.map(({ delay_ms }) => delay_ms) ?? [];
  assert.deepEqual([last.op, due], ["retry", last.delay_ms]);
  assert.ok(due! < 89_850);
});

test("while another branch works, a long delay is waited for here", async () => {
  const { script, last } = await executed((ctx) =>
    Promise.all([
      ctx.step("a", ({ attempt }) => (attempt === 1 ? Promise.reject(new RetryAfter(1_050)) : attempt)),
      ctx.step("b", () => new Promise((resolve) => setTimeout(() => resolve("b"), 1_200))),
    ]),
  );
  assert.deepEqual(script.items.map((item) => [item.op, item.in_place, ...keys(item)]).slice(0, 2), [
    ["retry", true, "a"],
    ["checkpoint", undefined, "a"],
  ]);
  assert.deepEqual(last.result, [2, "b"]);
});

test("an item that is refused fails the run, with the same seq", async () => {
  const problem = { code: "bad-value", status: 422, detail: "no such thing" };
  const { script, last } = await executed((ctx) => ctx.step("a", () => 1), {}, (script) =>
    script.answers.push((item) => (item.op === "checkpoint" ? { problem } : undefined)),
  );
  assert.deepEqual(script.items.map(({ op, seq }) => [op, seq]), [["checkpoint", 1], ["fail", 1]]);
  assert.deepEqual([last.error?.kind, last.error?.message], ["usage", "no such thing"]);
});

test("body logs and events are written once", async () => {
  const { script, last } = await executed(
    (ctx) => {
      ctx.log("one");
      ctx.emit("seen", 1);
      ctx.log("two");
      ctx.emit("seen", 2);
    },
    { logs: 1, steps: [{ seq: 1, key: "emit:seen", kind: "emit", status: "succeeded", attempts: 1 }] },
  );
  assert.deepEqual(script.items.length, 1);
  assert.deepEqual(last.logs?.map(({ log_no, message }) => [log_no, message]), [[2, "two"]]);
  assert.deepEqual(last.events?.map(({ name }) => name), ["emit:seen#2"]);
});

test("continueAs starts the next run of the chain", async () => {
  const { last } = await executed((ctx) => ctx.continueAs({ n: 2 }));
  assert.deepEqual([last.op, last.continue_as], ["complete", { params: { n: 2 } }]);
});

test("a server that does not answer is named in one line", async () => {
  const said: string[] = [];
  const worker = new Worker({ url: "http://127.0.0.1:9", log: (line) => said.push(line) });
  worker.workflow("test.flow.v1", () => 1);
  const started = assert.rejects(worker.start());
  while (said.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  await worker.stop();
  await started;
  assert.match(said.join(), /^http:\/\/127.0.0.1:9 does not answer, trying again: .*ECONNREFUSED/);
});

const MISTAKES: [string, (ctx: Context) => unknown, string, RegExp][] = [
  ["a forgotten await", (ctx) => void ctx.step("a", () => 1), "usage", /never awaited/],
  ["a key twice", (ctx) => Promise.all([ctx.sleep(1, { key: "b" }), ctx.step("b", () => 1)]), "usage", /used twice/],
  ["continueAs without return", (ctx) => void ctx.continueAs(1), "usage", /not returned/],
  ["a result that is no JSON", () => new Map(), "encoding", /is a Map/],
  ["another kind than recorded", (ctx) => ctx.sleep(1, { key: "recorded" }), "drift", /recorded as task/],
];

for (const [name, fn, kind, why] of MISTAKES) {
  test(`${name} fails the run with one clear line`, async () => {
    const { last } = await executed(fn, { steps: [step(1, "recorded", 1)] });
    assert.deepEqual([last.op, last.error?.kind], ["fail", kind]);
    assert.match(last.error!.message, why);
  });
}

test("items of many runs that gather go in one batch", async () => {
  const { script } = await executed(
    async (ctx) => {
      await ctx.step("a", () => 1);
      await ctx.sleep(1);
    },
    {},
    (script) => {
      for (let fence = 2; fence < 30; fence++) script.lease({ fence, run: `${fence}` });
    },
  );
  assert.ok(script.batches.length < 10, `${script.batches.length} batches`);
});

test("messages and events go with the commit of their step, and not with a failed try", async () => {
  const { script } = await executed(async (ctx) => {
    ctx.send("mail", 1);
    await ctx.step("a", (step) => {
      step.emit("paid", 2);
      step.send("mail", 3, { order: "customer" });
      if (step.attempt === 1) throw new Error("once more");
    });
  });
  const [retry, done] = script.items;
  assert.deepEqual(keys(retry), ["send:mail", "a"]);
  assert.deepEqual([retry?.messages, retry?.events], [[{ sink: "mail", payload: 1, step: "send:mail", number: 1 }], undefined]);
  assert.deepEqual(done?.messages, [{ sink: "mail", payload: 3, key: "customer", step: "a", number: 1 }]);
  assert.deepEqual(done?.events?.map(({ name }) => name), ["a:emit1"]);
});

test("a run whose budget may not pay for a step is let go before it", async () => {
  const work = async (ctx: Context): Promise<void> => {
    await ctx.step("a", (step) => step.addCost(0.5), { costMax: 0.75 });
    await ctx.step("b", never, { costMax: 0.5 });
  };
  const { script, last } = await executed(work, { cost: 0.25, budget: 1 });
  assert.deepEqual(script.items.map(keys), [["a"], []]);
  assert.deepEqual([last.op, last.before, last.cost_max], ["release", "b", 0.5]);
});

test("steps that reserve more than the budget wait for each other", async () => {
  let running = 0;
  const pay = (ctx: Context): Promise<unknown> =>
    ctx.map("pay", [1, 2, 3], async (_, step) => {
      assert.equal(++running, 1);
      await new Promise((resolve) => setTimeout(resolve, 5));
      running--;
      step.addCost(0.1);
    }, { costMax: 0.6 });
  const { last } = await executed(pay, { cost: 0, budget: 1 });
  assert.equal(last.op, "complete");
});

test("a step that takes longer is shown", async () => {
  const { script } = await executed((ctx) => ctx.step("long", () => new Promise((resolve) => setTimeout(resolve, 4100))));
  assert.equal(script.shown.length, 1);
});

test("a stray whose release is not answered is given back again", async () => {
  const stray = { run: "01890a5d-ac96-774b-bcce-b302099a8058", fence: 1, token: "t" };
  const { script } = await executed(
    (ctx) => ctx.step("slow", () => new Promise((resolve) => setTimeout(resolve, 1800))),
    {},
    (script) => {
      script.leaseMs = 600;
      script.strays = [stray];
      script.lose = 1;
    },
  );
  assert.ok(script.items.filter(({ op, run }) => op === "release" && run === stray.run).length > 1);
});
