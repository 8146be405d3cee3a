/** Requests to the server: one way to send them, and one way to repeat them until they are answered. */
import * as http from "node:http";
import * as https from "node:https";
import { setTimeout as delay } from "node:timers/promises";
import { Refused, UsageError } from "./errors.js";
import { read } from "./json.js";
import type { Problem } from "./wire.js";

const RETRY_MS = 50;
const RETRY_MAX_MS = 2_000;
const SILENT_TRIES = 3; // a server that restarts is not worth a line
const ASKED_MAX_MS = 30_000; // a server, or a proxy, that asks for a longer pause is asked again after this

/** The problems that refuse a request for good. Any other answer that is no success comes from a proxy, or from a
 * server that cannot answer now: it says nothing about the request. */
const REFUSALS = new Set([
  ...["bad-json", "not-json", "bad-value", "too-large", "head-too-large"],
  ...["unauthenticated", "scope-missing", "host-refused", "origin-refused"],
  ...["run-not-found", "workflow-not-found", "conflict", "illegal-move", "key-reused"],
  ...["lease-lost", "run-busy", "unreadable", "unknown-operation", "protocol-version"],
]);

/** The server and the right to use it. Plain data, so that a thread can be given it. */
export interface Address {
  url: string;
  key?: string | undefined;
  tenant?: string | undefined;
}

/** An answer that is no success and not worth repeating, or the lack of an answer. */
export class NoSuccess extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
    readonly again: boolean,
  ) {
    super(problem.detail ?? problem.code);
  }
}

export class Transport {
  readonly #base: URL;
  readonly #agent: http.Agent;
  readonly #headers: Record<string, string>;
  readonly #query: string;
  readonly #closed = new AbortController();

  constructor(
    private readonly address: Address,
    private readonly log: (message: string) => void = () => undefined,
  ) {
    try {
      this.#base = new URL(address.url);
    } catch {
      throw new UsageError(`url "${address.url}": give the address of a server, as in http://127.0.0.1:8080`);
    }
    this.#agent = new (this.#base.protocol === "https:" ? https : http).Agent({ keepAlive: true });
    this.#headers = { "content-type": "application/json", "holdfast-protocol": "1" };
    if (address.key) this.#headers["authorization"] = `Bearer ${address.key}`;
    this.#query = address.tenant ? `?tenant=${encodeURIComponent(address.tenant)}` : "";
  }

  /** End all requests; their promises reject. */
  close(): void {
    this.#closed.abort();
    this.#agent.destroy();
  }

  get closed(): boolean {
    return this.#closed.signal.aborted;
  }

  /** Send a request until it is answered: the same request again, after a growing delay. */
  async send(path: string, body: string, timeoutMs: number): Promise<unknown> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.post(path, body, timeoutMs);
      } catch (error) {
        if (!(error instanceof NoSuccess) || !error.again || this.closed) throw error;
        if (tries === SILENT_TRIES) this.log(trouble(this.address, error));
        await delay(pause(tries, error.problem), undefined, { signal: this.#closed.signal });
      }
    }
  }

  /** Send a request once. NoSuccess when it is not answered, or refused. */
  post(path: string, body: string, timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const lost = (error: Error): void =>
        reject(new NoSuccess(0, { code: "no-answer", status: 0, detail: error.message }, true));
      const text = Buffer.from(body);
      const options = {
        method: "POST",
        path: this.#base.pathname.replace(/\/$/, "") + path + this.#query,
        agent: this.#agent,
        headers: { ...this.#headers, "content-length": text.length },
        timeout: timeoutMs,
        signal: this.#closed.signal,
      };
      const request = (this.#base.protocol === "https:" ? https : http).request(this.#base, options, (answer) => {
        const parts: Buffer[] = [];
        answer.on("data", (part: Buffer) => parts.push(part));
        answer.on("error", lost);
        answer.on("close", () => {
          if (!answer.complete) return lost(new Error("the answer broke off"));
          try {
            resolve(value(answer, Buffer.concat(parts).toString()));
          } catch (error) {
            reject(error);
          }
        });
      });
      // The timeout counts silence of the connection.
      request.on("timeout", () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
      request.on("error", lost);
      request.end(text);
    });
  }
}

/** Return the value of an answer. NoSuccess, or Refused, when it is none. */
function value(answer: http.IncomingMessage, text: string): unknown {
  const status = answer.statusCode ?? 0;
  if (status === 204) return null;
  let body: unknown;
  try {
    body = read(text);
  } catch {
    // A proxy may answer with a page of its own.
  }
  const object = typeof body === "object" && body !== null;
  if (status < 300 && object) return body;
  const [type = ""] = (answer.headers["content-type"] ?? "").split(";");
  const told = object && type.trim().toLowerCase() === "application/problem+json";
  const problem: Problem = { code: `http-${status}`, detail: `status ${status} without an answer`, ...(told ? (body as Partial<Problem>) : {}), status };
  const after = Number(answer.headers["retry-after"]);
  if (problem.retry_after_ms === undefined && after > 0) problem.retry_after_ms = after * 1000;
  const refused = told && REFUSALS.has(problem.code) && status < 500;
  if (refused && (status === 401 || status === 403)) {
    throw new Refused(`the server refuses the API key of this worker: ${problem.detail ?? problem.code} (${status})`);
  }
  // A proxy refuses large bodies too.
  if (status === 413) problem.code = "too-large";
  throw new NoSuccess(status, problem, !(refused || status === 413) || problem.retryable === true);
}

export function trouble({ url }: Address, error: NoSuccess): string {
  return `${url} does not answer, trying again: ${error.message}`;
}

/** Return how long to wait before the same request is sent again. */
export function pause(tries: number, problem?: Problem): number {
  const grown = Math.min(RETRY_MS * 2 ** Math.min(tries, 10), RETRY_MAX_MS);
  const asked = problem?.retry_after_ms;
  const ms = typeof asked === "number" && asked > 0 ? Math.min(asked, ASKED_MAX_MS) : grown;
  return ms * (1 + Math.random() / 2);
}
