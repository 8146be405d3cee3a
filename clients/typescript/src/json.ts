/**
 * JSON that loses nothing: an integer beyond 2^53 is read as a bigint, and a bigint is written as digits.
 *
 * The writer refuses what `JSON.stringify` would change silently (NaN, a Map, a function, …): a later execution
 * reads the recorded text, and must get the value that the first one got.
 */
import { EncodingError } from "./errors.js";

const LEVELS_MAX = 64;

/** A text that is JSON already. The writer copies it. */
export class Raw {
  constructor(readonly text: string) {}
}

// Without one of these, no integer of the text is beyond 2^53, and the fast parser of Node can read it.
const PERHAPS_BIG = /9\d{15}|\d{17}/;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d+$/;
const BAD_TEXT = /[\0\p{Surrogate}]/u;

/** Read a JSON text. */
export function read(text: string): unknown {
  if (!PERHAPS_BIG.test(text)) return JSON.parse(text);
  // Big integers become texts that begin with NUL, which no other text does: no value may have a NUL.
  const parts: string[] = [];
  let at = 0;
  for (;;) {
    const quote = text.indexOf('"', at);
    parts.push(text.slice(at, quote < 0 ? undefined : quote).replace(NUMBER, marked));
    if (quote < 0) break;
    at = closingQuote(text, quote) + 1;
    parts.push(text.slice(quote, at));
  }
  return JSON.parse(parts.join(""), (_, value: unknown) =>
    typeof value === "string" && value.charCodeAt(0) === 0 ? BigInt(value.slice(1)) : value,
  );
}

function marked(number: string): string {
  return INTEGER.test(number) && !Number.isSafeInteger(Number(number)) ? `"\\u0000${number}"` : number;
}

function closingQuote(text: string, opening: number): number {
  let at = opening;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) throw new SyntaxError("a text without its closing quote");
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return at;
  }
}

/** Write a value as JSON. EncodingError when it is no JSON value. `undefined` is `null`, or a field left out. */
export function write(value: unknown, what = "the value"): string {
  return written(value, what, 0);
}

function written(value: unknown, what: string, level: number): string {
  switch (typeof value) {
    case "string":
      if (BAD_TEXT.test(value)) throw new EncodingError(`${what} has a NUL or half of a surrogate pair`);
      return JSON.stringify(value);
    case "number":
      if (!Number.isFinite(value)) throw new EncodingError(`${what} is ${value}, which JSON does not have`);
      // A reader takes the digits of a whole number for an exact one: one beyond 2^53 is written as a float.
      return Number.isInteger(value) && !Number.isSafeInteger(value) ? value.toExponential() : String(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "undefined":
      return "null";
    case "object":
      return value === null ? "null" : writtenObject(value, what, level);
    default:
      throw new EncodingError(`${what} is a ${typeof value}, which is no JSON value`);
  }
}

function writtenObject(value: object, what: string, level: number): string {
  if (value instanceof Raw) return value.text;
  if (level >= LEVELS_MAX) throw new EncodingError(`${what} has more than ${LEVELS_MAX} levels`);
  if ("toJSON" in value && typeof value.toJSON === "function") return written(value.toJSON(), what, level + 1);
  if (Array.isArray(value)) {
    return `[${value.map((one, n) => written(one, `${what}[${n}]`, level + 1)).join(",")}]`;
  }
  const fields = Object.entries(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  const plain = prototype === null || prototype === Object.prototype;
  if (!plain && (fields.length === 0 || ArrayBuffer.isView(value))) {
    const hint = value instanceof Promise ? ": is an await missing?" : ": make it a plain object or an array";
    throw new EncodingError(`${what} is a ${value.constructor.name}, which is no JSON value${hint}`);
  }
  const said: string[] = [];
  for (const [name, field] of fields) {
    if (field !== undefined) {
      said.push(`${written(name, what, level)}:${written(field, `${what}.${name}`, level + 1)}`);
    }
  }
  return `{${said.join(",")}}`;
}
