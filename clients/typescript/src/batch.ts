/**
 * Batches: all runs write through one of these. Items that gather while a batch is on its way go with the next.
 *
 * An item is kept, as the text that was sent, until the server has answered it. So a result is never lost with
 * an answer: the same text is sent again.
 */
import { NoSuccess, pause, type Transport } from "./http.js";
import { write } from "./json.js";
import type { Answer } from "./wire.js";

const TIMEOUT_MS = 30_000;

interface Entry {
  make: () => Numbered;
  text?: string; // once it was sent
  place?: string; // its run and seq
  tries: number;
  answered: (answer: Answer) => void;
}

/** An item, or its answer. */
export interface Numbered {
  run: string;
  seq: number;
}

export class Batcher {
  #queue: Entry[] = [];
  #sending = false;

  constructor(
    private readonly transport: Transport,
    private readonly limits: { batch_bytes: number; batch_items: number },
    private readonly refused: (error: unknown) => void,
  ) {}

  /** Send the item that `make` returns when its batch goes. `answered` gets its answer, or its problem, once. */
  put(make: () => Numbered, answered: (answer: Answer) => void): void {
    this.#add({ make, tries: 0, answered });
  }

  #add(entry: Entry): void {
    this.#queue.push(entry);
    if (this.#sending) return;
    this.#sending = true;
    // Other runs may write in this very turn: one turn later all of them go together.
    setImmediate(() => void this.#send().catch(this.refused));
  }

  async #send(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#taken();
      if (batch.length > 0) await this.#deliver(batch);
    }
    this.#sending = false;
  }

  /** Take as many items as fit into one request; at most one of each run. */
  #taken(): Entry[] {
    let bytes = 100;
    let count = 0;
    while (count < this.#queue.length && count < this.limits.batch_items) {
      const entry = this.#queue[count]!;
      try {
        if (entry.text === undefined) {
          const item = entry.make();
          [entry.text, entry.place] = [write(item), placed(item)];
        }
      } catch (error) {
        // One item that cannot be written is refused here, and holds up no other.
        this.#queue.splice(count, 1);
        const detail = error instanceof Error ? error.message : String(error);
        entry.answered({ problem: { code: "bad-value", status: 422, detail } } as Answer);
        continue;
      }
      bytes += Buffer.byteLength(entry.text) + 1;
      if (count > 0 && bytes > this.limits.batch_bytes) break;
      count++;
    }
    return this.#queue.splice(0, count);
  }

  async #deliver(batch: Entry[]): Promise<void> {
    const body = `{"items":[${batch.map((entry) => entry.text).join(",")}]}`;
    let answers: Answer[] | undefined;
    try {
      answers = ((await this.transport.send("/leases/batch", body, TIMEOUT_MS)) as { items?: Answer[] }).items;
    } catch (error) {
      if (!(error instanceof NoSuccess) || this.transport.closed) throw error;
      const [only, ...others] = batch;
      if (only && others.length === 0) {
        only.answered({ problem: { ...error.problem, retryable: false } } as Answer);
        return;
      }
      // The request as a whole is refused. Halves of it show which item is the reason.
      await this.#deliver(batch.slice(0, batch.length >> 1));
      await this.#deliver(batch.slice(batch.length >> 1));
      return;
    }
    // Anything else is no answer to this batch.
    const places = Array.isArray(answers) ? answers.map(placed) : [];
    const isAnswer = places.length === batch.length && batch.every(({ place }, n) => place === places[n]);
    batch.forEach((entry, n) => this.#settle(entry, isAnswer ? answers?.[n] : undefined));
  }

  #settle(entry: Entry, answer: Answer | undefined): void {
    if (answer === undefined || answer.problem?.retryable) {
      setTimeout(() => this.#add(entry), pause(entry.tries++, answer?.problem));
    } else {
      entry.answered(answer);
    }
  }
}

function placed({ run, seq }: Numbered): string {
  return `${run}:${seq}`;
}
