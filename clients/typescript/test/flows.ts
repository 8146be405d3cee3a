/** Workflows that a script of the conformance kit cannot express; tests/clients/test_typescript.py runs them. */
import { Worker } from "../src/index.js";

const { HOLDFAST_LEASE_MS: leaseMs = "30000", HOLDFAST_SLOTS: slots = "50" } = process.env;
const worker = new Worker({ leaseMs: Number(leaseMs), slots: Number(slots) });

worker.workflow("flows.endless.v1", (ctx) =>
  ctx.step("endless", ({ signal }) => {
    console.log("endless began");
    signal.addEventListener("abort", () => console.log(`endless aborted: ${(signal.reason as Error).message}`));
    return new Promise(() => undefined);
  }),
);

worker.workflow("flows.branches.v1", async (ctx, { topic }: { topic: string }) => {
  const work = (name: string, ms: number): Promise<string> =>
    ctx.step("work", () => new Promise<string>((resolve) => setTimeout(() => resolve(name), ms)));
  const [worked, event, doubled] = await Promise.all([
    Promise.all([work("a", 60), work("b", 10), work("c", 30)]),
    ctx.awaitEvent<number>(topic),
    ctx.map("double", [0, 1, 2, 3, 4], (n) => 2 * n, { limit: 2 }),
  ]);
  const race = [ctx.step("won", () => "first"), ctx.sleep(3_600_000).then(() => "slept")];
  return [worked, event.payload, doubled, await Promise.race(race)];
});

worker.workflow("flows.chain.v1", async (ctx, { left }: { left: number }) => {
  ctx.log(`left ${left}`);
  ctx.emit(`chain:${left}`, left);
  await ctx.sleep(1);
  return left > 0 ? ctx.continueAs({ left: left - 1 }) : { left, at: ctx.now() };
});

/** Five steps, one after the other: bench/over_http/languages.py measures it. */
worker.workflow("tour.steps.v1", async (ctx, n: number) => {
  let sum = 0;
  for (let one = 0; one < 5; one++) sum = await ctx.step("add", () => sum + n);
  return sum;
});

await worker.run();
