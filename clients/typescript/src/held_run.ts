/** One run that this worker holds: from its lease to the item that lets it go. */
import type { Batcher } from "./batch.js";
import { monotonic, rounded } from "./clock.js";
import type { Context } from "./context.js";
import { finalKind, recorded, type RecordedError } from "./errors.js";
import { Continued, Execution } from "./execution.js";
import { NoSuccess, type Transport } from "./http.js";
import { Raw, write } from "./json.js";
import { Journal, type Sent } from "./journal.js";
import type { Leases } from "./leases.js";
import { Record, settled } from "./record.js";
import { delayAfter, IN_PLACE_MAX_MS, type RetryPolicy } from "./retry.js";
import { type Answer, held, type Lease, leaseId, type LeaseState, type Move, type Problem, type Progress, type RecordedStep } from "./wire.js";

const LOAD_TIMEOUT_MS = 60_000;
const PROGRESS_MS = 1_000;
const UNWIND_MS = 5_000;
const SEALED_DELAY_MS = 60_000;

/** A workflow: its type, its function and its options. */
export interface Definition {
  type: string;
  fn: (ctx: Context, params: never) => unknown;
  retry: RetryPolicy;
  stepsMax: number;
}

/** What a run needs of its worker. */
export interface Host {
  transport: Transport;
  batcher: Batcher;
  leases: Leases;
  log: (message: string) => void;
  left: (run: HeldRun) => void;
}

export class HeldRun {
  readonly id: string;
  readonly journal: Journal;
  record = new Record();
  logged: number; // log rows of the body that are in the trail
  stopping = false;
  closed = false;
  #execution: Execution | undefined;
  #until: number;
  #confirmations: (() => void)[] = [];
  #shownAt = 0;
  #shown = 0; // running steps that people see
  #early: RecordedStep[] = [];
  #attempt: number;
  #crashes: number;
  #replaced = false; // a refused item was replaced
  readonly #abort = new AbortController();

  constructor(
    readonly lease: Lease,
    readonly definition: Definition,
    private readonly host: Host,
    askedAt: number,
    private readonly answeredAt: number,
  ) {
    this.id = leaseId(lease);
    this.#until = askedAt + lease.lease_ms; // never later than in the store
    this.#attempt = lease.attempt;
    this.#crashes = lease.crashes;
    this.logged = lease.logs;
    this.journal = new Journal(
      lease,
      host.batcher,
      (opens) => (opens || this.record.openWaits > 0 ? this.record.known : undefined),
      (answer, sent) => void this.#answered(answer, sent),
    );
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** The lease time: milliseconds since the answer of the claim, so that it is never ahead of the store. */
  get now(): number {
    return rounded(monotonic() - this.answeredAt);
  }

  /** Execute the code. The record is read first, when the claim was too small for it. */
  async execute(): Promise<void> {
    try {
      if (this.lease.unread) await this.#load();
      else for (const step of this.lease.steps) this.record.add(step);
    } catch (error) {
      return this.#unloaded(error);
    }
    if (this.stopping && !this.closed) this.journal.end({ op: "release" });
    if (this.closed || this.stopping) return;
    this.journal.startedMs ??= this.now;
    this.#run();
  }

  #run(): void {
    const execution = new Execution(this);
    this.#execution = execution;
    const body = async (): Promise<unknown> => this.definition.fn(execution.context, this.lease.params as never);
    body().then(
      (value) => this.#returned(execution, value),
      (error: unknown) => void this.#threw(execution, error),
    );
  }

  // -- the end of the body ----------------------------------------------------------------------

