/** Retry policies: how many tries, and the delay after each failed one. */
import { RetryAfter, UsageError } from "./errors.js";

export const IN_PLACE_MAX_MS = 1_000; // up to here a retry keeps its slot; above, the run goes back to the queue
export const TIMER_MAX_MS = 2 ** 31 - 1; // a longer timer of Node fires at once

export interface RetryPolicy {
  /** The number of tries. Without it: that of the run, usually 3. */
  attempts?: number;
  /** The delay after failure n is `baseMs × 2ⁿ`. 1,000. */
  baseMs?: number;
  /** The longest delay. One hour. */
  maxMs?: number;
  /** Up to this share of the delay is added by chance. 0.1. */
  jitter?: number;
  /** The delay after failure n, from 1, in place of the rule above. */
  delayMs?: (failures: number) => number;
}

/** Return the delay after failure n. */
export function delayAfter(error: unknown, policy: RetryPolicy, n: number): number {
  const { baseMs = 1_000, maxMs = 3_600_000, jitter = 0.1 } = policy;
  if (error instanceof RetryAfter) return checked(error.delayMs);
  if (policy.delayMs) return checked(policy.delayMs(n));
  return checked(Math.min(baseMs * 2 ** Math.min(n, 60), maxMs) * (1 + jitter * Math.random()));
}

/** Return a duration; UsageError when it is none. */
export function checked(ms: number, what = "the delay of a retry"): number {
  if (typeof ms === "number" && ms >= 0 && ms < Infinity) return ms;
  throw new UsageError(`${what} is ${String(ms)}: give a number of milliseconds, 0 or more`);
}
