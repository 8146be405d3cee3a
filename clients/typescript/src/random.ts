/**
 * Chance that is the same in every execution and in every language: MT19937, seeded as Python seeds it with a
 * text. The numbers are not secret.
 */
import { createHash } from "node:crypto";

const SIZE = 624;

export class Chance {
  readonly #state = new Uint32Array(SIZE);
  #at = SIZE;

  constructor(seed: string) {
    const text = Buffer.from(seed);
    const bytes = Buffer.concat([text, createHash("sha512").update(text).digest()]);
    const padded = Buffer.concat([Buffer.alloc((4 - (bytes.length % 4)) % 4), bytes]);
    const key: number[] = []; // one big number in words of 32 bits, the least significant one first
    for (let end = padded.length; end > 0; end -= 4) key.push(padded.readUInt32BE(end - 4));
    const state = this.#state;
    const mixed = (n: number): number => state[n - 1]! ^ (state[n - 1]! >>> 30);
    state[0] = 19650218;
    for (let n = 1; n < SIZE; n++) state[n] = Math.imul(1812433253, mixed(n)) + n;
    let i = 1;
    const next = (): void => {
      if (++i < SIZE) return;
      state[0] = state[SIZE - 1]!;
      i = 1;
    };
    for (let n = 0; n < Math.max(SIZE, key.length); n++, next()) {
      const at = n % key.length;
      state[i] = (state[i]! ^ Math.imul(mixed(i), 1664525)) + key[at]! + at;
    }
    for (let n = 1; n < SIZE; n++, next()) state[i] = (state[i]! ^ Math.imul(mixed(i), 1566083941)) - i;
    state[0] = 2 ** 31;
  }

  /** The next 32 bits. */
  draw(): number {
    const state = this.#state;
    if (this.#at === SIZE) {
      for (let n = 0; n < SIZE; n++) {
        const y = (state[n]! & 0x80000000) | (state[(n + 1) % SIZE]! & 0x7fffffff);
        state[n] = state[(n + 397) % SIZE]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      this.#at = 0;
    }
    let y = state[this.#at++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  /** A number in [0, 1). */
  number(): number {
    const high = this.draw() >>> 5;
    return (high * 2 ** 26 + (this.draw() >>> 6)) / 2 ** 53;
  }

  uuid(): string {
    const bits = Buffer.alloc(16);
    for (let at = 12; at >= 0; at -= 4) bits.writeUInt32BE(this.draw(), at);
    bits[6] = (bits[6]! & 0x0f) | 0x40;
    bits[8] = (bits[8]! & 0x3f) | 0x80;
    return bits.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
