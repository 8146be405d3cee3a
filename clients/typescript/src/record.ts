/** The record of a run, from which replay answers, and the keys under which its code asks. */
import { Drift, UsageError } from "./errors.js";
import type { Kind, RecordedStep } from "./wire.js";

const NAME_CHARS_MAX = 640;
const KEY_CHARS_MAX = 700; // a repeated name has its number behind it, and an item of a map its place
const TOPIC_CHARS_MAX = 512;
const BAD_TEXT = /[\0\p{Surrogate}]/u;

/** Return true when a step has its outcome. */
export function settled(step: RecordedStep): boolean {
  return step.status === "succeeded" || step.status === "failed";
}

/** The recorded steps by key. They come in the order of their outcomes, and `rank` is the place in that order. */
export class Record {
  readonly #steps = new Map<string, { step: RecordedStep; rank: number }>();
  #last = 0;
  known = 0; // the highest seq that was read
  latestNow = 0; // the latest time that `ctx.now()` has recorded, in microseconds since 1970
  openWaits = 0;

  get size(): number {
    return this.#steps.size;
  }

  add(step: RecordedStep): void {
    const before = this.#steps.get(step.key)?.step.status;
    this.openWaits += Number(step.status === "waiting") - Number(before === "waiting");
    this.known = Math.max(this.known, step.seq);
    if (step.kind === "now") this.latestNow = Math.max(this.latestNow, Number(step.output) || 0);
    this.#steps.set(step.key, { step, rank: ++this.#last });
  }

  status(key: string): RecordedStep["status"] | undefined {
    return this.#steps.get(key)?.step.status;
  }

  rank(key: string): number {
    return this.#steps.get(key)?.rank ?? Infinity;
  }

  /** Return the step under a key; Drift when the code now asks for another kind of step. */
  find(key: string, kind: Kind): RecordedStep | undefined {
    const step = this.#steps.get(key)?.step;
    if (step !== undefined && step.kind !== kind) {
      throw new Drift(
        `step "${key}" was recorded as ${step.kind}, but the code now asks for ${kind}: ` +
          "give the new step another name, or rewind the run",
      );
    }
    return step;
  }
}

/** The keys of one execution: a name, then `name#2`, `name#3`, … Names are counted when the call is made. */
export class Keys {
  readonly #uses = new Map<string, number>();
  readonly #taken = new Set<string>();

  key(name: string, given?: string): string {
    let key = given;
    if (key === undefined) {
      const uses = (this.#uses.get(checked(name, "a name", NAME_CHARS_MAX)) ?? 0) + 1;
      this.#uses.set(name, uses);
      key = uses === 1 ? name : `${name}#${uses}`;
    }
    if (this.#taken.has(checked(key, "a key", KEY_CHARS_MAX))) {
      throw new UsageError(
        `the key "${key}" is used twice in this run, so the second use would get the result of the first: ` +
          "give each use its own key",
      );
    }
    this.#taken.add(key);
    return key;
  }
}

export function checkedTopic(topic: string): string {
  return checked(topic, "a topic", TOPIC_CHARS_MAX);
}

/** Refuse text that would not come back from the record as it is. */
function checked(text: string, what: string, most: number): string {
  const chars = typeof text === "string" ? [...text].length : 0;
  if (chars < 1 || chars > most || BAD_TEXT.test(text)) {
    throw new UsageError(`${what} has 1 to ${most} characters, no NUL and no half of a surrogate pair, and is a text`);
  }
  return text;
}
