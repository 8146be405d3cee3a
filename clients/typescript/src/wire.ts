/** The messages of the worker protocol, as far as this library uses them: docs/worker-protocol.md. */
import type { RecordedError } from "./errors.js";
import type { Raw } from "./json.js";

export type Kind = "task" | "sleep" | "event" | "approval" | "child" | "now" | "emit";

/** A run that this worker holds. Times are lease time: milliseconds since the claim. */
export interface Lease {
  run: string;
  fence: number;
  token: string;
  type: string;
  kind: "code" | "plan";
  tenant: string;
  lease_ms: number;
  attempt: number;
  max_attempts: number;
  crashes: number;
  claimed_at: number;
  timeout_ms: number | null;
  params: unknown;
  labels: Record<string, string>;
  steps: RecordedStep[];
  unread: boolean;
  logs: number;
  parent: string | null;
  cost: number;
  budget: number | null;
  left: number | null;
}

/** A step of the record. */
export interface RecordedStep {
  seq: number;
  key: string;
  kind: Kind;
  status: "succeeded" | "failed" | "ready" | "waiting" | "cancelled" | "pending";
  attempts: number;
  output?: unknown;
  error?: RecordedError | null;
  due_ms?: number | null;
}

/** A step to record. */
export interface StepWrite {
  key: string;
  kind?: Kind;
  status?: "failed" | "ready" | "waiting";
  output?: Raw;
  error?: RecordedError;
  attempts?: number;
  max_attempts?: number;
  cost?: number | undefined;
  started_ms?: number;
  topic?: string;
  since_now?: boolean;
  delay_ms?: number | undefined;
  until?: string;
  ask?: { ask: string; data: Raw };
  on_timeout?: "reject" | "approve";
  child?: object;
}

/** Rows that are written in the same commit as a step. */
export interface Effects {
  logs: Raw[];
  events: { name: string; topic: string; payload: Raw }[];
  messages: { sink: string; payload: Raw; key?: string; step: string; number: number }[];
}

export function noEffects(): Effects {
  return { logs: [], events: [], messages: [] };
}

/** The part of an item that depends on its `op`. */
export type Move =
  | { op: "checkpoint" | "park" | "release" }
  | { op: "release"; before: string; cost_max: number }
  | { op: "complete"; result: Raw }
  | { op: "complete"; continue_as: { params: Raw } }
  | { op: "fail"; error: RecordedError }
  | { op: "retry"; error?: RecordedError | undefined; delay_ms: number; in_place?: boolean; refund?: boolean };

/** The answer to one item of a batch. */
export interface Answer {
  run: string;
  seq: number;
  answer: "applied" | "paused";
  status: string;
  kept: RecordedStep[]; // the server names only key and output; the rest is read from the record
  settled: RecordedStep[];
  known: number;
  more: boolean;
  children: Record<string, string>;
  left?: number | null;
  problem?: Problem;
}

/** A refusal: of one item, or of a whole request. */
export interface Problem {
  code: string;
  status: number;
  detail?: string;
  retryable?: boolean;
  retry_after_ms?: number;
  run_status?: string;
}

/** A lease as heartbeats name it. */
export interface HeldLease {
  run: string;
  fence: number;
  token: string;
  known?: number;
  progress?: string; // JSON text, so that nothing can go wrong when a heartbeat is written
}

export interface Progress {
  done: number;
  total?: number;
  note?: string;
}

/** The state of one lease in the answer of a heartbeat. */
export interface LeaseState {
  run: string;
  state: "held" | "cancelled" | "lost" | "unreadable";
  renewed: boolean;
  pause: boolean;
  settled?: RecordedStep[];
  more?: boolean;
  reason?: string;
}

/** Return the fields that name a lease in a request. */
export function held({ run, fence, token }: HeldLease): { run: string; fence: number; token: string } {
  return { run, fence, token };
}

/** Return the name of one lease: the same run has another fence when it is claimed again. */
export function leaseId(lease: { run: string; fence: number }): string {
  return `${lease.run}:${lease.fence}`;
}
