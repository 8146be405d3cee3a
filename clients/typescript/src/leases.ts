/**
 * Leases are claimed and kept by a thread of their own: user code that blocks the event loop must not lose one.
 *
 * This is the main thread's side. It tells the thread which leases have ended.
 */
import { Worker as Thread } from "node:worker_threads";
import type { Address } from "./http.js";
import type { HeldLease, Lease, LeaseState } from "./wire.js";

export interface LeaseSettings {
  address: Address;
  worker: string;
  runtime: string;
  types: string[];
  slots: number;
  claimSlots: number; // at most so many in one claim
  leaseMs: number;
  waitMs: number;
}

/** To the thread. */
export interface Order {
  drop?: string[]; // leases that are no longer held
  change?: HeldLease[]; // what the next heartbeats say about leases
  now?: boolean; // a heartbeat is wanted at once
  taken?: boolean; // the main thread has seen the leases of the last claim
  quit?: boolean; // no more claims
}

/** Who has the leases of a claim: a cell of memory that both threads see. The first one to set it decides. */
const NOBODY = 0;
export const TAKEN = 1;
export const GIVEN_BACK = 2;
export type Owner = Int32Array<SharedArrayBuffer>;

/** Decide who has the leases of a claim. Return false if that was decided before. */
export function decide(owner: Owner, who: number): boolean {
  return Atomics.compareExchange(owner, 0, NOBODY, who) === NOBODY;
}

/** From the thread: new leases, or states of leases, at a time of the monotonic clock; or its end. A lease was claimed
 * between `at` and `answeredAt`. */
export interface News {
  at: number;
  leases?: Lease[];
  owner?: Owner;
  answeredAt?: number;
  states?: (LeaseState & { id: string })[];
  quit?: boolean;
  refused?: string;
  trouble?: string; // a line for people
}

export class Leases {
  readonly #thread: Thread;
  #dropped: string[] = [];
  #told = false;

  constructor(settings: LeaseSettings, news: (news: News) => void, died: (error: unknown) => void) {
    this.#thread = new Thread(new URL("./lease_thread.js", import.meta.url), { workerData: settings });
    this.#thread.on("message", news);
    this.#thread.on("error", died);
  }

  /** Drop a lease, which frees a slot. Those of one turn go in one message. */
  drop(id: string): void {
    this.#dropped.push(id);
    if (this.#told) return;
    this.#told = true;
    setImmediate(() => this.#tell({}));
  }

  change(lease: HeldLease): void {
    this.#tell({ change: [lease] });
  }

  /** Send a heartbeat at once. */
  now(): void {
    this.#tell({ now: true });
  }

  /** Say that the leases of the last claim were seen: the next claim may go. */
  taken(): void {
    this.#tell({ taken: true });
  }

  /** Claim no more. */
  quit(): void {
    this.#tell({ quit: true });
  }

  async stop(): Promise<void> {
    await this.#thread.terminate();
  }

  #tell(order: Order): void {
    this.#thread.postMessage({ ...order, drop: this.#dropped } satisfies Order);
    this.#dropped = [];
    this.#told = false;
  }
}
