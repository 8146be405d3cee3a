/** Errors: those that users throw, those that they catch, and the form in which an error is recorded. */

const MESSAGE_MAX = 4_000;
const TRACEBACK_MAX = 20_000;

/** An error as the record of a run has it, the same in every language. */
export interface RecordedError {
  kind: string;
  type?: string;
  message?: string;
  traceback?: string;
  step?: string;
  attempt?: number;
  max_attempts?: number;
}

/** The superclass of all errors of this library. `kind` is set for those that fail a run at once. */
export class HoldfastError extends Error {
  readonly kind: string | undefined = undefined;
  override get name(): string {
    return this.constructor.name;
  }
}

/** Throw this when no retry helps. */
export class Fatal extends HoldfastError {
  override readonly kind = "fatal";
}

/** Throw this to choose the delay before the next try. */
export class RetryAfter extends HoldfastError {
  constructor(
    readonly delayMs: number,
    message = `retry after ${delayMs} ms`,
  ) {
    super(message);
  }
}

/** The library was used wrongly. */
export class UsageError extends HoldfastError {
  override readonly kind: string = "usage";
}

/** A value is no JSON value. */
export class EncodingError extends UsageError {
  override readonly kind = "encoding";
}

/** The code asks for another kind of step than the one that is recorded under the key. */
export class Drift extends HoldfastError {
  override readonly kind = "drift";
}

/** The run has recorded as many steps as it may. */
export class HistoryFull extends HoldfastError {
  override readonly kind = "history";
}

/** The run has taken longer than it may: no further step begins. */
export class RunOverdue extends HoldfastError {
  override readonly kind = "timeout";
}

/** A try of a step took longer than its `timeoutMs`. */
export class StepTimeout extends HoldfastError {}

/** A step used all its tries, or failed with an error that no retry helps. */
export class StepFailed extends HoldfastError {
  override readonly kind: string;
  constructor(
    readonly step: string,
    readonly error: RecordedError,
  ) {
    super(`step "${step}" failed: ${error.type ? `${error.type}: ` : ""}${error.message ?? error.kind}`);
    this.kind = error.kind;
  }
}

/** An awaited event did not come in time. */
export class EventTimeout extends HoldfastError {
  override readonly kind = "timeout";
  constructor(
    readonly step: string,
    readonly topic: string,
  ) {
    super(`no event came on "${topic}" in time`);
  }
}

/** A called child run failed, was cancelled, or is gone. */
export class ChildFailed extends HoldfastError {
  override readonly kind = "child_failed";
  constructor(
    readonly step: string,
    readonly run: string,
    readonly status: string,
    readonly error: RecordedError | null,
  ) {
    super(`child run ${run} of step "${step}" is ${status}${error?.message ? `: ${error.message}` : ""}`);
  }
}

/** The server refuses this worker, for good: the key is wrong, or lacks a right. */
export class Refused extends HoldfastError {}

/** Return the record of anything that was thrown. */
export function recorded(thrown: unknown, kind: string, more: Partial<RecordedError> = {}): RecordedError {
  const error = thrown instanceof Error ? thrown : new Error(said(thrown));
  const blamed = "step" in error && typeof error.step === "string" ? { step: error.step } : {};
  const failed = error instanceof StepFailed ? error.error : undefined;
  const before = failed?.traceback ? `${failed.traceback}\n\nThe step failed with the error above. Then:\n\n` : "";
  return {
    kind,
    // A class that extends Error has the name "Error" unless it sets another one.
    type: clean(error.name === "Error" ? error.constructor.name : error.name, 200),
    message: clean(error.message, MESSAGE_MAX),
    traceback: clean(before + said(error.stack ?? ""), TRACEBACK_MAX),
    ...blamed,
    ...(failed && { attempt: failed.attempt, max_attempts: failed.max_attempts }),
    ...more,
  };
}

/** Return the kind with which an error fails its run at once; undefined when a retry may help. */
export function finalKind(thrown: unknown): string | undefined {
  if (thrown instanceof AggregateError) return thrown.errors.map(finalKind).find((kind) => kind !== undefined);
  return thrown instanceof HoldfastError ? thrown.kind : undefined;
}

/** Return a text for anything, also for an object that has none. */
export function said(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "an object that cannot be shown as text";
  }
}

/** Return a text that every store can keep. */
function clean(text: unknown, max: number): string {
  return said(text).replace(/\0/g, "\\0").replace(/\p{Surrogate}/gu, "\uFFFD").slice(0, max).replace(/\p{Surrogate}$/u, "");
}
