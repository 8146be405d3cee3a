/** A server with a script: it hands out leases, keeps the items that come, and answers as a test wants. */
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { read, write } from "../src/json.js";
import { type Context, Worker } from "../src/index.js";

export const RUN = "01890a5d-ac96-774b-bcce-b302099a8057";

export interface Item {
  op: string;
  run: string;
  fence: number;
  seq: number;
  refund?: boolean;
  steps?: { key: string; started_ms?: number; kind?: string; status?: string; output?: unknown; error?: { kind: string }; attempts?: number; delay_ms?: number }[];
  events?: { name: string }[];
  logs?: { log_no?: number; message: string }[];
  messages?: object[];
  before?: string;
  cost_max?: number;
  result?: unknown;
  error?: { kind: string; message: string; step?: string };
  continue_as?: { params: unknown };
  delay_ms?: number;
  in_place?: boolean;
  known?: number;
}

const STATUS: { [op: string]: string } = { checkpoint: "leased", complete: "succeeded", fail: "failed", park: "waiting", release: "pending" };

export class Script {
  items: Item[] = []; // each item as often as it came
  batches: Item[][] = [];
  answers: ((item: Item) => object | undefined)[] = []; // each may answer an item in place of the rule
  loaded: object[] = []; // the steps that a load gives
  proxied: [number, OutgoingHttpHeaders, string][] = []; // a proxy answers batches with these first
  beats: { leases: object[] }[] = [];
  strays: object[] = []; // what heartbeats name
  shown: object[] = []; // running steps
  claims: { slots: number; crashed: number[]; at: number }[] = [];
  drains = 0; // so many claims are answered by a server that stops
  leaseMs = 30_000;
  claimMs = 0; // a claim is so long on its way
  bodyMax = Infinity; // larger batches are refused
  renewed = true; // what heartbeats say
  lose = 0; // so many answers to batches are lost
  url = "";
  #leases: object[] = [];
  #claim: (() => void) | undefined;
  #ended: ((item: Item) => void) | undefined;
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  lease(fields: object = {}): void {
    this.#leases.push({
      run: RUN, type: "test.flow.v1", kind: "code", tenant: "default", fence: 1, token: "t", lease_ms: 30000,
      attempt: 1, max_attempts: 3, crashes: 0, claimed_at: 1700000000000000, timeout_ms: null, params: null,
      labels: {}, steps: [], unread: false, logs: 0, parent: null, ...fields,
    });
    this.#claim?.();
  }

  /** Return the item that lets the run go. */
  end(): Promise<Item> {
    return new Promise((resolve) => (this.#ended = resolve));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const proxied = request.url === "/leases/batch" ? this.proxied.shift() : undefined;
    if (proxied) {
      response.writeHead(proxied[0], proxied[1]).end(proxied[2]);
      return;
    }
    if (request.url === "/leases/batch" && Buffer.concat(parts).length > this.bodyMax) {
      response.writeHead(413, { "content-type": "text/html" }).end("<html>");
      return;
    }
    const body = read(Buffer.concat(parts).toString()) as { items: Item[]; leases: { run: string }[] };
    const answer = await this.#answer(request.url ?? "", body);
    if (request.url === "/leases/batch" && this.lose > 0) {
      this.lose--;
      request.socket.destroy();
    } else {
      response.setHeader("content-type", "application/json");
      response.end(write(answer));
    }
  }

  async #answer(path: string, body: { items: Item[]; leases: { run: string }[] }): Promise<object> {
    if (path === "/workers/register") {
      return { present_ms: 30000, wait_ms_max: 25000, limits: { batch_bytes: 16777216, batch_items: 1000, claim_slots: 1000 } };
    }
    if (path === "/leases/heartbeat") this.beats.push(body);
    if (path === "/leases/claim") {
      const { slots, crashed } = body as unknown as { slots: number; crashed: number[] };
      this.claims.push({ slots, crashed, at: performance.now() });
      if (this.drains-- > 0) return { leases: [], drain: true };
      if (this.#leases.length === 0) await new Promise<void>((resolve) => (this.#claim = resolve));
      await new Promise((resolve) => setTimeout(resolve, this.claimMs));
      return { leases: this.#leases.splice(0), drain: false };
    }
    if (path === "/leases/batch") {
      this.batches.push(body.items);
      return { items: body.items.map((item) => this.#applied(item)), drain: false };
    }
    if (path === "/leases/load") return { params: null, labels: {}, steps: structuredClone(this.loaded), more: false };
    const held = { state: "held", renewed: this.renewed, pause: false };
    if (path === "/leases/running") this.shown.push(body);
    return { leases: (body.leases ?? []).map(({ run }) => ({ run, ...held })), strays: this.strays, drain: false };
  }

  #applied(item: Item): object {
    this.items.push(item);
    const status = item.op === "retry" ? (item.in_place ? "leased" : "pending") : STATUS[item.op];
    const rule = { run: item.run, seq: item.seq, answer: "applied", status, kept: [], settled: [], known: 0, children: {} };
    const answer = { ...rule, ...this.answers.map((one) => one(item)).find((one) => one !== undefined) };
    if (answer.status !== "leased") setImmediate(() => this.#ended?.(item));
    return answer;
  }
}

/** Execute one run of this code with these fields of its lease, and return all items and the last one. */
export async function executed(
  fn: (ctx: Context, params: never) => unknown,
  lease: object = {},
  prepare: (script: Script) => void = () => undefined,
): Promise<{ script: Script; last: Item }> {
  const script = new Script();
  await script.open();
  prepare(script);
  const worker = new Worker({ url: script.url, leaseMs: script.leaseMs, log: () => undefined });
  worker.workflow("test.flow.v1", fn as never, { retry: { baseMs: 1 } });
  const end = script.end();
  script.lease(lease);
  await worker.start();
  const last = await end;
  await worker.stop();
  script.close();
  return { script, last };
}

/** Return a recorded step that succeeded. */
export function step(seq: number, key: string, output: unknown, more: object = {}): object {
  return { seq, key, kind: "task", status: "succeeded", attempts: 1, output, ...more };
}
