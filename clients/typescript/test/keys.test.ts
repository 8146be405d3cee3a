/** The test vectors of docs/worker-protocol.md, "Keys of steps". */
import assert from "node:assert/strict";
import { test } from "node:test";
import { UsageError } from "../src/index.js";
import { Chance } from "../src/random.js";
import { Keys } from "../src/record.js";
import { executed, RUN } from "./server.js";

test("a name that is used again gets a number", () => {
  const keys = new Keys();
  assert.deepEqual([keys.key("charge"), keys.key("charge"), keys.key("charge")], ["charge", "charge#2", "charge#3"]);
});

test("a given key counts for no name, and is not used twice", () => {
  const keys = new Keys();
  assert.equal(keys.key("a", "b"), "b");
  assert.throws(() => keys.key("b"), UsageError);
  assert.equal(keys.key("a"), "a");
});

test("a key has 1 to 640 characters and no NUL", () => {
  const keys = new Keys();
  assert.equal(keys.key("\u{1F600}".repeat(640)).length, 1280);
  for (const bad of ["", "x".repeat(641), "a\0"]) assert.throws(() => keys.key(bad), UsageError);
});

test("keys of steps, waits, children and maps", async () => {
  const asked: string[] = [];
  const { script } = await executed(async (ctx) => {
    await ctx.step("a", (step) => void asked.push(step.idempotencyKey));
    void ctx.sleep(1000).then();
    void ctx.sleep(1000).then();
    void ctx.awaitEvent("paid:42").then();
    void ctx.call("shop.ship.v2").then();
    await ctx.step("a", () => 1);
    void ctx.sleep(1000).then();
    await ctx.step("mail", () => 1);
    await ctx.map("mail", ["x", "y"], (item) => item);
    await ctx.map("ship", ["x", "y"], (item) => item, { key: (item) => `to-${item}` });
    await ctx.awaitEvent("never");
  });
  const keys = script.items.flatMap((item) => (item.steps ?? []).map((one) => one.key));
  assert.deepEqual(asked, [`${RUN}:a`]);
  assert.deepEqual(new Set(keys), new Set([
    "a", "sleep", "sleep#2", "event:paid:42", "shop.ship", "a#2", "sleep#3",
    "mail", "mail#2[0]", "mail#2[1]", "ship[to-x]", "ship[to-y]", "event:never",
  ]));
});

test("chance is that of every language", () => {
  const [draws, numbers, ids, step] = [new Chance(RUN), new Chance(RUN), new Chance(RUN), new Chance(`${RUN}:charge`)];
  assert.deepEqual([draws.draw(), draws.draw(), draws.draw()], [2553519407, 2691697046, 800631892]);
  assert.deepEqual([numbers.number(), numbers.number(), numbers.number()], [0.5945375682913479, 0.18641163617443557, 0.28448018326045066]);
  assert.deepEqual([ids.uuid(), ids.uuid()], ["47b4544c-2fb8-4c54-a070-099698339d2f", "022d148d-448a-43c3-9bb5-b43a48d3b16d"]);
  assert.equal(step.number(), 0.38074814018820613);
  assert.equal(new Chance(`${RUN}:charge`).uuid(), "f19fe94b-bc48-49a5-90f8-276b6178b5d0");
});
