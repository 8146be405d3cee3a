import assert from "node:assert/strict";
import { test } from "node:test";
import { EncodingError } from "../src/index.js";
import { Raw, read, write } from "../src/json.js";

const SAME = [
  "9007199254740993",
  "-9007199254740993",
  "123456789012345678901234567890",
  "9007199254740991",
  "0.1",
  "1e+300",
  "[]",
  "{}",
  '{"__proto__":{"a":9007199254740993},"constructor":1}',
  '{"a":[1,"9007199254740993",{"b\\"9007199254740993":null}],"c":true}',
  '"\\\\9007199254740993\\\\\\""',
  '"日本語 \u{1F600} 9007199254740993"',
];

for (const text of SAME) {
  test(`${text} is written as it was read`, () => assert.equal(write(read(text)), text));
}

test("integers beyond 2^53 are bigints, all others are numbers", () => {
  assert.deepEqual(read("[9007199254740992,9007199254740991,-9007199254740992,1e20,12345678901234567.0]"), [
    9007199254740992n,
    9007199254740991,
    -9007199254740992n,
    1e20,
    12345678901234567.0,
  ]);
});

test("a long text with many quotes is read quickly", () => {
  const text = '\\"'.repeat(1 << 20);
  assert.equal((read(`["${text}",9007199254740993]`) as string[])[0]!.length, 1 << 20);
});

test("undefined is left out of objects, and is null elsewhere", () => {
  assert.equal(write({ a: undefined, b: [undefined] }), '{"b":[null]}');
  assert.equal(write(undefined), "null");
});

test("dates and raw texts", () => {
  assert.equal(write({ at: new Date(0), raw: new Raw("1.50") }), '{"at":"1970-01-01T00:00:00.000Z","raw":1.50}');
});

const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)]);

const REFUSED: [string, unknown, RegExp][] = [
  ["NaN", { a: NaN }, /the value\.a is NaN/],
  ["Infinity", [1, Infinity], /the value\[1\] is Infinity/],
  ["a Map", new Map([[1, 2]]), /is a Map/],
  ["a Set", { a: new Set([1]) }, /is a Set/],
  ["bytes", new Uint8Array(2), /is a Uint8Array/],
  ["a promise", Promise.resolve(1), /is an await missing/],
  ["a function", { f: () => 1 }, /is a function/],
  ["a symbol", Symbol("a"), /is a symbol/],
  ["half of a surrogate pair", "\ud800", /surrogate/],
  ["NUL", { "a\0": 1 }, /NUL/],
  ["too many levels", deep(65), /64 levels/],
];

for (const [name, value, why] of REFUSED) {
  test(`${name} is refused, not changed`, () => {
    assert.throws(() => write(value), (error) => error instanceof EncodingError && why.test(error.message));
  });
}

test("64 levels are allowed", () => assert.equal(write(deep(64)).length, 129));
