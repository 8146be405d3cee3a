/** The context of a step: what its function can ask and say. */
import { UsageError } from "./errors.js";
import type { Execution } from "./execution.js";
import { Raw, write } from "./json.js";
import { Chance } from "./random.js";
import { checkedTopic } from "./record.js";
import { type Effects, noEffects } from "./wire.js";

export type Level = "debug" | "info" | "warning" | "error";

/** The context of one try of a step: its function gets it as an argument. */
export class StepContext {
  readonly effects = noEffects();
  readonly startedMs: number;
  output: Raw | undefined;
  #chance: Chance | undefined;
  cost = 0;
  #abort: AbortController | undefined;
  readonly #execution: Execution;

  constructor(
    execution: Execution,
    readonly key: string,
    /** The number of this try, from 1. */
    readonly attempt: number,
  ) {
    this.#execution = execution;
    this.startedMs = execution.held.now;
  }

  /** A key for the outside world: the same at every try, in every execution, in every language. */
  get idempotencyKey(): string {
    return `${this.#execution.held.lease.run}:${this.key}`;
  }

  /** It is aborted when the run is cancelled or lost, the worker has to stop, or the try takes too long. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    return this.#abort.signal;
  }

  /** @internal */
  abort(reason: Error): void {
    this.#abort ??= new AbortController();
    this.#abort.abort(reason);
  }

  /** Emit an event with the commit of this step. */
  emit(topic: string, payload?: unknown): void {
    const name = `${this.key}:emit${this.effects.events.length + 1}`;
    this.effects.events.push({ name, topic: checkedTopic(topic), payload: new Raw(write(payload, `the payload of event "${topic}"`)) });
  }

  /** Send a message to a sink with the commit of this step. */
  send(sink: string, payload?: unknown, options: { order?: string } = {}): void {
    const { messages } = this.effects;
    messages.push(message(sink, payload, options.order, this.key, messages.length + 1));
  }

  /** A number in [0, 1): the same numbers at every try. */
  random(): number {
    return (this.#chance ??= new Chance(this.idempotencyKey)).number();
  }

  /** A random UUID: the same ones at every try. */
  uuid(): string {
    return (this.#chance ??= new Chance(this.idempotencyKey)).uuid();
  }

  /** Add a row to the trail with the commit of this try. */
  log(text: string, data: object = {}, level: Level = "info"): void {
    this.effects.logs.push(new Raw(write({ ...data, message: text, level, step: this.key }, "a log row")));
  }

  /** Add to the cost of this step. */
  addCost(amount: number): void {
    if (!(amount >= 0 && amount < Infinity)) throw new UsageError(`a cost of ${amount}: give a number, 0 or more`);
    this.cost = Math.round((this.cost + amount) * 1e6) / 1e6;
  }
}

/** Return a message for the outbox: the `number`-th of its step. */
export function message(sink: string, payload: unknown, order: string | undefined, step: string, number: number): Effects["messages"][0] {
  return { sink, payload: new Raw(write(payload, `the message to "${sink}"`)), ...(order !== undefined && { key: order }), step, number };
}
