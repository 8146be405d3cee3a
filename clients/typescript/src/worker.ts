/** A worker: it claims runs of its types and executes them. */
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { Batcher } from "./batch.js";
import { monotonic } from "./clock.js";
import type { Context, Workflow } from "./context.js";
import { Refused, said, UsageError } from "./errors.js";
import type { Continued } from "./execution.js";
import { type Definition, HeldRun, type Host } from "./held_run.js";
import { type Address, Transport } from "./http.js";
import { write } from "./json.js";
import { decide, Leases, type News, TAKEN } from "./leases.js";
import type { RetryPolicy } from "./retry.js";
import type { Lease } from "./wire.js";

const TYPE = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.v[1-9]\d*$/;
const STEPS_MAX = 10_000;
const TIMEOUT_MS = 10_000;
const SIGNALS = ["SIGTERM", "SIGINT"] as const;
const LEAVE_MS = 2_000;
const SHOWN_AFTER_MS = 2_000;
const SHOWN_RUNS_MAX = 1_000;
const CLAIM_SLOTS = 1_000;
const NAME_CHARS_MAX = 180; // a random part follows
const VERSION = "0.1.0";

export interface WorkerOptions {
  /** The server: `http://127.0.0.1:8080`. Else HOLDFAST_URL, or HOLDFAST_STORE. */
  url?: string;
  /** An API key with the scope `work`. Else HOLDFAST_KEY. */
  key?: string;
  /** Only for keys that are `operator`: another tenant, or `*`. */
  tenant?: string;
  /** How many runs are executed at once. 50. */
  slots?: number;
  /** How long a lease lasts without a heartbeat. 30,000. */
  leaseMs?: number;
  /** The begin of the name of this worker, which ends in a random part. `host:pid`. */
  name?: string;
  /** Claim only types that begin with one of these. */
  prefixes?: string[];
  /** The runtime that the registry knows. `typescript`. */
  runtime?: string;
  /** Where lines for people go. `console.error`. */
  log?: (message: string) => void;
}

export interface WorkflowOptions {
  /** Delays after failures of the run, and tries and delays of steps without a policy of their own. */
  retry?: RetryPolicy;
  /** How many steps a run may record. 10,000. */
  stepsMax?: number;
}

interface Registered {
  present_ms: number;
  wait_ms_max: number;
  limits: { batch_bytes: number; batch_items: number; claim_slots?: number; leases?: number };
}

export class Worker {
  readonly name: string;
  readonly #settings: Required<Omit<WorkerOptions, "key" | "tenant" | "name">>;
  readonly #definitions = new Map<string, Definition>();
  readonly #runs = new Map<string, HeldRun>();
  readonly #transport: Transport;
  readonly #address: Address;
  #presence: NodeJS.Timeout | undefined;
  #showing: NodeJS.Timeout | undefined;
  #host: Host | undefined;
  #stopping = false;
  #leases: Leases | undefined;
  #claimsEnded: () => void = () => undefined;
  #failed: (error: Error) => void = (error) => this.#settings.log(error.message);

  constructor(options: WorkerOptions = {}) {
    const { url = process.env["HOLDFAST_URL"] ?? process.env["HOLDFAST_STORE"], key = process.env["HOLDFAST_KEY"], tenant } = options;
    if (!url) throw new UsageError("give the url of the server, as in new Worker({ url: \"http://127.0.0.1:8080\" })");
    const { slots = 50, leaseMs = 30_000, prefixes = [], runtime = "typescript" } = options;
    const log = options.log ?? ((message: string) => console.error(`holdfast: ${message}`));
    this.#settings = { url, slots, leaseMs, prefixes, runtime, log };
    const name = options.name || `${hostname().replaceAll("@", "_")}:${process.pid}`;
    // Two processes with one name would give back each other's runs as strays.
    this.name = `${[...name].slice(0, NAME_CHARS_MAX).join("")}:${randomUUID().slice(0, 8)}`;
    this.#address = { url, key, tenant };
    this.#transport = new Transport(this.#address, log);
  }

