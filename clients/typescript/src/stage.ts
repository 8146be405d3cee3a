/**
 * The order in which user code gets its outcomes.
 *
 * Outcomes are given one at a time: first the recorded ones that the code has asked for, in the order of the
 * record, then live ones in the order of their commits. Before each one the code has come to rest: an immediate
 * of Node runs when no promise is left that could go on by itself. So `Promise.race` has the same winner in
 * every execution. Calls without a record begin when no outcome is left to give.
 */
export class Stage {
  #asked: { rank: number; give: () => void }[] = [];
  #ready: (() => void)[] = [];
  #begin: (() => void)[] = [];
  #unsorted = false;
  #armed = false;
  #frozen = false;
  closed = false;

  constructor(private readonly atRest: () => void) {}

  /** Give a recorded outcome when its turn has come. */
  replay(rank: number, give: () => void): void {
    this.#asked.push({ rank, give });
    this.#unsorted = true;
    this.arm();
  }

  /** Give an outcome that is committed now. */
  publish(give: () => void): void {
    this.#ready.push(give);
    this.arm();
  }

  /** Begin a call that has no record. */
  live(begin: () => void): void {
    this.#begin.push(begin);
    this.arm();
  }

  /** Give and begin nothing until the run is known to stay here. */
  freeze(frozen: boolean): void {
    this.#frozen = frozen;
    this.arm();
  }

  /** Something happened: look again when the code has come to rest. */
  arm(): void {
    if (this.#armed || this.closed) return;
    this.#armed = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#armed = false;
    if (this.closed || this.#frozen) return;
    if (this.#asked.length > 0) this.#nextAsked()();
    else if (this.#ready.length > 0) this.#ready.shift()!();
    else if (this.#begin.length > 0) for (const begin of this.#begin.splice(0)) begin();
    else return this.atRest();
    this.arm();
  }

  #nextAsked(): () => void {
    if (this.#unsorted) this.#asked.sort((one, other) => other.rank - one.rank);
    this.#unsorted = false;
    return this.#asked.pop()!.give;
  }
}

/** A promise of the context. It knows whether anybody awaits it: a call that was forgotten is a mistake. */
export class Call<T> extends Promise<T> {
  #forgotten: Set<string> | undefined;
  #key = "";

  /** Make a call that is in `forgotten` until it is awaited. */
  static made<T>(
    key: string,
    forgotten: Set<string>,
    executor: (resolve: (value: T) => void, reject: (error: unknown) => void) => void,
  ): Call<T> {
    const call = new Call<T>(executor);
    call.#key = key;
    call.#forgotten = forgotten.add(key);
    // An outcome may come before the code awaits it, or after it has ended: that must not end the process.
    Promise.prototype.then.call(call, undefined, () => undefined);
    return call;
  }

  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  override then<A = T, B = never>(
    done?: ((value: T) => A | PromiseLike<A>) | null,
    failed?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#forgotten?.delete(this.#key);
    return super.then(done, failed);
  }
}
