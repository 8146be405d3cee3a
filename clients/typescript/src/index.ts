/** A Holdfast worker in TypeScript: durable workflows over HTTP. */
export { Context } from "./context.js";
export type { AwaitedEvent, ChildOptions, Decision, MapOptions, StepOptions, Workflow } from "./context.js";
export {
  ChildFailed,
  Drift,
  EncodingError,
  EventTimeout,
  Fatal,
  HistoryFull,
  HoldfastError,
  Refused,
  RetryAfter,
  RunOverdue,
  StepFailed,
  StepTimeout,
  UsageError,
} from "./errors.js";
export type { RecordedError } from "./errors.js";
export type { Continued } from "./execution.js";
export type { RetryPolicy } from "./retry.js";
export { StepContext } from "./step_context.js";
export type { Level } from "./step_context.js";
export { Worker } from "./worker.js";
export type { WorkerOptions, WorkflowOptions } from "./worker.js";

export const seconds = (count: number): number => count * 1_000;
export const minutes = (count: number): number => count * 60_000;
export const hours = (count: number): number => count * 3_600_000;
export const days = (count: number): number => count * 86_400_000;
