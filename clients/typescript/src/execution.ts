/** One execution of a workflow's function: its calls are answered from the record, or done and recorded. */
import { rounded } from "./clock.js";
import { Context, type StepOptions } from "./context.js";
import { finalKind, HistoryFull, recorded, RunOverdue, StepFailed, StepTimeout, UsageError } from "./errors.js";
import type { HeldRun } from "./held_run.js";
import { Raw, read, write } from "./json.js";
import type { Write } from "./journal.js";
import { Keys, settled } from "./record.js";
import { Chance } from "./random.js";
import { delayAfter, IN_PLACE_MAX_MS, TIMER_MAX_MS } from "./retry.js";
import { Call, Stage } from "./stage.js";
import { StepContext } from "./step_context.js";
import { type Answer, type Kind, type Move, noEffects, type RecordedStep, type StepWrite } from "./wire.js";

const SHOWN_MAX = 20; // running steps of a run that people see

/** The value that `ctx.continueAs` returns, and that the workflow returns. */
export class Continued {
  constructor(readonly params: unknown) {}
}

/** A step that waits for its next try. `write` is the failed try, until it is recorded. */
interface Backoff {
  dueAt: number;
  write: Write | undefined;
  timer: NodeJS.Timeout;
}

type Settle<T> = (outcome: () => T) => void;

