/**
 * An order: it charges a card, waits for the parcel, asks a person when the order is large, and ships by a child
 * run. Kill the worker at any moment and start it again: no recorded step runs again.
 *
 *     HOLDFAST_URL=http://127.0.0.1:8080 node dist/example/order.js
 */
import { EventTimeout, Fatal, hours, RetryAfter, seconds, type StepContext, Worker } from "../src/index.js";

interface Order {
  id: number;
  cents: bigint | number; // an integer beyond 2^53 comes as a bigint
  lines: { sku: string; count: number }[];
}

const worker = new Worker({ leaseMs: Number(process.env["HOLDFAST_LEASE_MS"] ?? 30_000) });

const ship = worker.workflow("shop.ship.v1", async (ctx, order: Order) => {
  const tracking = await ctx.step("label", () => `parcel-${order.id}`);
  ctx.emit(`shipped:${order.id}`, { tracking });
  return tracking;
});

worker.workflow(
  "shop.order.v1",
  async (ctx, order: Order) => {
    ctx.log("order received", { id: order.id });

    // Once it is recorded, a step is never run again. It may run twice before: hence the idempotency key.
    const receipt = await ctx.step("charge", (step) => charge(order, step), { timeoutMs: seconds(30) });

    // Both at once. Holding no memory, the run waits for as long as it takes.
    const [reserved, packed] = await Promise.all([
      ctx.map("reserve", order.lines, ({ sku, count }) => `${count} of ${sku}`, { key: (line) => line.sku }),
      ctx.awaitEvent<{ weight: number }>(`packed:${order.id}`, { timeoutMs: hours(48) }).catch((error: unknown) => {
        if (error instanceof EventTimeout) throw new Fatal("nobody packed the order");
        throw error;
      }),
    ]);

    if (order.cents > 100_000) {
      const decision = await ctx.approval("large order", { ask: `Ship order ${order.id}?`, data: { cents: order.cents } });
      if (!decision.approved) return { status: `rejected by ${decision.by}` };
    }
    await ctx.sleep(seconds(1));
    const tracking = await ctx.call(ship, order);
    return { status: "shipped", receipt, reserved, weight: packed.payload.weight, tracking };
  },
  { retry: { baseMs: 100 } },
);

function charge(order: Order, step: StepContext): string {
  if (order.cents < 0) throw new Fatal("a negative amount"); // no retry helps
  if (order.lines.length === 0 && step.attempt === 1) throw new RetryAfter(seconds(0.1));
  return `charged ${order.cents} under ${step.idempotencyKey}`;
}

worker.run().catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
