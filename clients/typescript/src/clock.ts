/** The monotonic clock of the process, in milliseconds. All threads share it; no wall clock is ever compared. */
export function monotonic(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Return a number of milliseconds with at most three decimals, as the protocol has them. */
export function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