  /** Define a workflow: `worker.workflow("shop.order.v1", async (ctx, order) => { … })`. */
  workflow<P = unknown, R = unknown>(
    type: string,
    fn: (ctx: Context, params: P) => Promise<R | Continued> | R | Continued,
    options: WorkflowOptions = {},
  ): Workflow<P, R> {
    if (!TYPE.test(type)) throw new UsageError(`type "${type}": write domain.action.vN, as in shop.order.v1`);
    if (this.#definitions.has(type)) throw new UsageError(`type "${type}" is defined twice`);
    this.#definitions.set(type, { type, fn, retry: options.retry ?? {}, stepsMax: options.stepsMax ?? STEPS_MAX });
    return { type, fn };
  }

  /** Work until SIGTERM or SIGINT, then stop gracefully; a second signal stops at once. */
  async run(options: { graceMs?: number } = {}): Promise<void> {
    let signals = 0;
    const hurry = new AbortController();
    let heard = (): void => undefined;
    const ended = new Promise<void>((resolve, reject) => {
      this.#failed = reject;
      heard = () => (signals++ === 0 ? resolve() : hurry.abort());
    });
    // A branch of user code that fails while nobody awaits it must not end the other runs.
    const unseen = (error: unknown): void => this.#settings.log(`a promise was rejected unseen: ${said(error)}`);
    for (const signal of SIGNALS) process.on(signal, heard);
    process.on("unhandledRejection", unseen);
    try {
      // The server may be away: a signal ends the wait for it too.
      const started = this.start();
      started.catch(() => undefined);
      await Promise.race([started, ended]);
      await ended;
      if (this.#host) this.#settings.log("stopping: no new claims, and running steps may end; a second signal stops now");
      await this.stop({ ...options, signal: hurry.signal });
    } catch (error) {
      await this.stop({ graceMs: 0 });
      throw error;
    } finally {
      for (const signal of SIGNALS) process.off(signal, heard);
      process.off("unhandledRejection", unseen);
    }
  }

  /** Begin to work, and return once the server knows this worker. */
  async start(): Promise<void> {
    if (this.#types().length === 0) throw new UsageError("the worker has no workflow: call worker.workflow(…) first");
    const answer = await this.#transport.send("/workers/register", this.#registration(), TIMEOUT_MS);
    if (this.#stopping) return;
    const { limits, wait_ms_max: waitMs, present_ms } = answer as Registered;
    this.#presence = setInterval(() => {
      this.#transport.post("/workers/register", this.#registration(), TIMEOUT_MS).catch(() => undefined);
    }, present_ms);
    this.#showing = setInterval(() => this.#show(), SHOWN_AFTER_MS);
    const { log, leaseMs, runtime } = this.#settings;
    const { claim_slots: claimSlots = CLAIM_SLOTS, leases: most = Infinity } = limits;
    const slots = Math.min(this.#settings.slots, most); // one heartbeat names all leases
    const fail = (error: unknown): void => this.#fail(error);
    const settings = { address: this.#address, worker: this.name, runtime, types: this.#types(), slots, claimSlots, leaseMs, waitMs };
    this.#leases = new Leases(settings, (news) => this.#news(news), fail);
    const batcher = new Batcher(this.#transport, limits, fail);
    const left = (run: HeldRun): void => {
      this.#runs.delete(run.id);
      this.#leases!.drop(run.id);
    };
    this.#host = { transport: this.#transport, batcher, leases: this.#leases, log, left };
  }

  /** Stop: claim no more, let running steps end within `graceMs` (30,000), give back what is left. */
  async stop(options: { graceMs?: number; signal?: AbortSignal } = {}): Promise<void> {
    this.#stopping = true;
    clearInterval(this.#presence);
    clearInterval(this.#showing);
    for (const run of this.#runs.values()) run.drain();
    await new Promise<void>((resolve) => {
      if (!this.#leases) return resolve();
      this.#claimsEnded = resolve;
      this.#leases.quit();
      setTimeout(resolve, LEAVE_MS).unref();
    });
    for (const run of this.#runs.values()) run.drain(); // also those of the last claim
    await this.#empty(options.graceMs ?? 30_000, options.signal);
    for (const run of this.#runs.values()) run.hurry();
    await this.#empty(LEAVE_MS);
    if (this.#runs.size > 0) this.#settings.log(`${this.#runs.size} runs come back when their leases have expired`);
    if (this.#host) await this.#transport.post("/workers/leave", write({ worker: this.name }), LEAVE_MS).catch(() => undefined);
    this.#transport.close();
    await this.#leases?.stop();
  }

  async #empty(ms: number, signal?: AbortSignal): Promise<void> {
    const until = monotonic() + ms;
    while (this.#runs.size > 0 && !signal?.aborted && monotonic() < until) await delay(20);
  }

  /** Let people see the steps that take longer. */
  #show(): void {
    const runs = [...this.#runs.values()].map((run) => run.shown(SHOWN_AFTER_MS)).filter((one) => one !== undefined);
    if (runs.length === 0) return;
    const body = write({ worker: this.name, runs: runs.slice(0, SHOWN_RUNS_MAX) });
    this.#transport.post("/leases/running", body, TIMEOUT_MS).catch(() => undefined);
  }

  #registration(): string {
    const { runtime, slots } = this.#settings;
    const who = { worker: this.name, language: "typescript", library: "holdfast-typescript", version: VERSION };
    return write({ ...who, runtime, types: this.#types(), slots });
  }

  #take(leases: Lease[], askedAt: number, answeredAt: number): void {
    for (const lease of leases) {
      const run = new HeldRun(lease, this.#definition(lease), this.#host!, askedAt, answeredAt);
      this.#runs.set(run.id, run);
      void run.execute();
    }
  }

  #definition(lease: Lease): Definition {
    const found = lease.kind === "code" ? this.#definitions.get(lease.type) : undefined;
    const fn = (): never => {
      throw new UsageError(`this worker executes no ${lease.kind} of type ${lease.type}`);
    };
    return found ?? { type: lease.type, fn, retry: {}, stepsMax: STEPS_MAX };
  }

  #news({ at, answeredAt = at, leases, owner, states, quit, refused, trouble }: News): void {
    if (trouble !== undefined) this.#settings.log(trouble);
    if (refused !== undefined) this.#fail(new Refused(refused));
    for (const state of states ?? []) this.#runs.get(state.id)?.news(state, at);
    if (leases && owner) {
      this.#leases?.taken();
      if (decide(owner, TAKEN)) this.#take(leases, at, answeredAt);
    }
    if (quit) this.#claimsEnded();
  }

  #types(): string[] {
    const { prefixes } = this.#settings;
    const wanted = (type: string): boolean => prefixes.length === 0 || prefixes.some((one) => type.startsWith(one));
    return [...this.#definitions.keys()].filter(wanted);
  }

  /** The worker cannot go on: `run` rejects with the reason. */
  #fail(error: unknown): void {
    if (this.#transport.closed) return;
    this.#leases?.quit();
    this.#failed(error instanceof Error ? error : new Error(said(error)));
  }
}