export class Execution {
  readonly stage = new Stage(() => this.#atRest());
  readonly keys = new Keys();
  readonly context: Context;
  readonly forgotten = new Set<string>();
  readonly chance: Chance;
  continued = false;
  logs = 0;
  running = 0; // steps whose function runs or whose commit is on its way
  readonly #scopes = new Set<StepContext>();
  readonly #waits = new Map<string, (step: RecordedStep) => void>();
  readonly #unopened = new Map<string, StepWrite>();
  readonly #backoffs = new Map<string, Backoff>();
  #unwound: (() => void) | undefined;
  #reserved = 0; // what running steps may cost
  #payers: (() => void)[] = []; // steps that wait for a reservation to end

  constructor(readonly held: HeldRun) {
    this.context = new Context(this);
    this.chance = new Chance(held.lease.run);
  }

  get closed(): boolean {
    return this.stage.closed;
  }

  /** End this execution: no call is answered any more. `why`: interrupt running steps as well. */
  close(why?: string): void {
    this.stage.closed = true;
    for (const { timer } of this.#backoffs.values()) clearTimeout(timer);
    for (const scope of this.#scopes) scope.abort(new Error(`the run is ${why ?? "at its end"}`));
  }

  /** Refuse an end of the body that would lose something silently. */
  checkEnd(value: unknown): void {
    const [key] = this.forgotten;
    if (key !== undefined) throw new UsageError(`"${key}" was asked for and never awaited: write await ctx.…`);
    if (this.continued && !(value instanceof Continued)) {
      throw new UsageError("ctx.continueAs was called and not returned: write return ctx.continueAs(…)");
    }
  }

  /** Wait until no function of a step runs any more, or this time is over. */
  async unwound(ms: number): Promise<void> {
    if (this.#scopes.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#unwound = resolve;
      setTimeout(resolve, ms).unref();
    });
  }

  // -- calls --------------------------------------------------------------------------------------

  /**
   * Make a call: it is answered from the record in its turn, or begun when all recorded outcomes are given.
   * `outcome` makes the value of a settled step, or throws its failure.
   */
  call<T>(
    key: string,
    kind: Kind,
    outcome: (step: RecordedStep) => T,
    begin: (settle: Settle<T>, found: RecordedStep | undefined) => void,
  ): Call<T> {
    const found = this.held.record.find(key, kind);
    return Call.made<T>(key, this.forgotten, (resolve, reject) => {
      const settle: Settle<T> = (given) => {
        try {
          resolve(given());
        } catch (error) {
          reject(error);
        }
      };
      if (found !== undefined && settled(found)) {
        this.stage.replay(this.held.record.rank(key), () => settle(() => outcome(found)));
      } else if (found?.status === "waiting") {
        // Its outcome may come with the very next commit, before what is committed later.
        this.#waits.set(key, (step) => settle(() => outcome(step)));
        this.stage.arm();
      } else {
        this.stage.live(() => {
          try {
            this.check();
            begin(settle, found);
          } catch (error) {
            reject(error);
          }
        });
      }
    });
  }

  /** Refuse a new step when the run is too late, or has recorded as many steps as it may. */
  check(): void {
    const { lease, definition, record, now } = this.held;
    if (lease.timeout_ms !== null && now > lease.timeout_ms) {
      throw new RunOverdue("the run has taken longer than its timeout");
    }
    if (record.size + this.running + this.#unopened.size >= definition.stepsMax) {
      throw new HistoryFull(`the run has recorded ${definition.stepsMax} steps, its limit: use ctx.continueAs(…)`);
    }
  }

  /** Hold a wait open until it is settled. */
  wait<T>(step: StepWrite & { kind: Kind }, outcome: (step: RecordedStep) => T): Call<T> {
    const write: StepWrite = { ...step, status: "waiting", started_ms: this.held.now };
    return this.call(step.key, step.kind, outcome, (settle) => {
      this.#unopened.set(step.key, write);
      this.#waits.set(step.key, (found) => settle(() => outcome(found)));
    });
  }

  /** Take a wait that was settled while the run is here. */
  settle(step: RecordedStep): void {
    const before = this.held.record.status(step.key);
    if (before === "succeeded" || before === "failed") return;
    this.held.record.add(step);
    const give = this.#waits.get(step.key);
    if (give === undefined) return;
    this.#waits.delete(step.key);
    this.#unopened.delete(step.key);
    this.stage.publish(() => give(step));
  }

  /** Record a step that needs no function, and give its outcome when it is committed. */
  note<T>(step: StepWrite, settle: Settle<T>, outcome: (answer: Answer) => T): void {
    this.#commit({ step, done: (answer) => this.stage.publish(() => settle(() => outcome(answer))) });
  }

  #commit(one: Write): void {
    this.running++;
    this.held.journal.write({
      ...one,
      done: (answer) => {
        this.running--;
        one.done?.(answer);
      },
    });
  }

  // -- steps --------------------------------------------------------------------------------------

  step<T>(key: string, fn: (step: StepContext) => T | Promise<T>, options: StepOptions): Call<T> {
    const outcome = (step: RecordedStep): T => {
      if (step.status === "failed") throw new StepFailed(key, step.error ?? { kind: "exhausted" });
      return (step.output ?? null) as T;
    };
    return this.call(key, "task", outcome, (settle, found) => {
      void this.#tries(key, fn, options, found, settle, outcome).catch((error: unknown) => this.#broken(error, settle));
    });
  }

  async #tries<T>(
    key: string,
    fn: (step: StepContext) => T | Promise<T>,
    options: StepOptions,
    found: RecordedStep | undefined,
    settle: Settle<T>,
    outcome: (step: RecordedStep) => T,
  ): Promise<void> {
    const { held } = this;
    const { costMax = 0 } = options;
    let tries = found?.attempts ?? 0;
    const left = (found?.due_ms ?? 0) - held.now;
    if (found !== undefined && left > 0) await this.#delayed(key, left);
    for (;;) {
      this.running++;
      if (held.stopping) return this.#notBegun();
      if (!(await this.#afforded(key, costMax))) return;
      await held.certain(); // last: a budget may have been awaited for long
      if (this.closed) return;
      if (held.stopping) return this.#spent(costMax, 0), this.#notBegun();
      tries++;
      const scope = new StepContext(this, key, tries);
      const started_ms = scope.startedMs;
      const failed = await this.#tried(scope, fn, options.timeoutMs);
      this.#spent(costMax, scope.cost);
      if (this.closed) return;
      this.running--;
      const step: StepWrite = { key, attempts: tries, started_ms, cost: scope.cost || undefined };
      // A result that was recorded before counts in place of this one.
      const publish = ({ kept }: Answer, value: () => T): void => {
        const first = kept.find((one) => one.key === key);
        this.stage.publish(() => settle(first ? () => outcome(first) : value));
      };
      if (failed === undefined) {
        const output = scope.output!;
        const done = (answer: Answer): void => publish(answer, () => read(output.text) as T);
        return this.#commit({ step: { ...step, output }, effects: scope.effects, done });
      }
      const { error } = failed;
      const max_attempts = options.retry?.attempts ?? held.lease.max_attempts;
      const own = error instanceof StepTimeout ? "timeout" : undefined;
      const kind = finalKind(error) ?? (tries >= max_attempts ? (own ?? "exhausted") : undefined);
      const said = recorded(error, kind ?? own ?? "error", { step: key, attempt: tries, max_attempts });
      const write = { ...step, max_attempts, error: said };
      const effects = { ...noEffects(), logs: scope.effects.logs };
      if (kind !== undefined) {
        const done = (answer: Answer): void => publish(answer, () => thrown(new StepFailed(key, said)));
        return this.#commit({ step: { ...write, status: "failed" }, effects, done });
      }
      const delay_ms = rounded(delayAfter(error, options.retry ?? held.definition.retry, tries));
      await this.#delayed(key, delay_ms, { step: { ...write, status: "ready", delay_ms }, effects });
    }
  }

  /** Run the function once. Return its error, if it fails. */
  async #tried(
    scope: StepContext,
    fn: (step: StepContext) => unknown,
    timeoutMs: number | undefined,
  ): Promise<{ error: unknown } | undefined> {
    this.#scopes.add(scope);
    let timer: NodeJS.Timeout | undefined;
    try {
      const value =
        timeoutMs === undefined
          ? await fn(scope)
          : await Promise.race([
              fn(scope),
              new Promise((_, reject) => {
                const late = new StepTimeout(`step "${scope.key}" took longer than ${timeoutMs} ms`);
                timer = setTimeout(() => (reject(late), scope.abort(late)), Math.min(timeoutMs, TIMER_MAX_MS));
              }),
            ]);
      scope.output = new Raw(write(value, `the result of step "${scope.key}"`));
      return undefined;
    } catch (error) {
      return { error };
    } finally {
      clearTimeout(timer);
      this.#scopes.delete(scope);
      if (this.#scopes.size === 0) this.#unwound?.();
    }
  }

  /** Reserve what a try may cost. While the budget may not pay for it, wait for steps that have reserved some. When none
   * has, let the run go: it pauses before this step. */
  async #afforded(key: string, costMax: number): Promise<boolean> {
    const { lease } = this.held;
    for (;;) {
      const needs = this.#reserved + costMax;
      const own = costMax === 0 || lease.budget == null || lease.cost + needs <= lease.budget;
      if (own && (lease.left == null || (lease.left > 0 && lease.left >= needs))) break;
      if (this.#reserved === 0) {
        this.running--;
        this.close();
        this.held.journal.end({ op: "release", before: key, cost_max: costMax });
        return false;
      }
      await new Promise<void>((resolve) => this.#payers.push(resolve));
      if (this.closed) return false;
    }
    this.#reserved += costMax;
    return true;
  }

  #spent(costMax: number, cost: number): void {
    this.#reserved -= costMax;
    this.held.lease.cost += cost;
    for (const go of this.#payers.splice(0)) go();
  }

  /** The steps that run for so long, oldest first. */
  longSteps(ms: number): { step: string; attempt: number; started_ms: number }[] {
    const old = [...this.#scopes].filter(({ startedMs }) => this.held.now - startedMs >= ms);
    return old.slice(0, SHOWN_MAX).map(({ key, attempt, startedMs }) => ({ step: key, attempt, started_ms: startedMs }));
  }

  /** A try was not begun, because the worker stops. */
  #notBegun(): void {
    this.running--;
    this.held.releaseIfIdle();
  }

  /** A mistake in the options of a step, such as a delay that is no number, fails the call. */
  #broken<T>(error: unknown, settle: Settle<T>): void {
    this.stage.publish(() => settle(() => thrown(error)));
  }

  /** Wait before the next try: here if it is soon, else in the queue, unless other branches work. */
  #delayed(key: string, delayMs: number, write?: Write): Promise<void> {
    return new Promise((resolve) => {
      if (delayMs <= IN_PLACE_MAX_MS) {
        const sleep = (): void => {
          this.running++;
          setTimeout(() => (this.running--, resolve()), delayMs);
        };
        return write ? this.#commit({ ...write, done: sleep }) : sleep();
      }
      const due = (): void => {
        const unsaid = this.#backoffs.get(key)?.write;
        this.#backoffs.delete(key);
        if (unsaid) this.#commit({ ...unsaid, step: { ...unsaid.step, delay_ms: 0 }, done: () => resolve() });
        else resolve();
      };
      const timer = setTimeout(due, Math.min(delayMs, TIMER_MAX_MS));
      this.#backoffs.set(key, { dueAt: this.held.now + delayMs, write, timer });
      this.stage.arm();
    });
  }

