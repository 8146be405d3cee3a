/** The workflow of the conformance kit: it executes a list of instructions. See docs/conformance.md. */
import { request } from "node:http";
import { EventTimeout, Fatal, type Context, type StepContext, type StepOptions, StepFailed, type Worker } from "../src/index.js";
import { write } from "../src/json.js";

interface Instruction {
  step?: string;
  key?: string;
  attempts?: number;
  delay_ms?: number;
  or?: unknown;
  block_ms?: number;
  bytes?: number;
  letter?: string;
  odd?: boolean;
  map?: string;
  each?: Instruction[];
  value?: unknown;
  sleep?: number;
  event?: string;
  timeout_ms?: number;
  approval?: string;
  ask?: string;
  child?: Script;
  raise?: string;
  now?: boolean;
}

interface Script {
  ledger: string;
  do: Instruction[];
}

export const TYPE = "conformance.script.v1";

export function define(worker: Worker): void {
  worker.workflow<Script, unknown[]>(TYPE, async (ctx, params) => {
    const out: unknown[] = [];
    for (const op of params.do) out.push(await done(ctx, params, op));
    return out;
  });
}

async function done(ctx: Context, params: Script, op: Instruction): Promise<unknown> {
  if (op.step !== undefined) return stepOf(ctx, params, op, op.step);
  if (op.map !== undefined) return mapOf(ctx, params, op.map, op.each ?? []);
  if (op.sleep !== undefined) return ctx.sleep(op.sleep).then(() => "slept");
  if (op.event !== undefined) {
    const timeout = op.timeout_ms === undefined ? {} : { timeoutMs: op.timeout_ms };
    return ctx.awaitEvent(op.event, timeout).then(
      (event) => event.payload,
      (error) => (error instanceof EventTimeout ? "timeout" : Promise.reject(error)),
    );
  }
  if (op.approval !== undefined) return (await ctx.approval(op.approval, { ask: op.ask ?? "" })).approved;
  if (op.now) return ctx.now().getTime();
  if (op.child !== undefined) return ctx.call(TYPE, op.child);
  throw new Error(op.raise);
}

async function stepOf(ctx: Context, params: Script, op: Instruction, name: string): Promise<unknown> {
  const { key, attempts, delay_ms } = op;
  const options: StepOptions = { retry: {} };
  if (key !== undefined) options.key = key;
  if (attempts !== undefined) options.retry!.attempts = attempts;
  if (delay_ms !== undefined) options.retry!.delayMs = () => delay_ms;
  try {
    return shown(op, await ctx.step(op.odd ? `${name}\ud800` : name, (step) => act(ctx, step, params, op, name), options));
  } catch (error) {
    if (error instanceof StepFailed && "or" in op) return op.or;
    throw error;
  }
}

async function mapOf(ctx: Context, params: Script, name: string, each: Instruction[]): Promise<unknown[]> {
  const values = await ctx.map(name, each, (op, step) => act(ctx, step, params, op, name), { limit: each.length });
  return values.map((value, n) => shown(each[n]!, value));
}

function shown(op: Instruction, value: unknown): unknown {
  return op.bytes === undefined ? value : [...(value as string)].length;
}

async function act(ctx: Context, step: StepContext, params: Script, op: Instruction, name: string): Promise<unknown> {
  const call = { run: ctx.runId, step: name, key: step.idempotencyKey };
  const { status, body } = await post(params.ledger, write(call), step.signal);
  if (status === 422) throw new Fatal(body);
  if (status >= 400) throw new Error(body);
  if (op.block_ms) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, op.block_ms);
  const { letter = "x" } = op;
  return op.bytes === undefined ? op.value : letter.repeat((op.bytes - 2) / Buffer.byteLength(letter));
}

function post(url: string, body: string, signal: AbortSignal): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", signal, timeout: 60_000 }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part: string) => (text += part));
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, body: text }));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
