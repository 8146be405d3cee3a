/**
 * The thread that claims and keeps leases. It keeps one claim open while a slot is free, sends a heartbeat every
 * third of the lease, whatever became of the one before, and asks for states, so that a cancel arrives at once.
 */
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { monotonic } from "./clock.js";
import { Refused } from "./errors.js";
import { NoSuccess, pause, Transport, trouble } from "./http.js";
import { Raw, write } from "./json.js";
import { decide, GIVEN_BACK, type LeaseSettings, type News, type Order, type Owner } from "./leases.js";
import { type Answer, held, type HeldLease, type Lease, leaseId, type LeaseState } from "./wire.js";

const SLACK_MS = 10_000; // beyond the time that the server may take
const TROUBLE = 3; // failures in a row that are worth a line
const IN_FLIGHT_MAX = 3;
const STATES_MS = 2_000;
const YOUNG_MS = 300;
const TRAIL_ROW_MS = 60_000;
const STRAYS_MAX = 1_000;
const RELEASED = -1; // when a stray was seen that was given back
const LAST_CRASH = 3; // a run that crashed so often fails with the next crash
const NO_LIMIT = 1_000; // of crashed runs in a claim. The same for all workers, so that the server can group their claims

/** A lease, and what is known of it. */
interface Kept extends HeldLease {
  crashes: number;
  since: number;
  shownAt: number;
  survived?: boolean;
  pause?: boolean;
}

class LeaseThread {
  readonly #transport: Transport;
  readonly #claims: Transport; // of its own, so that a stop can end the open claim
  readonly #leases = new Map<string, Kept>();
  readonly #strays = new Map<string, number>(); // when each was first seen
  readonly #releases = new Set<Promise<unknown>>(); // of strays, on their way
  #claimsEnded = false;
  #offered: { leases: Lease[]; owner: Owner; at: number } | undefined; // a claim that the main thread has not seen
  #wake: (() => void) | undefined;
  #inFlight = 0;
  #failures = 0;
  #again: NodeJS.Timeout | undefined;