  // -- rest ---------------------------------------------------------------------------------------

  /** The code can only wait. While steps run, open its waits; else let the run go. */
  #atRest(): void {
    const { journal } = this.held;
    if (journal.busy || this.#waits.size + this.#backoffs.size === 0) return;
    const opened = [...this.#unopened.values()];
    this.#unopened.clear();
    if (this.running > 0) {
      for (const step of opened) journal.write({ step });
      return;
    }
    this.stage.freeze(true);
    for (const step of opened) journal.keep({ step });
    journal.end(this.keepFailures(false) ?? { op: "park" });
  }

  /** Record failed tries that are not recorded yet with the next item. Return the move that lets the run go until the
   * first retry, or at once; undefined: there is none. */
  keepFailures(atOnce: boolean): Move | undefined {
    const { journal, now } = this.held;
    const backoffs = [...this.#backoffs.values()].sort((one, other) => one.dueAt - other.dueAt);
    const [first] = atOnce ? backoffs.filter(({ write }) => write) : backoffs;
    if (!first) return undefined;
    const left = ({ dueAt }: Backoff): number => rounded(Math.max(0, dueAt - now));
    const move: Move = { op: "retry", error: first.write?.step.error, delay_ms: atOnce ? 0 : left(first), refund: true };
    for (const backoff of backoffs) {
      if (backoff.write) journal.keep({ ...backoff.write, step: { ...backoff.write.step, delay_ms: left(backoff) } });
      backoff.write = undefined;
    }
    return move;
  }
}

function thrown(error: unknown): never {
  throw error;
}
