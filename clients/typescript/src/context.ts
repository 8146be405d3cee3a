/** What user code holds: the context of a run, and that of a step. */
import { ChildFailed, Drift, EventTimeout, type RecordedError, UsageError } from "./errors.js";
import { Continued, type Execution } from "./execution.js";
import { Raw, write } from "./json.js";
import { checked, type RetryPolicy } from "./retry.js";
import { checkedTopic } from "./record.js";
import { Call } from "./stage.js";
import { type Level, message, type StepContext } from "./step_context.js";
import { type Effects, noEffects, type RecordedStep, type StepWrite } from "./wire.js";

/** A workflow as `worker.workflow` returns it: `ctx.call` takes it, or its type as text. */
export interface Workflow<P, R> {
  readonly type: string;
  readonly fn: (ctx: Context, params: P) => Promise<R | Continued> | R | Continued;
}

export interface StepOptions {
  /** The key of the record, in place of the name. */
  key?: string;
  /** Tries and delays of this step, in place of those of the workflow. */
  retry?: RetryPolicy;
  /** A try that takes longer has failed. Its `step.signal` is aborted. */
  timeoutMs?: number;
  /** What one try may cost at most. A run whose budget may not pay for it is paused before the step. */
  costMax?: number;
}

export interface MapOptions<A> extends Omit<StepOptions, "key"> {
  /** How many items are worked on at once. 10. */
  limit?: number;
  /** The name of an item, in place of its position. */
  key?: (item: A) => string | number | bigint;
}

export interface ChildOptions {
  key?: string;
  priority?: number;
  delayMs?: number;
  runAt?: Date;
  timeoutMs?: number;
  maxAttempts?: number;
  ttlMs?: number;
  budget?: number;
  limitKey?: string;
  labels?: { [name: string]: string };
  coversChildren?: boolean;
}

export interface AwaitedEvent<T = unknown> {
  id: string;
  topic: string;
  at: Date;
  payload: T;
}

export interface Decision {
  approved: boolean;
  by: string;
  comment: string;
  at: Date;
  timedOut: boolean;
}

/** The context of a run. Methods that return a promise are awaited and may park the run. */
export class Context {
  readonly #execution: Execution;

  constructor(execution: Execution) {
    this.#execution = execution;
  }

  get runId(): string {
    return this.#execution.held.lease.run;
  }
  get type(): string {
    return this.#execution.held.lease.type;
  }
  get tenant(): string {
    return this.#execution.held.lease.tenant;
  }
  get labels(): Readonly<{ [name: string]: string }> {
    return this.#execution.held.lease.labels;
  }
  get parent(): string | null {
    return this.#execution.held.lease.parent;
  }
  /** It is aborted when the run is cancelled or lost, or its worker has to stop. Parking is no abort. */
  get signal(): AbortSignal {
    return this.#execution.held.signal;
  }

  /**
   * Run a function and record its result before returning it. In a later execution the recorded result is
   * returned, and the function is not called. After the last try it throws StepFailed. Results are JSON values.
   */
  step<T>(name: string, fn: (step: StepContext) => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    if (typeof fn !== "function") throw new UsageError(`step "${name}": give the function itself, not its result`);
    return this.#step(this.#key(name, options.key), fn, options);
  }