  #returned(execution: Execution, value: unknown): void {
    if (execution.closed) return;
    try {
      execution.checkEnd(value);
      const move: Move =
        value instanceof Continued
          ? { op: "complete", continue_as: { params: new Raw(write(value.params, "the params of continueAs")) } }
          : { op: "complete", result: new Raw(write(value, `the result of ${this.lease.type}`)) };
      execution.close();
      this.journal.end(move);
    } catch (error) {
      void this.#threw(execution, error);
    }
  }

  async #threw(execution: Execution, error: unknown): Promise<void> {
    if (execution.closed) return;
    execution.close();
    const failures = this.#attempt - this.#crashes;
    const kind = finalKind(error) ?? (failures >= this.lease.max_attempts ? "exhausted" : undefined);
    if (kind !== undefined) return this.journal.end({ op: "fail", error: recorded(error, kind) });
    // The next attempt must not meet steps of this one.
    await execution.unwound(UNWIND_MS);
    try {
      const delay_ms = rounded(delayAfter(error, this.definition.retry, failures));
      const in_place = delay_ms <= IN_PLACE_MAX_MS;
      this.journal.end({ op: "retry", error: recorded(error, "error"), delay_ms, in_place });
    } catch (mistake) {
      this.journal.end({ op: "fail", error: recorded(mistake, "usage") });
    }
  }

  // -- answers ------------------------------------------------------------------------------------

  async #answered(answer: Answer, sent: Sent): Promise<void> {
    if (this.closed) return;
    if (answer.problem?.code === "too-large" && this.journal.divide(sent)) return;
    if (answer.problem) return this.#refused(answer.problem, sent.move);
    if (answer.answer === "paused" || answer.status !== "leased") return this.leave();
    let { settled: news, kept } = answer;
    if (answer.more || kept.length > 0) {
      // Outcomes that the answer leaves out, and steps that were recorded before, are read from the record.
      const steps = await this.#pages(kept.length > 0 ? 0 : sent.known).catch((error: unknown) => this.#unloaded(error));
      if (steps === undefined || this.closed) return;
      kept = steps.filter(({ key }) => kept.some((one) => one.key === key));
      news = steps;
    }
    this.lease.left = answer.left ?? null;
    this.#learn({ ...answer, kept }, sent, news);
    this.journal.next();
    if (sent.end?.op === "park" || sent.end?.op === "retry") this.#stayed(sent.end);
    this.#execution?.stage.arm();
    this.releaseIfIdle();
  }

  /** Give all outcomes of one answer in the order of the store. */
  #learn(answer: Answer, sent: Sent, news: RecordedStep[]): void {
    // Waits that the commit itself settled have its last numbers. All others were settled before it.
    const numbers = new Set(news.map(({ seq }) => seq));
    let before = answer.known;
    while (numbers.has(before)) before--;
    this.#settle(news.filter(({ seq }) => seq <= before));
    for (const { step, done } of sent.writes) {
      // The values are not kept: code that is executed again reads the record anew.
      this.record.add({ seq: 0, attempts: 0, kind: "task", status: "succeeded", ...step, output: undefined });
      if (step.status === undefined || step.status === "failed") [this.#attempt, this.#crashes] = [1, 0];
      done?.(answer);
    }
    this.#settle(news.filter(({ seq }) => seq > before));
    this.#settle(this.#early.splice(0));
    this.record.known = Math.max(this.record.known, answer.known);
    // With it, heartbeats bring the waits that are settled later.
    if (this.record.openWaits > 0) this.#tell({ known: this.record.known });
  }

  #settle(steps: RecordedStep[]): void {
    for (const step of steps) if (settled(step)) this.#execution?.settle(step);
  }

  /** A park that found its wait settled, or a retry in place: go on under the same lease. */
  #stayed(move: Move): void {
    if (move.op === "retry" && this.#execution?.closed) {
      this.#attempt++;
      setTimeout(() => void this.#again(), move.delay_ms);
    } else {
      this.#execution?.stage.freeze(this.stopping);
    }
  }

  async #again(): Promise<void> {
    if (this.closed) return;
    if (this.stopping) return this.journal.end({ op: "release" });
    this.lease.unread = true; // values that the code has seen may have been changed by it
    await this.execute();
  }

  #refused(problem: Problem, move: Move): void {
    if (problem.code === "lease-lost") return this.stop(problem.run_status === "cancelled" ? "cancelled" : "lost");
    this.host.log(`run ${this.lease.run}: ${move.op} was refused: ${problem.detail ?? problem.code}`);
    if (problem.code === "conflict") return this.stop("given up"); // a mistake of this library: it comes back after its lease
    // A run whose end is refused twice is given up: it comes back when its lease has expired.
    if (this.#replaced) return this.leave();
    this.#replaced = true;
    this.#execution?.close();
    this.journal.instead(insteadOf(problem), problem.code !== "unreadable");
  }

  #unloaded(error: unknown): undefined {
    if (this.closed) return;
    if (error instanceof NoSuccess && error.problem.code === "lease-lost") return this.stop("lost") as undefined;
    this.host.log(`run ${this.lease.run} cannot be read: ${String(error)}`);
    this.#execution?.close();
    if (error instanceof NoSuccess) this.journal.end(insteadOf(error.problem));
    else this.leave();
  }

  // -- news of the heartbeat ----------------------------------------------------------------------

  /** Take the answer of a heartbeat that was sent at this time. */
  news(state: LeaseState, sentAt: number): void {
    if (state.state === "cancelled" || state.state === "lost") return this.stop(state.state);
    if (state.state === "unreadable") {
      this.#execution?.close("unreadable");
      return this.journal.end(insteadOf({ code: "unreadable", status: 422, detail: state.reason ?? "" }));
    }
    if (state.renewed) {
      this.#until = Math.max(this.#until, sentAt + this.lease.lease_ms);
      for (const go of this.#confirmations.splice(0)) go();
    }
    // Waits that were settled after the commit on its way are given after it, as a later execution reads them.
    if (state.more) void this.#pages(this.record.known).then((steps) => this.#learnLater(steps), () => undefined);
    else if (state.settled?.length) this.#learnLater(state.settled);
  }

  #learnLater(steps: RecordedStep[]): void {
    if (this.journal.busy) this.#early.push(...steps);
    else this.#settle(steps);
  }

  /** Show people how far the run is: with the next item, or with a heartbeat if that comes first. */
  progress(progress: Progress): void {
    const text = write(progress, "the progress");
    this.journal.progress = new Raw(text);
    if (monotonic() - this.#shownAt < PROGRESS_MS) return;
    this.#shownAt = monotonic();
    this.#tell({ progress: text });
  }

  /** The steps that people want to see because they have run for so long; undefined: none that is new. */
  shown(ms: number): object | undefined {
    const steps = this.#execution?.longSteps(ms) ?? [];
    const more = steps.length > this.#shown;
    this.#shown = steps.length;
    return more ? { ...held(this.lease), steps } : undefined;
  }

  /** Wait until the lease holds for certain: no step begins under a lease that may be over. */
  async certain(): Promise<void> {
    while (monotonic() >= this.#until) {
      this.host.leases.now();
      await new Promise<void>((resolve) => this.#confirmations.push(resolve));
    }
  }

  /** Give fields to the next heartbeats. */
  #tell(fields: { known: number } | { progress: string }): void {
    this.host.leases.change({ ...held(this.lease), ...fields });
  }

  // -- stopping -----------------------------------------------------------------------------------

  /** Stop: the run was cancelled, or somebody else holds it. Nothing more is written. */
  stop(why: string): void {
    if (this.closed) return;
    this.#abort.abort(new Error(`the run is ${why}`));
    this.#execution?.close(why);
    this.leave();
  }

  /** Begin nothing more. Once running steps have ended, give the run back. */
  drain(): void {
    this.stopping = true;
    this.#execution?.stage.freeze(true);
    this.releaseIfIdle();
  }

  /** Interrupt running steps and give the run back now. */
  hurry(): void {
    this.#abort.abort(new Error("the worker stops"));
    if (this.#execution && !this.#execution.closed) this.#giveBack(this.#execution, "given back");
  }

  /** Give the run back if the worker stops and nothing of the run is on its way. */
  releaseIfIdle(): void {
    const execution = this.#execution;
    if (!this.stopping || !execution || execution.closed || execution.running > 0 || this.journal.busy) return;
    this.#giveBack(execution);
  }

  #giveBack(execution: Execution, why?: string): void {
    execution.close(why);
    this.journal.end(execution.keepFailures(true) ?? { op: "release" });
  }

  /** The run is no longer held here. */
  leave(): void {
    this.closed = true;
    this.#execution?.close();
    this.host.left(this);
  }

  // -- reading ------------------------------------------------------------------------------------

  async #load(): Promise<void> {
    this.record = new Record();
    for (const step of await this.#pages()) this.record.add(step);
    this.lease.unread = false;
  }

  /** Read all steps after a number; without one, the params too. */
  async #pages(after?: number): Promise<RecordedStep[]> {
    const steps: RecordedStep[] = [];
    for (;;) {
      const body = write({ ...held(this.lease), after });
      const page = (await this.host.transport.send("/leases/load", body, LOAD_TIMEOUT_MS)) as Pick<
        Lease,
        "params" | "labels" | "steps"
      > & { more: boolean };
      if (after === undefined) Object.assign(this.lease, { params: page.params, labels: page.labels });
      steps.push(...page.steps);
      if (!page.more || page.steps.length === 0) return steps;
      after = page.steps.at(-1)!.seq;
    }
  }
}

/** Return the move that takes the place of a refused one. */
function insteadOf(problem: Problem): Move {
  const message = problem.detail ?? problem.code;
  if (problem.code === "unreadable") {
    return { op: "retry", error: { kind: "sealed", message }, delay_ms: SEALED_DELAY_MS, refund: true };
  }
  const error: RecordedError = { kind: problem.code === "too-large" ? "too_large" : "usage", message };
  return { op: "fail", error };
}