  constructor(
    private readonly settings: LeaseSettings,
    private readonly tell: (news: News) => void,
  ) {
    this.#transport = new Transport(settings.address);
    this.#claims = new Transport(settings.address);
    setInterval(() => void this.#beat(), settings.leaseMs / 3);
    void this.#claimLoop();
    void this.#statesLoop();
  }

  take({ drop, change, now, taken, quit }: Order): void {
    if (taken) this.#offered = undefined;
    for (const id of drop ?? []) this.#leases.delete(id);
    for (const lease of change ?? []) {
      const kept = this.#leases.get(leaseId(lease));
      if (kept) Object.assign(kept, lease);
    }
    if (quit) this.#claims.close();
    this.#wake?.();
    if (now) void this.#beat();
  }

  // -- claims ---------------------------------------------------------------------------------------

  async #claimLoop(): Promise<void> {
    const { worker, runtime, types, leaseMs: lease_ms, waitMs: wait_ms, claimSlots } = this.settings;
    for (let failures = 0, drains = 0; !this.#claims.closed; ) {
      const slots = Math.min(this.settings.slots - this.#leases.size, claimSlots);
      if (slots <= 0 || this.#offered) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      const text = write({ worker, runtime, types, slots, lease_ms, wait_ms, crashed: [NO_LIMIT, NO_LIMIT, this.#alone()] });
      const sentAt = monotonic();
      try {
        const answer = await this.#claims.post("/leases/claim", text, wait_ms + SLACK_MS);
        const { leases, waited_ms = 0, drain } = answer as { leases: Lease[]; waited_ms?: number; drain?: boolean };
        this.#hold(leases, sentAt + waited_ms);
        failures = 0;
        drains = drain ? drains + 1 : 0;
        // A server that stops answers at once. The next claim may come to the same one.
        if (drain) await delay(pause(drains - 1));
      } catch (error) {
        if (this.#claims.closed) break;
        this.#refused(error);
        if (failures === TROUBLE && error instanceof NoSuccess) {
          this.tell({ at: sentAt, trouble: trouble(this.settings.address, error) });
        }
        // The claim is not repeated as it is: a lease whose answer was lost comes as a stray.
        await delay(pause(failures++, error instanceof NoSuccess ? error.problem : undefined));
      }
    }
    // The claim that was broken off may have brought runs: a last heartbeat names them.
    this.#claimsEnded = true;
    await this.#beat();
    await Promise.all(this.#releases);
    this.tell({ at: monotonic(), quit: true });
  }

  /** How many runs that one more crash would fail may be claimed: one at a time, so that a run that kills its process
   * makes no other one fail. */
  #alone(): number {
    return [...this.#leases.values()].some(({ crashes, survived }) => crashes >= LAST_CRASH && !survived) ? 0 : 1;
  }

  #hold(leases: Lease[], at: number): void {
    const answeredAt = monotonic();
    const taken = leases.filter((lease) => this.#strays.get(leaseId(lease)) !== RELEASED);
    for (const lease of taken) {
      this.#leases.set(leaseId(lease), { ...held(lease), crashes: lease.crashes, since: answeredAt, shownAt: answeredAt });
    }
    if (taken.length === 0) return;
    const owner = new Int32Array(new SharedArrayBuffer(4));
    this.#offered = { leases: taken, owner, at: answeredAt };
    this.tell({ at, answeredAt, leases: taken, owner });
  }

  /** Code blocks the event loop: give back the runs that it cannot begin. There is no claim until it goes on. */
  #unoffer(at: number): void {
    const { leases = [], owner, at: since = at } = this.#offered ?? {};
    if (!owner || at - since < this.settings.leaseMs / 2 || !decide(owner, GIVEN_BACK)) return;
    for (const lease of leases) {
      this.#leases.delete(leaseId(lease));
      this.#release(held(lease), at);
    }
  }

  /** Give back a run that is leased to this worker and that no claim brings: its answer was lost. If the answer
   * is only late, the lease is not used when it comes. */
  #giveBack(stray: HeldLease, at: number): void {
    const id = leaseId(stray);
    if (this.#leases.has(id)) return;
    if (this.#strays.size > STRAYS_MAX) this.#strays.clear();
    const seen = this.#strays.get(id) ?? at;
    this.#strays.set(id, seen);
    if (seen === RELEASED || (!this.#claimsEnded && at - seen < this.settings.leaseMs / 4)) return;
    this.#release(stray, seen);
  }

  #release(stray: HeldLease, seen: number): void {
    const id = leaseId(stray);
    this.#strays.set(id, RELEASED);
    const body = write({ items: [{ op: "release", ...stray, seq: 1 }] });
    // Without an answer, or with one that asks for it, the next heartbeat names the stray again.
    const again = (): unknown => this.#strays.set(id, seen);
    const given = (answer: unknown): unknown => (answer as { items: Answer[] }).items[0]?.problem?.retryable && again();
    const release = this.#transport.post("/leases/batch", body, SLACK_MS).then(given).catch(again);
    this.#releases.add(release);
    void release.then(() => this.#releases.delete(release));
  }

  #refused(error: unknown): void {
    if (error instanceof Refused) this.tell({ at: monotonic(), refused: error.message });
  }

  // -- heartbeats -----------------------------------------------------------------------------------

  async #beat(): Promise<void> {
    if (this.#inFlight >= IN_FLIGHT_MAX) return;
    clearTimeout(this.#again);
    const { worker, leaseMs: lease_ms } = this.settings;
    const at = monotonic();
    this.#unoffer(at);
    const kept = [...this.#leases];
    const leases = kept.map(([, { since, crashes, survived, shownAt, pause: _, ...lease }]) => ({
      ...lease,
      // Crashes are forgiven once the run has executed for a whole lease.
      ...(crashes > 0 && !survived && at - since > lease_ms && { survived: true }),
      ...(at - shownAt > TRAIL_ROW_MS && { heartbeat: true }),
    }));
    this.#inFlight++;
    try {
      const said = leases.map((one) => ({ ...one, progress: one.progress === undefined ? undefined : new Raw(one.progress) }));
      const answer = (await this.#transport.post("/leases/heartbeat", write({ worker, lease_ms, leases: said }), lease_ms)) as {
        leases: LeaseState[];
        strays?: HeldLease[];
      };
      this.#failures = 0;
      answer.leases.forEach((state, n) => this.#acknowledge(kept[n]![1], leases[n]!, state));
      this.#tellStates(kept, answer.leases, at);
      for (const stray of answer.strays ?? []) this.#giveBack(stray, at);
    } catch (error) {
      this.#refused(error);
      this.#soon();
    } finally {
      this.#inFlight--;
    }
  }

  /** Forget what needs to be said only once. */
  #acknowledge(kept: Kept, sent: HeldLease & { survived?: boolean; heartbeat?: boolean }, state: LeaseState): void {
    if (state.state !== "held") return;
    if (!state.renewed) this.#soon();
    if (sent.survived) kept.survived = true;
    if (sent.heartbeat) kept.shownAt = monotonic();
    if (kept.progress === sent.progress) delete kept.progress;
  }

  #soon(): void {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => void this.#beat(), pause(this.#failures++));
  }

  #tellStates(kept: [string, Kept][], answers: LeaseState[], at: number): void {
    const states = answers.map((state, n) => ({ ...state, id: kept[n]![0] }));
    for (const { id, state } of states) if (state === "cancelled" || state === "lost") this.#leases.delete(id);
    if (states.length > 0) this.tell({ at, states });
  }

  /** Learn of cancels early. Runs that end within a moment are not worth a request. */
  async #statesLoop(): Promise<void> {
    for (;;) {
      await delay(YOUNG_MS);
      const old = [...this.#leases].filter(([, { since }]) => monotonic() - since > YOUNG_MS);
      if (old.length === 0) continue;
      const leases = old.map(([, { run, fence, token, pause }]) => ({ run, fence, token, pause }));
      try {
        const body = write({ leases, wait_ms: STATES_MS });
        const answer = await this.#transport.post("/leases/states", body, STATES_MS + SLACK_MS);
        const states = (answer as { leases: LeaseState[] }).leases;
        states.forEach((state, n) => (old[n]![1].pause = state.pause));
        this.#tellStates(old, states.map((state) => ({ ...state, renewed: false })), 0);
      } catch {
        // The heartbeat says the same, only later.
        await delay(STATES_MS);
      }
    }
  }
}

const port = parentPort!;
const thread = new LeaseThread(workerData as LeaseSettings, (news) => port.postMessage(news));
port.on("message", (order: Order) => thread.take(order));