  #step<T>(key: string, fn: (step: StepContext) => T | Promise<T>, options: StepOptions): Call<T> {
    if (options.timeoutMs !== undefined) checked(options.timeoutMs, `step "${key}": timeoutMs`);
    return this.#execution.step(key, fn, options);
  }

  /** Run a step for each item, at most `limit` at once; results in order. The first failure ends it. */
  map<A, T>(
    name: string,
    items: Iterable<A>,
    fn: (item: A, step: StepContext) => T | Promise<T>,
    options: MapOptions<A> = {},
  ): Promise<T[]> {
    const { limit = 10, key: named, ...each } = options;
    if (!(limit >= 1)) throw new UsageError(`map "${name}": limit is ${limit}: give 1 or more`);
    const base = this.#key(name);
    const all = [...items];
    const keys = all.map((item, n) => this.#key(name, `${base}[${named ? named(item) : n}]`));
    const results: T[] = [];
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < all.length) {
        const n = next++;
        try {
          results[n] = await this.#step(keys[n]!, (step) => fn(all[n]!, step), each);
        } catch (error) {
          next = all.length; // no further item begins
          throw error;
        }
      }
    };
    const lanes = Array.from({ length: Math.min(limit, all.length) }, lane);
    return Call.made(base, this.#execution.forgotten, (resolve, reject) => {
      Promise.all(lanes).then(() => resolve(results), reject);
    });
  }

  /** Park for so many milliseconds. */
  sleep(ms: number, options: { key?: string } = {}): Promise<void> {
    return this.#sleep(options.key, { delay_ms: checked(ms, "sleep") });
  }

  /** Park until an instant; one in the past is due at once. */
  sleepUntil(at: Date, options: { key?: string } = {}): Promise<void> {
    return this.#sleep(options.key, { until: at.toISOString() });
  }

  #sleep(key: string | undefined, until: Partial<StepWrite>): Promise<void> {
    return this.#execution.wait({ ...until, key: this.#key("sleep", key), kind: "sleep" }, () => undefined);
  }

  /**
   * Park until an event comes on the topic; EventTimeout when it does not come in time. Events since the start
   * of the run count, oldest first, each once; with `since: "now"` only later ones.
   */
  awaitEvent<T = unknown>(
    topic: string,
    options: { timeoutMs?: number; since?: "start" | "now"; key?: string } = {},
  ): Promise<AwaitedEvent<T>> {
    const { timeoutMs, since = "start" } = options;
    const key = this.#key(`event:${checkedTopic(topic)}`, options.key);
    if (timeoutMs !== undefined) checked(timeoutMs, `event "${topic}": timeoutMs`);
    const wait = { key, kind: "event" as const, topic, delay_ms: timeoutMs, ...(since === "now" && { since_now: true }) };
    return this.#execution.wait(wait, (step) => {
      if (step.status === "failed") throw new EventTimeout(key, topic);
      const { id, at, payload } = step.output as { id: string; at: number; payload: T };
      return { id, topic, at: moment(at), payload };
    });
  }

  /** Park until a person approves or rejects. A rejection is no error. */
  approval(
    name: string,
    options: { ask?: string; data?: unknown; timeoutMs?: number; onTimeout?: "reject" | "approve"; key?: string } = {},
  ): Promise<Decision> {
    const { ask = "", data, timeoutMs, onTimeout } = options;
    if (timeoutMs !== undefined) checked(timeoutMs, `approval "${name}": timeoutMs`);
    const wait = {
      key: this.#key(name, options.key),
      kind: "approval" as const,
      ask: { ask, data: new Raw(write(data, `the data of approval "${name}"`)) },
      delay_ms: timeoutMs,
      ...(onTimeout && { on_timeout: onTimeout }),
    };
    return this.#execution.wait(wait, (step) => {
      const said = step.output as { approved: boolean; by?: string; comment?: string; at: number; timed_out?: boolean };
      const { approved, by = "", comment = "", at, timed_out: timedOut = false } = said;
      return { approved, by, comment, at: moment(at), timedOut };
    });
  }

  /** Start a child run once, park until its end and return its result; ChildFailed when it has none. */
  call<P, R>(workflow: Workflow<P, R>, params: P, options?: ChildOptions): Promise<R>;
  call<R = unknown>(workflow: string, params?: unknown, options?: ChildOptions): Promise<R>;
  call<R>(workflow: Workflow<never, R> | string, params?: unknown, options: ChildOptions = {}): Promise<R> {
    const { key, child } = this.#child(workflow, params, options);
    return this.#execution.wait({ key, kind: "child", child }, (step) => {
      const end = childEnd(step);
      if (end.status === "started") throw drift(key, "started", "calls");
      if (step.status === "failed") throw new ChildFailed(key, end.run, end.status, end.error ?? null);
      return end.result as R;
    });
  }

  /** Start a child run once and return its id without waiting for it. */
  start<P>(workflow: Workflow<P, unknown>, params: P, options?: ChildOptions): Promise<string>;
  start(workflow: string, params?: unknown, options?: ChildOptions): Promise<string>;
  start(workflow: Workflow<never, unknown> | string, params?: unknown, options: ChildOptions = {}): Promise<string> {
    const { key, child } = this.#child(workflow, params, options);
    const id = (step: RecordedStep): string => {
      if (childEnd(step).status !== "started") throw drift(key, "called", "only starts");
      return childEnd(step).run;
    };
    return this.#execution.call(key, "child", id, (settle, found) => {
      if (found) throw drift(key, "called", "only starts");
      this.#execution.note({ key, kind: "child", child }, settle, ({ children, kept }) => {
        const before = kept.find((one) => one.key === key);
        return before ? id(before) : children[key]!;
      });
    });
  }

  #child(workflow: { type: string } | string, params: unknown, options: ChildOptions): { key: string; child: object } {
    const type = typeof workflow === "string" ? workflow : workflow.type;
    const child = {
      type,
      params: new Raw(write(params, `the params of ${type}`)),
      priority: options.priority,
      delay_ms: options.delayMs,
      run_at: options.runAt?.toISOString(),
      timeout_ms: options.timeoutMs,
      max_attempts: options.maxAttempts,
      ttl_ms: options.ttlMs,
      budget: options.budget,
      limit_key: options.limitKey,
      labels: options.labels,
      covers_children: options.coversChildren,
    };
    return { key: this.#key(type.replace(/\.v\d+$/, ""), options.key), child };
  }

  // -- answered at once -------------------------------------------------------------------------

  /** The time. It is recorded: a later execution gets the same time. It never goes back within a run. */
  now(): Date {
    const key = this.#key("now");
    const { held } = this.#execution;
    const found = held.record.find(key, "now");
    if (found) return moment(Number(found.output));
    // The clock of the store may have been set back.
    const at = Math.max(held.lease.claimed_at + Math.round(1000 * held.now), held.record.latestNow);
    this.#note({ key, kind: "now", output: new Raw(String(at)) });
    return moment(at);
  }

  /** Emit an event with the next commit: once, however often the code is executed. */
  emit(topic: string, payload?: unknown, options: { name?: string } = {}): void {
    const key = this.#key(`emit:${checkedTopic(topic)}`, options.name);
    if (this.#execution.held.record.find(key, "emit")) return;
    const event = { name: key, topic, payload: new Raw(write(payload, `the payload of event "${topic}"`)) };
    this.#note({ key, kind: "emit" }, { ...noEffects(), events: [event] });
  }

  /** Send a message to a sink with the next commit: once. Those of one `order` are delivered one after the other. */
  send(sink: string, payload?: unknown, options: { order?: string; name?: string } = {}): void {
    const key = this.#key(`send:${sink}`, options.name);
    if (this.#execution.held.record.find(key, "emit")) return;
    this.#note({ key, kind: "emit" }, { ...noEffects(), messages: [message(sink, payload, options.order, key, 1)] });
  }

  /** A number in [0, 1): the same in every execution. */
  random(): number {
    this.#check();
    return this.#execution.chance.number();
  }

  /** A random UUID: the same in every execution. */
  uuid(): string {
    this.#check();
    return this.#execution.chance.uuid();
  }

  /** Add a row to the trail with the next commit. A later execution does not repeat it. */
  log(text: string, data: object = {}, level: Level = "info"): void {
    this.#check();
    const { held } = this.#execution;
    const log_no = ++this.#execution.logs;
    if (log_no <= held.logged) return;
    held.logged = log_no;
    held.journal.log(new Raw(write({ ...data, message: text, level, log_no }, "a log row")));
  }

  /** Show people how far the run is; with the next commit or heartbeat. */
  progress(done: number, total?: number, note?: string): void {
    this.#execution.held.progress({ done, ...(total !== undefined && { total }), ...(note !== undefined && { note }) });
  }

  /** End this run as succeeded and start the next one of the chain: `return ctx.continueAs(params)`. */
  continueAs(params?: unknown): Continued {
    this.#check();
    this.#execution.continued = true;
    return new Continued(params);
  }

  #note(step: StepWrite, effects?: Effects): void {
    this.#execution.check();
    this.#execution.held.journal.keep(effects ? { step, effects } : { step });
  }

  #key(name: string, given?: string): string {
    this.#check();
    return this.#execution.keys.key(name, given);
  }

  #check(): void {
    if (this.#execution.closed) throw new UsageError("this execution of the run has ended");
  }
}

interface ChildEnd {
  run: string;
  status: string;
  result?: unknown;
  error?: RecordedError | null;
}

function childEnd(step: { output?: unknown }): ChildEnd {
  return (step.output ?? { run: "", status: "" }) as ChildEnd;
}

function drift(key: string, was: string, now: string): Drift {
  return new Drift(`the child run of step "${key}" was ${was}, but the code now ${now} it: give it another key`);
}

function moment(microseconds: number): Date {
  return new Date(Math.floor(microseconds / 1000));
}
