/**
 * The writes of one run. At most one numbered item is on its way; the rest is buffered and goes with the next.
 *
 * All moves of a run pass here, so that a run cannot end before its last checkpoint.
 */
import type { Batcher, Numbered } from "./batch.js";
import { write } from "./json.js";
import type { Raw } from "./json.js";
import { type Answer, type Effects, held, type Lease, type Move, type StepWrite } from "./wire.js";

const ITEM_BYTES = 8 * 1024 * 1024; // larger items are divided
const LEASE_MS = 30_000; // the server's own default

/** One step to record. `done` is called when it is committed. */
export interface Write {
  step: StepWrite;
  effects?: Effects;
  done?: (answer: Answer) => void;
}

/** An item that was sent: its steps, its move, and the highest seq that it named. */
export interface Sent {
  writes: Write[];
  logs: Raw[];
  move: Move;
  end: Move | undefined; // the move that lets the run go, if this is the last item
  known: number | undefined;
}

export class Journal {
  #seq = 0;
  #buffer: Write[] = [];
  #logs: Raw[] = [];
  #urgent = false;
  #most = Infinity; // steps of the next item
  #move: Move | undefined;
  progress: Raw | undefined;
  startedMs: number | undefined; // until the server knows it
  busy = false;

  constructor(
    private readonly lease: Lease,
    private readonly batcher: Batcher,
    private readonly known: (opens: boolean) => number | undefined,
    private readonly answered: (answer: Answer, sent: Sent) => void,
  ) {}

  /** Record a step now. */
  write(one: Write): void {
    this.#buffer.push(one);
    this.#urgent = true;
    this.#flush();
  }

  /** Record a step with the next item. */
  keep(one: Write): void {
    this.#buffer.push(one);
  }

  /** Add a row to the trail with the next item. */
  log(row: Raw): void {
    this.#logs.push(row);
  }

  /** Send the move that lets the run go, with all that is buffered. */
  end(move: Move): void {
    this.#move = move;
    this.#flush();
  }

  /** Send a move in place of the item that was refused, and nothing else; with the same number or the next. */
  instead(move: Move, sameSeq: boolean): void {
    if (sameSeq) this.#seq--;
    this.#buffer = [];
    this.#logs = [];
    this.busy = false;
    this.end(move);
  }

  /** Send the item, which was too large, in parts. Return false if it has one step only. */
  divide({ writes, logs, end }: Sent): boolean {
    if (writes.length < 2) return false;
    this.#most = writes.length >> 1;
    this.#buffer.unshift(...writes);
    this.#logs.unshift(...logs);
    this.#move ??= end;
    this.#urgent = true;
    this.#seq--; // the number of an item that was refused is free
    this.next();
    return true;
  }

  /** The item is answered, and its news are learnt: the next one may go. */
  next(): void {
    this.busy = false;
    this.#flush();
  }

  /** Ask for a place in the next batch. The item is made when that batch is sent: until then more may join it. */
  #flush(): void {
    if (this.busy || !(this.#move ?? this.#urgent)) return;
    this.busy = true;
    let sent: Sent = { writes: [], logs: [], move: this.#move ?? { op: "checkpoint" }, end: undefined, known: undefined };
    const made = (): Numbered => {
      this.#seq++;
      sent = this.#taken();
      return this.#item(sent);
    };
    this.batcher.put(made, (answer) => {
      this.startedMs = undefined;
      this.answered(answer, sent);
    });
  }

  #taken(): Sent {
    let move = this.#move ?? { op: "checkpoint" as const };
    // A run that ends or is given back opens no waits and tries nothing again.
    if (this.#move && move.op !== "park" && move.op !== "retry") {
      this.#buffer = this.#buffer.filter(({ step }) => step.status === undefined || step.status === "failed");
    }
    const writes = this.#buffer.splice(0, this.#fitting());
    const end = this.#buffer.length === 0 ? this.#move : undefined;
    if (this.#buffer.length === 0) {
      this.#urgent = false;
      this.#move = undefined;
      this.#most = Infinity;
    } else {
      move = { op: "checkpoint" };
    }
    const retried = writes.find(({ step }) => step.status === "ready")?.step;
    if (retried && move.op === "checkpoint") {
      move = { op: "retry", error: retried.error, delay_ms: retried.delay_ms ?? 0, in_place: true, refund: true };
    }
    const opens = move.op === "park" || writes.some(({ step }) => step.status === "waiting");
    return { writes, logs: this.#logs.splice(0), move, end, known: this.known(opens) };
  }

  #fitting(): number {
    let bytes = 0;
    const over = this.#buffer.findIndex(({ step, effects }, n) => {
      if (this.#buffer.length > 1) bytes += Buffer.byteLength(write({ step, effects }));
      return n > 0 && (n >= this.#most || bytes > ITEM_BYTES);
    });
    return over < 0 ? this.#buffer.length : over;
  }

  #item({ move, writes, logs, known }: Sent): Numbered & { [field: string]: unknown } {
    const { lease_ms } = this.lease;
    const { progress, startedMs: started_ms } = this;
    this.progress = undefined;
    return {
      ...move,
      ...held(this.lease),
      ...{ seq: this.#seq, known, progress, started_ms },
      steps: filled(writes.map((one) => one.step)),
      logs: filled([...logs, ...writes.flatMap((one) => one.effects?.logs ?? [])]),
      events: filled(writes.flatMap((one) => one.effects?.events ?? [])),
      messages: filled(writes.flatMap((one) => one.effects?.messages ?? [])),
      shares: typeof this.lease.left === "number" || undefined,
      lease_ms: lease_ms === LEASE_MS ? undefined : lease_ms,
    };
  }
}

function filled<T>(list: T[]): T[] | undefined {
  return list.length > 0 ? list : undefined;
}
